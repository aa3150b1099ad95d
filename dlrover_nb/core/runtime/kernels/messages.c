/* Requests that came in messages (wire.py), read and answered without an object of Python for each of their parts: the
 * same `exchange` as for what is rung, and the head of the answer as wire.py writes it, byte for byte.
 *
 * Python receives the frames of a message, opens their seal, and seals and sends those of the answer. In between it
 * calls `read_message`, makes room for the answer, and calls `answer_message`. What is not plain is left to Python, as
 * in serve.c, and so is whatever looks odd: so nothing here answers with an error either. Frames come from anywhere.
 * No length in them is used before it is compared with what is there, and none is added to another one before.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MOST_HEAD_BYTES = 1 << 20, MOST_FRAME_BYTES = 256 << 20, INLINE_BYTES = 16 << 10 }; /* wire.py's */
enum { IS_INLINE = 0x40, FLOAT32 = 0, INT64 = 3, ALIGNMENT = 8, WIRE_VERSION = 1 };

/* wire.py's arrays are little-endian, and are used as they lie */
enum { IS_LITTLE_ENDIAN = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ };

/* What is left of a frame. */
typedef struct {
    const uint8_t *at, *end;
} Text;

static int has(const Text *text, int64_t n)
{
    return text->end - text->at >= n;
}

/* ---- reading ---- */

static uint64_t big_endian(const uint8_t *at, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++)
        value = value << 8 | at[i];
    return value;
}

static int64_t sign_extended(uint64_t value, int n_byte)
{
    const int shift = 64 - 8 * n_byte;
    return (int64_t)(value << shift) >> shift;
}

/* A whole number of msgpack, of any length; whether there is one that an int64 holds. */
static int read_int(Text *text, int64_t *value)
{
    if (!has(text, 1))
        return 0;
    const uint8_t kind = *text->at++;
    if (kind < 0x80 || kind >= 0xe0) {
        *value = (int8_t)kind;
        return 1;
    }
    const int is_signed = kind >= 0xd0 && kind <= 0xd3, n = 1 << (kind & 3);
    if ((!is_signed && !(kind >= 0xcc && kind <= 0xcf)) || !has(text, n))
        return 0;
    const uint64_t number = big_endian(text->at, n);
    text->at += n;
    *value = is_signed ? sign_extended(number, n) : (int64_t)number;
    return is_signed || number <= INT64_MAX;
}

static int read_float(Text *text, double *value)
{
    if (!has(text, 9) || *text->at != 0xcb)
        return 0;
    const uint64_t bits = big_endian(text->at + 1, 8);
    memcpy(value, &bits, sizeof bits);
    text->at += 9;
    return 1;
}

static int read_nil(Text *text)
{
    return has(text, 1) && *text->at++ == 0xc0;
}

static int is_next(Text *text, const char *word)
{
    const size_t n = strlen(word);
    if (!has(text, (int64_t)n + 1) || *text->at != (0xa0 | n) || memcmp(text->at + 1, word, n) != 0)
        return 0;
    text->at += n + 1;
    return 1;
}

enum { HAS_EPOCH = 1, HAS_STEP = 2 };

/* Read a field of an `Exchange` and its value; which of the two it was that each one has, 0: another; -1: not plain. */
static int read_field(Text *text, Request *r)
{
    if (is_next(text, "ps_epoch"))
        return read_int(text, &r->epoch) ? HAS_EPOCH : -1;
    if (is_next(text, "step"))
        return read_int(text, &r->step) ? HAS_STEP : -1;
    if (is_next(text, "answer_at"))
        return read_int(text, &r->answer_at) ? 0 : -1;
    if (is_next(text, "n_row"))
        return read_int(text, &r->n_row) ? 0 : -1;
    if (is_next(text, "rate"))
        return read_float(text, &r->rate) ? 0 : -1;
    const int is_special = is_next(text, "done") || is_next(text, "form") || is_next(text, "n_step") ||
                           is_next(text, "part");
    return is_special && read_nil(text) ? 0 : -1;
}

/* Read the record up to the end of the frame; whether it is an `Exchange` that may be plain. */
static int read_record(Text *text, Request *r)
{
    if (!has(text, 1) || *text->at++ != 0x92 || !is_next(text, "Exchange") || !has(text, 1))
        return 0;
    const uint8_t map = *text->at++;
    if ((map & 0xf0) != 0x80)
        return 0;
    int fields = 0;
    for (int i = 0; i < (map & 0x0f); i++) {
        const int field = read_field(text, r);
        if (field < 0 || (fields & field))
            return 0;
        fields |= field;
    }
    return fields == (HAS_EPOCH | HAS_STEP) && text->at == text->end && r->rate == 1.0 && !r->n_row &&
           r->answer_at == NO_SLAB;
}

