/* The inner loops of a parameter server and of a worker's batches: numpy_kernel.py, with the same bits.
 *
 * Random rows of a table of gigabytes are what costs, so each loop over rows asks for the memory of rows
 * ahead. Compiled for any processor of the platform; where the compiler can, with a second version for AVX2
 * that is chosen when the library is loaded. No contraction to fused operations and no fast mathematics:
 * each float must be what numpy gives.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#if defined(__SANITIZE_THREAD__) /* a version would be chosen before the sanitizer is ready */
#define FAST
#elif defined(__x86_64__) && defined(__GLIBC__) && (!defined(__clang__) || __clang_major__ >= 14)
#define FAST __attribute__((target_clones("avx2", "default")))
#else
#define FAST
#endif

#define INLINE static inline __attribute__((always_inline))
#define LINE 16 /* floats of a cache line */

enum { AHEAD = 16, PLACES_AHEAD = 16, LINES_AHEAD = 32 };
enum { SGD, ADAGRAD, ADAM };

/* compiled.py takes no other; raise it with each change of a signature. Structs are compared one by one: layouts.c. */
int version(void)
{
    return 18;
}

_Static_assert(FLT_MANT_DIG == 24 && FLT_MAX_EXP == 128, "bits of floats are read as those of IEEE 754");

INLINE uint64_t splitmix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

INLINE void initial_row(float *row, int64_t id, int64_t width, uint64_t seed_bits, float amplitude)
{
    for (int64_t i = 0; i + 1 < width; i++) {
        uint64_t bits = splitmix64((uint64_t)id * (uint64_t)width + (uint64_t)i + seed_bits);
        row[i] = ((float)(int32_t)(bits >> 40) * 0x1p-23f - 1.0f) * amplitude;
    }
    row[width - 1] = 0.0f;
}

/* All cache lines of n floats, the last one too when `at` is not where a line begins. */
#define PREFETCH(at, n, for_write)                              \
    do {                                                        \
        for (int64_t i_ = 0; i_ < (n); i_ += LINE)              \
            __builtin_prefetch((at) + i_, for_write);           \
        __builtin_prefetch((at) + (n) - 1, for_write);          \
    } while (0)

/* ---- rows ---- */

void initial_rows(float *out, int64_t stride, const int64_t *ids, int64_t n, int64_t width, uint64_t seed_bits,
                  float amplitude)
{
    for (int64_t r = 0; r < n; r++)
        initial_row(out + r * stride, ids[r], width, seed_bits, amplitude);
}

/* `order`: which ids and places in `out` the slots belong to; NULL: each to its own. */
void gather(float *restrict out, const float *restrict table, int64_t stride, const int32_t *slots,
            const int32_t *order, const int64_t *ids, int64_t n, int64_t width, uint64_t seed_bits, float amplitude)
{
    for (int64_t r = 0; r < n; r++) {
        if (r + AHEAD < n && slots[r + AHEAD] >= 0)
            PREFETCH(table + slots[r + AHEAD] * stride, width, 0);
        const int64_t to = order ? order[r] : r;
        if (slots[r] >= 0)
            memcpy(out + to * width, table + slots[r] * stride, (size_t)width * sizeof(float));
        else
            initial_row(out + to * width, ids[to], width, seed_bits, amplitude);
    }
}

/* ---- optimizers; `count` of Adam is one for all n elements ---- */

/* Gradients are checked as a whole before any is applied. In memory that a worker shares it may write others then: one
 * that no check passes (gradients.py, LARGEST_NORM) is taken for none. */
INLINE float usable(float gradient)
{
    return fabsf(gradient) <= 4e15f ? gradient : 0.0f;
}

INLINE void sgd(float *restrict values, const float *restrict grad, int64_t n, const Rule *rule)
{
    const float rate = rule->rate;
    for (int64_t i = 0; i < n; i++)
        values[i] -= usable(grad[i]) * rate;
}

