/* Rows and dense parameters of a store that serves plain requests: rows.py's, maps.py's and dense.py's, with the
 * same slots and values.
 *
 * Whatever makes an array or the map larger is left to Python, which alone can: so a row is created here in
 * places that are there, and its memory comes when it is touched.
 *
 * Where several threads serve, each row is read and updated as a whole: what it holds is what updates give one
 * after another. So is each stripe of the dense parameters. A thread takes the rows of a stripe under one lock,
 * and goes on with another one while it is held: a lock for each row would cost more than its update.
 *
 * Before rows change they are saved for a copy that is being made (cut.py), and those that move to another PS are
 * marked as to be sent again (pending.py).
 */
#include <stdlib.h>
#include <string.h>

#include "store.h"

void init_locks(Locks *locks)
{
    pthread_rwlock_init(&locks->map, NULL);
    pthread_mutex_init(&locks->counts, NULL);
    pthread_mutex_init(&locks->saves, NULL);
    for (int i = 0; i < STRIPES; i++) {
        pthread_mutex_init(locks->rows + i, NULL);
        pthread_mutex_init(locks->dense + i, NULL);
    }
}

void lock_counts(Store *store)
{
    if (store->locks)
        pthread_mutex_lock(&store->locks->counts);
}

void unlock_counts(Store *store)
{
    if (store->locks)
        pthread_mutex_unlock(&store->locks->counts);
}

/* ---- slots ---- */

static void find(const Store *store, int32_t *slots, const int64_t *ids, int64_t n)
{
    if (store->direct)
        direct_find(slots, store->direct, ids, n);
    else
        slot_find(slots, store->lines, store->last, store->directory, store->depth, store->held, ids, n);
}

void find_rows(Store *store, const Rows *rows)
{
    if (store->locks)
        pthread_rwlock_rdlock(&store->locks->map);
    find(store, rows->slots, rows->ids, rows->n);
    if (store->locks)
        pthread_rwlock_unlock(&store->locks->map);
}

/* Count ids into the pieces of the map; whether none is split for them (HashMap.insert), else none is counted. */
static int fit(Store *store, const int64_t *ids, int64_t n)
{
    for (int64_t i = 0; i < store->n_piece; i++)
        if (store->n_in_piece[i] > store->early)
            return 0;
    slot_count(store->n_in_piece, store->directory, store->depth, ids, n, 1);
    for (int64_t i = 0; i < store->n_piece; i++)
        if (store->n_in_piece[i] > store->most_in_piece) {
            slot_count(store->n_in_piece, store->directory, store->depth, ids, n, -1);
            return 0;
        }
    return 1;
}

/* Create rows of these ids at these slots, which are the next ones. */
static void fill(Store *store, const int32_t *slots, const int64_t *ids, int64_t n)
{
    float *rows = store->table + store->n_row * store->stride;
    initial_rows(rows, store->stride, ids, n, store->width, store->seed_bits, store->amplitude);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = store->width; j < store->stride; j++)
            rows[i * store->stride + j] = store->first_state;
        store->held[slots[i]] = ids[i];
        store->marked[slots[i]] = 0;
        store->n_held[ids[i] & (store->n_bucket - 1)]++;
    }
    if (store->direct)
        for (int64_t i = 0; i < n; i++)
            store->direct[ids[i]] = slots[i] + 1;
    else
        slot_place(store->lines, store->last, store->directory, store->depth, ids, slots, n);
    store->n_row += n;
}

static int64_t count_new(const Rows *rows)
{
    int64_t n_new = 0;
    for (int64_t i = 0; i < rows->n; i++)
        n_new += rows->slots[i] < 0;
    return n_new;
}

/* Give slots to the rows that have none; 0 and nothing is changed where something has to grow for it. */
static int create(Store *store, const Rows *rows)
{
    const int64_t n_new = count_new(rows);
    if (!n_new)
        return 1;
    int64_t *ids = malloc((size_t)n_new * sizeof *ids);
    int32_t *slots = malloc((size_t)n_new * sizeof *slots);
    int fits = ids && slots && store->n_row + n_new <= store->most_rows;
    if (fits) {
        for (int64_t i = 0, at = 0; i < rows->n; i++)
            if (rows->slots[i] < 0) {
                ids[at] = rows->ids[i];
                slots[at] = (int32_t)(store->n_row + at);
                at++;
            }
        fits = store->direct || fit(store, ids, n_new);
    }
    if (fits) {
        fill(store, slots, ids, n_new);
        for (int64_t i = 0, at = 0; i < rows->n; i++)
            if (rows->slots[i] < 0)
                rows->slots[i] = slots[at++];
    }
    free(ids);
    free(slots);
    return fits;
}

