/* A store that serves plain requests: `Parameters` of bell_requests.py. */
#ifndef DLROVER_NB_STORE_H
#define DLROVER_NB_STORE_H
#include <pthread.h>

#include "kernel.h"

enum { STRIPES = 64 };

_Static_assert(STRIPES == 64, "stripes that are left are bits of a number, and a slot's last bits name its own");

/* What threads that serve at the same time hold, never two of them at once but for `saves`, the innermost. Rows
 * belong to a stripe by their slot, dense parameters by where they lie. */
typedef struct {
    pthread_rwlock_t map; /* and the number of rows */
    pthread_mutex_t rows[STRIPES], dense[STRIPES], counts, saves;
} Locks;

/* Where rows are saved before they change, for a copy that another thread makes: `Saving` of copying.py. */
typedef struct {
    int32_t *slots;
    float *rows;
    int64_t room, n, n_promised; /* rows: for which there is room, saved, and those of requests being served at most */
    uint8_t *saved;              /* marks of the rows that are copied */
    int64_t n_row;               /* so many are copied */
    const int64_t *n_copied;     /* so many have been, the first ones */
} Saving;

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
    int64_t n_dense, n_trained; /* elements, and the first ones that are parameters; the others are averages */
    const double *decay;        /* of each average: what a batch leaves of it */
    int64_t kind;
    const Rule *rule;
    const float *corrections;
    int64_t n_correction, n_step, most_steps;
    uint64_t seed_bits;
    int64_t *served, *sampled; /* numbers of requests and rows, and whether there is a sample; rows by bucket */
    int64_t n_bucket, sample_below;
    double update_s, lookup_s, late_s;
    int64_t n_answered;
    const uint8_t *moving; /* whether rows of a bucket are sent elsewhere; NULL: none are */
    int64_t first_unmarked, next_marked; /* slots between which rows are pending without a mark */
    int64_t n_pending;                   /* rows to send */
    Saving *saving;                      /* NULL: no copy is being made */
    float amplitude, first_state;
    const Step *dense_steps; /* of the dense part, by class of age; NULL: all are the own one */
    Locks *locks; /* NULL: one thread serves */
} Store;

/* Distinct rows of a request: their ids, slots, and gradients or room for values. */
typedef struct {
    const int64_t *ids;
    int32_t *slots;
    int64_t n;
    int32_t *sorted, *order; /* room for slots by stripe, and where each was; NULL: one thread serves */
} Rows;

void init_locks(Locks *locks);
void lock_counts(Store *store);
void unlock_counts(Store *store);
void find_rows(Store *store, const Rows *rows);
int find_or_create_rows(Store *store, const Rows *rows);
int promise_saves(Store *store, int64_t n);
void push_rows(Store *store, const Rows *rows, const float *gradients);
void pull_rows(Store *store, const Rows *rows, float *out);
void push_dense(Store *store, const float *gradient, int64_t age_class);
void read_dense(Store *store, float *out);
#endif
