"""Policies of other systems, to compare with on the same jobs.

Each is a `Policy`: ``policy(state) -> plan or None``, pure, without memory. Settings are keyword arguments
with defaults; bind others with ``functools.partial``. `well_tuned` needs ``measure=``, the true speed that an
offline search would have measured: rows (w, p, cpu per worker, cpu per PS) of shape (n, 4) to samples/s of
shape (n,). Only a simulator knows it.
"""

from dlrover_nb.core.baselines.elastic_scheduling import elastic_scheduling
from dlrover_nb.core.baselines.exhaustive import well_tuned
from dlrover_nb.core.baselines.losscurve import LossCurve, fit_loss_curve
from dlrover_nb.core.baselines.optimus import (
    SpeedModel,
    fit_speed,
    optimus,
    optimus_cluster,
    samples_left,
    seconds_saved,
)
from dlrover_nb.core.baselines.state import JobState, Policy, static, with_count

__all__ = [
    "JobState",
    "LossCurve",
    "Policy",
    "SpeedModel",
    "elastic_scheduling",
    "fit_loss_curve",
    "fit_speed",
    "optimus",
    "optimus_cluster",
    "samples_left",
    "seconds_saved",
    "static",
    "well_tuned",
    "with_count",
]
