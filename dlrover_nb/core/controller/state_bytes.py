"""The controller as bytes, so that a restart reads the newest events alone, not those of days.

Written are the attributes of the controller and of each of its parts, as they are: a part or a field that is
added later is written without a line here. Not written is what a new controller depends on (settings, policy,
fit), and what follows from less: an analysis is made again from its situation, since fits are deterministic.

The law behind it, tested over random lives of a job: a controller that was written and read back gives the
same views and the same orders, whatever comes next, as the one that went on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.object_graph import GraphDecoder, GraphEncoder, fill
from dlrover_nb.core.planner.analysis import Analysis, analyse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.controller.analyst import Fit
    from dlrover_nb.core.controller.controller import Controller
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.views.events import JobSubmitted

PACKAGES = (  # of objects with a state of their own
    "dlrover_nb.core.controller.",
    "dlrover_nb.core.memory.",
    "dlrover_nb.core.straggler.",
)


def parts(controller: Controller) -> dict[str, object]:
    """Return the parts of a controller by their attribute, itself under the empty name."""
    return {"": controller, **{name: each for name, each in vars(controller).items() if _is_part(each)}}


def pack(controller: Controller) -> tuple[JobSubmitted, bytes]:
    """Return the job as it is now, and the state of its controller.

    Raises
    ------
    WireError
        When a part holds what cannot be written.
    """
    every = parts(controller)
    encoder = GraphEncoder(_links(controller), packages=PACKAGES, swapped={Analysis: lambda a: a.situation})
    return controller.job, encoder.pack({name: dict(vars(part)) for name, part in every.items()})


def restore(controller: Controller, state: bytes) -> Controller:
    """Give a new controller the state that `pack` returned, and return it.

    Raises
    ------
    WireError
        When it is damaged, or of a release that this one cannot read.
    """
    analysis = _AnalysisMaker(controller.dependencies.fit).analysis
    states = GraphDecoder(_links(controller), packages=PACKAGES, swapped={Analysis: analysis}).unpack(state)
    if not isinstance(states, dict) or "" not in states:
        raise WireError("expected the state of a controller, got something else")
    for name, part in parts(controller).items():
        fill(part, states.get(name, {}))
    return controller


class _AnalysisMaker:
    """Makes analyses again, with one fit for those of the same samples, as the analyst did."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._last: tuple[Situation, ThroughputModel] | None = None

    def analysis(self, situation: Situation) -> Analysis:
        if self._last is None or self._last[0].samples != situation.samples:
            self._last = situation, self._fit(situation)
        return analyse(situation, model=self._last[1])


def _links(controller: Controller) -> Mapping[str, object]:
    """Return what a new controller has without its state, by name."""
    dependencies = controller.dependencies
    settings = dependencies.settings
    constant = {
        "given": dependencies,  # as the link is named in snapshots
        "settings": settings,
        "settings.planner": settings.planner,
        "settings.auto": settings.auto,
        "policy": dependencies.policy,
        "fit": dependencies.fit,
        "straggler rule": dependencies.stragglers.rule,
        "straggler solution": dependencies.stragglers.solution,
    }
    return {**{f"part {name}": part for name, part in parts(controller).items()}, **constant}


def _is_part(value: object) -> bool:
    kind = type(value)
    return kind.__module__.startswith(PACKAGES[0]) and hasattr(value, "__dict__")
