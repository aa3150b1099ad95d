"""Policies of other systems, to compare with on the same jobs.

Each is a `Policy`: ``policy(state) -> plan or None``, pure, without memory. Settings are keyword arguments
with defaults; bind others with ``functools.partial``.
"""

from dlrover_nb.core.baselines.elastic_scheduling import elastic_scheduling
from dlrover_nb.core.baselines.optimus import (
    SpeedModel,
    fit_speed,
    optimus,
)
from dlrover_nb.core.baselines.state import JobState, Policy, static

__all__ = [
    "JobState",
    "Policy",
    "SpeedModel",
    "elastic_scheduling",
    "fit_speed",
    "optimus",
    "static",
]
