"""How far the charts of plans reach at first: what was tried, its neighborhood, and what is proposed.

Bounds may allow hundreds of workers for a job that runs on two: drawn up to the bounds, all that a person
decides about would stand in one corner. The reach follows the present plan; a live view has a button for all
plans, and a saved one says how many lie beyond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMES = 4.0  # the present plan


def reach(now: float, shown: Iterable[float]) -> float:
    """Return the greatest value that is drawn at first; `shown` are those that must be."""
    return max((TIMES * now, *shown)) * (1 + 1e-9)