INLINE void adagrad(float *restrict values, float *restrict sums, const float *restrict grad, int64_t n,
                    const Rule *rule)
{
    const float rate = rule->rate;
    for (int64_t i = 0; i < n; i++) {
        const float g = usable(grad[i]), sum = sums[i] + g * g;
        sums[i] = sum;
        values[i] -= g / sqrtf(sum) * rate;
    }
}

INLINE float adam(float *m, float *v, float grad, float step, float root, const Rule *rule)
{
    *m = *m * rule->beta1 + grad * rule->rest1;
    *v = *v * rule->beta2 + grad * grad * rule->rest2;
    return *m / (sqrtf(*v) * root + rule->epsilon) * step;
}

INLINE const float *correction(float *count, const float *corrections, int64_t n_correction)
{
    int64_t steps = (int64_t)(*count += 1.0f);
    return corrections + 2 * (steps < n_correction ? steps : n_correction - 1);
}

INLINE void adam_row(float *restrict row, const float *restrict grad, int64_t n, const Rule *rule,
                     const float *corrections, int64_t n_correction)
{
    const float *at = correction(row + 3 * n, corrections, n_correction);
    const float step = at[0], root = at[1];
    float *restrict m = row + n, *restrict v = row + 2 * n;
    for (int64_t i = 0; i < n; i++)
        row[i] -= adam(m + i, v + i, usable(grad[i]), step, root, rule);
}

/* `order`: which gradients the slots belong to; NULL: each to its own. */
FAST void update_rows(int64_t kind, float *table, int64_t stride, const int32_t *slots, const int32_t *order,
                      const float *grad, int64_t n, int64_t width, const Rule *rule, const float *corrections,
                      int64_t n_correction)
{
    for (int64_t r = 0; r < n; r++) {
        if (r + AHEAD < n) {
            PREFETCH(table + slots[r + AHEAD] * stride, stride, 1);
            if (order)
                PREFETCH(grad + order[r + AHEAD] * width, width, 0);
        }
        float *row = table + slots[r] * stride;
        const float *g = grad + (order ? order[r] : r) * width;
        switch (kind) {
        case SGD:
            sgd(row, g, width, rule);
            break;
        case ADAGRAD:
            adagrad(row, row + width, g, width, rule);
            break;
        default:
            adam_row(row, g, width, rule, corrections, n_correction);
        }
    }
}

/* Whether all magnitudes are such that their norm is usable; NaN and infinities are above any number. */
FAST int are_usual(const float *numbers, int64_t n)
{
    const uint32_t usual = 0x501502F9u; /* bits of 1e10f: so many numbers of this size have a usable norm */
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        bits &= 0x7FFFFFFFu;
        most = bits > most ? bits : most;
    }
    return most <= usual;
}

/* n elements, whose states lie `stride` elements apart. */
FAST void update_dense(int64_t kind, float *dense, int64_t stride, const float *grad, int64_t n, const Rule *rule,
                       const float *corrections, int64_t n_correction)
{
    switch (kind) {
    case SGD:
        sgd(dense, grad, n, rule);
        break;
    case ADAGRAD:
        adagrad(dense, dense + stride, grad, n, rule);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            const float *at = correction(dense + 3 * stride + i, corrections, n_correction);
            dense[i] -= adam(dense + stride + i, dense + 2 * stride + i, usable(grad[i]), at[0], at[1], rule);
        }
    }
}

/* store/dense.py's DenseSlice.average; as with gradients, a share may have changed since it was checked. */
void average_dense(float *values, const double *decay, const float *shares, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float share = shares[i];
        if (fabsf(share) <= FLT_MAX)
            values[i] = (float)(decay[i] * (double)values[i] + (double)share);
    }
}

/* ---- maps from ids to slots ---- */

