"""What a change of plan means beside its sizes: how much memory it leaves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table
from dlrover_nb.widgets.jobs.headline import headline, sentence_alone
from dlrover_nb.widgets.jobs.plans import SAME, currency, diff_rows, proposal_facts
from dlrover_nb.widgets.oom import full_in_words

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
    left = units.percent(1 - line.now_mib / line.limit_mib)
    return (str(line.role), units.memory(line.now_mib), left, then, full_in_words(line))


def change_blocks(proposal: Proposal, snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return what stands beside the buttons: the sentence where the job has another one, and what changes."""
    sentence = sentence_alone(proposal, snapshot)
    is_said = headline(snapshot).text == sentence.text
    return (*(() if is_said else (sentence,)), changes_table(proposal, currency(snapshot)))


def changes_table(proposal: Proposal, money: units.Currency) -> Table:
    """Return what a proposal changes, and what that brings and costs."""
    new, old = proposal.candidate, proposal.baseline
    rows: list[tuple[str, ...]] = [row for row in diff_rows(old.plan, new.plan) if row[-1] != SAME]
    speeds = [each.prediction.samples_per_s for each in (old, new)]
    gain = units.signed_percent(speeds[1] / speeds[0] - 1) if speeds[0] else units.MISSING
    rows.append(("samples/s", *map(units.number, speeds), gain))
    if new.cost_per_hour is not None and old.cost_per_hour is not None:
        costs = [units.money(each, money) for each in (old.cost_per_hour, new.cost_per_hour)]
        more = units.signed_money(new.cost_per_hour - old.cost_per_hour, money, per="h")
        rows.append(("cost per hour", *costs, more))
    head = ("", "plan now", "plan proposed", "change")
    return Table("Plan now and plan proposed", head, tuple(rows))


def proposal_blocks(proposal: Proposal, snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return all that is known of a proposal beside its sentence and its changes."""
    return (
        Paragraph(proposal.why),
        Facts(proposal_facts(proposal, snapshot)),
        *((headroom_table(snapshot, proposal.candidate.plan),) if snapshot.memory else ()),
    )
