/* Requests that workers ring for (requests.py), served without Python: serving.py's `_exchange`, with the same bits.
 *
 * What is not plain is left to Python: another epoch, a round or rate of its own, gradients or places that look wrong,
 * new rows for which the map grows. So nothing here answers with an error, and what Python answers does not depend on this file.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store.h"

enum { ANSWERED, MAP_GROWS, NOT_PLAIN, MALFORMED }; /* requests.py's Outcome */
enum { LINE_BYTES = 64 };

static const int64_t MOST_ROWS = 1 << 26;
static const uint32_t USUAL = 0x501502F9u; /* bits of 1e10f: so many numbers of this size have a usable norm */

typedef struct {
    int64_t epoch, step, at, n_push, width, n_dense, n_pull, answer_at;
    double rate;
} Request;

typedef struct {
    int64_t epoch, step, at, n_row, width, n_dense;
    double update_s, lookup_s;
} Answer;

/* A worker's slab and bell. */
typedef struct {
    uint8_t *slab;
    int64_t n_slab;
    int32_t ask, answers; /* descriptors */
    int64_t step;         /* the last one that was answered by bell */
    int64_t is_open;      /* whether the worker is served */
    int64_t pending;      /* why a request waits for Python; 0: none does */
    Request request;
    Answer answer;
} Bell;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether all magnitudes are such that their norm is usable; NaN and infinities are above any number. */
static int is_usual(const float *numbers, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        bits &= 0x7FFFFFFFu;
        most = bits > most ? bits : most;
    }
    return most <= USUAL;
}

static int are_within(const int64_t *ids, int64_t n, uint64_t limit)
{
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = (uint64_t)ids[i] > most ? (uint64_t)ids[i] : most;
    return !n || most < limit;
}

