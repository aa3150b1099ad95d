/* Copies rows while they change: copying.py, with the same bits.
 *
 * One thread copies the rows of a table in their order, and says in `progress` how far it is. Before another
 * one changes a row that may not be copied yet, it saves what the row held. What was read while it changed is
 * replaced by that afterwards, so neither waits for the other. No Python module: loaded by ctypes, as kernel.c.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { AHEAD = 16, LINE = 16 /* floats of a cache line */, FAR = 256 /* floats to fetch beforehand */ };
enum { DONE, STOP }; /* places of `progress` */

/* Copy, and say whether all numbers are finite. */
static int copy_few(float *to, const float *from, int64_t n)
{
    uint32_t found = 0, word;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&word, from + i, sizeof word);
        memcpy(to + i, &word, sizeof word);
        found |= (word & 0x7F800000u) == 0x7F800000u;
    }
    return !found;
}

/* The same past the caches: nobody reads the copy soon, what trains needs them, and lines that are written whole
 * need not be read first. It takes half of the time of memcpy and a look. */
static int copy_finite(float *to, const float *from, int64_t n)
{
#ifdef __SSE2__
    const int64_t before = (int64_t)(-((uintptr_t)to / sizeof *to) % LINE), head = before < n ? before : n;
    const __m128i exponent = _mm_set1_epi32(0x7F800000);
    __m128i found = _mm_setzero_si128();
    int64_t i = head;
    for (; i + LINE <= n; i += LINE) {
        _mm_prefetch((const char *)(from + i + FAR), _MM_HINT_NTA); /* beyond the end it does nothing */
        for (int64_t j = i; j < i + LINE; j += 4) {
            const __m128i four = _mm_loadu_si128((const __m128i *)(from + j));
            found = _mm_or_si128(found, _mm_cmpeq_epi32(_mm_and_si128(four, exponent), exponent));
            _mm_stream_si128((__m128i *)(to + j), four);
        }
    }
    _mm_sfence();
    const int is_head_finite = copy_few(to, from, head);
    return copy_few(to + i, from + i, n - i) & is_head_finite & !_mm_movemask_epi8(found);
#else
    memcpy(to, from, (size_t)n * sizeof(float));
    return copy_few(to, from, n);
#endif
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
        const int64_t rows = n - start < chunk ? n - start : chunk;
        if (__atomic_load_n(progress + STOP, __ATOMIC_RELAXED))
            return -1;
        at = place ? place_rows(place + start, ids + start, rows, gone, n_bucket, at) : at + rows;
        if (at > n_to) /* rows moved: nobody waits for this copy any more */
            return -1;
        if (!place) {
            memcpy(ids_to + start, ids + start, (size_t)rows * sizeof(int64_t));
            all_finite &= copy_finite(table_to + start * stride, table + start * stride, rows * stride);
        } else {
            for (int64_t i = start; i < start + rows; i++)
                if (place[i] >= 0) {
                    ids_to[place[i]] = ids[i];
                    all_finite &= copy_few(table_to + place[i] * stride, table + i * stride, stride);
                }
        }
        __atomic_store_n(progress + DONE, start + rows, __ATOMIC_RELEASE);
        if (start + rows < n && pause_ns)
            nanosleep(&pause, NULL);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* what was read after a change was saved before: store.c's `save` */
    return all_finite;
}

void put_rows(float *restrict table, int64_t stride, const int32_t *restrict slots, const float *restrict rows,
              int64_t n)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* Python read how many were saved, of rows that another thread wrote */
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
