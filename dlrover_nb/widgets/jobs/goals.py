"""Goals for a plan as a view: the plan that meets them, or which goal is in the way and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.structs.decisions.goals import VALUES, GoalKind
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table, Tone, View
from dlrover_nb.widgets.jobs.why import scale_command

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.goals import Goal, GoalAnswer
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def goals_view(answer: GoalAnswer, snapshot: JobSnapshot) -> View:
    """Return the answer for one job."""
    title = f"A plan of {snapshot.title} for {and_list(goal.text for goal in answer.goals)}"
    if answer.plan is not None:
        return View(title, _met(answer, answer.plan, snapshot))
    blocks: list[Block] = [Paragraph("No plan meets all of these goals.", Tone.WARNING)]
    blocks += [Paragraph(_alone_words(goal, best, snapshot)) for goal, best in answer.alone]
    others = {goal for goal, _ in answer.alone}
    blocks += [
        Paragraph(f"If all others are met, {_nearest_words(each.goal, each.nearest, snapshot)}.")
        for each in answer.bindings
        if each.goal not in others
    ]
    return View(title, tuple(blocks))


def _met(answer: GoalAnswer, plan: Candidate, snapshot: JobSnapshot) -> tuple[Block, ...]:
    is_now = plan.plan == snapshot.target
    rows = tuple(
        (goal.text, _amount(goal.kind, VALUES[goal.kind](plan) or 0.0, snapshot)) for goal in answer.goals
    )
    sure = "and at the low end of its band" if answer.is_sure else "but not at the low end of its band"
    blocks: list[Block] = [
        Facts(
            (
                ("cheapest plan", f"{plan.plan.short}{', the present one' if is_now else ''}"),
                ("meets them", f"at its predicted speed, {sure}"),
            )
        ),
        Table("Each goal", ("goal", "by prediction"), rows),
    ]
    if not is_now:
        line = scale_command(snapshot.spec.name, plan.plan)
        blocks.append(Paragraph("Order it:", Tone.HINT, (line,)))
    return tuple(blocks)


def _alone_words(goal: Goal, best: float | None, snapshot: JobSnapshot) -> str:
    if best is None:
        return (
            f"{goal.text}: we cannot predict that for this job, because a price or the rows left are unknown."
        )
    return f"No plan meets {goal.text}; {_nearest_words(goal, best, snapshot)}."


def _nearest_words(goal: Goal, value: float, snapshot: JobSnapshot) -> str:
    what = {
        GoalKind.COST: "the least cost is",
        GoalKind.TOTAL: "the least cost is",
        GoalKind.FINISH: "the earliest finish is",
        GoalKind.SPEED: "the highest speed is",
        GoalKind.CORES: "the fewest cores are",
        GoalKind.MEMORY: "the least memory is",
    }[goal.kind]
    return f"{what} {_amount(goal.kind, value, snapshot)} (you want {goal.text})"


def _amount(kind: GoalKind, value: float, snapshot: JobSnapshot) -> str:
    currency = snapshot.spec.prices.currency
    match kind:
        case GoalKind.COST:
            return f"{value:.4g} {currency}/h"
        case GoalKind.TOTAL:
            return f"{value:.4g} {currency} in total"
        case GoalKind.FINISH:
            return f"{units.clock(snapshot.at_s + value)}, in {units.duration(value)}"
        case GoalKind.SPEED:
            return f"{value:,.0f} samples/s"
        case GoalKind.CORES:
            return f"{value:g} cores"
        case GoalKind.MEMORY:
            return f"{value:.4g} GiB"
