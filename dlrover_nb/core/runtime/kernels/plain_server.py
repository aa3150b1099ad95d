"""Serves plain requests in C (`serve.c`), without the GIL, until something else is to be done."""

from __future__ import annotations

import select
from ctypes import (
    POINTER,
    Array,
    Structure,
    addressof,
    byref,
    c_float,
    c_int,
    c_int64,
    c_short,
    c_void_p,
    pointer,
)
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Bell, Outcome, Parameters, Request

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.rates import StepTable
    from dlrover_nb.core.runtime.kernels.rule import Rule

    Ids = NDArray[np.int64]
    Floats = NDArray[np.float32]


class PollDescriptor(Structure):
    """The system's pollfd."""

    _fields_ = (("fd", c_int), ("events", c_short), ("revents", c_short))


class Arrays(Structure):
    """Where the arrays of a request are, and room for those of its answer."""

    _fields_ = (
        *((name, c_void_p) for name in ("push", "pull", "gradients", "dense_gradient", "rows", "dense")),
        ("age_class", c_int64),
    )


class Step(Structure):
    """A step of the dense part: the numbers of its rule (`Rule` of kernel.h), and Adam's step sizes."""

    _fields_ = (("rule", c_float * 6), ("corrections", c_void_p), ("n_correction", c_int64))


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
        self._table: StepTable | None = None
        self._steps: Array[Step] | None = None
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

    def step_by_age(self, table: StepTable | None) -> None:
        """Take the steps of the dense part from a table with one for each class of age; None: all are own."""
        if table is not self._table:
            self._table = table
            self._steps = None if table is None else steps_of(table)
        self.parameters.dense_steps = None if self._steps is None else addressof(self._steps)

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

    def reads(self, message: int) -> bool:
        """Whether a message at an address is an exchange that may be plain; see `plain_messages`."""
        return bool(self._c.read_message(message))

    def responds(self, message: int) -> int:
        """Serve a message that was read; the `Outcome`."""
        return int(self._c.answer_message(addressof(self.parameters), message))

    def exchange(
        self,
        pushed: tuple[Ids, Floats, Floats],
        wanted: Ids,
        out: tuple[Floats, Floats],
        *,
        age_class: int = 0,
    ) -> tuple[float, float] | None:
        """Serve a request that came in a message, whose arrays have the shapes of the store.

        Parameters
        ----------
        pushed
            Distinct ids [n], their gradients [n, width], and that of the dense slice [m] or none.
        wanted, out
            Ids to read, and where rows [len(wanted), width] and the dense slice are written.
        age_class
            Of the dense gradient, where steps follow the age.

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
        places = (each.ctypes.data for each in (ids, wanted, gradients, dense_gradient, *out))
        arrays = Arrays(*places, age_class=age_class)
        outcome = self._c.exchange(addressof(parameters), byref(request), byref(arrays), byref(answer))
        return None if outcome != Outcome.ANSWERED else (answer.update_s, answer.lookup_s)


def steps_of(table: StepTable) -> Array[Step]:
    """Return a table of steps as the kernel reads it, valid as long as the table is."""
    steps = (Step * len(table.rules))()
    for step, rule, sizes in zip(steps, table.rules, table.sizes, strict=True):
        step.rule[:] = numbers_of(rule)
        if sizes is not None:
            step.corrections, step.n_correction = sizes.ctypes.data, len(sizes)
    return steps


def numbers_of(rule: Rule) -> tuple[float, ...]:
    """Return what `Rule` of kernel.h holds."""
    return (rule.learning_rate, rule.beta1, 1 - rule.beta1, rule.beta2, 1 - rule.beta2, rule.epsilon)


def readable(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that lies in memory as the kernel reads it: one in a message may begin at any byte."""
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy()
