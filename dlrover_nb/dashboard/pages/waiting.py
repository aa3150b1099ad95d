"""The page *Waiting*: why jobs wait, who holds what they wait for, when that ends, and what would fit now.

One button takes the largest plan that fits: a form with the plan's sizes and the version of the plan that the
person saw, so that it is refused where the job has changed meanwhile.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from dlrover_nb.core.client.cluster import HasQueues
from dlrover_nb.core.planner.availability.waiting import (
    end_of,
    fitting_plan,
    free_of,
    holders_of,
    needs_of,
    waits_of,
)
from dlrover_nb.core.structs.cluster.waits import WaitKind
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.forms.markup import size_values
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.asked_jobs import (
    ask_all,
    capacity_of,
    left_out_words,
    running,
    shown_cluster,
)
from dlrover_nb.dashboard.pages.lists import Cell, address, card, link, table
from dlrover_nb.widgets import theme, units
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.structs.cluster.waits import Holder, Wait
    from dlrover_nb.core.structs.plan.capacity import Capacity, Need
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.page import Visit

MOST_HOLDERS = 20
NOBODY = "No job waits: every node that was ordered has started, or is starting."
_BUTTON = (
    f"font:inherit;padding:8px 14px;min-height:44px;background:{theme.SURFACE};color:{theme.INK};"
    f"border:1px solid {theme.EDGE};border-radius:4px;cursor:pointer"
)
_INPUT = (
    f"font:inherit;padding:4px 6px;min-height:32px;background:{theme.BG};color:{theme.INK};"
    f"border:1px solid {theme.EDGE};border-radius:4px;max-width:100%"
)


def body(visit: Visit) -> str:
    """Return each job that waits, with all that is known of its wait."""
    cluster = shown_cluster(visit)
    jobs = running(cluster.jobs().jobs)
    snapshots, missing = ask_all(cluster, jobs, lambda handle: handle.snapshot())
    queued = cluster.core.queue_waits() if isinstance(cluster.core, HasQueues) else ()
    capacity, unknown = capacity_of(cluster)
    needs = {job.name: needs_of(snapshots.get(job.name, job)) for job in jobs}
    parts = [
        _job(visit, snapshot, waits, jobs, needs, capacity)
        for snapshot in snapshots.values()
        if (waits := waits_of(snapshot, queued))
    ]
    notes = [Paragraph(f"{name} gave no answer: {why}", Tone.WARNING) for name, why in missing.items()]
    notes += [Paragraph(f"What is free is not known: {unknown}", Tone.HINT)] if unknown else []
    notes += [Paragraph(words, Tone.HINT)] if (words := left_out_words(len(jobs))) else []
    return "".join(map(block_html, notes)) + ("".join(parts) or card(f"<p>{NOBODY}</p>"))


def _job(
    visit: Visit,
    snapshot: JobSnapshot,
    waits: Sequence[Wait],
    jobs: Sequence[JobSummary],
    needs: Mapping[str, list[Need]],
    capacity: Capacity | None,
) -> str:
    name = snapshot.spec.name
    total = capacity or snapshot.capacity
    free = free_of(total, [need for each in needs.values() for need in each])
    holders = holders_of(jobs, beside=name)
    query = {"cluster": visit.query["cluster"]} if "cluster" in visit.query else {}
    job = link(address(f"{visit.root}/job", {**query, "name": name}), name)
    rows = [_wait_row(wait, free, holders) for wait in waits]
    shown = f'<h2 style="margin:0 0 4px">{job}</h2><p>Owner {escape(snapshot.spec.owner or units.MISSING)}, '
    shown += f"wants {escape(snapshot.target)}.</p>"
    head = ("What for", "Why", "Nodes", "Needs", "Ends by prediction")
    shown += table(f"What {name} waits for", head, rows)
    if any(wait.kind in {WaitKind.CAPACITY, WaitKind.QUOTA} for wait in waits):
        holder_rows = [
            (
                Cell(h.job, address(f"{visit.root}/job", {**query, "name": h.job})),
                Cell(h.owner or units.MISSING),
                Cell(units.cores(h.cpu), is_number=True),
                Cell(units.memory(h.memory_mib), is_number=True),
                Cell(units.duration(h.left_s) if h.left_s is not None else "not known"),
            )
            for h in holders[:MOST_HOLDERS]
        ]
        more = len(holders) - len(holder_rows)
        note = f"{more} more hold less." if more > 0 else ""
        shown += table(
            "Who holds cores and memory",
            ("Job", "Owner", "Cores", "Memory", "Ends in"),
            holder_rows,
            note=note,
        )
        others = [need for other, each in needs.items() if other != name for need in each]
        shown += _fitting(visit, snapshot, fitting_plan(snapshot, total, others))
    return card(shown, label=f"Wait of {name}")


def _wait_row(wait: Wait, free: Capacity, holders: Sequence[Holder]) -> tuple[Cell, ...]:
    end = end_of(wait, free, holders)
    when = f"in about {units.duration(end.in_s)}. " if end.in_s else ""
    needs = f"{units.cores(wait.cpu)} cores, {units.memory(wait.memory_mib)}" if wait.nodes else units.MISSING
    return (
        Cell(str(wait.kind)),
        Cell(wait.why),
        Cell(", ".join(wait.nodes) or "the whole job"),
        Cell(needs),
        Cell(when + end.words),
    )


def _fitting(visit: Visit, snapshot: JobSnapshot, plan: ResourcePlan | None) -> str:
    """Return the largest plan that fits now, and the button that asks for it where the person may."""
    if plan is None:
        return "<p>No plan of this job fits beside the other jobs now.</p>"
    if plan == snapshot.target:
        return "<p>What it wants fits beside the other jobs now: it should start soon.</p>"
    text = f"<p>The largest plan that fits now: {escape(plan)}.</p>"
    if plan == snapshot.running:
        return text + "<p>It runs already.</p>"
    spec = snapshot.spec
    if not visit.team.may(visit.person, Action.SCALE, visit.cluster, owner=spec.owner):
        return text + "<p>To scale the job to it needs the role operator.</p>"
    fields = {
        "csrf": visit.csrf,
        "cluster": visit.cluster,
        "job": spec.name,
        "action": str(Action.SCALE),
        "version": snapshot.version,
        "key": uuid.uuid4().hex,
        "back": "waiting",
        **size_values(plan),
    }
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in fields.items()
    )
    return (
        f'{text}<form method="post" action="{escape(visit.root)}/do">{hidden}'
        f'<label>Reason <input name="reason" value="the largest plan that fits now" maxlength="1000" '
        f'style="{_INPUT}"></label> '
        f'<button style="{_BUTTON}">Scale {escape(spec.name)} to {escape(plan.short)}</button></form>'
    )


PAGE = Page("waiting", "Waiting", body)
