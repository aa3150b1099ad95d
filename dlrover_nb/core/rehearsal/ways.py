"""Ways of applying gradients that come from parameters of an earlier moment.

A way is told of each gradient when it arrives and applies to the store what is due. It is made anew for each
run, so it may keep gradients, and hands over what it still keeps at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store import ParameterStore

    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Arrival:
    """The gradients of one batch as they reach the parameters.

    Parameters
    ----------
    number
        Of the batch, in the order in which batches were read.
    n_row
        Samples of the batch.
    ids, rows, dense
        Its distinct rows [u], their gradients [u, width], and that of the dense vector.
    age
        Updates since its parameters were read, without those of its own worker.
    read_rows, read_dense
        The parameters that it was computed from.
    """

    number: int
    n_row: int
    ids: NDArray[np.int64]
    rows: Floats
    dense: Floats
    age: int
    read_rows: Floats
    read_dense: Floats


class Way(Protocol):
    """How gradients become updates.

    Attributes
    ----------
    name
        As `QualityCurve.way` has it.
    is_shared
        Whether an update holds gradients of several workers, and so is none's own.
    """

    name: str
    is_shared: bool

    def take(self, arrival: Arrival, store: ParameterStore) -> int:
        """Apply what is due now that a gradient has come; return how many updates that were."""
        ...

    def finish(self, store: ParameterStore) -> int:
        """Apply what is left at the end of a run; return how many updates that were."""
        ...


class AsTheyCome:
    """Each gradient is one step of the optimizer, however old it is: `sync: asp`."""

    name = str(Sync.ASP)
    is_shared = False

    def take(self, arrival: Arrival, store: ParameterStore) -> int:
        """Apply it."""
        store.push(arrival.ids, arrival.rows)
        store.push_dense(arrival.dense)
        return 1

    def finish(self, store: ParameterStore) -> int:  # noqa: ARG002 - nothing is kept
        """Return 0: nothing is left."""
        return 0
