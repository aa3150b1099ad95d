"""Ladders of a live view's sliders, the plan that they set, and its predicted effect.

Six sliders, one for each number of a plan, move on ladders: counts up to the job's bounds, the cores of its
ladder, memory in round steps up to the largest machine. Values of the running, the proposed and the tapped
plan are always on the ladder. Until the user moves one the sliders follow the open proposal, or the job's
plan. All of it is pure: a screen draws the ladders and queries the master about the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Tone, block_html
from dlrover_nb.widgets.jobs.plans import currency, gain_facts, with_tried
from dlrover_nb.widgets.jobs.restarts import restart_facts
from dlrover_nb.widgets.jobs.why import UNKNOWN, candidate_facts, caution_blocks
from dlrover_nb.widgets.theme import WARN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.query_answers import Weighed
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

_LEAST_MEMORY_MIB = 256


class Axis(StrEnum):
    """The numbers of a plan, by their names in pins."""

    WORKERS = "workers"
    WORKER_CPU = "worker_cpu"
    WORKER_MEMORY = "worker_memory_mib"
    PS = "ps"
    PS_CPU = "ps_cpu"
    PS_MEMORY = "ps_memory_mib"

    @property
    def role(self) -> Role:
        """The role of the number."""
        return Role.WORKER if self.startswith("worker") else Role.PS

    @property
    def field(self) -> str:
        """The number's field in `RolePlan`."""
        if self in {Axis.WORKERS, Axis.PS}:
            return "count"
        return self.removeprefix(f"{self.role}_")


TITLES = {
    Axis.WORKERS: "Workers",
    Axis.WORKER_CPU: "Cores per worker",
    Axis.WORKER_MEMORY: "Memory per worker",
    Axis.PS: "PS",
    Axis.PS_CPU: "Cores per PS",
    Axis.PS_MEMORY: "Memory per PS",
}


def value(plan: ResourcePlan, axis: Axis) -> float:
    """Return one number of a plan."""
    return float(getattr(plan.role(axis.role), axis.field))


def changed(plan: ResourcePlan, axis: Axis, number: float) -> ResourcePlan:
    """Return the plan with one number changed."""
    to = number if axis.field == "cpu" else int(number)
    role = replace(plan.role(axis.role), **{axis.field: to})  # type: ignore[arg-type]  # by name
    return replace(plan, worker=role) if axis.role is Role.WORKER else replace(plan, ps=role)


@dataclass(frozen=True, slots=True)
class Ladder:
    """The choices of one slider, and the selected one."""

    axis: Axis
    title: str
    values: tuple[float, ...]
    at: int
    words: tuple[str, ...]

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one choice."""
        return len(self.values) < 2


def ladders(snapshot: JobSnapshot, plan: ResourcePlan) -> tuple[Ladder, ...]:
    """Return the sliders, set to a plan."""
    return tuple(_ladder(axis, snapshot, plan) for axis in Axis)


def _ladder(axis: Axis, snapshot: JobSnapshot, plan: ResourcePlan) -> Ladder:
    pin = getattr(snapshot.pins, axis)
    opened = snapshot.open_proposal
    shown = (plan, snapshot.target, *((opened.candidate.plan,) if opened else ()))
    rungs = (pin,) if pin is not None else _rungs(axis, snapshot)
    values = tuple(sorted({*map(float, rungs), *(value(p, axis) for p in shown)}))
    title = TITLES[axis] + (" (pinned)" if pin is not None else "")
    words = tuple(units.memory(v) if axis.field == "memory_mib" else f"{v:g}" for v in values)
    return Ladder(axis, title, values, values.index(value(plan, axis)), words)


def _rungs(axis: Axis, snapshot: JobSnapshot) -> Sequence[float]:
    spec = snapshot.spec
    bounds = completed(spec.bounds, snapshot.capacity, spec.plan, most_workers=spec.step_batches)
    workers, ps = bounds.counts
    match axis:
        case Axis.WORKERS:
            return range(1, workers + 1)
        case Axis.PS:
            return range(1, ps + 1)
        case Axis.WORKER_CPU:
            return bounds.worker_cpus
        case Axis.PS_CPU:
            return bounds.ps_cpus
        case _:
            return memory_rungs(snapshot.capacity.most_memory_mib)


def memory_rungs(most_mib: int) -> tuple[int, ...]:
    """Return powers of two and their midpoints, up to `most_mib`."""
    powers = [_LEAST_MEMORY_MIB << n for n in range(24)]
    return tuple(sorted(m for p in powers for m in (p, p * 3 // 2) if m <= most_mib))


def rest(snapshot: JobSnapshot) -> ResourcePlan:
    """Return the plan of untouched sliders: the proposed one, or the job's."""
    opened = snapshot.open_proposal
    return opened.candidate.plan if opened else snapshot.target


