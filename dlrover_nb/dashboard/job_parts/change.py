"""What a change of plan means beside its sizes: how much memory it leaves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table
from dlrover_nb.widgets.jobs.headline import sentence_alone
from dlrover_nb.widgets.jobs.plans import diff_table, proposal_facts

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.decisions import Proposal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine


def headroom_table(snapshot: JobSnapshot, after: ResourcePlan) -> Table:
    """Return how much of its memory the fullest node of each role has left, now and under another plan.

    Where the number of PS changes, their parameters are spread anew, and what a PS then uses is not known.
    """
    rows = tuple(_headroom_row(line, snapshot.target, after) for line in snapshot.memory)
    note = "By what the fullest node of each role uses now."
    return Table(
        "Memory left", ("role", "uses", "left now", "left then", "full in, as it is now"), rows, note
    )


def _headroom_row(line: MemoryLine, before: ResourcePlan, after: ResourcePlan) -> tuple[str, ...]:
    new = after.role(line.role)
    is_spread_anew = line.role is Role.PS and new.count != before.ps.count
    then = units.MISSING if is_spread_anew else units.percent(1 - line.now_mib / new.memory_mib)
    full = units.duration(line.full_in_s) if line.full_in_s is not None else "not before the end"
    left = units.percent(1 - line.now_mib / line.limit_mib)
    return (str(line.role), units.memory(line.now_mib), left, then, full)


def proposal_blocks(proposal: Proposal, snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return all that a person needs to answer a proposal."""
    return (
        sentence_alone(proposal, snapshot),
        Paragraph(proposal.why),
        diff_table(proposal),
        Facts(proposal_facts(proposal, snapshot)),
        *((headroom_table(snapshot, proposal.candidate.plan),) if snapshot.memory else ()),
    )
