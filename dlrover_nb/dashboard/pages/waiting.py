"""The page *Waiting*: why jobs wait, who holds what they wait for, when that ends, and what would fit now.

One button takes the largest plan that fits: a form with the plan's sizes and the version of the plan that the
person saw, so that it is refused where the job has changed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from dlrover_nb.dashboard.forms.markup import seen_fields, size_values
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.asked_jobs import (
    ask_all,
    capacity_of,
    left_out_words,
    running,
    shown_cluster,
)
from dlrover_nb.dashboard.pages.lists import Cell, Listing, address
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Tone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from dlrover_nb.core.structs.cluster.waits import Holder, Wait
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.page import Visit

MOST_HOLDERS = 20
NOBODY = "No job waits: every node that was ordered has started, or is starting."


@dataclass(frozen=True, slots=True)
class _Fit:
    """The largest plan that fits now, in words, and the form that asks for it where the person may."""

    words: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    press: str = ""


@dataclass(frozen=True, slots=True)
class _WaitingJob:
    """A job that waits; `holders` and `fit` are of one that waits for cores or memory."""

    name: str
    href: str
    owner: str
    target: str
    waits: Listing
    holders: Listing | None
    fit: _Fit | None


def body(visit: Visit) -> Markup:
    """Return each job that waits, with all that is known of its wait."""
    cluster = shown_cluster(visit)
    jobs = running(cluster.jobs().jobs)
    snapshots, missing = ask_all(cluster, jobs, lambda handle: handle.snapshot())
    queued = cluster.core.queue_waits() if isinstance(cluster.core, HasQueues) else ()
    capacity, unknown = capacity_of(cluster)
    needs = {job.name: needs_of(snapshots.get(job.name, job)) for job in jobs}
    waiting = [
        _job(visit, snapshot, waits, jobs, needs, capacity)
        for snapshot in snapshots.values()
        if (waits := waits_of(snapshot, queued))
    ]
    notes = [Paragraph(f"{name} gave no answer: {why}", Tone.WARNING) for name, why in missing.items()]
    notes += [Paragraph(f"We do not know what is free: {unknown}", Tone.HINT)] if unknown else []
    notes += [Paragraph(words, Tone.HINT)] if (words := left_out_words(len(jobs))) else []
    return render("waiting.html", root=visit.root, notes=notes, jobs=waiting, nobody=NOBODY)


def _job(
    visit: Visit,
    snapshot: JobSnapshot,
    waits: Sequence[Wait],
    jobs: Sequence[JobSummary],
    needs: Mapping[str, list[Need]],
    capacity: Capacity | None,
) -> _WaitingJob:
    name = snapshot.spec.name
    total = capacity or snapshot.capacity
    free = free_of(total, [need for each in needs.values() for need in each])
    holders = holders_of(jobs, beside=name)
    head = ("What for", "Why", "Nodes", "Needs", "Ends by prediction")
    is_for_machines = any(wait.kind in {WaitKind.CAPACITY, WaitKind.QUOTA} for wait in waits)
    others = [need for other, each in needs.items() if other != name for need in each]
    return _WaitingJob(
        name,
        _job_address(visit, name),
        snapshot.spec.owner or units.MISSING,
        str(snapshot.target),
        Listing(f"What {name} waits for", head, [_wait_row(wait, free, holders) for wait in waits]),
        _holders(visit, holders) if is_for_machines else None,
        _fitting(visit, snapshot, fitting_plan(snapshot, total, others)) if is_for_machines else None,
    )


def _job_address(visit: Visit, name: str) -> str:
    query = {"cluster": visit.query["cluster"]} if "cluster" in visit.query else {}
    return address(f"{visit.root}/job", {**query, "name": name})


def _holders(visit: Visit, holders: Sequence[Holder]) -> Listing:
    rows = [
        (
            Cell(h.job, _job_address(visit, h.job)),
            Cell(h.owner or units.MISSING),
            Cell(units.cores(h.cpu), is_number=True),
            Cell(units.memory(h.memory_mib), is_number=True),
            Cell(units.duration(h.left_s) if h.left_s is not None else "not known"),
        )
        for h in holders[:MOST_HOLDERS]
    ]
    more = len(holders) - len(rows)
    note = f"{more} more hold less." if more > 0 else ""
    return Listing("Who holds cores and memory", ("Job", "Owner", "Cores", "Memory", "Ends in"), rows, note)


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


def _fitting(visit: Visit, snapshot: JobSnapshot, plan: ResourcePlan | None) -> _Fit:
    """Return the largest plan that fits now, and the button that asks for it where the person may."""
    if plan is None:
        return _Fit(("No plan of this job fits beside the other jobs now.",))
    if plan == snapshot.target:
        return _Fit(("It fits beside the other jobs now, so it should start soon.",))
    words, spec = f"The largest plan that fits now: {plan}.", snapshot.spec
    if plan == snapshot.running:
        return _Fit((words, "It runs already."))
    if not visit.team.may(visit.person, Action.SCALE, visit.cluster, owner=spec.owner):
        return _Fit((words, "To scale the job to it needs the role operator."))
    fields = seen_fields(visit, snapshot, back="waiting") | {"action": str(Action.SCALE)} | size_values(plan)
    return _Fit((words,), fields, f"Scale {spec.name} to {plan.short}")


PAGE = Page("waiting", "Waiting", body)
