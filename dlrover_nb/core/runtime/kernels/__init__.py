"""The inner loops of a parameter server and of a worker's batches, compiled where possible.

`numpy_kernel` is the definition and works everywhere; `compiled` gives the same bits several times as fast,
if the package was installed with a C compiler. ``DLROVER_NB_KERNEL`` set to ``numpy`` or ``c`` selects one.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.kernels import compiled, numpy_kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.bell_requests import Parameters, Reader
    from dlrover_nb.core.runtime.kernels.plain_server import PlainServer
    from dlrover_nb.core.runtime.kernels.rule import Rule

    Ids = NDArray[np.int64]
    Slots = NDArray[np.int32]
    Floats = NDArray[np.float32]

VARIABLE = "DLROVER_NB_KERNEL"
_log = logging.getLogger(__name__)


class Map(Protocol):
    """Slots of ids."""

    @property
    def n_byte(self) -> int:
        """Bytes allocated."""
        ...

    def describe(self, parameters: Parameters) -> None:
        """Say where the map lies, to a kernel that serves without Python."""
        ...

    def find(self, ids: Ids, slot_ids: Ids) -> Slots:
        """Return the slot of each id, -1 where it has none; `slot_ids`: the id of each slot."""
        ...

    def insert(self, ids: Ids, first: int, slot_ids: Ids) -> None:
        """Give distinct ids that have none the slots from `first` on; `slot_ids`: the id of each slot."""
        ...

    def move(self, ids: Ids, slots: Slots, to: Slots) -> None:
        """Give distinct ids other slots than theirs; -1: none. No new slot is a later id's old one."""
        ...


class Kernel(Protocol):
    """What both kernels compute; see `numpy_kernel`."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """Name for people."""
        ...

    def initial_rows(self, ids: Ids, width: int, seed: int) -> Floats:
        """Return the first values of rows."""
        ...

    def gather(self, table: Floats, slots: Slots, ids: Ids, out: Floats, seed: int) -> None:
        """Write the values of rows into `out`, packed [n, width]; first values where a slot is -1."""
        ...

    def update_rows(
        self, table: Floats, slots: Slots, gradients: Floats, rule: Rule, corrections: Floats | None
    ) -> None:
        """Apply one step to rows."""
        ...

    def update_dense(self, dense: Floats, gradient: Floats, rule: Rule, corrections: Floats | None) -> None:
        """Apply one step to a dense slice."""
        ...

    def plain_server(self, rule: Rule) -> PlainServer | None:
        """Return what serves plain requests (`bell_requests`) without Python; None: this kernel does not."""
        ...

    def count_exchange(
        self, reader: Reader, pushed: Ids, pulled: Ids, at_s: float, *, has_pushed: bool
    ) -> None:
        """Count the ages of what an exchange brought, and what it read: see `reader_ages`."""
        ...

    def direct_map(self, n_id: int) -> Map:
        """Return an empty map of ids in [0, n_id)."""
        ...

    def hash_map(self, most: int) -> Map:
        """Return an empty map of any ids >= 0, with address space for `most` of them."""
        ...

    def distinct(self, ids: Ids) -> tuple[Ids, Ids]:
        """Return the distinct ids in order of appearance, and the place of each id among them."""
        ...

    def grouped(self, rows: Ids, inverse: Ids, owner: Ids, n_owner: int) -> tuple[Ids, Ids, Ids]:
        """Return rows with those of one owner side by side, the places in them, and rows of each owner."""
        ...

    def add_rows(self, out: Floats, places: Ids, rows: Floats, weight: np.float32) -> None:
        """Add rows, times a weight, to those of `out` [n, width] at distinct places."""
        ...


def kernel() -> Kernel:
    """Return the kernel that the environment asks for, else the compiled one where it is there.

    Raises
    ------
    InvalidValueError
        When it asks for one that is not there.
    """
    return _named(os.environ.get(VARIABLE, ""))


@functools.cache
def _named(name: str) -> Kernel:
    if name not in {"", "numpy", "c"}:
        raise InvalidValueError(f"{VARIABLE} must be numpy or c, got {name!r}; or leave it unset")
    if name == "numpy":
        return numpy_kernel
    flaw = compiled.flaw()
    if not flaw:
        return compiled.Compiled()
    advice = "install the package again where there is a C compiler"
    if name:
        raise InvalidValueError(
            f"{VARIABLE}=c asks for the compiled kernel, which {flaw}; {advice}, or leave it unset"
        )
    if compiled.LIBRARY.exists():
        _log.warning("numpy computes, several times as slowly: the compiled kernel %s; %s", flaw, advice)
    return numpy_kernel
