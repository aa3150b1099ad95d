/* What the sources of the compiled kernel share. */
#ifndef DLROVER_NB_KERNEL_H
#define DLROVER_NB_KERNEL_H
#include <stdint.h>

/* numbers of an optimizer; the order is compiled.py's */
typedef struct {
    float rate, beta1, rest1, beta2, rest2, epsilon;
} Rule;

typedef struct Line Line; /* of a map of slots; maps.py says how */

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
