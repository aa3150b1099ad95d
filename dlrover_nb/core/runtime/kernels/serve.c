/* Requests that workers ring for (bell_requests.py), served without Python: exchanging.py, with the same bits.
 * `exchange` serves those that came in messages as well, when they were read: by Python, or in messages.c.
 *
 * What is not plain is left to Python: another epoch, a round or rate of its own, gradients to be gathered,
 * gradients or places that look wrong, new rows for which the map grows, rows to save for which there is no room.
 * So nothing here answers with an error, and what Python answers does not depend on this file.
 *
 * Where the PS may use several cores, the calling thread gets help while more requests than one are there at a
 * time, until it returns: so Python, which moves rows and cuts checkpoints, never meets a thread of these. Each
 * thread waits for all bells that no other one is at; the kernel's own queue is the only one.
 */
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

enum { LINE_BYTES = 64, MOST_HELPERS = 63, MOST_ROWS = 1 << 26 };

_Static_assert(2 * (int64_t)MOST_ROWS < INT32_MAX, "places of a request's rows are int32");
_Static_assert(sizeof(Request) <= PIPE_BUF && sizeof(Answer) <= PIPE_BUF, "a bell's pipe takes each as a whole");

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int are_within(const int64_t *ids, int64_t n, uint64_t limit)
{
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = (uint64_t)ids[i] > most ? (uint64_t)ids[i] : most;
    return !n || most < limit;
}

/* Whether a row is pushed twice, or that cannot be told. */
static int comes_twice(const int64_t *ids, int64_t n)
{
    uint64_t n_place = 1;
    while (n_place <= 2 * (uint64_t)n)
        n_place *= 2;
    int32_t *seen = calloc(n_place, sizeof *seen);
    const int comes = !seen || !are_distinct(seen, n_place - 1, ids, n);
    free(seen);
    return comes;
}

