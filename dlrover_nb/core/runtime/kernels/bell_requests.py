"""Requests that workers ring for, as both kernels and both ends of a bell lay them out (`serve.c`).

A plain request is the one of almost every iteration in asynchronous training: gradients at the model's own
learning rate, rows to return, and all arrays in the worker's slab, one after another.
A compiled kernel serves it without Python; `wait` is what is left to do where there is none.
"""

from __future__ import annotations

import os
import select
import time
from ctypes import (
    POINTER,
    Structure,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from enum import IntEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.gradient_ages import N_CLASS, N_SECOND_CLASS

if TYPE_CHECKING:
    from collections.abc import Sequence


WATCHED = 4096  # places of rows whose updates are counted
MOST_WATCHED = WATCHED // 2
PERIOD, WINDOW = 2048, 32  # of so many exchanges the first ones are noted
OFTENER_AT_FIRST = 8  # times, in the first period


class Outcome(IntEnum):
    """What became of a request; all but the first are left to Python."""

    ANSWERED = 0  # or there is none
    MAP_GROWS = 1  # for rows that are new
    NOT_PLAIN = 2
    MALFORMED = 3


class Request(Structure):
    """What a worker rings: the fields of an `Exchange` without a round, and where its arrays lie.

    From `at` on lie ids [n_push], gradients [n_push, width], the dense gradient [n_dense] and the ids to pull
    [n_pull], each where a cache line begins. `rung_s` is of the clock that processes of a host share: so a PS
    that its host stops in a wait for requests knows how long they waited for it.
    """

    _fields_ = (
        *((name, c_int64) for name in ("epoch", "step", "at", "n_push", "width", "n_dense", "n_pull")),
        ("answer_at", c_int64),
        ("rate", c_double),
        ("rung_s", c_double),
        ("n_row", c_int64),
    )


class Answer(Structure):
    """What a PS rings: an `Exchanged`, and where rows [n_row, width] and the dense slice [n_dense] lie."""

    _fields_ = (
        *((name, c_int64) for name in ("epoch", "step", "at", "n_row", "width", "n_dense")),
        ("update_s", c_double),
        ("lookup_s", c_double),
    )


class Watched(Structure):
    """Rows whose updates are counted, those whose mixed id is below `limit`: see `reader_ages`.

    Of `n_exchange` so far, `n_open` were noted and their gradients have not come yet.
    """

    _fields_ = (
        ("n_row", c_int64),
        ("limit", c_int64),
        ("generation", c_int64),
        ("n_exchange", c_int64),
        ("n_open", c_int64),
        ("ids", c_int64 * WATCHED),
        ("n_update", c_uint32 * WATCHED),
    )


class Reader(Structure):
    """What a connection has read and pushed, for the ages of its gradients: see `ps.update_ages`.

    `n_update` points to the updates of all connections; `n_read` are those of others when it read rows last,
    and the time before, of which a gradient was computed from the one at `lag`; `read_s` is when that was.
    `counts` are its gradients by age in updates, `seconds` by age in milliseconds, and `row_counts` those of
    watched rows by updates of the row. Of these it has what it pushed (`own`), and what others had (`others`)
    at its two last exchanges that read them (`read_at`).
    """

    _fields_ = (
        ("n_update", POINTER(c_int64)),
        ("watched", POINTER(Watched)),
        ("lag", c_int64),
        ("n_own", c_int64),
        ("n_read", c_int64 * 2),
        ("counts", c_int64 * N_CLASS),
        ("seconds", c_int64 * N_SECOND_CLASS),
        ("row_counts", c_int64 * N_CLASS),
        ("read_s", c_double * 2),
        ("generation", c_int64),
        ("is_noted", c_int64 * 2),
        ("n_exchange", c_uint32),
        ("own", c_uint32 * WATCHED),
        ("others", c_uint32 * WATCHED * 2),
        ("read_at", c_uint32 * WATCHED * 2),
    )


class Bell(Structure):
    """A worker's slab and bell, on a PS: `step` is the last one answered, `pending` the `Outcome` so far."""

    _fields_ = (
        ("slab", c_void_p),
        ("n_slab", c_int64),
        ("ask", c_int32),
        ("answers", c_int32),
        ("step", c_int64),
        ("is_open", c_int64),
        ("pending", c_int64),
        ("is_held", c_int64),
        ("request", Request),
        ("answer", Answer),
        ("reader", POINTER(Reader)),
    )


class Saving(Structure):
    """Where the compiled kernel saves rows before they change, `n` so far: `Saving` of store.h.

    The first `n_row` rows are copied, and `n_copied` points to how many have been. The kernel writes `n`
    before a row changes; so the copying thread finds here each row that it read after a change.
    """

    _fields_ = (
        ("slots", c_void_p),
        ("rows", c_void_p),
        ("room", c_int64),
        ("n", c_int64),
        ("n_promised", c_int64),
        ("saved", c_void_p),
        ("n_row", c_int64),
        ("n_copied", c_void_p),
    )


class Parameters(Structure):
    """What the compiled kernel needs of a store (`Store` of store.h), and what it did for it."""

    _fields_ = (
        ("epoch", c_int64),
        ("table", c_void_p),
        ("stride", c_int64),
        ("width", c_int64),
        ("held", c_void_p),
        ("changed", c_void_p),
        ("marked", c_void_p),
        ("n_row", c_int64),
        ("most_rows", c_int64),
        ("n_held", c_void_p),
        ("n_id", c_uint64),
        ("direct", c_void_p),
        ("lines", c_void_p),
        ("last", c_uint64),
        ("directory", c_void_p),
        ("depth", c_int64),
        ("n_in_piece", c_void_p),
        ("n_piece", c_int64),
        ("early", c_int64),
        ("most_in_piece", c_int64),
        ("dense", c_void_p),
        ("n_dense", c_int64),
        ("n_trained", c_int64),
        ("decay", c_void_p),
        ("kind", c_int64),
        ("rule", c_void_p),
        ("corrections", c_void_p),
        ("n_correction", c_int64),
        ("n_step", c_int64),
        ("most_steps", c_int64),
        ("seed_bits", c_uint64),
        ("served", c_void_p),
        ("sampled", c_void_p),
        ("n_bucket", c_int64),
        ("sample_below", c_int64),
        ("update_s", c_double),
        ("lookup_s", c_double),
        ("late_s", c_double),
        ("n_answered", c_int64),
        ("moving", c_void_p),
        ("first_unmarked", c_int64),
        ("next_marked", c_int64),
        ("n_pending", c_int64),
        ("saving", c_void_p),
        ("amplitude", c_float),
        ("first_state", c_float),
        ("dense_steps", c_void_p),
        ("locks", c_void_p),
    )


def read(bell: Bell) -> None:
    """Read a request that has come, if one has; it waits for Python then."""
    try:
        data = os.read(bell.ask, sizeof(Request))
    except BlockingIOError:
        return
    if len(data) < sizeof(Request):
        bell.pending = Outcome.MALFORMED
        return
    bell.request, bell.pending = Request.from_buffer_copy(data), Outcome.NOT_PLAIN


def ring(bell: Bell) -> None:
    """Ring the last answer; it is lost where a worker has not read those before."""
    try:
        os.write(bell.answers, bell.answer)
    except BlockingIOError:
        return


def wait(bells: Sequence[Bell], others: Sequence[int], timeout_s: float) -> float:
    """Wait for requests of `bells` and for other descriptors; read the requests.

    Returns
    -------
    float
        Seconds for which the first request of them had come and waited for this process.
    """
    poll, by_descriptor, late_s = select.poll(), {bell.ask: bell for bell in bells}, 0.0
    began_s = time.monotonic()
    for descriptor in (*by_descriptor, *others):
        poll.register(descriptor, select.POLLIN)
    for descriptor, _ in poll.poll(max(0.0, timeout_s * 1e3)):
        if (bell := by_descriptor.get(descriptor)) is not None:
            read(bell)
            late_s = max(late_s, time.monotonic() - max(began_s, bell.request.rung_s))
    return late_s
