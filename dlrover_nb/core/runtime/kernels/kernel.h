/* What the sources of the compiled kernel share. */
#ifndef DLROVER_NB_KERNEL_H
#define DLROVER_NB_KERNEL_H
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(size_t) >= sizeof(int64_t), "counts of rows and bytes are int64, and become size_t");
_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "numpy's float32 and float64");
_Static_assert(__atomic_always_lock_free(sizeof(int64_t), 0), "threads share counts without a lock");

/* numbers of an optimizer; the order is compiled.py's */
typedef struct {
    float rate, beta1, rest1, beta2, rest2, epsilon;
} Rule;

/* A step of gradients of one class of age: numbers with its rate, and Adam's step sizes. */
typedef struct {
    Rule rule;
    const float *corrections;
    int64_t n_correction;
} Step;

enum { LANES = 12 };

/* A line of a map of slots; maps.py says how. */
typedef struct {
    uint8_t tags[LANES];
    uint32_t n_passed;
    int32_t slots[LANES];
} Line;

_Static_assert(sizeof(Line) == 64, "one line of the cache");

void initial_rows(float *out, int64_t stride, const int64_t *ids, int64_t n, int64_t width, uint64_t seed_bits,
                  float amplitude);
void gather(float *restrict out, const float *restrict table, int64_t stride, const int32_t *slots,
            const int32_t *order, const int64_t *ids, int64_t n, int64_t width, uint64_t seed_bits, float amplitude);
void update_rows(int64_t kind, float *table, int64_t stride, const int32_t *slots, const int32_t *order,
                 const float *grad, int64_t n, int64_t width, const Rule *rule, const float *corrections,
                 int64_t n_correction);
void update_dense(int64_t kind, float *dense, int64_t stride, const float *grad, int64_t n, const Rule *rule,
                  const float *corrections, int64_t n_correction);
void average_dense(float *values, const double *decay, const float *shares, int64_t n);
int are_distinct(int32_t *restrict seen, uint64_t mask, const int64_t *restrict ids, int64_t n);
int are_usual(const float *numbers, int64_t n);
int64_t save_rows(int32_t *slots_to, float *rows_to, const float *table, int64_t stride, const int32_t *slots, int64_t n,
                  uint8_t *saved, int64_t first, int64_t stop);
void direct_find(int32_t *restrict out, const int32_t *restrict slots, const int64_t *restrict ids, int64_t n);
void slot_find(int32_t *restrict out, const Line *restrict lines, uint64_t last, const int32_t *restrict directory,
               int64_t depth, const int64_t *restrict held, const int64_t *restrict ids, int64_t n);
void slot_count(int64_t *restrict counts, const int32_t *restrict directory, int64_t depth, const int64_t *restrict ids,
                int64_t n, int64_t each);
void slot_place(Line *restrict lines, uint64_t last, const int32_t *restrict directory, int64_t depth,
                const int64_t *restrict ids, const int32_t *restrict slots, int64_t n);
#endif