void direct_find(int32_t *restrict out, const int32_t *restrict slots, const int64_t *restrict ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + PLACES_AHEAD < n)
            __builtin_prefetch(slots + ids[i + PLACES_AHEAD], 0);
        out[i] = slots[ids[i]] - 1;
    }
}

/* Lanes of a line with this tag, as bits. */
INLINE uint32_t lanes(const Line *line, uint8_t tag)
{
#ifdef __SSE2__
    const __m128i tags = _mm_loadu_si128((const __m128i *)line);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag))) & ((1u << LANES) - 1);
#else
    uint32_t found = 0;
    for (int i = 0; i < LANES; i++)
        found |= (uint32_t)(line->tags[i] == tag) << i;
    return found;
#endif
}

typedef struct {
    uint64_t line;
    uint8_t tag;
} Home;

INLINE Home home_of(int64_t id, uint64_t last, const int32_t *directory, int64_t depth)
{
    const uint64_t mixed = splitmix64((uint64_t)id);
    const uint8_t tag = (uint8_t)mixed;
    return (Home){(uint64_t)directory[mixed >> (64 - depth)] * (last + 1) + (mixed >> 8 & last), tag ? tag : 1};
}

INLINE uint64_t next_line(uint64_t at, uint64_t last)
{
    return (at & ~last) | ((at + 1) & last);
}

INLINE int32_t slot_of(const Line *lines, uint64_t last, Home home, const int64_t *held, int64_t id)
{
    uint64_t at = home.line;
    for (uint64_t n = 0; n <= last; n++) {
        for (uint32_t found = lanes(lines + at, home.tag); found; found &= found - 1) {
            const int32_t slot = lines[at].slots[__builtin_ctz(found)];
            if (held[slot] == id)
                return slot;
        }
        if (!lines[at].n_passed)
            break;
        at = next_line(at, last);
    }
    return -1;
}

/* In three steps, each LINES_AHEAD ids behind the one before: ask for the line, for the id that it names, compare. */
void slot_find(int32_t *restrict out, const Line *restrict lines, uint64_t last, const int32_t *restrict directory,
               int64_t depth, const int64_t *restrict held, const int64_t *restrict ids, int64_t n)
{
    Home homes[2 * LINES_AHEAD];
    for (int64_t i = 0; i < n + 2 * LINES_AHEAD; i++) {
        Home *home = homes + i % (2 * LINES_AHEAD);
        const int64_t named = i - LINES_AHEAD, asked = i - 2 * LINES_AHEAD;
        if (asked >= 0)
            out[asked] = slot_of(lines, last, *home, held, ids[asked]);
        if (i < n) {
            *home = home_of(ids[i], last, directory, depth);
            __builtin_prefetch(lines + home->line, 0);
        }
        if (named >= 0 && named < n) {
            home = homes + named % (2 * LINES_AHEAD);
            const uint32_t found = lanes(lines + home->line, home->tag);
            if (found)
                __builtin_prefetch(held + lines[home->line].slots[__builtin_ctz(found)], 0);
        }
    }
}

/* Add `each` to the counts of pieces for each id. */
void slot_count(int64_t *restrict counts, const int32_t *restrict directory, int64_t depth, const int64_t *restrict ids,
                int64_t n, int64_t each)
{
    for (int64_t i = 0; i < n; i++)
        counts[directory[splitmix64((uint64_t)ids[i]) >> (64 - depth)]] += each;
}

void slot_place(Line *restrict lines, uint64_t last, const int32_t *restrict directory, int64_t depth,
                const int64_t *restrict ids, const int32_t *restrict slots, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + PLACES_AHEAD < n)
            __builtin_prefetch(lines + home_of(ids[i + PLACES_AHEAD], last, directory, depth).line, 1);
        const Home home = home_of(ids[i], last, directory, depth);
        uint64_t at = home.line;
        uint32_t is_free;
        while (!(is_free = lanes(lines + at, 0))) {
            lines[at].n_passed++;
            at = next_line(at, last);
        }
        const int lane = __builtin_ctz(is_free);
        lines[at].tags[lane] = home.tag;
        lines[at].slots[lane] = slots[i];
    }
}

