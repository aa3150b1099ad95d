"""What an action against stragglers gains and costs: what a user weighs before it is done.

A gain is the share by which the job trains faster, for the time in which the node would have stayed slow. It
follows from the monitor's means alone: the time of own work that an iteration saves, over what is left of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    OwnAction,
    SetSize,
)
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.straggler.situation import Situation
    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.training.stragglers import Straggler


def gain_of(now_s: float, then_s: float, rest_s: float | None) -> float | None:
    """Return the gain of an iteration of which a part of `now_s` would take `then_s` beside the rest."""
    left_s = 0.0 if rest_s is None else then_s + rest_s
    return (now_s - then_s) / left_s if left_s > 0 else None


def gain_of_restart(straggler: Straggler, situation: Situation) -> float | None:
    """Return the gain when a slow worker becomes as fast as the mean of the others; None: not known.

    Workers that keep in step wait for the slowest; of others each adds its own speed, and so does one in step
    whose batch was made smaller, as all batches follow its speed.
    """
    if situation.exchange_s is None:
        return None
    if straggler.by_rows:
        return _gain_of_even_batches(straggler.node, situation)
    node = straggler.node
    own_s = {w.node: w.samples / w.samples_per_s for w in situation.workers if w.samples_per_s}
    others_s = [each_s for name, each_s in own_s.items() if name != node]
    if node not in own_s or not others_s:
        return None
    usual_s = sum(others_s) / len(others_s)
    if situation.sync.waits:
        return max(gain_of(max(own_s.values()), max(*others_s, usual_s), situation.exchange_s) or 0.0, 0.0)
    share = (usual_s + situation.exchange_s) / (own_s[node] + situation.exchange_s)
    return max((len(own_s)) / (len(others_s) + share) - 1, 0.0)


def _gain_of_even_batches(node: str, situation: Situation) -> float | None:
    speeds = {w.node: w.samples_per_s for w in situation.workers if w.samples_per_s}
    others = [speed for name, speed in speeds.items() if name != node]
    if node not in speeds or not others:
        return None
    total, usual = sum(speeds.values()), sum(others) / len(others)
    now_s, then_s = situation.total / total, situation.total / (sum(others) + usual)
    return max(gain_of(now_s, then_s, situation.exchange_s) or 0.0, 0.0)


def gain_of_server(straggler: Straggler, situation: Situation, times: float) -> float | None:
    """Return the gain when a slow PS takes so many times as long as its peers take now; None: not known.

    An iteration waits for at least one request to it, which is what counts here: the gain may be larger.
    """
    own_s = [w.samples / w.samples_per_s for w in situation.workers if w.samples_per_s]
    if situation.exchange_s is None or not own_s or situation.exchange_s < straggler.iter_s:
        return None
    rest_s = sum(own_s) / len(own_s) + situation.exchange_s - straggler.iter_s
    return max(gain_of(straggler.iter_s, min(times, straggler.ratio) * straggler.peers_s, rest_s) or 0.0, 0.0)


def most_gain_of_server(situation: Situation) -> float:
    """Return what no answer to a slow PS exceeds: that workers wait for no PS at all; infinite: not known."""
    own_s = [w.samples / w.samples_per_s for w in situation.workers if w.samples_per_s]
    is_known = situation.exchange_s is not None and bool(own_s)
    return (situation.exchange_s or 0.0) * len(own_s) / sum(own_s) if is_known else math.inf


def seconds_text(seconds: float) -> str:
    """Return a duration with a unit in which it can be read: ``24.0 ms``, ``1.20 s``."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def cost_words(action: Action) -> str:  # noqa: PLR0911 - a sentence for each kind
    """Return what an action costs."""
    match action:
        case AdjustBatches():
            return "nothing: the global batch stays as it is, and all workers change at one step"
        case BackupWorkers(n=n):
            return "what the workers left out compute; their rows are trained again" if n else "nothing"
        case AdjustRates():
            return "lower learning rates on the rows of slow workers"
        case KillRestart(role=role):
            pause = "training goes on" if role is Role.WORKER else "a pause of some 0.1 s when it takes over"
            return f"the start of another {role} beside it; {pause}"
        case MoveBuckets():
            return "rows are copied while training goes on; then a pause of some 0.1 s"
        case OwnAction(cost=cost):
            return cost or "its package does not say"
        case SetSize():
            return "nothing where it can be resized in place; otherwise another node starts and replaces it"
        case _ as never:
            assert_never(never)