/* An array of a message: numbers of so many bytes, in rows of so many where it has two dimensions. */
typedef struct {
    uint64_t n, width;
    int is_inline;
} Header;

static uint64_t little_endian(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* Whether an array of this type and so many dimensions follows, of a length that a message may have. */
static int read_header(Text *text, uint8_t type, uint8_t n_dimension, Header *header)
{
    if (!has(text, 2 + 8 * n_dimension) || (text->at[0] & ~IS_INLINE) != type || text->at[1] != n_dimension)
        return 0;
    header->is_inline = text->at[0] != type;
    header->n = little_endian(text->at + 2);
    header->width = n_dimension == 2 ? little_endian(text->at + 10) : 1;
    text->at += 2 + 8 * n_dimension;
    return header->n <= MOST_FRAME_BYTES && header->width <= MOST_FRAME_BYTES;
}

/* Where an array lies: in the first frame from `at` on, or in the next one; NULL: it does not. */
static const uint8_t *array_of(const Message *m, Text *text, int64_t *next, const Header *header, uint64_t item_bytes)
{
    const uint64_t n_byte = header->n * header->width * item_bytes; /* each is at most 2^28: no overflow */
    if (!header->is_inline) {
        const int64_t i = (*next)++;
        return i < m->n_frame && n_byte <= MOST_FRAME_BYTES && (uint64_t)m->n_byte[i] == n_byte ? m->frames[i] : NULL;
    }
    const int64_t padding = -(text->at - m->frames[0]) & (ALIGNMENT - 1);
    if (n_byte > MOST_HEAD_BYTES || !has(text, padding + (int64_t)n_byte))
        return NULL;
    const uint8_t *array = text->at + padding;
    text->at = array + n_byte;
    return array;
}

/* Read a message; whether it is an exchange that may be plain: its request, and where its arrays lie. */
int64_t read_message(Message *m)
{
    enum { N_ARRAY = 4 };
    static const uint8_t types[N_ARRAY] = {INT64, FLOAT32, FLOAT32, INT64}, n_dimensions[N_ARRAY] = {1, 2, 1, 1};
    Header headers[N_ARRAY];
    int64_t next = 1;
    if (!IS_LITTLE_ENDIAN || m->n_frame < 1 || m->n_frame > MOST_FRAMES || m->n_byte[0] > MOST_HEAD_BYTES)
        return 0;
    Text text = {m->frames[0], m->frames[0] + m->n_byte[0]};
    if (!has(&text, 4) || memcmp(text.at, "DN", 2) != 0 || text.at[2] != WIRE_VERSION || text.at[3] != N_ARRAY)
        return 0;
    text.at += 4;
    for (int i = 0; i < N_ARRAY; i++)
        if (!read_header(&text, types[i], n_dimensions[i], headers + i))
            return 0;
    for (int i = 0; i < N_ARRAY; i++)
        if (!(m->arrays[i] = array_of(m, &text, &next, headers + i, types[i] == INT64 ? 8 : 4)))
            return 0;
    m->request = (Request){.n_push = (int64_t)headers[0].n, .width = (int64_t)headers[1].width,
                           .n_dense = (int64_t)headers[2].n, .n_pull = (int64_t)headers[3].n,
                           .answer_at = NO_SLAB, .rate = 1.0};
    return next == m->n_frame && headers[1].n == headers[0].n && read_record(&text, &m->request);
}

/* ---- the answer ---- */

static uint8_t *put_big_endian(uint8_t *to, uint8_t kind, uint64_t value, int n)
{
    *to++ = kind;
    for (int i = n - 1; i >= 0; i--)
        *to++ = (uint8_t)(value >> 8 * i);
    return to;
}

/* A whole number that is not negative, as short as msgpack has it. */
static uint8_t *put_count(uint8_t *to, int64_t value)
{
    const uint64_t count = (uint64_t)value;
    if (count < 0x80) {
        *to++ = (uint8_t)count;
        return to;
    }
    const int kind = count <= UINT8_MAX ? 0 : count <= UINT16_MAX ? 1 : count <= UINT32_MAX ? 2 : 3;
    return put_big_endian(to, (uint8_t)(0xcc + kind), count, 1 << kind);
}

static uint8_t *put_word(uint8_t *to, const char *word)
{
    const size_t n = strlen(word);
    *to++ = (uint8_t)(0xa0 | n);
    memcpy(to, word, n);
    return to + n;
}

static uint8_t *put_number(uint8_t *to, const char *name, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put_big_endian(put_word(to, name), 0xcb, bits, 8);
}

static uint8_t *put_record(uint8_t *to, const Answer *answer)
{
    *to++ = 0x92;
    to = put_word(to, "Exchanged");
    *to++ = 0x86;
    to = put_count(put_word(to, "ps_epoch"), answer->epoch);
    to = put_count(put_word(to, "step"), answer->step);
    to = put_number(to, "update_s", answer->update_s);
    to = put_number(to, "lookup_s", answer->lookup_s);
    to = put_number(to, "scale", 1.0);
    return put_number(to, "dense_scale", 1.0);
}

static uint8_t *put_header(uint8_t *to, int64_t n_byte, int n_dimension, const int64_t *shape)
{
    *to++ = FLOAT32 | (n_byte <= INLINE_BYTES ? IS_INLINE : 0);
    *to++ = (uint8_t)n_dimension;
    memcpy(to, shape, (size_t)n_dimension * 8);
    return to + 8 * n_dimension;
}

/* A small array lies in the head, where numbers may begin; a larger one has a frame. */
static uint8_t *put_array(uint8_t *to, const uint8_t *head, const float *array, int64_t n_byte)
{
    if (n_byte > INLINE_BYTES)
        return to;
    while ((to - head) & (ALIGNMENT - 1))
        *to++ = 0;
    if (n_byte) /* of no rows there may be no memory */
        memcpy(to, array, (size_t)n_byte);
    return to + n_byte;
}

/* Write the first frame of the answer; its length. */
static int64_t put_head(const Message *m)
{
    const Answer *answer = &m->answer;
    const int64_t shape[] = {answer->n_row, answer->width};
    const int64_t row_bytes = answer->n_row * answer->width * (int64_t)sizeof(float);
    const int64_t dense_bytes = answer->n_dense * (int64_t)sizeof(float);
    uint8_t *to = m->head;
    memcpy(to, "DN\1\2", 4);
    to = put_header(to + 4, row_bytes, 2, shape);
    to = put_header(to, dense_bytes, 1, &answer->n_dense);
    to = put_array(to, m->head, m->rows, row_bytes);
    to = put_array(to, m->head, m->dense, dense_bytes);
    return put_record(to, answer) - m->head;
}

/* An array where its numbers may lie: a frame, and what is in one, may begin at any byte. */
static const void *aligned_array(const uint8_t *at, int64_t n, int64_t item_bytes, void **copy)
{
    if (!((uintptr_t)at & (uintptr_t)(item_bytes - 1)))
        return at;
    const size_t n_byte = (size_t)(n * item_bytes);
    if ((*copy = malloc(n_byte + 1)))
        memcpy(*copy, at, n_byte);
    return *copy;
}

/* Apply what a message brings that was read, and write its answer; the outcome. `rows`, `dense` and `head` have room. */
int64_t answer_message(Store *store, Message *m)
{
    const Request *r = &m->request;
    void *copies[4] = {NULL, NULL, NULL, NULL};
    if (r->epoch < 0 || r->epoch != store->epoch || r->step < 0 || !are_few(r) || r->width != store->width ||
        (r->n_dense && r->n_dense != store->n_dense))
        return NOT_PLAIN;
    const Arrays arrays = {
        .push = aligned_array(m->arrays[0], r->n_push, sizeof(int64_t), copies),
        .gradients = aligned_array(m->arrays[1], r->n_push * r->width, sizeof(float), copies + 1),
        .dense_gradient = aligned_array(m->arrays[2], r->n_dense, sizeof(float), copies + 2),
        .pull = aligned_array(m->arrays[3], r->n_pull, sizeof(int64_t), copies + 3),
        .rows = m->rows,
        .dense = m->dense,
    };
    int64_t outcome = NOT_PLAIN;
    if (arrays.push && arrays.gradients && arrays.dense_gradient && arrays.pull)
        outcome = exchange_of(store, r, &arrays, &m->answer, m->reader);
    if (outcome == ANSWERED)
        m->n_head = put_head(m);
    for (int i = 0; i < 4; i++)
        free(copies[i]);
    return outcome;
}
