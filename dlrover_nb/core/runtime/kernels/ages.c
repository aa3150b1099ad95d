/* How old gradients are when a PS applies them: update_ages.py says what is counted, reader_ages.py counts the same.
 *
 * The caller holds the lock of the counts. */
#include <string.h>

#include "serve.h"

/* gradient_ages.py's class_of, of n classes */
static int64_t class_of(int64_t age, int64_t n)
{
    if (age < 2)
        return age > 0 ? age : 0;
    const int power = 63 - __builtin_clzll((uint64_t)age);
    const int64_t number = 2 * power + ((age >> (power - 1)) & 1);
    return number < n ? number : n - 1;
}

static int64_t n_other(const Reader *reader)
{
    return *reader->n_update - reader->n_own;
}

/* The class of the age that a gradient of this connection has now. */
int64_t age_class(const Reader *reader)
{
    return class_of(n_other(reader) - reader->n_read[reader->lag], AGE_CLASSES);
}

static uint32_t mixed(int64_t id)
{
    return (uint32_t)((uint64_t)id ^ (uint64_t)id >> 32) * 2654435769u;
}

/* What stands in the table for an id: not 0. A worker may change ids in its slab meanwhile, to any: nothing overflows. */
static int64_t entry_of(int64_t id)
{
    return (int64_t)((uint64_t)id + 1);
}

/* Where a row is watched, or would be. */
static int64_t place_of(const Watched *watched, int64_t id)
{
    int64_t place = (int64_t)((mixed(id) * 2246822519u) % WATCHED);
    while (watched->ids[place] && watched->ids[place] != entry_of(id))
        place = (place + 1) % WATCHED;
    return place;
}

/* Forget what was read. */
static void forget(Watched *watched)
{
    watched->n_row = 0;
    watched->n_open = 0;
    watched->generation++;
    memset(watched->ids, 0, sizeof watched->ids);
    memset(watched->n_update, 0, sizeof watched->n_update);
}

static void follow(Reader *reader)
{
    if (reader->generation == reader->watched->generation)
        return;
    reader->generation = reader->watched->generation;
    memset(reader->is_noted, 0, sizeof reader->is_noted);
    memset(reader->own, 0, sizeof reader->own);
    memset(reader->others, 0, sizeof reader->others);
    memset(reader->read_at, 0, sizeof reader->read_at);
}

static void count_pushed(Reader *reader, const int64_t *ids, int64_t n)
{
    Watched *watched = reader->watched;
    const uint32_t read_at = reader->n_exchange - 1 - (uint32_t)reader->lag;
    for (int64_t i = 0; i < n; i++) {
        if (mixed(ids[i]) >= watched->limit)
            continue;
        const int64_t at = place_of(watched, ids[i]);
        if (!watched->ids[at])
            continue;
        const uint32_t now = watched->n_update[at] - reader->own[at];
        if (reader->read_at[read_at & 1][at] == read_at)
            reader->row_counts[class_of(now - reader->others[read_at & 1][at], AGE_CLASSES)]++;
        watched->n_update[at]++;
        reader->own[at]++;
    }
}

static void note_pulled(Reader *reader, const int64_t *ids, int64_t n)
{
    Watched *watched = reader->watched;
    const uint32_t now = reader->n_exchange;
    for (int64_t i = 0; i < n; i++) {
        if (mixed(ids[i]) >= watched->limit)
            continue;
        int64_t at = place_of(watched, ids[i]);
        if (!watched->ids[at]) {
            if (watched->n_row == MOST_WATCHED) {
                watched->limit /= 2; /* half of the rows from now on */
                forget(watched);
                follow(reader);
                i = -1; /* from the first one again */
                continue;
            }
            watched->ids[at] = entry_of(ids[i]);
            watched->n_row++;
        }
        reader->read_at[now & 1][at] = now;
        reader->others[now & 1][at] = watched->n_update[at] - reader->own[at];
    }
}

/* Count an exchange that was served at a time: the ages of what it brought, and what it read. */
void count_exchange(Reader *reader, int64_t has_pushed, const int64_t *pushed, int64_t n_pushed, const int64_t *pulled,
                    int64_t n_pulled, double at_s)
{
    const int64_t now = n_other(reader);
    Watched *watched = reader->watched;
    const int64_t n = watched->n_exchange++, turn = n % (n < PERIOD ? PERIOD / OFTENER_AT_FIRST : PERIOD);
    if (!turn)
        forget(watched);
    follow(reader);
    reader->n_exchange++;
    if (has_pushed) {
        const double age_ms = (at_s - reader->read_s[reader->lag]) * 1e3;
        reader->counts[class_of(now - reader->n_read[reader->lag], AGE_CLASSES)]++;
        reader->seconds[class_of((int64_t)age_ms, SECOND_CLASSES)]++;
        if (watched->n_open)
            count_pushed(reader, pushed, n_pushed);
        reader->n_own++;
        ++*reader->n_update;
    }
    int64_t *is_done = reader->is_noted + ((reader->n_exchange - 1 - (uint32_t)reader->lag) & 1);
    watched->n_open -= *is_done;
    *is_done = 0;
    if (turn < WINDOW) {
        note_pulled(reader, pulled, n_pulled);
        reader->is_noted[reader->n_exchange & 1] = 1;
        watched->n_open++;
    }
    reader->n_read[1] = reader->n_read[0];
    reader->n_read[0] = now;
    reader->read_s[1] = reader->read_s[0];
    reader->read_s[0] = at_s;
}
