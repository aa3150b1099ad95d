"""Ways of applying gradients that come from parameters of an earlier moment, as parameter servers do it.

A way is told of each gradient when it arrives and applies to the store what is due. It is made anew for each
run, so it may keep gradients, and applies what it still keeps at the end. Its decisions are those of the
runtime: the factor of `stale_steps`, the gathering of `global_batch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, assert_never

from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.ps.global_batch import Gathered, GlobalBatch
from dlrover_nb.core.runtime.store.stale_steps import normalised_factor
from dlrover_nb.core.structs.job.spec_choices import StaleSteps, Sync

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.ps.global_batch import GlobalStep
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.job.job import JobSpec

    Floats = NDArray[np.float32]
    Updates = Sequence[frozenset[int]]  # the workers that had a part in each


class WayName(StrEnum):
    """Ways that can be rehearsed."""

    ASP = "asp"  # each gradient is one step, however old it is
    NORMALISED = "normalised"  # the same, with shorter steps of the dense part for older gradients
    GBA = "gba"  # gradients are gathered until a global batch is full, and applied as one step


@dataclass(frozen=True, slots=True)
class Arrival:
    """The gradients of one batch as they reach the parameters.

    Parameters
    ----------
    worker, number
        Who computed it, and the number of the batch in the order in which batches were read.
    n_row
        Samples of the batch.
    ids, rows, dense
        Its distinct rows [u], their gradients [u, width], and that of the dense vector.
    age
        Updates since its parameters were read, without those that are of its worker alone.
    """

    worker: int
    number: int
    n_row: int
    ids: NDArray[np.int64]
    rows: Floats
    dense: Floats
    age: int


class Way(Protocol):
    """How gradients become updates; `name` is as `QualityCurve.way` has it."""

    name: str

    def take(self, arrival: Arrival, store: ParameterStore) -> Updates:
        """Apply what is due now that a gradient has come; return who had a part in each update."""
        ...

    def finish(self, store: ParameterStore) -> Updates:
        """Apply what is left at the end of a run, and return the same."""
        ...


class AsTheyCome:
    """Each gradient is one step of the optimizer: `sync: asp`, plain or with normalised steps."""

    def __init__(self, *, is_normalised: bool = False) -> None:
        self.name = str(WayName.NORMALISED if is_normalised else WayName.ASP)
        self._is_normalised = is_normalised

    def take(self, arrival: Arrival, store: ParameterStore) -> Updates:
        """Apply it."""
        store.push(arrival.ids, arrival.rows)
        store.push_dense(arrival.dense, normalised_factor(arrival.age) if self._is_normalised else 1.0)
        return (frozenset({arrival.worker}),)

    def finish(self, store: ParameterStore) -> Updates:  # noqa: ARG002 - nothing is kept
        """Return none: nothing is left."""
        return ()


class InGlobalBatches:
    """Gradients are gathered until a global batch of `size` rows is full: `sync: gba`.

    Parameters
    ----------
    size, tolerance
        Of the job: rows of a global batch, and the age in steps up to which gradients count in full.
    n_average
        The last elements of a dense gradient that are shares in running averages.
    """

    name = str(WayName.GBA)

    def __init__(self, size: int, *, tolerance: int, n_average: int = 0) -> None:
        self._size, self._batch = size, GlobalBatch(tolerance=tolerance, n_average=n_average)
        self._contributors: set[int] = set()

    def take(self, arrival: Arrival, store: ParameterStore) -> Updates:
        """Gather it, and apply the global batch if it is full now."""
        gradients = arrival.ids, arrival.rows, arrival.dense
        self._contributors.add(arrival.worker)
        return self._apply(
            self._batch.add(Gathered(arrival.age, arrival.n_row, gradients), self._size), store
        )

    def finish(self, store: ParameterStore) -> Updates:
        """Apply what is left as a smaller step."""
        return self._apply(self._batch.flush(), store)

    def _apply(self, step: GlobalStep | None, store: ParameterStore) -> Updates:
        if step is None:
            return ()
        ids, rows, dense = step.gradients
        store.push(ids, rows)
        store.push_dense(dense)
        contributors, self._contributors = frozenset(self._contributors), set()
        return (contributors,)


def way_of(name: WayName, spec: JobSpec, n_worker: int) -> Way:
    """Return a way as a job with so many workers has it, for one run.

    Without a global batch of its own, a job with `sync: gba` gathers a batch of each worker.
    """
    match name:
        case WayName.ASP:
            return AsTheyCome()
        case WayName.NORMALISED:
            return AsTheyCome(is_normalised=True)
        case WayName.GBA:
            size = spec.global_batch or n_worker * spec.batch_size
            return InGlobalBatches(size, tolerance=spec.staleness, n_average=spec.model.n_average)
        case _:
            assert_never(name)


def batch_of(name: WayName, spec: JobSpec, n_worker: int) -> int:
    """Return the samples of one worker's mini-batch.

    Workers share a global batch out; where it is gathered, each sends batches of its own, no larger than it.
    """
    if spec.global_batch is None:
        return spec.batch_size
    if name is WayName.GBA:
        return min(spec.batch_size, spec.global_batch)
    return max(round(spec.global_batch / n_worker), 1)


def own_way(spec: JobSpec) -> WayName:
    """Return how a job applies gradients; of one that trains in step, how it would without."""
    if spec.stale_steps is StaleSteps.NORMALISED:
        return WayName.NORMALISED
    return WayName.GBA if spec.sync is Sync.GBA else WayName.ASP


def ways_named(names: Sequence[str]) -> tuple[WayName, ...]:
    """Return ways by their names, each once.

    Raises
    ------
    InvalidValueError
        When there is none of a name; it names the nearest.
    """
    for name in names:
        if name not in {*WayName}:
            hint = did_you_mean(name, tuple(WayName), otherwise=f"choose from {', '.join(WayName)}")
            raise InvalidValueError(f"no way {shown(name)} to apply gradients; {hint}")
    return tuple(dict.fromkeys(map(WayName, names)))