def plan_words(plan: ResourcePlan, now: ResourcePlan) -> str:
    """Name a plan in short, with memory where it differs from now."""
    memory = (
        f"{plan.role(role).memory_mib} MiB per {name}"
        for role, name in ((Role.WORKER, "worker"), (Role.PS, "PS"))
        if plan.role(role).memory_mib != now.role(role).memory_mib
    )
    return ", ".join((plan.short, *memory))


def button_label(snapshot: JobSnapshot, plan: ResourcePlan) -> str:
    """Return the button's label: its action and the plan of the sliders, which a press sends."""
    opened = snapshot.open_proposal
    words = plan_words(plan, snapshot.target)
    return f"Override {opened.id} with {words}" if opened else f"Scale to {words}"


def nothing_to_send(snapshot: JobSnapshot, plan: ResourcePlan) -> str:
    """Return why the plan of the sliders is no change; empty: it is one."""
    opened = snapshot.open_proposal
    if plan == snapshot.target:
        return "This is the current plan"
    if opened is not None and plan == opened.candidate.plan:
        return f"This is the plan of {opened.id}"
    return ""


@dataclass(frozen=True, slots=True)
class Consequence:
    """Known prediction of the plan of the sliders.

    Parameters
    ----------
    plan
        That plan.
    weighed
        The master's answer; None: it is pending, or failed.
    error
        Why it failed.
    """

    plan: ResourcePlan
    weighed: Weighed | None = None
    error: str = ""

    @property
    def candidate(self) -> Candidate | None:
        """The predicted effect of the plan."""
        return self.weighed.candidate if self.weighed else None

    @property
    def is_possible(self) -> bool:
        """Whether a decision for it can be sent: it was not refused."""
        return not (self.weighed and self.weighed.refusal)


def consequence_blocks(consequence: Consequence, snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the predicted effect, and how it is uncertain or impossible."""
    if consequence.error:
        return (Paragraph(f"The prediction failed: {consequence.error}", Tone.WARNING),)
    if consequence.weighed is None:
        return (Paragraph(f"Checking {plan_words(consequence.plan, snapshot.target)}..."),)
    change = () if consequence.weighed.refusal else restart_facts(snapshot, consequence.plan)
    return (
        *_refusal_blocks(consequence, snapshot),
        *_gain_blocks(consequence.candidate, snapshot),
        *([Facts(change)] if change else ()),
    )


def consequence_html(consequence: Consequence, snapshot: JobSnapshot) -> str:
    """Return the same as HTML; warnings are red as well as worded."""
    parts = ((block, block_html(block)) for block in consequence_blocks(consequence, snapshot))
    return "".join(
        f'<div style="color:{WARN}">{html}</div>' if _warns(block) else html for block, html in parts
    )


def _warns(block: Block) -> bool:
    return isinstance(block, Paragraph) and block.tone is Tone.WARNING


def _refusal_blocks(consequence: Consequence, snapshot: JobSnapshot) -> tuple[Block, ...]:
    if consequence.plan == snapshot.target:
        return (Paragraph("This is the present plan; move a slider to see another."),)
    refusal = consequence.weighed.refusal if consequence.weighed else ""
    if refusal:
        return (Paragraph(f"Not possible: {refusal}", Tone.WARNING),)
    return caution_blocks(consequence.weighed)


def _gain_blocks(new: Candidate | None, snapshot: JobSnapshot) -> tuple[Block, ...]:
    if new is None:
        return (Paragraph(UNKNOWN),)
    money, old = currency(snapshot), snapshot.front.current if snapshot.front else None
    if old is None or old.plan == new.plan:
        return (*_doubt(new), Facts(candidate_facts(new, money)))
    facts = with_tried(gain_facts(new, old, money), snapshot, new.plan)
    return (*_doubt(new), Facts((("plan", str(new.plan)), *facts)))


def _doubt(new: Candidate) -> tuple[Block, ...]:
    if not new.prediction.extrapolates:
        return ()
    words = "No similar plan has run yet: trust the range rather than the midpoint."
    return (Paragraph(words, Tone.WARNING),)
