/* What workers ring for and how: bell_requests.py's and plain_server.py's structs, of the same names. */
#ifndef DLROVER_NB_SERVE_H
#define DLROVER_NB_SERVE_H
#include "store.h"

enum { ANSWERED, MAP_GROWS, NOT_PLAIN, MALFORMED }; /* bell_requests.py's Outcome */

typedef struct {
    int64_t epoch, step, at, n_push, width, n_dense, n_pull, answer_at;
    double rate, rung_s;
    int64_t n_row; /* of a batch whose gradients are gathered, which Python does */
} Request;

typedef struct {
    int64_t epoch, step, at, n_row, width, n_dense;
    double update_s, lookup_s;
} Answer;

enum { AGE_CLASSES = 24, SECOND_CLASSES = 32, WATCHED = 4096, MOST_WATCHED = WATCHED / 2, WINDOW = 32, PERIOD = 2048 };
enum { OFTENER_AT_FIRST = 8 };

/* Rows whose updates are counted: those whose mixed id is below a limit, which halves when they become too many. Of so
 * many exchanges in a period the first ones are noted: then gradients of what they read are counted. */
typedef struct {
    int64_t n_row, limit, generation; /* rows, the limit, and how often all of it was forgotten */
    int64_t n_exchange, n_open;       /* exchanges so far, and noted ones whose gradients have not come yet */
    int64_t ids[WATCHED];             /* the id + 1; 0: none is here */
    uint32_t n_update[WATCHED];
} Watched;

/* What a connection has read and pushed: its updates, those of others when it read last and the time before, and how
 * many of its gradients were of each class of age. The reading that a gradient is of is the one at `lag`. The same of
 * each watched row, with the exchanges that read it. */
typedef struct {
    int64_t *n_update; /* of all connections */
    Watched *watched;
    int64_t lag, n_own, n_read[2], counts[AGE_CLASSES], seconds[SECOND_CLASSES], row_counts[AGE_CLASSES];
    double read_s[2];
    int64_t generation, is_noted[2];
    uint32_t n_exchange, own[WATCHED], others[2][WATCHED], read_at[2][WATCHED];
} Reader;

/* A worker's slab and bell. */
typedef struct {
    uint8_t *slab;
    int64_t n_slab;
    int32_t ask, answers; /* descriptors */
    int64_t step;         /* the last one that was answered by bell */
    int64_t is_open;      /* whether the worker is served */
    int64_t pending;      /* why a request waits for Python; 0: none does */
    int64_t is_held;      /* whether a thread is at it */
    Request request;
    Answer answer;
    Reader *reader; /* NULL: ages are not counted */
} Bell;

/* Where the arrays of a request are, and room for those of its answer. */
typedef struct {
    const int64_t *push, *pull; /* ids */
    const float *gradients, *dense_gradient;
    float *rows, *dense;
    int64_t age_class; /* of the dense gradient */
} Arrays;

enum { MOST_FRAMES = 16, NO_SLAB = -1 };

/* A request that came in a message (plain_messages.py), and room for its answer. */
typedef struct {
    const uint8_t *frames[MOST_FRAMES];
    int64_t n_byte[MOST_FRAMES], n_frame;
    Request request;
    const uint8_t *arrays[4]; /* ids to push, gradients, the dense one, ids to pull: at any byte */
    Reader *reader;           /* NULL: ages are not counted */
    float *rows, *dense;
    uint8_t *head; /* of the answer: room for two small arrays and the record */
    int64_t n_head;
    Answer answer;
} Message;

int are_few(const Request *r);
int64_t exchange_of(Store *store, const Request *r, const Arrays *of_request, Answer *answer, Reader *reader);
int64_t age_class(const Reader *reader);
void count_exchange(Reader *reader, int64_t has_pushed, const int64_t *pushed, int64_t n_pushed, const int64_t *pulled,
                    int64_t n_pulled, double at_s);
#endif
