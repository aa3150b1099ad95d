"""A controller that was written and read back, beside the one that was never stopped."""

from __future__ import annotations

from collections import deque
from dataclasses import is_dataclass
from enum import Enum

import numpy as np

from dlrover_nb.core.controller import state_bytes
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.object_graph import attributes
from dlrover_nb.core.planner.analysis import Analysis


def restarted(controller):
    job, state = state_bytes.pack(controller)
    of = controller.dependencies
    fresh = Controller(job, of.settings, policy=of.policy, fit=of.fit, stragglers=of.stragglers)
    return state_bytes.restore(fresh, state)


def difference(a, b, path="", seen=None):
    """Return where two graphs of objects differ, found without the encoder; empty where they are equal."""
    seen = set() if seen is None else seen
    if a is b or (id(a), id(b)) in seen:
        return ""
    seen.add((id(a), id(b)))
    is_number = isinstance(a, float) and isinstance(b, float)
    if type(a) is not type(b) and not is_number:
        return f"{path}: {type(a).__name__} became {type(b).__name__}"
    x, y = inside(a), inside(b)
    if x is None:
        is_same = np.array_equal(a, b, equal_nan=True) if is_number or isinstance(a, np.ndarray) else a == b
        return "" if is_same else f"{path}: {a!r} became {b!r}"
    if list(x) != list(y):
        return f"{path}: {list(x)} became {list(y)}"
    return next((d for key in x if (d := difference(x[key], y[key], f"{path}.{key}", seen))), "")


def inside(value):
    """Return what a value consists of; None where it is one thing."""
    match value:
        case Analysis():
            return {name: getattr(value, name) for name in ("situation", "model", "cost", "n_plan")}
        case dict():
            return value
        case list() | tuple() | deque():
            return dict(enumerate(value)) | {"maxlen": getattr(value, "maxlen", 0)}
        case Enum():
            return None
    has_state = hasattr(value, "__dict__") and not callable(value)
    return attributes(value) if has_state or is_dataclass(value) else None


def outcome(controller, event):
    try:
        return controller.handle(event), None
    except DlroverError as error:
        return None, error


class Twins:
    """Two controllers that are told the same, the second one from a snapshot, and must do the same."""

    def __init__(self, first) -> None:
        self.first, self.second = first, first

    def restart(self) -> None:
        self.second = restarted(self.second if self.second is not self.first else self.first)

    def handle(self, event):
        if self.second is self.first:
            return self.first.handle(event)
        (orders, refused), other = outcome(self.first, event), outcome(self.second, event)
        assert (orders, str(refused)) == (other[0], str(other[1]))
        if refused:
            raise refused
        return orders

    def __getattr__(self, name):
        return getattr(self.first, name)
