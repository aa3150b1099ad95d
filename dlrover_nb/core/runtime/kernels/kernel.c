/* The inner loops of a parameter server and of a worker's batches: numpy_kernel.py, with the same bits.
 *
 * Random rows of a table of gigabytes are what costs, so each loop over rows asks for the memory of rows
 * ahead. Compiled for any processor of the platform; where the compiler can, with a second version for AVX2
 * that is chosen when the library is loaded. No contraction to fused operations and no fast mathematics:
 * each float must be what numpy gives.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && (!defined(__clang__) || __clang_major__ >= 14)
#define FAST __attribute__((target_clones("avx2", "default")))
#else
#define FAST
#endif

#define INLINE static inline __attribute__((always_inline))
#define LINE 16 /* floats of a cache line */

enum { AHEAD = 16, PLACES_AHEAD = 16 };
enum { SGD, ADAGRAD, ADAM };

/* compiled.py takes no other; raise it with each change of a signature. */
int version(void)
{
    return 5;
}

/* numbers of an optimizer; the order is compiled.py's */
typedef struct {
    float rate, beta1, rest1, beta2, rest2, epsilon;
} Rule;

typedef struct {
    int64_t id, slot; /* complement of the id, and slot + 1; both 0: free, slot 0: the row is gone */
} Place;

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

void gather(float *restrict out, const float *restrict table, int64_t stride, const int32_t *slots, const int64_t *ids,
            int64_t n, int64_t width, uint64_t seed_bits, float amplitude)
{
    for (int64_t r = 0; r < n; r++) {
        if (r + AHEAD < n && slots[r + AHEAD] >= 0)
            PREFETCH(table + slots[r + AHEAD] * stride, width, 0);
        if (slots[r] >= 0)
            memcpy(out + r * width, table + slots[r] * stride, (size_t)width * sizeof(float));
        else
            initial_row(out + r * width, ids[r], width, seed_bits, amplitude);
    }
}

/* ---- optimizers; `count` of Adam is one for all n elements ---- */

INLINE void sgd(float *restrict values, const float *restrict grad, int64_t n, const Rule *rule)
{
    const float rate = rule->rate;
    for (int64_t i = 0; i < n; i++)
        values[i] -= grad[i] * rate;
}

INLINE void adagrad(float *restrict values, float *restrict sums, const float *restrict grad, int64_t n,
                    const Rule *rule)
{
    const float rate = rule->rate;
    for (int64_t i = 0; i < n; i++) {
        float sum = sums[i] + grad[i] * grad[i];
        sums[i] = sum;
        values[i] -= grad[i] / sqrtf(sum) * rate;
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
        row[i] -= adam(m + i, v + i, grad[i], step, root, rule);
}

FAST void update_rows(int64_t kind, float *table, int64_t stride, const int32_t *slots, const float *grad, int64_t n,
                      int64_t width, const Rule *rule, const float *corrections, int64_t n_correction)
{
    for (int64_t r = 0; r < n; r++) {
        if (r + AHEAD < n)
            PREFETCH(table + slots[r + AHEAD] * stride, stride, 1);
        float *row = table + slots[r] * stride;
        const float *g = grad + r * width;
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

FAST void update_dense(int64_t kind, float *dense, const float *grad, int64_t n, const Rule *rule,
                       const float *corrections, int64_t n_correction)
{
    switch (kind) {
    case SGD:
        sgd(dense, grad, n, rule);
        break;
    case ADAGRAD:
        adagrad(dense, dense + n, grad, n, rule);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            const float *at = correction(dense + 3 * n + i, corrections, n_correction);
            dense[i] -= adam(dense + n + i, dense + 2 * n + i, grad[i], at[0], at[1], rule);
        }
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

/* A map that may be growing: an id whose home in `old` is not before `front` is there, any other in `places`.
 * Where it does not grow, `old` has one place, and `front` is 1. */
#define HOME_OF(id, home, table, last)                                  \
    uint64_t mixed_ = splitmix64((uint64_t)(id));                       \
    const int is_old_ = (mixed_ & old_mask) >= front;                   \
    Place *table = is_old_ ? old : places;                              \
    const uint64_t last = is_old_ ? old_mask : mask;                    \
    uint64_t home = mixed_ & last

void hash_find(int32_t *restrict out, Place *places, uint64_t mask, Place *old, uint64_t old_mask, uint64_t front,
               const int64_t *restrict ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + PLACES_AHEAD < n) {
            HOME_OF(ids[i + PLACES_AHEAD], soon, table, last);
            __builtin_prefetch(table + soon, 0);
        }
        HOME_OF(ids[i], at, table, last);
        while (table[at].id != ~ids[i] && table[at].id)
            at = (at + 1) & last;
        out[i] = (int32_t)(table[at].slot - 1);
    }
}

void hash_place(Place *places, uint64_t mask, Place *old, uint64_t old_mask, uint64_t front,
                const int64_t *restrict ids, const int64_t *restrict slots, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + PLACES_AHEAD < n) {
            HOME_OF(ids[i + PLACES_AHEAD], soon, table, last);
            __builtin_prefetch(table + soon, 1);
        }
        HOME_OF(ids[i], at, table, last);
        while (table[at].id && table[at].id != ~ids[i])
            at = (at + 1) & last;
        table[at] = (Place){~ids[i], slots[i] + 1};
    }
}

/* Rows of places [start, stop) of `old` into `places`, in the order of old homes, so that the memory of both runs on:
 * those of a run that began at the end of `old` (`wrapped`), or all others. */
void hash_move(Place *restrict places, uint64_t mask, const Place *restrict old, uint64_t old_mask, int64_t start,
               int64_t stop, int64_t wrapped)
{
    for (int64_t i = start; i < stop; i++) {
        if (!old[i].slot) /* free, or its row is gone */
            continue;
        uint64_t mixed = splitmix64((uint64_t)~old[i].id);
        if (((mixed & old_mask) > (uint64_t)i) != wrapped)
            continue;
        uint64_t at = mixed & mask;
        while (places[at].id)
            at = (at + 1) & mask;
        places[at] = old[i];
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
