"""A rule that finds slow nodes, a solution that answers them, and an action of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.straggler import AdjustBatches, OwnAction, Pace, Proposed, Role, Rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.straggler import Findings, Situation, Thresholds, Window
    from dlrover_nb.core.structs.job.job import JobSpec


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


def note_lasting(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    """Note nodes that are slow for long, for those who look after the machines."""
    return tuple(
        Proposed(
            OwnAction("note-node", each.node, each.role, cost="a line in a file"),
            f"{each.node} is slow for long",
        )
        for each in findings
        if each.pace is Pace.PERSISTENT
    )


def note_node(action: OwnAction, spec: JobSpec) -> None:
    """Carry the action out; an exception says why that failed. A master that restarts may call it again."""
    with Path("slow-nodes.txt").open("a") as file:
        file.write(f"{spec.name} {action.node}\n")
