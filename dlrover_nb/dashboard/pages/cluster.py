"""The page *Cluster*: what there is, who uses what, and what the next core and GiB would give to each job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.planner.availability.marginal_gains import (
    best_per_core,
    best_per_gib,
    steps_of,
    swaps_of,
)
from dlrover_nb.core.planner.availability.placement import machines_of
from dlrover_nb.core.planner.availability.waiting import needs_of
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.asked_jobs import (
    ask_all,
    capacity_of,
    left_out_words,
    load_of,
    running,
    shown_cluster,
)
from dlrover_nb.dashboard.pages.brain_card import brain_blocks
from dlrover_nb.dashboard.pages.lists import Cell, Listing, address
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Tone
from dlrover_nb.widgets.clusters.cluster_load import machines_table, totals
from dlrover_nb.widgets.clusters.machines import machines_chart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.planner.availability.marginal_gains import Step, Swap
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.decisions.query_answers import Explanation
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.widgets.blocks import Block

_PACKED = (
    "Placed anew, largest first: the sums are exact, a node may stand on another machine of the same size."
)

NO_SWAP = "None: no job gains more from a change than another would lose by it."


@dataclass(frozen=True, slots=True)
class _Answer:
    snapshot: JobSnapshot
    explanation: Explanation


def _ask(handle: JobHandle) -> _Answer:
    return _Answer(handle.snapshot(), handle.explain())


def body(visit: Visit) -> Markup:
    """Return the machines, their users, and what more of them would give."""
    cluster = shown_cluster(visit)
    jobs = running(cluster.jobs().jobs)
    answers, missing = ask_all(cluster, jobs, _ask)
    capacity, unknown = capacity_of(cluster)
    needs = [
        (job.name, need)
        for job in jobs
        for need in needs_of(answers[job.name].snapshot if job.name in answers else job)
    ]
    steps = [
        step
        for name, each in answers.items()
        for step in steps_of(name, each.snapshot.spec.owner, each.explanation)
    ]
    return render(
        "cluster.html",
        machines=_machines(capacity, needs) if capacity else _unknown(unknown),
        load=_load(*load_of(cluster)),
        brain=brain_blocks(visit, jobs),
        users=_users(visit, jobs, capacity),
        gains=_gains(visit, steps),
        notes=_notes(steps, answers, missing, len(jobs)),
        swaps=_swaps(visit, swaps_of(steps)),
        no_swap=NO_SWAP,
    )


def _machines(capacity: Capacity, needs: Sequence[tuple[str, Need]]) -> tuple[Block, ...]:
    machines = machines_of(capacity, needs)
    used_cpu, used_mib = sum(m.used_cpu for m in machines), sum(m.used_memory_mib for m in machines)
    total_cpu, total_mib = capacity.total_cpu, capacity.total_memory_mib
    rows = (
        ("machines", f"{len(machines)}"),
        ("cores", _of(units.cores, total_cpu, used_cpu)),
        ("memory", _of(units.memory, total_mib, used_mib)),
    )
    return Facts(rows), machines_chart(machines), Paragraph(_PACKED)


def _load(load: ClusterLoad | None, unknown: str) -> tuple[Block, ...]:
    """Return what the cluster itself says of its machines, as `%dlrover show --machines` shows it."""
    if load is None:
        return _unknown(unknown)
    notes = (Paragraph(f"{note[:1].upper()}{note[1:]}.", Tone.HINT) for note in load.notes)
    return Facts(totals(load)), machines_table(load), *notes


def _of(words: Callable[[float], str], total: float, used: float) -> str:
    return f"{words(total)}: {words(used)} used, {words(total - used)} idle"


def _unknown(why: str) -> tuple[Block, ...]:
    return (Paragraph(f"We do not know what the machines offer: {why}", Tone.HINT),)


def _users(visit: Visit, jobs: Sequence[JobSummary], capacity: Capacity | None) -> tuple[Listing, ...]:
    owners: dict[str, list[JobSummary]] = {}
    for job in jobs:
        owners.setdefault(job.owner or units.MISSING, []).append(job)
    whole_cpu = capacity.total_cpu if capacity else 0.0
    whole_mib = capacity.total_memory_mib if capacity else 0

    def sums(of: Sequence[JobSummary]) -> tuple[Cell, ...]:
        cpu, mib = sum(job.cpu for job in of), sum(job.memory_mib for job in of)
        return (
            Cell(units.cores(cpu), is_number=True),
            Cell(units.percent(cpu / whole_cpu if whole_cpu else None), is_number=True),
            Cell(units.memory(mib), is_number=True),
            Cell(units.percent(mib / whole_mib if whole_mib else None), is_number=True),
        )

    by_cpu = sorted(owners.items(), key=lambda each: -sum(job.cpu for job in each[1]))
    people = [(Cell(owner), Cell(f"{len(of)}", is_number=True), *sums(of)) for owner, of in by_cpu]
    lines = [
        (_job_cell(visit, job.name), Cell(job.owner or units.MISSING), *sums([job]))
        for job in sorted(jobs, key=lambda job: -job.cpu)
    ]
    shares = ("Cores", "of all", "Memory", "of all")
    return (
        Listing("By owner", ("Owner", "Jobs", *shares), people),
        Listing("By job", ("Job", "Owner", *shares), lines),
    )


def _gains(visit: Visit, steps: Sequence[Step]) -> tuple[Listing, ...]:
    head = ("Job", "Owner", "Step", "Takes", "Gains", "Faster by", "Now")
    cores = [
        (*_step_cells(visit, step), Cell(_per(step.per_core, "core"), is_number=True), _now(step))
        for step in best_per_core(steps)
    ]
    gibs = [
        (*_step_cells(visit, step), Cell(_per(step.per_gib, "GiB"), is_number=True), _now(step))
        for step in best_per_gib(steps)
    ]
    return (
        Listing("What the next core would give", head, cores, "By each job's own model, the best first."),
        Listing("What the next GiB would give", head, gibs),
    )


def _notes(
    steps: Sequence[Step], answers: dict[str, _Answer], missing: dict[str, str], n_all: int
) -> list[Paragraph]:
    """Return which jobs the gains leave out, and why."""
    notes = [Paragraph(f"{name} gave no answer: {why}", Tone.WARNING) for name, why in missing.items()]
    if unmeasured := sorted(set(answers) - {step.job for step in steps}):
        names = and_list(unmeasured)
        notes.append(Paragraph(f"Not measured for long enough to predict: {names}.", Tone.HINT))
    if words := left_out_words(n_all):
        notes.append(Paragraph(words, Tone.HINT))
    return notes


def _step_cells(visit: Visit, step: Step) -> tuple[Cell, ...]:
    return (
        _job_cell(visit, step.job),
        Cell(step.owner or units.MISSING),
        Cell(step.what),
        Cell(_takes(step)),
        Cell(f"{units.number(step.samples_per_s)} samples/s", is_number=True),
    )


def _takes(step: Step) -> str:
    return f"{units.cores(step.cores)} cores, {units.memory(step.memory_mib)}"


def _per(share: float | None, unit: str) -> str:
    return f"{units.signed_percent(share)} per {unit}" if share is not None else units.MISSING


def _now(step: Step) -> Cell:
    return Cell(f"refused: {step.refusal}" if step.refusal else "possible")


def _swaps(visit: Visit, swaps: Sequence[Swap]) -> Listing | None:
    if not swaps:
        return None
    head = ("From", "Gives up", "Slower by", "To", "Takes", "Faster by", "Gain")
    rows = [
        (
            _job_cell(visit, swap.giver.job),
            Cell(swap.giver.what),
            Cell(units.signed_percent(swap.giver.share), is_number=True),
            _job_cell(visit, swap.taker.job),
            Cell(swap.taker.what),
            Cell(units.signed_percent(swap.taker.share), is_number=True),
            Cell(units.signed_percent(swap.share), is_number=True),
        )
        for swap in swaps
    ]
    note = "A share of one job's speed counts as much as that of another's; both jobs keep running."
    return Listing("Swaps that would gain", head, rows, note)


def _job_cell(visit: Visit, job: str) -> Cell:
    query = {"cluster": visit.query["cluster"]} if "cluster" in visit.query else {}
    return Cell(job, address(f"{visit.root}/job", {**query, "name": job}))


PAGE = Page("cluster", "Cluster", body)
