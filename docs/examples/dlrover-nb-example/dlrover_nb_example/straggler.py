"""A rule that finds slow nodes, and a solution that answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.straggler import AdjustBatches, Proposed, Role, Rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.straggler import Findings, Situation, Thresholds, Window


def behind_the_fastest(window: Window, thresholds: Thresholds) -> NDArray[np.bool_]:
    """Return which nodes take λ times as long as the fastest; NaN, of one that reported none, is not slow."""
    return np.asarray(window.means >= thresholds.ratio * np.fmin.reduce(window.means))


RULE = Rule("mean over the window at least λ times that of the fastest", behind_the_fastest)


def half_batches(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    """Give slow workers half of an even batch, and the rest to the others in equal parts."""
    slow = {each.node for each in findings if each.role is Role.WORKER}
    names = [worker.node for worker in situation.workers]
    fast = [name for name in names if name not in slow]
    if not slow or not fast:
        return ()
    half = max(situation.total // (2 * len(names)), 1)
    each, more = divmod(situation.total - half * len(slow), len(fast))
    sizes = dict.fromkeys(slow, half) | {name: each + (i < more) for i, name in enumerate(fast)}
    if all(worker.size == sizes[worker.node] for worker in situation.workers):
        return ()
    action = AdjustBatches(tuple((name, sizes[name]) for name in names))
    return (Proposed(action, f"{', '.join(sorted(slow))} would do half as much"),)
