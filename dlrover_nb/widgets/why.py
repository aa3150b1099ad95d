"""Why a plan, and what if another: the answers of `core.structs.questions` as views.

A recommendation without what it rests on is an order. So the view shows the constraint that binds, what one
step along each axis would bring, the measurements behind the numbers, and the nearest change of one number
that would turn the recommendation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Picture, Table, Tone, View
from dlrover_nb.widgets.charts import CHARTS, front
from dlrover_nb.widgets.plans import band_words, currency, gain_facts, plans_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions import Candidate
    from dlrover_nb.core.structs.questions import Explanation, Marginal, Measured, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.snapshot import JobSnapshot

UNKNOWN = "Nothing is known to predict it by yet: the fit waits for steady samples."


def why_view(explanation: Explanation, snapshot: JobSnapshot) -> View:
    """Return why a plan is recommended, or why none is, and what would change that."""
    e, money = explanation, currency(snapshot)
    blocks: list[Block] = [Paragraph(e.why), *_gain_blocks(e, money)]
    if e.flip is not None:
        blocks.append(Paragraph(f"What would change it: {e.flip.words}", Tone.HINT))
    if e.marginals:
        blocks.append(marginals_table(e.marginals, money))
    blocks += [*_runner_up_blocks(e, money), *_probe_blocks(e), *_breakdown_blocks(e.candidate)]
    if e.evidence:
        blocks.append(evidence_table(e.evidence))
    if snapshot.curves:
        blocks.append(CHARTS["curve"].picture(snapshot, None))
    what = f"proposal {e.proposal}" if e.proposal else "the plan that runs"
    return View(f"Why {what} of {snapshot.title}: {e.plan.short}", tuple(blocks))


def _gain_blocks(e: Explanation, money: str) -> tuple[Block, ...]:
    if e.candidate is None:
        return (Paragraph(UNKNOWN), *((Facts(_binding(e)),) if e.binding else ()))
    if e.baseline is None or e.plan == e.baseline.plan:
        return (Facts((*candidate_facts(e.candidate, money), *_binding(e))),)
    facts = (("plan", str(e.plan)), *gain_facts(e.candidate, e.baseline, money), *_binding(e))
    return Facts(facts), plans_table(e.baseline.plan, e.plan, "explained")


def candidate_facts(c: Candidate, money: str) -> tuple[tuple[str, str], ...]:
    """Return what a plan brings and costs, beside no other."""
    return (
        ("plan", str(c.plan)),
        ("throughput", units.rate(c.prediction.samples_per_s)),
        ("90 % band", band_words(c.prediction)),
        ("cost", units.money(c.cost_per_hour, money, per="h")),
        ("per million samples", units.money(c.cost_per_million, money)),
        ("finish in", units.duration(c.finish_s)),
        *((("because", c.reason),) if c.reason else ()),
    )


def _binding(e: Explanation) -> tuple[tuple[str, str], ...]:
    """Return what holds the plan where it is."""
    held = e.binding or ("no constraint: a larger plan would be allowed",)
    return tuple(("lies at" if i == 0 else "", each) for i, each in enumerate(held))


def marginals_table(marginals: Sequence[Marginal], money: str) -> Table:
    """Return what one step along each axis would bring and cost."""
    head = ("one step", "samples/s", "change", f"{money} per hour", "plan", "possible")
    note = "All else as in the plan explained; predicted."
    return Table("What the next step would bring", head, tuple(map(_marginal_row, marginals)), note)


def _marginal_row(m: Marginal) -> tuple[str, ...]:
    c = m.weighed.candidate
    return (
        m.what,
        units.number(c.prediction.samples_per_s if c else None),
        _signed(m.samples_per_s),
        units.PRICE_UNKNOWN if m.cost_per_hour is None else f"{m.cost_per_hour:+.3g}",
        units.unbroken(m.weighed.plan.short),
        f"no: {m.weighed.refusal}" if m.weighed.refusal else "yes",
    )


def _signed(value: float | None) -> str:
    if value is None:
        return units.MISSING
    return f"{'+' if value >= 0 else '-'}{units.number(abs(value))}"


def _runner_up_blocks(e: Explanation, money: str) -> tuple[Block, ...]:
    if e.runner_up is None:
        return ()
    c = e.runner_up
    words = (
        f"Next best: {c.plan.short} at {units.rate(c.prediction.samples_per_s)}, "
        f"{units.money(c.cost_per_hour, money, per='h')}"
    )
    return (Paragraph(f"{words}. {e.runner_up_why}" if e.runner_up_why else f"{words}."),)


def _probe_blocks(e: Explanation) -> tuple[Block, ...]:
    if e.probe is None or e.probe.plan == e.plan:
        return ()
    return (Paragraph(f"Next best experiment, {e.probe.plan.short}: {e.probe_why}", Tone.HINT),)


def _breakdown_blocks(candidate: Candidate | None) -> tuple[Block, ...]:
    if candidate is None or not candidate.breakdown:
        return ()
    rows = tuple((t.term, units.duration(t.seconds), units.percent(t.share)) for t in candidate.breakdown)
    return (Table("Predicted parts of an iteration", ("part", "time", "share"), rows),)


def evidence_table(evidence: Sequence[Measured]) -> Table:
    """Return the measurements that a prediction rests on, beside what the fit says of them now."""
    head = ("plan", "measured samples/s", "windows", "by the fit", "90 % band", "error")
    return Table("Measured plans behind it, nearest first", head, tuple(map(_measured_row, evidence)))


def _measured_row(m: Measured) -> tuple[str, ...]:
    p = m.predicted
    return (
        units.unbroken(m.plan.short),
        units.number(m.samples_per_s),
        f"{m.n_window}",
        units.number(p.samples_per_s),
        units.interval(p.low, p.high),
        units.signed_percent(p.samples_per_s / m.samples_per_s - 1 if m.samples_per_s else None),
    )


def whatif_view(weighed: Sequence[Weighed], snapshot: JobSnapshot) -> View:
    """Return what plans would bring if they ran instead of today's, and how to ask for one."""
    one = weighed[0] if len(weighed) == 1 else None
    blocks: list[Block] = [*_one_blocks(one, snapshot)] if one else [weighed_table(weighed, snapshot)]
    if any(w.candidate for w in weighed):
        blocks.append(_asked_picture(weighed, snapshot))
    what = one.plan.short if one else f"{len(weighed)} plans"
    return View(f"What if {snapshot.title} ran on {what}?", tuple(blocks))


