"""How old gradients are when this PS applies them, by worker: in updates, in seconds, and by row.

The version of the parameters is the number of updates so far. A connection reads rows at one version, and
its gradients of them come with its next exchange, or, where exchanges overlap with computing, with the one
after that. Updates of the connection itself in between do not count: its gradients would be as old alone. Of
a sample of the rows the same is counted row by row (`kernels.reader_ages`).

Where gradients are gathered into global batches (`gathering`), an update is the step of a global batch. One
with gradients of one connection alone is its own; all others count, whether or not it has a part in them. Of
rows nothing is counted there.

The compiled kernel counts the exchanges that it serves for a bell, the methods here all others, in the same
records and by the same function.

Versions do not travel. A worker that says what it computed from would need another field in the requests that
lie in shared memory, which processes of two releases lay out alike.
"""

from __future__ import annotations

import time
from ctypes import POINTER, c_int64, pointer, sizeof
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.kernels.bell_requests import Reader, Watched
from dlrover_nb.core.runtime.kernels.reader_ages import age_now, n_other
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.gradient_ages import (
    N_CLASS,
    N_SECOND_CLASS,
    GradientAges,
    class_of,
    without_end_zeros,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.bell_requests import Bell
    from dlrover_nb.core.structs.job.job import JobSpec

    Ids = NDArray[np.int64]

EVERY_S = 5.0  # a report has the ages of so long
_NO_ROWS = np.empty(0, np.int64)
_ALL_ROWS = 1 << 32


class _Counts:
    """Gradients of a worker by class of age: in updates, in milliseconds, and those of rows."""

    def __init__(self) -> None:
        self.updates, self.milliseconds, self.rows = [0] * N_CLASS, [0] * N_SECOND_CLASS, [0] * N_CLASS

    def take(self, reader: Reader) -> None:
        """Add what was counted of a connection, which begins anew."""
        for counts, of_reader in (
            (self.updates, reader.counts),
            (self.milliseconds, reader.seconds),
            (self.rows, reader.row_counts),
        ):
            counts[:] = [a + b for a, b in zip(counts, of_reader, strict=True)]
            of_reader[:] = [0] * len(counts)

    def ages_of(self, worker: str) -> GradientAges:
        """Return them for a report."""
        updates, milliseconds, rows = map(without_end_zeros, (self.updates, self.milliseconds, self.rows))
        return GradientAges(worker, updates, milliseconds, rows)


class UpdateAges:
    """Ages of the gradients since the last `take`.

    Parameters
    ----------
    spec
        Of the job: kind of synchronization, and whether exchanges overlap with computing.
    now_s
        Monotonic clock; the kernel uses the system's.
    """

    def __init__(self, spec: JobSpec, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._lag = int(spec.overlap and spec.sync is not Sync.BSP)
        self._now_s, self._round_s = now_s, now_s()
        self._kernel, self._n_update = kernel(), c_int64(0)
        self._watched = Watched(limit=_ALL_ROWS)
        self._readers: dict[bytes, tuple[str, Reader]] = {}
        self._counts: dict[str, _Counts] = {}  # of connections that are gone, and of rounds

    @property
    def n_byte(self) -> int:
        """Bytes of all counts."""
        return sizeof(Watched) + len(self._readers) * sizeof(Reader)

    def begin(self, bells: Iterable[Bell]) -> None:
        """Begin another epoch, with other connections: those of the last one have no rows of it."""
        for bell in bells:
            bell.reader = POINTER(Reader)()
        self._collect()
        self._readers = {}

    def reader(self, identity: bytes, worker: str) -> Reader:
        """Return what a connection has read and pushed."""
        if identity not in self._readers:
            reader = Reader(lag=self._lag, n_exchange=1, generation=self._watched.generation)
            reader.n_update, reader.watched = pointer(self._n_update), pointer(self._watched)
            reader.n_read[:] = [self._n_update.value] * 2
            reader.read_s[:] = [self._now_s()] * 2
            self._readers[identity] = worker, reader
        return self._readers[identity][1]

    def follow(self, identity: bytes, worker: str, bell: Bell) -> None:
        """Let the kernel count what it serves for a bell."""
        bell.reader = pointer(self.reader(identity, worker))

    def class_of_next(self, identity: bytes, worker: str) -> int:
        """Return the class of the age that a gradient of a connection has now."""
        return class_of(age_now(self.reader(identity, worker)))

    def count(
        self,
        identity: bytes,
        worker: str,
        *,
        has_pushed: bool,
        pushed: Ids = _NO_ROWS,
        pulled: Ids = _NO_ROWS,
    ) -> None:
        """Count an exchange that was served, with the rows that it brought and read."""
        reader = self.reader(identity, worker)
        self._kernel.count_exchange(reader, pushed, pulled, self._now_s(), has_pushed=has_pushed)

    def count_gathered(self, identity: bytes, worker: str) -> int:
        """Count a gradient that the next update has, and return its age."""
        reader = self.reader(identity, worker)
        age = age_now(reader)
        reader.counts[class_of(age)] += 1
        age_ms = int((self._now_s() - reader.read_s[self._lag]) * 1e3)
        reader.seconds[class_of(age_ms, N_SECOND_CLASS)] += 1
        return age

    def count_step(self, contributors: Collection[tuple[bytes, str]]) -> None:
        """Count an update with the gradients of some connections and their workers."""
        self._n_update.value += 1
        if len(contributors) == 1:
            (alone,) = contributors
            self.reader(*alone).n_own += 1

    def count_read(self, identity: bytes, worker: str) -> None:
        """Note that a connection reads rows now."""
        reader = self.reader(identity, worker)
        reader.n_read[1], reader.n_read[0] = reader.n_read[0], n_other(reader)
        reader.read_s[1], reader.read_s[0] = reader.read_s[0], self._now_s()

    def count_round(self, workers: Iterable[str]) -> None:
        """Count the gradients of a round, which are applied together: all were computed from one version.

        It is as old as the round before: workers read when that was applied.
        """
        self._n_update.value += 1
        now_s = self._now_s()
        since_ms, self._round_s = int((now_s - self._round_s) * 1e3), now_s
        for worker in workers:
            counts = self._counts_of(worker)
            counts.updates[0] += 1
            counts.milliseconds[class_of(since_ms, N_SECOND_CLASS)] += 1

    def take(self) -> tuple[GradientAges, ...]:
        """Return the ages by worker, and begin anew."""
        self._collect()
        counts, self._counts = self._counts, {}
        return tuple(each.ages_of(worker) for worker, each in sorted(counts.items()) if any(each.updates))

    def _collect(self) -> None:
        for worker, reader in self._readers.values():
            self._counts_of(worker).take(reader)

    def _counts_of(self, worker: str) -> _Counts:
        return self._counts.setdefault(worker, _Counts())
