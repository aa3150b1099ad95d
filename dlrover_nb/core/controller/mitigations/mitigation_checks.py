"""Whether a decision on an action against stragglers is valid, as far as the controller knows.

What only the job master knows (whether a worker has just exited, whether the PS have room) it refuses itself;
the action has failed then, with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    OwnAction,
    SetSize,
)
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.controller.mitigations.mitigation_book import MitigationBook
    from dlrover_nb.core.controller.mitigations.node_room import NodeRoom
    from dlrover_nb.core.controller.mitigations.slow_nodes import Nodes
    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation
    from dlrover_nb.core.structs.job.job import JobSpec

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class MitigationContext:
    """What a decision on an action is checked against: the job, its nodes, the action under way, its room."""

    spec: JobSpec
    nodes: Nodes
    running: Mitigation | None
    room: NodeRoom | None = None


def check_answer(decision: Decision, book: MitigationBook, now: MitigationContext) -> None:
    """Refuse an invalid answer to a proposed action.

    Raises
    ------
    NotFoundError
        When there is no such action; it names the open one.
    StaleDecisionError
        When it is no longer open, or another one is under way.
    InvalidValueError
        When it should be overridden.
    """
    mitigation = book.find(decision.proposal)
    if decision.verdict is Verdict.OVERRIDE:
        raise InvalidValueError(
            f"{mitigation.id} ({mitigation.words}) can only be accepted or rejected, got override: it has no "
            f"plan; reject {mitigation.id}, then order another action or another plan"
        )
    is_rejected = decision.verdict is Verdict.REJECT
    book.check(mitigation, ProposalStatus.REJECTED if is_rejected else ProposalStatus.ACCEPTED)
    if not is_rejected:
        _check_free(now)


def check_action(decision: Decision, now: MitigationContext) -> None:
    """Refuse an invalid action of a user's own.

    Raises
    ------
    StaleDecisionError
        When another action is under way.
    NotFoundError
        When the job has no such node.
    InvalidValueError
        When there is no action, or it is impossible in this job.
    CapacityError
        When a node's size would exceed the job's quota.
    """
    if decision.action is None:
        raise InvalidValueError("mitigate needs an action, got none; say what to do")
    if now.spec.foreign is not None and not is_for_programs(decision.action.action):
        raise InvalidValueError(
            f"job {now.spec.name} runs its own programs, got: {decision.action.words}; their batch sizes can "
            "be adjusted, and their workers restarted"
        )
    _check_free(now)
    _check_batches(decision.action.action, now)
    _check_possible(decision.action.action, now)


def is_for_programs(action: Action) -> bool:
    """Whether an action can be done for programs that are not ours, as far as the controller knows."""
    is_restart = isinstance(action, KillRestart) and action.role is Role.WORKER
    return is_restart or isinstance(action, AdjustBatches | OwnAction)


def _check_free(now: MitigationContext) -> None:
    if now.running is not None:
        raise StaleDecisionError(
            f"job {now.spec.name} is still busy with {now.running.id} ({now.running.words}); "
            "try again once that has ended"
        )


def _check_batches(action: Action, now: MitigationContext) -> None:
    """Refuse what would change the batches of a step, where each step has those that the job says."""
    if now.spec.deterministic and isinstance(action, AdjustBatches | BackupWorkers):
        raise InvalidValueError(
            f"deterministic must be false to {action.words}, as each step has the same batches then; "
            "give slow nodes more cores, replace them, or submit the job without deterministic"
        )


def _check_possible(action: Action, now: MitigationContext) -> None:
    match action:
        case AdjustBatches():
            _check_nodes((node for node, _ in action.sizes), Role.WORKER, now)
        case AdjustRates():
            _check_nodes((node for node, _ in action.factors), Role.WORKER, now)
            _check_sync(action, now, is_possible=now.spec.sync is not Sync.BSP, where="asp, ssp or gba")
        case BackupWorkers():
            _check_sync(action, now, is_possible=now.spec.sync is Sync.BSP, where="bsp")
            n_worker = len(now.nodes.workers)
            if action.n >= max(n_worker, 1):
                raise InvalidValueError(
                    f"n must be less than the number of workers, {n_worker}, got {action.n}; choose a "
                    "smaller n"
                )
        case KillRestart() | OwnAction():
            _check_nodes((action.node,), action.role, now)
        case SetSize():
            _check_nodes((action.node,), action.role, now)
            if now.room is not None and (over := now.room.over_quota(action)):
                raise CapacityError(
                    f"to {action.words} would exceed the quota of job {now.spec.name}: {over}; "
                    "choose a smaller size, or submit the job with a larger quota"
                )
        case MoveBuckets():
            _check_nodes((action.ps,), Role.PS, now)
            if len(now.nodes.ps) < 2:
                raise InvalidValueError(
                    f"{action.ps} is the only parameter server, so its buckets cannot move; "
                    "add a parameter server first, or restart this one"
                )
        case _ as never:
            assert_never(never)


def _check_nodes(names: Iterable[str], role: Role, now: MitigationContext) -> None:
    nodes = now.nodes.workers if role is Role.WORKER else now.nodes.ps
    unknown = [name for name in names if name not in nodes]
    if unknown:
        reporting = and_list(nodes, most=MOST_NAMED) or "none"
        raise NotFoundError(
            f"job {now.spec.name} has no {role.value} {unknown[0]} that has reported under this plan "
            f"(reporting: {reporting}); a node that has just started reports within seconds"
        )


def _check_sync(action: Action, now: MitigationContext, *, is_possible: bool, where: str) -> None:
    if not is_possible:
        raise InvalidValueError(
            f"sync must be {where} to {action.words}, got {now.spec.sync}; "
            "take another action, or submit the job with another sync"
        )
