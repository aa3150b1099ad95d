"""Choose which of many jobs' candidates run, within what the cluster holds (Eqs. 12-14)."""

from dlrover_nb.core.greedy.bids import Bids, efficiency
from dlrover_nb.core.greedy.literal import literal
from dlrover_nb.core.greedy.selection import Selection, refusal, select
from dlrover_nb.core.greedy.weights import (
    REMAINING_TIME,
    WEIGHTS,
    Weight,
    deadline,
    equal,
    fair_share,
    priority,
    remaining_time,
    weight_of,
)

__all__ = [
    "REMAINING_TIME",
    "WEIGHTS",
    "Bids",
    "Selection",
    "Weight",
    "deadline",
    "efficiency",
    "equal",
    "fair_share",
    "literal",
    "priority",
    "refusal",
    "remaining_time",
    "select",
    "weight_of",
]
