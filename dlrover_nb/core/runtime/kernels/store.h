/* A store that serves plain requests: `Parameters` of requests.py. */
#ifndef DLROVER_NB_STORE_H
#define DLROVER_NB_STORE_H
#include "kernel.h"

typedef struct {
    int64_t epoch;
    float *table;
    int64_t stride, width;
    int64_t *held;             /* the id of each row */
    uint8_t *changed, *marked; /* marks of each row */
    int64_t n_row, most_rows, *n_held; /* rows, how many there may be, and of each bucket */
    uint64_t n_id;
    int32_t *direct; /* NULL: the map is of `lines` */
    Line *lines;
    uint64_t last;
    const int32_t *directory;
    int64_t depth, *n_in_piece, n_piece;
    int64_t early, most_in_piece; /* rows of a piece from which the map may split it, and must */
    float *dense;
    int64_t n_dense;
    int64_t kind;
    const Rule *rule;
    const float *corrections;
    int64_t n_correction, n_step, most_steps;
    uint64_t seed_bits;
    int64_t *served, *sampled; /* numbers of requests and rows, and whether there is a sample; rows by bucket */
    int64_t n_bucket, sample_below;
    double update_s, lookup_s;
    int64_t n_answered;
    float amplitude, first_state;
} Store;

void find_rows(const Store *store, int32_t *slots, const int64_t *ids, int64_t n);
int create_rows(Store *store, int32_t *slots, const int64_t *ids, int64_t n);
#endif
