"""Workers that are slower than their peers: the rule that finds them, from node reports."""

from __future__ import annotations

from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, RATIO, SHORT_WINDOW_S, Heat, heat
from dlrover_nb.core.straggler.findings import Pace, Straggler

__all__ = ["LONG_WINDOW_S", "RATIO", "SHORT_WINDOW_S", "Heat", "Pace", "Straggler", "heat"]
