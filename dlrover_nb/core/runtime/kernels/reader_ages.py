"""Ages of what a connection brings, counted without the compiled kernel: what `ages.c` must count.

A PS counts the updates of some rows, chosen by a mix of their ids alone. So whether a row is among them does
not depend on how often it is pulled or pushed, and each gradient of a row has the same chance to be counted:
the sample is unbiased. All rows are watched at first. When there are too many for the table, half of the ids
are watched from then on, and so on; then the counts of what was read before are forgotten.

To look at each row of each exchange costs 5 % of an exchange. So of 2,048 exchanges the first 32 are noted
with what they read, whichever connections they are of. From then on pushes are looked at until the gradients
of the noted ones have come. How long that takes does not matter, so that slow workers are counted as others
are, up to the end of the 2,048. The first 2,048 have eight such turns, so that short jobs are not judged by
their first moments, when one worker trains alone.
"""

from __future__ import annotations

from ctypes import memset, sizeof
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.kernels.bell_requests import (
    MOST_WATCHED,
    OFTENER_AT_FIRST,
    PERIOD,
    WATCHED,
    WINDOW,
    Reader,
    Watched,
)
from dlrover_nb.core.structs.training.gradient_ages import N_SECOND_CLASS, class_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

_MIX, _SPREAD = 2654435769, 2246822519
_BITS = 1 << 32


def n_other(reader: Reader) -> int:
    """Return the updates of other connections so far."""
    return int(reader.n_update.contents.value) - int(reader.n_own)


def age_now(reader: Reader) -> int:
    """Return the age that a gradient of this connection has now."""
    return n_other(reader) - int(reader.n_read[reader.lag])


def count_exchange(reader: Reader, pushed: Ids, pulled: Ids, at_s: float, *, has_pushed: bool) -> None:
    """Count an exchange that was served at a time: the ages of what it brought, and what it read."""
    now, watched = n_other(reader), reader.watched.contents
    is_first = watched.n_exchange < PERIOD
    turn = watched.n_exchange % (PERIOD // OFTENER_AT_FIRST if is_first else PERIOD)
    watched.n_exchange += 1
    if not turn:
        _forget(watched)
    _follow(reader)
    reader.n_exchange += 1
    if has_pushed:
        reader.counts[class_of(now - reader.n_read[reader.lag])] += 1
        age_ms = int((at_s - reader.read_s[reader.lag]) * 1e3)
        reader.seconds[class_of(age_ms, N_SECOND_CLASS)] += 1
        if watched.n_open:
            _count_pushed(reader, pushed)
        reader.n_own += 1
        reader.n_update.contents.value += 1
    done = (reader.n_exchange - 1 - reader.lag) & 1
    watched.n_open -= reader.is_noted[done]
    reader.is_noted[done] = 0
    if turn < WINDOW:
        _note_pulled(reader, pulled)
        reader.is_noted[reader.n_exchange & 1] = 1
        watched.n_open += 1
    reader.n_read[1], reader.n_read[0] = reader.n_read[0], now
    reader.read_s[1], reader.read_s[0] = reader.read_s[0], at_s


def _count_pushed(reader: Reader, ids: Ids) -> None:
    watched = reader.watched.contents
    read_at = (reader.n_exchange - 1 - reader.lag) % _BITS
    for row, mix in _chosen(ids, watched):
        at = _place_of(watched, row, mix)
        if not watched.ids[at]:
            continue
        if reader.read_at[read_at & 1][at] == read_at:
            n_missed = watched.n_update[at] - reader.own[at] - reader.others[read_at & 1][at]
            reader.row_counts[class_of(n_missed % _BITS)] += 1
        watched.n_update[at] += 1
        reader.own[at] += 1


def _note_pulled(reader: Reader, ids: Ids) -> None:
    while not _noted(reader, ids):
        reader.watched.contents.limit //= 2
        _forget(reader.watched.contents)
        _follow(reader)


def _noted(reader: Reader, ids: Ids) -> bool:
    """Note what is read of watched rows; False: there are too many rows to watch."""
    watched, now = reader.watched.contents, reader.n_exchange
    for row, mix in _chosen(ids, watched):
        at = _place_of(watched, row, mix)
        if not watched.ids[at]:
            if watched.n_row == MOST_WATCHED:
                return False
            watched.ids[at] = row + 1
            watched.n_row += 1
        reader.read_at[now & 1][at] = now
        reader.others[now & 1][at] = (watched.n_update[at] - reader.own[at]) % _BITS
    return True


def _chosen(ids: Ids, watched: Watched) -> Iterator[tuple[int, int]]:
    """Return the ids that are watched, with their mixes."""
    unsigned = ids.astype(np.uint64)
    folded = (unsigned ^ (unsigned >> np.uint64(32))) & np.uint64(_BITS - 1)
    mixes = (folded * np.uint64(_MIX)) & np.uint64(_BITS - 1)
    is_chosen = mixes < np.uint64(watched.limit)
    yield from zip(ids[is_chosen].tolist(), mixes[is_chosen].tolist(), strict=True)


def _place_of(watched: Watched, row: int, mix: int) -> int:
    place = (mix * _SPREAD) % _BITS % WATCHED
    while watched.ids[place] not in {0, row + 1}:
        place = (place + 1) % WATCHED
    return place


def _forget(watched: Watched) -> None:
    """Forget what was read."""
    watched.n_row = watched.n_open = 0
    watched.generation += 1
    for array in (watched.ids, watched.n_update):
        memset(array, 0, sizeof(array))


def _follow(reader: Reader) -> None:
    """Forget what was read of rows that are not watched any more."""
    if reader.generation == (generation := reader.watched.contents.generation):
        return
    reader.generation = generation
    for array in (reader.is_noted, reader.own, reader.others, reader.read_at):
        memset(array, 0, sizeof(array))
