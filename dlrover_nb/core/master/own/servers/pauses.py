"""Pauses of all workers, in which the group of PS changes or a checkpoint is cut.

A worker pauses when its exchange has ended. It may wait for a PS that it does not reach though both live, and
in synchronous training others wait for that worker. Dropping the exchange would train its batch twice where
the PS has applied it. So a pause that takes too long is given up: training goes on, the exchange ends as it
began, and the next try comes later. A job that is to stop, or whose last pauses were given up, lets workers
drop their exchanges: a line may be cut for good.

In deterministic training a pause makes what is done of the open step void. So it begins when a step has
just become complete, and there is at least one step between two pauses: else a job whose steps take longer
than the time from one checkpoint to the next would never get on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.wire.messages import Pause

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState

PATIENCE_S = 45.0  # for the exchanges of a pause; a lost node is found by its heartbeats earlier
STOP_PATIENCE_S = 10.0  # the same of a job that is to stop: it ends without a checkpoint soon after
AGAIN_S = 20.0  # from a pause that was given up to the next try
MOST_GIVEN_UP = 2  # in a row


def begin(state: JobState, at_s: float) -> None:
    """Order all workers to pause, unless the last try has just been given up."""
    if at_s < state.unfinished_pauses.again_s and not state.stop_reason:
        return
    state.n_pause += 1
    state.unfinished_pauses.drops = False
    for node in not_paused(state):
        order(state, node)
    state.enter(Stage.PAUSING, at_s)


def may_begin(state: JobState) -> bool:
    """Whether a pause may begin now; in deterministic training it may have to wait for the end of a step.

    It does not wait where the step cannot end soon: without workers, or as a shard of it is in quarantine.
    """
    ledger = state.train
    if ledger.n_step is None or state.stop_reason or ledger.finished or ledger.quarantined():
        return True
    is_fresh = not ledger.done_in_step and ledger.n_step != state.n_step_paused
    return is_fresh or not any(node.is_training for node in state.roster.workers)


def not_paused(state: JobState) -> tuple[Node, ...]:
    """Return the workers that train."""
    return tuple(node for node in state.roster.workers if node.is_training)


def order(state: JobState, worker: Node) -> None:
    """Order one worker to pause; twice changes nothing."""
    assert state.group is not None
    drops = state.unfinished_pauses.drops
    state.send(worker, Pause(state.group.ps_epoch, state.n_pause, drops))


def check_time(state: JobState, at_s: float) -> None:
    """Give a pause up that takes too long, or let the workers drop what they wait for."""
    unfinished, limit_s = state.unfinished_pauses, STOP_PATIENCE_S if state.stop_reason else PATIENCE_S
    if unfinished.drops or at_s <= state.stage_since_s + limit_s:
        return
    if state.stop_reason or unfinished.n >= MOST_GIVEN_UP:
        unfinished.drops = True
        for node in not_paused(state):
            order(state, node)
    else:
        unfinished.n, unfinished.again_s = unfinished.n + 1, at_s + AGAIN_S
        _give_up(state, at_s)


def _give_up(state: JobState, at_s: float) -> None:
    late = not_paused(state)
    for node in late:
        node.is_training = False  # the order to train, which follows, ends the pause for them too
    state.enter(Stage.SERVING, at_s)
    names = and_list(node.id for node in late)
    state.note(
        f"{names} could not pause within {PATIENCE_S:g} s: a batch takes that long, or a parameter server "
        f"does not answer; training goes on, and we try again in {AGAIN_S:g} s",
        at_s,
    )
