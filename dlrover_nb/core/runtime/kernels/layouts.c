/* Where the fields of structs lie that Python lays out too: layouts.py compares them when it loads the library. */
#include <poll.h>

#include "serve.h"

#define STRUCT(type) {#type, 0, sizeof(type)}
#define FIELD(type, field) {#type "." #field, offsetof(type, field), sizeof((type *)0)->field}

typedef struct {
    const char *name;
    int64_t at, n_byte;
} Place;

typedef struct pollfd PollDescriptor;

static const Place places[] = {
    STRUCT(Request), FIELD(Request, epoch), FIELD(Request, step), FIELD(Request, at), FIELD(Request, n_push),
        FIELD(Request, width), FIELD(Request, n_dense), FIELD(Request, n_pull), FIELD(Request, answer_at),
        FIELD(Request, rate), FIELD(Request, rung_s), FIELD(Request, n_row),
    STRUCT(Answer), FIELD(Answer, epoch), FIELD(Answer, step), FIELD(Answer, at), FIELD(Answer, n_row),
        FIELD(Answer, width), FIELD(Answer, n_dense), FIELD(Answer, update_s), FIELD(Answer, lookup_s),
    STRUCT(Bell), FIELD(Bell, slab), FIELD(Bell, n_slab), FIELD(Bell, ask), FIELD(Bell, answers),
        FIELD(Bell, step), FIELD(Bell, is_open), FIELD(Bell, pending), FIELD(Bell, is_held), FIELD(Bell, request),
        FIELD(Bell, answer), FIELD(Bell, reader),
    STRUCT(Reader), FIELD(Reader, n_update), FIELD(Reader, watched), FIELD(Reader, lag), FIELD(Reader, n_own),
        FIELD(Reader, n_read), FIELD(Reader, counts), FIELD(Reader, seconds), FIELD(Reader, row_counts),
        FIELD(Reader, read_s), FIELD(Reader, generation), FIELD(Reader, is_noted), FIELD(Reader, n_exchange), FIELD(Reader, own),
        FIELD(Reader, others), FIELD(Reader, read_at),
    STRUCT(Watched), FIELD(Watched, n_row), FIELD(Watched, limit), FIELD(Watched, generation),
        FIELD(Watched, n_exchange), FIELD(Watched, n_open), FIELD(Watched, ids),
        FIELD(Watched, n_update),
    STRUCT(Arrays), FIELD(Arrays, push), FIELD(Arrays, pull), FIELD(Arrays, gradients),
        FIELD(Arrays, dense_gradient), FIELD(Arrays, rows), FIELD(Arrays, dense), FIELD(Arrays, age_class),
    STRUCT(Message), FIELD(Message, frames), FIELD(Message, n_byte), FIELD(Message, n_frame),
        FIELD(Message, request), FIELD(Message, arrays), FIELD(Message, reader), FIELD(Message, rows),
        FIELD(Message, dense), FIELD(Message, head), FIELD(Message, n_head), FIELD(Message, answer),
    STRUCT(Saving), FIELD(Saving, slots), FIELD(Saving, rows), FIELD(Saving, room), FIELD(Saving, n),
        FIELD(Saving, n_promised), FIELD(Saving, saved), FIELD(Saving, n_row), FIELD(Saving, n_copied),
    STRUCT(Store), FIELD(Store, epoch), FIELD(Store, table), FIELD(Store, stride), FIELD(Store, width),
        FIELD(Store, held), FIELD(Store, changed), FIELD(Store, marked), FIELD(Store, n_row),
        FIELD(Store, most_rows), FIELD(Store, n_held), FIELD(Store, n_id), FIELD(Store, direct),
        FIELD(Store, lines), FIELD(Store, last), FIELD(Store, directory), FIELD(Store, depth),
        FIELD(Store, n_in_piece), FIELD(Store, n_piece), FIELD(Store, early), FIELD(Store, most_in_piece),
        FIELD(Store, dense), FIELD(Store, n_dense), FIELD(Store, n_trained), FIELD(Store, decay),
        FIELD(Store, kind), FIELD(Store, rule), FIELD(Store, corrections), FIELD(Store, n_correction),
        FIELD(Store, n_step), FIELD(Store, most_steps), FIELD(Store, seed_bits), FIELD(Store, served),
        FIELD(Store, sampled), FIELD(Store, n_bucket), FIELD(Store, sample_below), FIELD(Store, update_s),
        FIELD(Store, lookup_s), FIELD(Store, late_s), FIELD(Store, n_answered), FIELD(Store, moving),
        FIELD(Store, first_unmarked), FIELD(Store, next_marked), FIELD(Store, n_pending), FIELD(Store, saving),
        FIELD(Store, amplitude), FIELD(Store, first_state), FIELD(Store, dense_steps), FIELD(Store, locks),
    STRUCT(Rule), FIELD(Rule, rate), FIELD(Rule, beta1), FIELD(Rule, rest1), FIELD(Rule, beta2),
        FIELD(Rule, rest2), FIELD(Rule, epsilon),
    STRUCT(Step), FIELD(Step, rule), FIELD(Step, corrections), FIELD(Step, n_correction),
    STRUCT(Line), FIELD(Line, tags), FIELD(Line, n_passed), FIELD(Line, slots),
    STRUCT(PollDescriptor), FIELD(PollDescriptor, fd), FIELD(PollDescriptor, events),
        FIELD(PollDescriptor, revents),
    {0},
};

/* All places, up to one without a name. */
const Place *layouts(void)
{
    return places;
}