void slot_replace(Line *restrict lines, uint64_t last, const int32_t *restrict directory, int64_t depth,
                  const int64_t *restrict ids, const int32_t *restrict slots, const int32_t *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + PLACES_AHEAD < n)
            __builtin_prefetch(lines + home_of(ids[i + PLACES_AHEAD], last, directory, depth).line, 1);
        const Home home = home_of(ids[i], last, directory, depth);
        for (uint64_t at = home.line;; at = next_line(at, last)) {
            uint32_t found = lanes(lines + at, home.tag);
            while (found && lines[at].slots[__builtin_ctz(found)] != slots[i])
                found &= found - 1;
            if (found) {
                const int lane = __builtin_ctz(found);
                lines[at].slots[lane] = to[i];
                if (to[i] < 0)
                    lines[at].tags[lane] = 0;
                break;
            }
            if (to[i] < 0)
                lines[at].n_passed--;
        }
    }
}

/* ---- batches ---- */

/* Distinct ids in the order in which they come; `seen` [mask + 1] is zero. Returns how many. */
int64_t distinct(int64_t *restrict rows, int64_t *restrict inverse, int32_t *restrict seen, uint64_t mask,
                 const int64_t *restrict ids, int64_t n)
{
    int64_t n_row = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = splitmix64((uint64_t)ids[i]) & mask;
        while (seen[at] && rows[seen[at] - 1] != ids[i])
            at = (at + 1) & mask;
        if (!seen[at]) {
            rows[n_row++] = ids[i];
            seen[at] = (int32_t)n_row;
        }
        inverse[i] = seen[at] - 1;
    }
    return n_row;
}

/* Whether no id comes twice; `seen` [mask + 1] is zero. */
int are_distinct(int32_t *restrict seen, uint64_t mask, const int64_t *restrict ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = splitmix64((uint64_t)ids[i]) & mask;
        for (; seen[at]; at = (at + 1) & mask)
            if (ids[seen[at] - 1] == ids[i])
                return 0;
        seen[at] = (int32_t)(i + 1);
    }
    return 1;
}

/* Rows side by side by their owner, in their order otherwise; `counts` [n_owner] is zero. */
void group(int64_t *restrict out, int64_t *restrict place, int64_t *restrict counts, int64_t n_owner,
           const int64_t *restrict rows, int64_t n, const int64_t *restrict owner, int64_t n_bucket)
{
    for (int64_t i = 0; i < n; i++)
        counts[owner[(uint64_t)rows[i] % (uint64_t)n_bucket]]++;
    int64_t start = 0;
    for (int64_t o = 0; o < n_owner; o++) { /* counts become where each begins */
        int64_t count = counts[o];
        counts[o] = start;
        start += count;
    }
    for (int64_t i = 0; i < n; i++) {
        place[i] = counts[owner[(uint64_t)rows[i] % (uint64_t)n_bucket]]++;
        out[place[i]] = rows[i];
    }
    for (int64_t o = n_owner - 1; o > 0; o--) /* where each ends becomes its length again */
        counts[o] -= counts[o - 1];
}

void look_up(int64_t *restrict out, const int64_t *restrict values, const int64_t *restrict at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = values[at[i]];
}

/* ---- sums of gradients ---- */

/* Add to each place [width] a row of the same number, times `weight`; places are distinct. */
FAST void add_rows(float *restrict out, const int64_t *restrict places, const float *restrict rows, float weight,
                   int64_t n, int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        float *to = out + places[i] * width;
        const float *row = rows + i * width;
        if (i + AHEAD < n)
            __builtin_prefetch(out + places[i + AHEAD] * width, 1);
        for (int64_t j = 0; j < width; j++)
            to[j] += weight * row[j];
    }
}