static int64_t aligned(int64_t n_byte)
{
    return (n_byte + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Where the next array of a slab begins, if n items at `at` lie in it, where a cache line begins; -1: they do not.
 * The worker chose `at` and n: nothing is computed with them before they are checked. */
static int64_t end_of(const Bell *bell, int64_t at, int64_t n, int64_t item_bytes)
{
    if (at < 0 || at % LINE_BYTES || at > bell->n_slab || n < 0 || n > (bell->n_slab - at) / item_bytes)
        return -1;
    return at + aligned(n * item_bytes);
}

/* Whether so many rows can be served at once: their places are int32. */
int are_few(const Request *r)
{
    return r->n_push >= 0 && r->n_push <= MOST_ROWS && r->n_pull >= 0 && r->n_pull <= MOST_ROWS;
}

static int is_plain(const Store *store, const Bell *bell)
{
    const Request *r = &bell->request;
    if (!bell->is_open || r->epoch != store->epoch || r->step <= bell->step || r->rate != 1.0 || r->n_row)
        return 0;
    return (!r->n_push || r->width == store->width) && (!r->n_dense || r->n_dense == store->n_dense);
}

/* served.py's ServedRows.count */
static void count_served(Store *store, const Rows *rows)
{
    if (!rows->n)
        return;
    store->served[1] += rows->n;
    const uint32_t turn = (uint32_t)++store->served[0] * 2654435769u;
    if (store->served[2] && turn >= store->sample_below)
        return;
    store->served[2] = 1;
    for (int64_t i = 0; i < rows->n; i++)
        store->sampled[rows->ids[i] & (store->n_bucket - 1)]++;
}

/* Take n steps of those for which there are step sizes; whether there are so many. */
static int take_steps(Store *store, int64_t n)
{
    lock_counts(store);
    const int fits = store->n_step + n <= store->most_steps;
    store->n_step += fits ? n : 0;
    unlock_counts(store);
    return fits;
}

static void count(Store *store, const Rows *pushed, const Rows *pulled, const Answer *answer)
{
    lock_counts(store);
    count_served(store, pushed);
    count_served(store, pulled);
    store->update_s += answer->update_s;
    store->lookup_s += answer->lookup_s;
    store->n_answered++;
    unlock_counts(store);
}

static int exchange_with(Store *store, const Request *r, const Arrays *arrays, Answer *answer, int64_t *ids,
                         int32_t *slots)
{
    const int64_t n = r->n_push + r->n_pull;
    const double began_s = now_s();
    memcpy(ids, arrays->push, (size_t)r->n_push * 8); /* a worker could change them after the check */
    memcpy(ids + r->n_push, arrays->pull, (size_t)r->n_pull * 8);
    if (!are_within(ids, n, store->n_id) || comes_twice(ids, r->n_push) ||
        !are_usual(arrays->gradients, r->n_push * store->width) || !are_usual(arrays->dense_gradient, r->n_dense))
        return NOT_PLAIN;
    int32_t *sorted = store->locks ? slots + n : NULL, *order = store->locks ? slots + 2 * n : NULL;
    const Rows pushed = {ids, slots, r->n_push, sorted, order};
    const Rows pulled = {ids + r->n_push, slots + r->n_push, r->n_pull, sorted, order};
    if (!find_or_create_rows(store, &pushed))
        return MAP_GROWS;
    if (!promise_saves(store, r->n_push))
        return NOT_PLAIN;
    const int has_steps = take_steps(store, !!r->n_push + !!r->n_dense);
    if (has_steps && r->n_push)
        push_rows(store, &pushed, arrays->gradients);
    promise_saves(store, -r->n_push);
    if (!has_steps)
        return NOT_PLAIN;
    if (r->n_dense)
        push_dense(store, arrays->dense_gradient, arrays->age_class);
    const double updated_s = now_s();
    find_rows(store, &pulled);
    pull_rows(store, &pulled, arrays->rows);
    read_dense(store, arrays->dense);
    *answer = (Answer){r->epoch,     r->step,        r->answer_at,        r->n_pull,
                       store->width, store->n_dense, updated_s - began_s, now_s() - updated_s};
    count(store, &pushed, &pulled, answer);
    return ANSWERED;
}

/* Apply what a request brings and read what it asks for; the outcome. The arrays have the shapes of the store. */
int64_t exchange(Store *store, const Request *request, const Arrays *arrays, Answer *answer)
{
    if (!are_few(request))
        return NOT_PLAIN;
    const size_t n = (size_t)(request->n_push + request->n_pull) + 1;
    int64_t *ids = malloc(n * sizeof *ids);
    int32_t *slots = malloc((store->locks ? 3 : 1) * n * sizeof *slots);
    const int64_t outcome = ids && slots ? exchange_with(store, request, arrays, answer, ids, slots) : NOT_PLAIN;
    free(ids);
    free(slots);
    return outcome;
}

/* Count how old was what a request brought. */
static void count_age(Store *store, const Request *r, const Arrays *arrays, Reader *reader)
{
    const double at_s = now_s();
    lock_counts(store);
    count_exchange(reader, r->n_push || r->n_dense, arrays->push, r->n_push, arrays->pull, r->n_pull, at_s);
    unlock_counts(store);
}

/* `exchange` with a step of the class of its age, which is counted; `reader` is NULL where ages are not. */
int64_t exchange_of(Store *store, const Request *r, const Arrays *of_request, Answer *answer, Reader *reader)
{
    Arrays arrays = *of_request;
    if (store->dense_steps && reader) {
        lock_counts(store);
        arrays.age_class = age_class(reader);
        unlock_counts(store);
    }
    const int64_t outcome = exchange(store, r, &arrays, answer);
    if (outcome == ANSWERED && reader)
        count_age(store, r, &arrays, reader);
    return outcome;
}

static int64_t serve_slab(Store *store, Bell *bell)
{
    const Request *r = &bell->request;
    const int64_t row_bytes = store->width * (int64_t)sizeof(float);
    const int64_t rows_at = end_of(bell, r->at, r->n_push, sizeof(int64_t));
    const int64_t dense_at = end_of(bell, rows_at, r->n_push, row_bytes);
    const int64_t pull_at = end_of(bell, dense_at, r->n_dense, sizeof(float));
    const int64_t dense_answer_at = end_of(bell, r->answer_at, r->n_pull, row_bytes);
    if (end_of(bell, pull_at, r->n_pull, sizeof(int64_t)) < 0 ||
        end_of(bell, dense_answer_at, store->n_dense, sizeof(float)) < 0)
        return NOT_PLAIN;
    uint8_t *slab = bell->slab;
    const Arrays arrays = {
        .push = (const int64_t *)(slab + r->at),
        .pull = (const int64_t *)(slab + pull_at),
        .gradients = (const float *)(slab + rows_at),
        .dense_gradient = (const float *)(slab + dense_at),
        .rows = (float *)(slab + r->answer_at),
        .dense = (float *)(slab + dense_answer_at),
    };
    return exchange_of(store, r, &arrays, &bell->answer, bell->reader);
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
    if (!is_plain(store, bell))
        return;
    bell->pending = serve_slab(store, bell);
    if (bell->pending == ANSWERED) {
        bell->step = r->step;
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

/* ---- one thread or several ---- */

typedef struct {
    Store *store;
    Bell *const *bells;
    int64_t n_bell;
    int is_over, over[2]; /* whether all threads are to end, and a pipe that is readable then */
    int64_t n_helper, most_helpers;
    pthread_t helpers[MOST_HELPERS];
    Locks locks;
} Team;

static int is_over(const Team *team)
{
    return __atomic_load_n(&team->is_over, __ATOMIC_RELAXED);
}

/* A helper knows by the pipe alone that there are helpers: their number changes meanwhile. */
static void end(Team *team)
{
    if (!__atomic_exchange_n(&team->is_over, 1, __ATOMIC_RELAXED) && team->over[1] >= 0 && write(team->over[1], "", 1) < 0)
        return; /* never: it has room for a byte */
}

/* Wait for bells that no other thread is at, and for others that follow in `fds`; how many are ready. */
static int wait_for(const Team *team, struct pollfd *fds, int64_t n_other, int timeout_ms)
{
    for (int64_t i = 0; i < team->n_bell; i++) {
        const int is_held = __atomic_load_n(&team->bells[i]->is_held, __ATOMIC_RELAXED) != 0;
        fds[i] = (struct pollfd){is_held ? -1 : team->bells[i]->ask, POLLIN, 0};
    }
    fds[team->n_bell] = (struct pollfd){team->over[0], POLLIN, 0};
    return poll(fds, (nfds_t)(team->n_bell + 1 + n_other), timeout_ms);
}

/* Count how long a request that was read has waited while this thread, too, waited for requests: since `idle_s`. */
static void count_late(Store *store, const Request *request, double idle_s)
{
    const double late_s = now_s() - (request->rung_s > idle_s ? request->rung_s : idle_s);
    lock_counts(store);
    store->late_s += late_s > 0 ? late_s : 0;
    unlock_counts(store);
}

/* Serve the requests that were seen, but for those that another thread has taken; the thread waited since `idle_s`. */
static void serve_ready(Team *team, const struct pollfd *fds, double idle_s)
{
    for (int64_t i = 0; i < team->n_bell; i++) {
        Bell *bell = team->bells[i];
        if (!fds[i].revents || __atomic_exchange_n(&bell->is_held, 1, __ATOMIC_ACQUIRE))
            continue;
        if (bell->pending == ANSWERED && read_request(bell)) {
            count_late(team->store, &bell->request, idle_s);
            serve_one(team->store, bell);
            idle_s = now_s();
        }
        if (bell->pending != ANSWERED)
            end(team);
        __atomic_store_n(&bell->is_held, 0, __ATOMIC_RELEASE);
    }
}

static void *help(void *of)
{
    Team *team = of;
    struct pollfd *fds = malloc(((size_t)team->n_bell + 1) * sizeof *fds);
    while (fds && !is_over(team)) {
        const double idle_s = now_s();
        if (wait_for(team, fds, 0, -1) > 0)
            serve_ready(team, fds, idle_s);
    }
    free(fds);
    return NULL;
}

/* Start another thread; it gets no signals, as Python handles them. Where none is to be had, fewer serve. */
static void start_helper(Team *team)
{
    sigset_t all, before;
    if (team->over[0] < 0 && pipe(team->over)) {
        team->most_helpers = 0;
        return;
    }
    if (!team->store->locks) {
        init_locks(&team->locks);
        team->store->locks = &team->locks;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(team->helpers + team->n_helper, NULL, help, team))
        team->most_helpers = team->n_helper;
    else
        team->n_helper++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Let a thread help with each request but one. */
static void find_help(Team *team, const struct pollfd *fds)
{
    int64_t n_ready = 0;
    for (int64_t i = 0; i < team->n_bell; i++)
        n_ready += fds[i].revents != 0;
    while (team->n_helper < n_ready - 1 && team->n_helper < team->most_helpers)
        start_helper(team);
}

/* Serve plain requests for at most `timeout_s` with at most `n_thread` threads, until another request waits for
 * Python or one of the last `n_other` descriptors is ready; while rows move, until some are served. `fds` has room
 * for both kinds and one between them; its last ones are filled in. */
void serve(Store *store, Bell *const *bells, int64_t n_bell, struct pollfd *fds, int64_t n_other, double timeout_s,
           int64_t n_thread)
{
    const double until_s = now_s() + timeout_s;
    Team team = {.store = store, .bells = bells, .n_bell = n_bell, .over = {-1, -1}};
    team.most_helpers = n_thread - 1 < MOST_HELPERS ? n_thread - 1 : MOST_HELPERS;
    while (!is_over(&team)) {
        const double idle_s = now_s(), left_s = until_s - idle_s;
        if (left_s <= 0)
            end(&team);
        if (wait_for(&team, fds, n_other, left_s <= 0 ? 0 : (int)(left_s * 1e3) + 1) <= 0)
            continue;
        if (!is_over(&team))
            find_help(&team, fds);
        serve_ready(&team, fds, idle_s);
        if (store->moving) /* chunks of rows go in between */
            end(&team);
        for (int64_t i = n_bell + 1; i < n_bell + 1 + n_other; i++)
            if (fds[i].revents)
                end(&team);
    }
    for (int64_t i = 0; i < team.n_helper; i++)
        pthread_join(team.helpers[i], NULL);
    store->locks = NULL;
    for (int i = 0; i < 2 && team.over[i] >= 0; i++)
        close(team.over[i]);
}