/* Find distinct rows and create those that are new; 0 and nothing is changed where something has to grow for it. */
int find_or_create_rows(Store *store, const Rows *rows)
{
    find_rows(store, rows);
    if (!store->locks)
        return create(store, rows);
    if (!count_new(rows))
        return 1;
    pthread_rwlock_wrlock(&store->locks->map);
    find(store, rows->slots, rows->ids, rows->n); /* another thread may have created some meanwhile */
    const int fits = create(store, rows);
    pthread_rwlock_unlock(&store->locks->map);
    return fits;
}

/* ---- values ---- */

typedef struct {
    Store *store;
    const Rows *rows;
    const int64_t *starts; /* of stripes among rows, or dense parameters */
    const float *gradients;
    float *out;
    Step dense; /* step of the dense part */
} Work;

/* Do the work of each stripe, first of those whose locks are free. */
static void under_each(pthread_mutex_t *locks, void (*do_stripe)(const Work *, int64_t), const Work *work)
{
    for (uint64_t left = ~0ull, before = 0; left;) {
        const int waits = left == before;
        before = left;
        for (uint64_t some = left; some; some &= some - 1) {
            const int i = __builtin_ctzll(some);
            if (work->starts[i] == work->starts[i + 1]) {
                left &= ~(1ull << i);
                continue;
            }
            if (waits ? pthread_mutex_lock(locks + i) : pthread_mutex_trylock(locks + i))
                continue;
            do_stripe(work, i);
            pthread_mutex_unlock(locks + i);
            left &= ~(1ull << i);
            if (waits)
                break;
        }
    }
}

/* Sort rows by stripe. */
static void sort(const Rows *rows, int64_t *starts)
{
    int64_t at[STRIPES + 1] = {0};
    for (int64_t i = 0; i < rows->n; i++)
        at[1 + (rows->slots[i] & (STRIPES - 1))]++;
    for (int64_t i = 0; i < STRIPES; i++)
        at[i + 1] += at[i];
    memcpy(starts, at, sizeof at);
    for (int64_t i = 0; i < rows->n; i++) {
        const int64_t to = at[rows->slots[i] & (STRIPES - 1)]++;
        rows->sorted[to] = rows->slots[i];
        rows->order[to] = (int32_t)i;
    }
}

/* Let rows that move to another PS be sent again: pending.py. */
static void mark(Store *store, const int64_t *ids, const int32_t *slots, const int32_t *order, int64_t n)
{
    int64_t n_marked = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t slot = slots[i];
        const int is_pending = slot >= store->first_unmarked && slot < store->next_marked;
        if (is_pending || store->marked[slot] || !store->moving[ids[order ? order[i] : i] & (store->n_bucket - 1)])
            continue;
        store->marked[slot] = 1;
        n_marked++;
    }
    __atomic_fetch_add(&store->n_pending, n_marked, __ATOMIC_RELAXED);
}

static int64_t count_copied(const Saving *saving)
{
    return __atomic_load_n(saving->n_copied, __ATOMIC_ACQUIRE);
}

