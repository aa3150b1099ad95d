"""Serves plain requests in C (`serve.c`), without the GIL, until something else is to be done."""

from __future__ import annotations

import select
from ctypes import POINTER, Structure, addressof, byref, c_int, c_short, c_void_p, pointer
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Bell, Outcome, Parameters, Request

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Floats = NDArray[np.float32]


class PollDescriptor(Structure):
    """The system's pollfd."""

    _fields_ = (("fd", c_int), ("events", c_short), ("revents", c_short))


class Arrays(Structure):
    """Where the arrays of a request are, and room for those of its answer."""

    _fields_ = tuple(
        (name, c_void_p) for name in ("push", "pull", "gradients", "dense_gradient", "rows", "dense")
    )


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

    def __init__(self, library: ctypes.CDLL, numbers: NDArray[np.void]) -> None:
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
        descriptors = (PollDescriptor * (len(bells) + 1 + len(others)))()
        for each, other in zip(descriptors[len(bells) + 1 :], others, strict=True):
            each.fd, each.events = other, select.POLLIN
        at, timeout_s = addressof(self.parameters), max(0.0, timeout_s)
        self._c.serve(at, named, len(bells), descriptors, len(others), timeout_s, n_thread)
        self.parameters.update_s /= n_thread
        self.parameters.lookup_s /= n_thread
        self.parameters.late_s /= n_thread

    def serve_one(self, bell: Bell) -> None:
        """Serve the request of a bell that was read."""
        self._c.serve_one(addressof(self.parameters), byref(bell))

    def exchange(
        self, pushed: tuple[Ids, Floats, Floats], wanted: Ids, out: tuple[Floats, Floats]
    ) -> tuple[float, float] | None:
        """Serve a request that came in a message, whose arrays have the shapes of the store.

        Parameters
        ----------
        pushed
            Distinct ids [n], their gradients [n, width], and that of the dense slice [m] or none.
        wanted, out
            Ids to read, and where rows [len(wanted), width] and the dense slice are written.

        Returns
        -------
        tuple[float, float] | None
            Seconds of the update and of reading; None: nothing was done, as it is left to Python.
        """
        ids, gradients, dense_gradient = (readable(each) for each in pushed)
        wanted, answer, parameters = readable(wanted), Answer(), self.parameters
        request = Request(
            epoch=parameters.epoch, n_push=len(ids), n_dense=len(dense_gradient), n_pull=len(wanted)
        )
        arrays = Arrays(*(each.ctypes.data for each in (ids, wanted, gradients, dense_gradient, *out)))
        outcome = self._c.exchange(addressof(parameters), byref(request), byref(arrays), byref(answer))
        return None if outcome != Outcome.ANSWERED else (answer.update_s, answer.lookup_s)


def readable(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that lies in memory as the kernel reads it: one in a message may begin at any byte."""
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy()
