"""Nodes that are slower than their peers: the monitor and the rules that find them, from node reports."""

from __future__ import annotations

from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, RATIO, SHORT_WINDOW_S, Heat, heat
from dlrover_nb.core.straggler.monitor import Monitor, MonitorSettings, NodeTimes
from dlrover_nb.core.straggler.rules import RULES, Thresholds
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Pace, Straggler

__all__ = [
    "LONG_WINDOW_S",
    "RATIO",
    "RULES",
    "SHORT_WINDOW_S",
    "Heat",
    "Monitor",
    "MonitorSettings",
    "NodeErrors",
    "NodeTimes",
    "Pace",
    "Straggler",
    "Thresholds",
    "heat",
]