/* Save rows that are about to change. Whoever reads a row after its change finds it saved. */
static void save(Store *store, const int32_t *slots, int64_t n)
{
    Saving *saving = store->saving;
    if (store->locks)
        pthread_mutex_lock(&store->locks->saves);
    const int64_t at = saving->n;
    const int64_t n_saved = save_rows(saving->slots + at, saving->rows + at * store->stride, store->table, store->stride,
                                      slots, n, saving->saved, count_copied(saving), saving->n_row);
    __atomic_store_n(&saving->n, at + n_saved, __ATOMIC_RELEASE);
    if (store->locks)
        pthread_mutex_unlock(&store->locks->saves);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Hold room for n rows to save; 0 where there is too little. A negative n gives it back. */
int promise_saves(Store *store, int64_t n)
{
    Saving *saving = store->saving;
    if (!saving)
        return 1;
    lock_counts(store);
    const int64_t n_promised = saving->n_promised + n;
    const int fits = __atomic_load_n(&saving->n, __ATOMIC_RELAXED) + n_promised <= saving->room;
    saving->n_promised = fits ? n_promised : saving->n_promised;
    unlock_counts(store);
    return fits;
}

static void update_some(const Work *work, const int32_t *slots, const int32_t *order, int64_t n)
{
    Store *store = work->store;
    for (int64_t i = 0; i < n; i++)
        store->changed[slots[i]] = 1;
    if (store->moving)
        mark(store, work->rows->ids, slots, order, n);
    if (store->saving && count_copied(store->saving) < store->saving->n_row)
        save(store, slots, n);
    update_rows(store->kind, store->table, store->stride, slots, order, work->gradients, n, store->width, store->rule,
                store->corrections, store->n_correction);
}

static void gather_some(const Work *work, const int32_t *slots, const int32_t *order, int64_t n)
{
    const Store *store = work->store;
    gather(work->out, store->table, store->stride, slots, order, work->rows->ids, n, store->width, store->seed_bits,
           store->amplitude);
}

static void push_stripe(const Work *work, int64_t i)
{
    const int64_t start = work->starts[i];
    update_some(work, work->rows->sorted + start, work->rows->order + start, work->starts[i + 1] - start);
}

static void pull_stripe(const Work *work, int64_t i)
{
    const int64_t start = work->starts[i];
    gather_some(work, work->rows->sorted + start, work->rows->order + start, work->starts[i + 1] - start);
}

/* Apply one step to rows that are there. */
void push_rows(Store *store, const Rows *rows, const float *gradients)
{
    int64_t starts[STRIPES + 1];
    const Work work = {.store = store, .rows = rows, .starts = starts, .gradients = gradients};
    if (!store->locks) {
        update_some(&work, rows->slots, NULL, rows->n);
        return;
    }
    sort(rows, starts);
    under_each(store->locks->rows, push_stripe, &work);
}

/* Write the values of rows into `out`; first values of those that are not there. */
void pull_rows(Store *store, const Rows *rows, float *out)
{
    int64_t starts[STRIPES + 1];
    const Work work = {.store = store, .rows = rows, .starts = starts, .out = out};
    if (!store->locks) {
        gather_some(&work, rows->slots, NULL, rows->n);
        return;
    }
    sort(rows, starts);
    under_each(store->locks->rows, pull_stripe, &work);
}

static void push_dense_stripe(const Work *work, int64_t i)
{
    const Store *store = work->store;
    const int64_t start = work->starts[i], stop = work->starts[i + 1];
    const int64_t last = store->n_trained < stop ? store->n_trained : stop; /* of the parameters in this stripe */
    const int64_t first = store->n_trained > start ? store->n_trained : start; /* of the averages */
    if (start < last)
        update_dense(store->kind, store->dense + start, store->n_dense, work->gradients + start, last - start,
                     &work->dense.rule, work->dense.corrections, work->dense.n_correction);
    if (first < stop)
        average_dense(store->dense + first, store->decay + (first - store->n_trained), work->gradients + first,
                      stop - first);
}

static void read_dense_stripe(const Work *work, int64_t i)
{
    const int64_t start = work->starts[i];
    memcpy(work->out + start, work->store->dense + start, (size_t)(work->starts[i + 1] - start) * sizeof(float));
}

static void for_dense(Store *store, void (*do_stripe)(const Work *, int64_t), const float *gradients, Step step,
                      float *out)
{
    int64_t starts[STRIPES + 1] = {0, store->n_dense};
    const Work work = {store, NULL, starts, gradients, out, step};
    if (!store->locks) {
        do_stripe(&work, 0);
        return;
    }
    for (int64_t i = 0; i <= STRIPES; i++)
        starts[i] = store->n_dense * i / STRIPES;
    under_each(store->locks->dense, do_stripe, &work);
}

/* Apply one step to the dense parameters, by a gradient of a class of age. */
void push_dense(Store *store, const float *gradient, int64_t age_class)
{
    const Step own = {*store->rule, store->corrections, store->n_correction};
    for_dense(store, push_dense_stripe, gradient, store->dense_steps ? store->dense_steps[age_class] : own, NULL);
}

void read_dense(Store *store, float *out)
{
    if (out != store->dense)
        for_dense(store, read_dense_stripe, NULL, (Step){0}, out);
}