def _one_blocks(w: Weighed, snapshot: JobSnapshot) -> tuple[Block, ...]:
    money = currency(snapshot)
    now = snapshot.front.current if snapshot.front else None
    if w.candidate is None:
        facts: tuple[Block, ...] = (Paragraph(UNKNOWN),)
    elif now is None:
        facts = (Facts(candidate_facts(w.candidate, money)),)
    else:
        facts = (Facts((("plan", str(w.plan)), *gain_facts(w.candidate, now, money))),)
    table = plans_table(snapshot.running or snapshot.target, w.plan, "asked about")
    return (*facts, table, _answer(w, snapshot))


def _answer(w: Weighed, snapshot: JobSnapshot) -> Paragraph:
    if w.refusal:
        return Paragraph(f"It would be refused: {w.refusal}", Tone.WARNING)
    if w.plan == snapshot.target:
        return Paragraph("It is what the job runs on, or is changing to.")
    return Paragraph("Have it with:", Tone.HINT, (scale_command(snapshot.spec.name, w.plan),))


def scale_command(job: str, plan: ResourcePlan) -> str:
    """Return what to type to ask for a plan."""
    parts = (("worker", "workers", plan.worker), ("ps", "ps", plan.ps))
    flags = " ".join(
        f"--{count} {role.count} --{name}-cpu {role.cpu:g} --{name}-memory {role.memory_mib}"
        for name, count, role in parts
    )
    return f"%dlrover scale {job} {flags}"


def weighed_table(weighed: Sequence[Weighed], snapshot: JobSnapshot) -> Table:
    """Return plans side by side, one a row."""
    head = ("plan", "samples/s", "90 % band", f"{currency(snapshot)} per hour", "finish", "pause", "possible")
    return Table("Plans weighed", head, tuple(map(_weighed_row, weighed)))


def _weighed_row(w: Weighed) -> tuple[str, ...]:
    possible = f"no: {w.refusal}" if w.refusal else "yes"
    c = w.candidate
    if c is None:
        return (units.unbroken(w.plan.short), *(units.MISSING,) * 5, possible)
    return (
        units.unbroken(w.plan.short),
        units.number(c.prediction.samples_per_s),
        units.interval(c.prediction.low, c.prediction.high),
        units.PRICE_UNKNOWN if c.cost_per_hour is None else units.number(c.cost_per_hour),
        units.duration(c.finish_s),
        units.duration(c.transition_s),
        possible,
    )


def _asked_picture(weighed: Sequence[Weighed], snapshot: JobSnapshot) -> Picture:
    asked = tuple(front.Dot(w.candidate, ("asked about",)) for w in weighed if w.candidate is not None)
    data = replace(front.columns(snapshot), asked=asked)
    return Picture(front.static(data), front.twin(data, named_only=True))
