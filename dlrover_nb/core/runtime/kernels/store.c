/* Rows of a store that serves plain requests: rows.py's and maps.py's, with the same slots and values.
 *
 * Whatever makes an array or the map larger is left to Python, which alone can: so a row is created here in
 * places that are there, and its memory comes when it is touched.
 */
#include <stdlib.h>

#include "store.h"

void find_rows(const Store *store, int32_t *slots, const int64_t *ids, int64_t n)
{
    if (store->direct)
        direct_find(slots, store->direct, ids, n);
    else
        slot_find(slots, store->lines, store->last, store->directory, store->depth, store->held, ids, n);
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

/* Give slots to the distinct ids that have none; 0 and nothing is changed where something has to grow for it. */
int create_rows(Store *store, int32_t *slots, const int64_t *ids, int64_t n)
{
    int64_t n_new = 0;
    for (int64_t i = 0; i < n; i++)
        n_new += slots[i] < 0;
    if (!n_new)
        return 1;
    int64_t *new_ids = malloc((size_t)n_new * sizeof *new_ids);
    int32_t *new_slots = malloc((size_t)n_new * sizeof *new_slots);
    int fits = new_ids && new_slots && store->n_row + n_new <= store->most_rows;
    if (fits) {
        for (int64_t i = 0, at = 0; i < n; i++)
            if (slots[i] < 0) {
                new_ids[at] = ids[i];
                new_slots[at] = (int32_t)(store->n_row + at);
                at++;
            }
        fits = store->direct || fit(store, new_ids, n_new);
    }
    if (fits) {
        fill(store, new_slots, new_ids, n_new);
        for (int64_t i = 0, at = 0; i < n; i++)
            if (slots[i] < 0)
                slots[i] = new_slots[at++];
    }
    free(new_ids);
    free(new_slots);
    return fits;
}
