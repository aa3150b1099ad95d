"""A controller from the events of its job, as a journal keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY
from dlrover_nb.core.structs.views.events import JobSubmitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.planner.policies.policy import Policy
    from dlrover_nb.core.straggler.methods import StragglerMethods
    from dlrover_nb.core.structs.views.events import Event


def replay(
    events: Iterable[Event],
    settings: ControllerSettings | None = None,
    *,
    policy: Policy = POLICIES[DEFAULT_POLICY],
    stragglers: StragglerMethods | None = None,
) -> Controller:
    """Return the controller of these events; its orders were carried out before.

    Raises
    ------
    InvalidValueError
        When the first event is not `JobSubmitted`.
    """
    rest = iter(events)
    if not isinstance(first := next(rest, None), JobSubmitted):
        got = "no event" if first is None else type(first).__name__
        raise InvalidValueError(f"the first event must be JobSubmitted, got {got}; replay a whole journal")
    controller = Controller(first, settings, policy=policy, stragglers=stragglers)
    for event in rest:
        controller.handle(event)
    return controller
