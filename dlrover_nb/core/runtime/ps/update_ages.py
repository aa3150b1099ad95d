"""How old gradients are when this PS applies them, by worker.

The version of the parameters is the number of updates so far. A connection reads rows at one version, and
its gradients of them come with its next exchange, or, where exchanges overlap with computing, with the one
after that. Updates of the connection itself in between do not count: its gradients would be as old alone.

Where gradients are gathered into global batches (`gathering`), an update is the step of a global batch. One
with gradients of one connection alone is its own; all others count, whether or not it has a part in them.

The compiled kernel counts the exchanges that it serves for a bell (`count_age` of serve.c), the methods here
all others, in the same records.

Versions do not travel. A worker that says what it computed from would need another field in the requests that
lie in shared memory, which processes of two releases lay out alike.
"""

from __future__ import annotations

from ctypes import POINTER, addressof, c_int64, pointer
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.kernels.bell_requests import Reader
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.gradient_ages import (
    N_CLASS,
    GradientAges,
    class_of,
    without_end_zeros,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dlrover_nb.core.runtime.kernels.bell_requests import Bell
    from dlrover_nb.core.structs.job.job import JobSpec

EVERY_S = 5.0  # a report has the ages of so long


class UpdateAges:
    """Ages of the gradients since the last `take`.

    Parameters
    ----------
    spec
        Of the job: kind of synchronization, and whether exchanges overlap with computing.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._lag = int(spec.overlap and spec.sync is not Sync.BSP)
        self._n_update = c_int64(0)
        self._readers: dict[bytes, tuple[str, Reader]] = {}
        self._counts: dict[str, list[int]] = {}  # of connections that are gone, and of rounds

    def begin(self, bells: Iterable[Bell]) -> None:
        """Begin another epoch, with other connections: those of the last one have no rows of it."""
        for bell in bells:
            bell.reader = POINTER(Reader)()
        self._collect()
        self._readers = {}

    def follow(self, identity: bytes, worker: str, bell: Bell) -> None:
        """Let the kernel count what it serves for a bell."""
        bell.reader = pointer(self._reader(identity, worker))

    def count(self, identity: bytes, worker: str, *, has_pushed: bool) -> None:
        """Count an exchange that was served: `count_age` of serve.c."""
        if has_pushed:
            self.count_gathered(identity, worker)
            self.count_step({(identity, worker)})
        self.count_read(identity, worker)

    def count_gathered(self, identity: bytes, worker: str) -> int:
        """Count a gradient that the next update has, and return its age."""
        reader = self._reader(identity, worker)
        age = self._n_update.value - reader.n_own - reader.n_read[self._lag]
        reader.counts[class_of(age)] += 1
        return int(age)

    def count_step(self, contributors: Collection[tuple[bytes, str]]) -> None:
        """Count an update with the gradients of some connections and their workers."""
        self._n_update.value += 1
        if len(contributors) == 1:
            (alone,) = contributors
            self._reader(*alone).n_own += 1

    def count_read(self, identity: bytes, worker: str) -> None:
        """Note that a connection reads rows now."""
        reader = self._reader(identity, worker)
        reader.n_read[1], reader.n_read[0] = reader.n_read[0], self._n_update.value - reader.n_own

    def count_round(self, workers: Iterable[str]) -> None:
        """Count the gradients of a round, which are applied together: all were computed from one version."""
        self._n_update.value += 1
        for worker in workers:
            self._counts_of(worker)[0] += 1

    def take(self) -> tuple[GradientAges, ...]:
        """Return the ages by worker, and begin anew."""
        self._collect()
        counts, self._counts = self._counts, {}
        return tuple(
            GradientAges(worker, without_end_zeros(n)) for worker, n in sorted(counts.items()) if any(n)
        )

    def _collect(self) -> None:
        for worker, reader in self._readers.values():
            counts = self._counts_of(worker)
            counts[:] = [a + b for a, b in zip(counts, reader.counts, strict=True)]
            reader.counts = type(reader.counts)()

    def _counts_of(self, worker: str) -> list[int]:
        return self._counts.setdefault(worker, [0] * N_CLASS)

    def _reader(self, identity: bytes, worker: str) -> Reader:
        if identity not in self._readers:
            reader = Reader(n_update=addressof(self._n_update), lag=self._lag)
            reader.n_read[:] = [self._n_update.value] * 2
            self._readers[identity] = worker, reader
        return self._readers[identity][1]
