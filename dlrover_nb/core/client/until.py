"""Conditions to wait for, and what a job still lacks for them: pure functions of its snapshot.

The texts complete "Waiting for ...". One line is all that a wait shows, so it holds what moves: nodes that
are up, the share of samples, the measurements behind a proposal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.snapshot import NodePhase, waits_told

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


class Until(StrEnum):
    """Conditions to wait for."""

    END = "end"
    PROPOSAL = "proposal"  # an open one, or the end
    MITIGATION = "mitigation"  # an open action against stragglers, or the end
    OUTCOME = "outcome"  # of the last change of plan, once it is applied and measured, or the end


def is_reached(snapshot: JobSnapshot, until: Until) -> bool:
    """Whether a wait is over; that for a proposal, an action or an outcome ends with the job too."""
    match until:
        case Until.END:
            reached = False
        case Until.PROPOSAL:
            reached = snapshot.open_proposal is not None
        case Until.MITIGATION:
            reached = snapshot.open_mitigation is not None
        case Until.OUTCOME:
            reached = not snapshot.under_way and not snapshot.measuring
        case _:
            assert_never(until)
    return reached or snapshot.phase.is_final


def waited_for(snapshot: JobSnapshot, until: Until) -> str:
    """Return what a wait that is not over still waits for."""
    if first := first_steps(snapshot):
        return first
    match until:
        case Until.END:
            return f"the end of {snapshot.spec.name}: {_progress(snapshot)}"
        case Until.PROPOSAL:
            return f"a proposal: {_evidence(snapshot)}"
        case Until.MITIGATION:
            return f"an action against stragglers: {_slow(snapshot)}"
        case Until.OUTCOME if snapshot.under_way:
            return f"{snapshot.under_way} to be applied: {_nodes_up(snapshot)}"
        case Until.OUTCOME:
            return f"{snapshot.measuring} to be measured: {snapshot.samples_per_s:,.0f} samples/s now"
        case _:
            assert_never(until)


def first_steps(snapshot: JobSnapshot) -> str:
    """Return what a starting job's first steps wait for; empty once it has trained, or has ended."""
    is_early = snapshot.phase in {JobPhase.STARTING, JobPhase.TRAINING}
    if not is_early or snapshot.train.n_sample_done or snapshot.samples_per_s:
        return ""
    if snapshot.queue is not None:
        return snapshot.queue.words
    return f"first steps: {_nodes_up(snapshot)}"


def _nodes_up(snapshot: JobSnapshot) -> str:
    wanted = snapshot.target.worker.count + snapshot.target.ps.count
    n_up = sum(node.phase is NodePhase.READY for node in snapshot.nodes)
    return "; ".join((f"{min(n_up, wanted)} of {wanted} nodes up", *waits_told(snapshot.nodes)))


def _progress(snapshot: JobSnapshot) -> str:
    train = snapshot.train
    if snapshot.phase is JobPhase.BLOCKED:
        return f"your decision, because it is {snapshot.phase}: {snapshot.message}"
    if snapshot.phase is JobPhase.EVALUATING or not train.n_sample_total:
        return str(snapshot.phase)
    share = train.n_sample_done / train.n_sample_total
    return f"{snapshot.phase}, {percent(share, 1)} of {train.n_sample_total:,} samples"


def _slow(snapshot: JobSnapshot) -> str:
    if snapshot.mode is Mode.MANUAL:
        return "there are none in manual mode; mode suggest turns them on"
    names = dict.fromkeys(each.node for each in snapshot.stragglers)
    return f"{and_list(names)} {'is' if len(names) == 1 else 'are'} slow" if names else "no node is slow now"


def _evidence(snapshot: JobSnapshot) -> str:
    if snapshot.mode is Mode.MANUAL:
        return "there are none in manual mode; mode suggest turns them on"
    n_sample = len(snapshot.samples)
    return f"{n_sample} steady measurement{'s' * (n_sample != 1)} so far"
