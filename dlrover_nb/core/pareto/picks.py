"""Named plans on a front, for people who do not want to read a scatter plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.decisions import Candidate, Pick

if TYPE_CHECKING:
    from collections.abc import Sequence

AS_FAST = 0.99  # of the present throughput: less than a percent is not felt


def resource_efficiency(candidate: Candidate, current: Candidate) -> float:
    """Return RE = TG/RC, samples/s gained per money per hour added (Eq. 11).

    A plan that gains and costs no more is infinitely efficient; one that gains nothing is worth its
    negative gain, so that it never wins.
    """
    added = candidate.cost_per_hour - current.cost_per_hour  # RC (eq. 7)
    gain = candidate.gain_samples_per_s  # TG (eq. 8)
    if gain <= 0:
        return gain
    return gain / added if added > 0 else np.inf  # (eq. 11)


def named_picks(candidates: Sequence[Candidate], current: Candidate) -> tuple[Pick, ...]:
    """Name the best value (RE), the knee, the fastest, and the cheapest that is as fast as now."""
    if not candidates:
        return ()
    found = {
        "best value": best_value(candidates, current),
        "knee": _knee(candidates),
        "fastest": len(candidates) - 1,
        "cheapest as fast as now": _cheapest(candidates, current),
    }
    return tuple(Pick(name, index) for name, index in found.items() if index is not None)


def best_value(candidates: Sequence[Candidate], current: Candidate) -> int | None:
    """Return the index of the highest RE; of several infinite ones the largest gain; None if none gains."""
    ranked = [
        (resource_efficiency(c, current), c.gain_samples_per_s, -c.cost_per_hour, i)
        for i, c in enumerate(candidates)
    ]
    value, *_, index = max(ranked, default=(0.0, 0.0, 0.0, 0))
    return index if value > 0 else None


def _knee(candidates: Sequence[Candidate]) -> int:
    """Return the plan farthest above the straight line from the cheapest to the fastest."""
    cost = np.array([c.cost_per_hour for c in candidates])
    speed = np.array([c.prediction.samples_per_s for c in candidates])
    span = max(float(np.ptp(cost)), 1e-12), max(float(np.ptp(speed)), 1e-12)
    return int(np.argmax((speed - speed[0]) / span[1] - (cost - cost[0]) / span[0]))


def _cheapest(candidates: Sequence[Candidate], current: Candidate) -> int | None:
    enough = AS_FAST * current.prediction.samples_per_s
    return next((i for i, c in enumerate(candidates) if c.prediction.samples_per_s >= enough), None)
