/* Copies rows while they change: copying.py, with the same bits.
 *
 * One thread copies the rows of a table in their order, and says in `progress` how far it is. Before another
 * one changes a row that may not be copied yet, it saves what the row held. What was read while it changed is
 * replaced by that afterwards, so neither waits for the other. No Python module: loaded by ctypes, as kernel.c.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { AHEAD = 16, LINE = 16 /* floats of a cache line */ };
enum { DONE, STOP }; /* places of `progress` */

/* copying.py takes no other; raise it with each change of a signature. */
int copying_version(void)
{
    return 2;
}

static int is_finite(const float *values, int64_t n)
{
    uint32_t found = 0, word;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&word, values + i, sizeof word);
        found |= (word & 0x7F800000u) == 0x7F800000u;
    }
    return !found;
}

/* Where each row goes: those of buckets that are not `gone` one after the other from `at` on, others to -1. */
static int64_t place_rows(int32_t *place, const int64_t *ids, int64_t n, const uint8_t *gone, int64_t n_bucket,
                          int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        place[i] = gone[ids[i] % n_bucket] ? -1 : (int32_t)at++;
    return at;
}

/* Without `place` all rows are copied, else as place_rows says, into room for n_to.
 * Returns -1 when it was told to stop, else whether all that was read is finite. */
int64_t copy_rows(float *table_to, int64_t *ids_to, int64_t n_to, const float *table, const int64_t *ids,
                  int64_t stride, int64_t n, int32_t *place, const uint8_t *gone, int64_t n_bucket, int64_t chunk,
                  int64_t pause_ns, int64_t *progress)
{
    const struct timespec pause = {pause_ns / 1000000000, pause_ns % 1000000000};
    int64_t all_finite = 1, at = 0;
    for (int64_t start = 0; start < n; start += chunk) {
        const int64_t rows = n - start < chunk ? n - start : chunk, first = at;
        if (__atomic_load_n(progress + STOP, __ATOMIC_RELAXED))
            return -1;
        at = place ? place_rows(place + start, ids + start, rows, gone, n_bucket, first) : first + rows;
        if (at > n_to) /* rows moved: nobody waits for this copy any more */
            return -1;
        if (!place) {
            memcpy(ids_to + start, ids + start, (size_t)rows * sizeof(int64_t));
            memcpy(table_to + start * stride, table + start * stride, (size_t)(rows * stride) * sizeof(float));
        } else {
            for (int64_t i = start; i < start + rows; i++)
                if (place[i] >= 0) {
                    ids_to[place[i]] = ids[i];
                    memcpy(table_to + place[i] * stride, table + i * stride, (size_t)stride * sizeof(float));
                }
        }
        all_finite &= is_finite(table_to + first * stride, (at - first) * stride);
        __atomic_store_n(progress + DONE, start + rows, __ATOMIC_RELEASE);
        if (start + rows < n && pause_ns)
            nanosleep(&pause, NULL);
    }
    return all_finite;
}

void put_rows(float *restrict table, int64_t stride, const int32_t *restrict slots, const float *restrict rows,
              int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            for (int64_t j = 0; j < stride; j += LINE)
                __builtin_prefetch(table + slots[i + AHEAD] * stride + j, 1);
        memcpy(table + slots[i] * stride, rows + i * stride, (size_t)stride * sizeof(float));
    }
}

/* Rows of `slots` in [first, stop) that are not marked in `saved`; returns how many. */
int64_t save_rows(int32_t *restrict slots_to, float *restrict rows_to, const float *restrict table, int64_t stride,
                  const int32_t *restrict slots, int64_t n, uint8_t *restrict saved, int64_t first, int64_t stop)
{
    int64_t n_saved = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n && slots[i + AHEAD] >= first && slots[i + AHEAD] < stop)
            __builtin_prefetch(saved + slots[i + AHEAD], 1);
        if (slots[i] >= first && slots[i] < stop && !saved[slots[i]]) {
            saved[slots[i]] = 1;
            slots_to[n_saved++] = slots[i];
        }
    }
    for (int64_t i = 0; i < n_saved; i++) {
        if (i + AHEAD < n_saved)
            for (int64_t j = 0; j < stride; j += LINE)
                __builtin_prefetch(table + slots_to[i + AHEAD] * stride + j, 0);
        memcpy(rows_to + i * stride, table + slots_to[i] * stride, (size_t)stride * sizeof(float));
    }
    return n_saved;
}
