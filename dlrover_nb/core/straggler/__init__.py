"""Nodes that are slower than their peers: what finds them from node reports, and what answers them.

A package's own rule or solution needs nothing else than the names here.
"""

from __future__ import annotations

from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, RATIO, SHORT_WINDOW_S, Heat, heat
from dlrover_nb.core.straggler.monitor import Monitor, MonitorSettings, NodeTimes
from dlrover_nb.core.straggler.rules import RULES, Rule, Thresholds, Window
from dlrover_nb.core.straggler.situation import PsState, Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS, Findings, Solution
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    OwnAction,
    Proposed,
    SetSize,
)
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Pace, Straggler

__all__ = [
    "LONG_WINDOW_S",
    "RATIO",
    "RULES",
    "SHORT_WINDOW_S",
    "SOLUTIONS",
    "AdjustBatches",
    "AdjustRates",
    "BackupWorkers",
    "Findings",
    "Heat",
    "KillRestart",
    "Monitor",
    "MonitorSettings",
    "MoveBuckets",
    "NodeErrors",
    "NodeTimes",
    "OwnAction",
    "Pace",
    "Proposed",
    "PsState",
    "Role",
    "Rule",
    "SetSize",
    "Situation",
    "Solution",
    "Straggler",
    "Thresholds",
    "Window",
    "WorkerState",
    "heat",
]
