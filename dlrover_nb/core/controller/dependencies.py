"""What a controller depends on beside the job; no snapshot holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Fit
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.planner import Policy


class Dependencies(NamedTuple):
    """Settings, policy, and what fits the throughput model."""

    settings: ControllerSettings
    policy: Policy
    fit: Fit