static int64_t aligned(int64_t n_byte)
{
    return (n_byte + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Whether n bytes at `at` lie in the slab, where a cache line begins. */
static int lies_in(const Bell *bell, int64_t at, int64_t n_byte)
{
    return at >= 0 && at % LINE_BYTES == 0 && at <= bell->n_slab && n_byte <= bell->n_slab - at;
}

static int is_plain(const Store *store, const Bell *bell)
{
    const Request *r = &bell->request;
    if (!bell->is_open || r->epoch != store->epoch || r->step <= bell->step || r->rate != 1.0)
        return 0;
    if (r->n_push < 0 || r->n_push > MOST_ROWS || r->n_pull < 0 || r->n_pull > MOST_ROWS)
        return 0;
    return (!r->n_push || r->width == store->width) && (!r->n_dense || r->n_dense == store->n_dense);
}

/* served.py's ServedRows.count */
static void count_served(Store *store, const int64_t *ids, int64_t n)
{
    if (!n)
        return;
    store->served[1] += n;
    const uint32_t turn = (uint32_t)++store->served[0] * 2654435769u;
    if (store->served[2] && turn >= store->sample_below)
        return;
    store->served[2] = 1;
    for (int64_t i = 0; i < n; i++)
        store->sampled[ids[i] & (store->n_bucket - 1)]++;
}

typedef struct {
    const float *rows, *dense;
    float *row_answer, *dense_answer;
} Places;

static void apply(Store *store, const Request *r, const Places *at, const int64_t *ids, const int32_t *slots)
{
    if (r->n_push) {
        count_served(store, ids, r->n_push);
        store->n_step++;
        for (int64_t i = 0; i < r->n_push; i++)
            store->changed[slots[i]] = 1;
        update_rows(store->kind, store->table, store->stride, slots, at->rows, r->n_push, store->width, store->rule,
                    store->corrections, store->n_correction);
    }
    if (r->n_dense) {
        store->n_step++;
        update_dense(store->kind, store->dense, at->dense, r->n_dense, store->rule, store->corrections,
                     store->n_correction);
    }
}

static void look_up_rows(Store *store, const Request *r, const Places *at, const int64_t *ids, const int32_t *slots)
{
    count_served(store, ids, r->n_pull);
    gather(at->row_answer, store->table, store->stride, slots, ids, r->n_pull, store->width, store->seed_bits,
           store->amplitude);
    memcpy(at->dense_answer, store->dense, (size_t)store->n_dense * sizeof(float));
}

static int serve_with(Store *store, Bell *bell, int64_t *ids, int32_t *slots)
{
    const Request *r = &bell->request;
    const int64_t n = r->n_push + r->n_pull, row_bytes = store->width * (int64_t)sizeof(float);
    const int64_t rows_at = r->at + aligned(r->n_push * 8), dense_at = rows_at + aligned(r->n_push * row_bytes);
    const int64_t pull_at = dense_at + aligned(r->n_dense * 4);
    const int64_t dense_answer_at = r->answer_at + aligned(r->n_pull * row_bytes);
    if (!lies_in(bell, r->at, r->n_push * 8) || !lies_in(bell, rows_at, r->n_push * row_bytes) ||
        !lies_in(bell, dense_at, r->n_dense * 4) || !lies_in(bell, pull_at, r->n_pull * 8) ||
        !lies_in(bell, r->answer_at, r->n_pull * row_bytes) || !lies_in(bell, dense_answer_at, store->n_dense * 4))
        return NOT_PLAIN;
    const Places at = {(const float *)(bell->slab + rows_at), (const float *)(bell->slab + dense_at),
                       (float *)(bell->slab + r->answer_at), (float *)(bell->slab + dense_answer_at)};
    const double began_s = now_s();
    memcpy(ids, bell->slab + r->at, (size_t)r->n_push * 8); /* the worker could change them after the check */
    memcpy(ids + r->n_push, bell->slab + pull_at, (size_t)r->n_pull * 8);
    if (!are_within(ids, n, store->n_id) || !is_usual(at.rows, r->n_push * store->width) ||
        !is_usual(at.dense, r->n_dense))
        return NOT_PLAIN;
    find_rows(store, slots, ids, r->n_push);
    if (!create_rows(store, slots, ids, r->n_push))
        return MAP_GROWS;
    apply(store, r, &at, ids, slots);
    const double updated_s = now_s();
    find_rows(store, slots + r->n_push, ids + r->n_push, r->n_pull);
    look_up_rows(store, r, &at, ids + r->n_push, slots + r->n_push);
    const double update_s = updated_s - began_s, lookup_s = now_s() - updated_s;
    bell->answer = (Answer){r->epoch, r->step, r->answer_at, r->n_pull, store->width, store->n_dense, update_s, lookup_s};
    store->update_s += update_s;
    store->lookup_s += lookup_s;
    return ANSWERED;
}

static void ring(const Bell *bell)
{
    /* one answer is pending at most, so the pipe has room; a lost one is asked for again */
    if (write(bell->answers, &bell->answer, sizeof bell->answer) < 0)
        return;
}

/* Serve the request of a bell; what is left to Python is `pending`. */
void serve_one(Store *store, Bell *bell)
{
    const Request *r = &bell->request;
    bell->pending = NOT_PLAIN;
    if (bell->is_open && r->epoch == store->epoch && r->step <= bell->step) {
        bell->pending = ANSWERED;
        ring(bell);
        return;
    }
    if (!is_plain(store, bell) || store->n_step + 2 > store->most_steps)
        return;
    const size_t n = (size_t)(r->n_push + r->n_pull) + 1;
    int64_t *ids = malloc(n * sizeof *ids);
    int32_t *slots = malloc(n * sizeof *slots);
    if (ids && slots)
        bell->pending = serve_with(store, bell, ids, slots);
    free(ids);
    free(slots);
    if (bell->pending == ANSWERED) {
        bell->step = r->step;
        store->n_answered++;
        ring(bell);
    }
}

/* Whether a request was read whole. */
static int read_request(Bell *bell)
{
    const ssize_t n = read(bell->ask, &bell->request, sizeof bell->request);
    if (n == (ssize_t)sizeof bell->request)
        return 1;
    bell->pending = n < 0 ? ANSWERED : MALFORMED;
    return 0;
}

/* Serve plain requests for at most `timeout_s`, until another one waits for Python or one of the last `n_other`
 * descriptors is ready. `fds` has room for both kinds; its last ones are filled in. */
void serve(Store *store, Bell *const *bells, int64_t n_bell, struct pollfd *fds, int64_t n_other, double timeout_s)
{
    const double until_s = now_s() + timeout_s;
    for (int64_t i = 0; i < n_bell; i++)
        fds[i] = (struct pollfd){bells[i]->ask, POLLIN, 0};
    for (int is_over = 0; !is_over;) {
        const double left_s = until_s - now_s();
        is_over = left_s <= 0;
        if (poll(fds, (nfds_t)(n_bell + n_other), is_over ? 0 : (int)(left_s * 1e3) + 1) <= 0)
            continue;
        for (int64_t i = 0; i < n_bell; i++) {
            if (fds[i].revents && read_request(bells[i]))
                serve_one(store, bells[i]);
            is_over |= bells[i]->pending != ANSWERED;
        }
        for (int64_t i = n_bell; i < n_bell + n_other; i++)
            is_over |= fds[i].revents != 0;
    }
}
