"""Serves plain requests in C (`serve.c`), without the GIL, until something else is to be done."""

from __future__ import annotations

import select
from ctypes import POINTER, Structure, addressof, byref, c_int, c_short, pointer
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.kernels.requests import Bell, Parameters

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


class _PollDescriptor(Structure):
    """The system's pollfd."""

    _fields_ = (("descriptor", c_int), ("events", c_short), ("found", c_short))


class PlainServer:
    """The compiled kernel's part of serving.

    Parameters
    ----------
    library
        The compiled kernel.
    numbers
        Of the rule, to which `parameters` points.

    Attributes
    ----------
    parameters
        Of the store, which says where they lie.
    """

    def __init__(self, library: ctypes.CDLL, numbers: Floats) -> None:
        self._c, self._numbers = library, numbers
        self._corrections: Floats | None = None
        self.parameters = Parameters()

    def begin(self, epoch: int, steps: tuple[Floats | None, int, int]) -> None:
        """Serve an epoch from now on, with the step sizes of `Rates.ahead`."""
        self.parameters.epoch = epoch
        self._corrections, self.parameters.n_step, self.parameters.most_steps = steps
        if self._corrections is not None:
            self.parameters.corrections = self._corrections.ctypes.data
            self.parameters.n_correction = len(self._corrections)
        self.parameters.update_s = self.parameters.lookup_s = self.parameters.late_s = 0.0
        self.parameters.n_answered = 0

    def serve(self, bells: Sequence[Bell], others: Sequence[int], timeout_s: float, *, n_thread: int) -> None:
        """Serve until a request waits for Python, another descriptor is ready, or the time is over.

        With several threads, its times are the mean of all: so they are shares of what the PS may use.
        """
        named = (POINTER(Bell) * len(bells))(*map(pointer, bells))
        descriptors = (_PollDescriptor * (len(bells) + 1 + len(others)))()
        for each, other in zip(descriptors[len(bells) + 1 :], others, strict=True):
            each.descriptor, each.events = other, select.POLLIN
        at, timeout_s = addressof(self.parameters), max(0.0, timeout_s)
        self._c.serve(at, named, len(bells), descriptors, len(others), timeout_s, n_thread)
        self.parameters.update_s /= n_thread
        self.parameters.lookup_s /= n_thread
        self.parameters.late_s /= n_thread

    def serve_one(self, bell: Bell) -> None:
        """Serve the request of a bell that was read."""
        self._c.serve_one(addressof(self.parameters), byref(bell))
