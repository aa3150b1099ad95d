"""What an exchange of a worker does to a store: it applies gradients, then reads rows and the dense slice.

A compiled kernel does both in one call where a request is as those of almost every iteration of asynchronous
training are; the methods of the store do the rest, with the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.process.time_accounting import Part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import Exchange
    from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
    from dlrover_nb.core.runtime.ps.gradient_rounds import Rounds
    from dlrover_nb.core.runtime.store import ParameterStore

    Arrays = list[NDArray[Any]]
    Ids = NDArray[np.int64]
    Answer = tuple[NDArray[np.float32], NDArray[np.float32]]


def apply(
    request: Exchange,
    arrays: Arrays,
    out: Answer,
    store: ParameterStore,
    rounds: Rounds,
    accounting: TimeAccounting,
) -> tuple[float, float | None]:
    """Apply the gradients of a request, and maybe read what it asks for as well.

    Parameters
    ----------
    arrays
        Distinct ids [n], their gradients [n, width], the dense gradient [m] or none, and ids to read [k].
    out
        Where rows [k, width] and the dense slice are written.
    rounds
        Gradients that wait for the end of their round.

    Returns
    -------
    tuple[float, float | None]
        Seconds of the update and of reading; None: nothing was read yet.

    Raises
    ------
    WireError
        When the gradients do not fit the store or are not usable: then none is applied.
    """
    ids, gradients, dense_gradient, wanted = arrays
    accounting.switch(Part.UPDATE)
    if request.done is None and request.rate == 1.0:
        took_s = store.exchange(request.ps_epoch, (ids, gradients, dense_gradient), wanted, out)
        if took_s is not None:
            whole_s = accounting.switch(Part.OTHER)
            accounting.share(Part.LOOKUP, min(1.0, took_s[1] / whole_s) if whole_s > 0 else 0.0)
            return took_s
    store.check_usable(gradients, dense_gradient)  # both, before either is applied
    if request.done is not None:
        rounds.apply(request.done, store)
    if len(ids):
        store.push(ids, gradients, request.rate)
    if len(dense_gradient):
        store.push_dense(dense_gradient, request.rate)
    return accounting.switch(Part.LOOKUP), None


def read(wanted: Ids, out: Answer, store: ParameterStore, accounting: TimeAccounting) -> float:
    """Write rows [k, width] and the dense slice into `out`; return the seconds that it took."""
    accounting.switch(Part.LOOKUP)
    store.pull(wanted, out[0])
    store.read_dense(out[1])
    return accounting.switch(Part.OTHER)
