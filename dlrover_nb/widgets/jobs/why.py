"""Why a plan, and what if another: answers of `core.why` and of `structs.decisions.query_answers` as views.

A recommendation needs its reasons. So the view begins with the answers to nine questions, short and in the
order in which people ask them; below stand what they rest on: the binding constraint, the effect of one
change along each axis, the parts of a step, and the measurements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.pareto.reasons import PHRASES
from dlrover_nb.core.structs.decisions.candidates import HOST, REST, auc_words, is_worth_telling
from dlrover_nb.core.why import answers, tried
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, StaticChart, Table, Tone, View
from dlrover_nb.widgets.charts import CHARTS, front
from dlrover_nb.widgets.jobs.host_wishes import host_blocks
from dlrover_nb.widgets.jobs.plans import (
    PREDICTED_NOW,
    TRIED,
    WHEN_PROPOSED,
    band_words,
    budget_facts,
    currency,
    deadline_facts,
    gain_facts,
    plans_table,
    tried_facts,
    with_tried,
)
from dlrover_nb.widgets.jobs.restarts import restart_facts
from dlrover_nb.widgets.svg import svg_drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions.candidates import Candidate, TermShare
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, Marginal, Measured, Weighed
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.fit import FitReport
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.why import Answer, Question

FINISH = "finish in"
FAR = 4.0  # times the cores of the largest plan on the front
POSSIBLE = ("possible",)
LEAST_REST = 0.005  # of a step: less is shown as none
_PART_WORDS = {REST: PHRASES[REST], HOST: "other work on the host"}
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNKNOWN = "No prediction yet: we are still measuring the plan that runs."
ENDED = "No prediction: the job has ended."


def why_view(explanation: Explanation, snapshot: JobSnapshot, question: Question | None = None) -> View:
    """Return the answers to the nine questions about a plan and what they rest on, or one answer alone."""
    replies = answers(explanation, snapshot, question)
    title = _why_title(explanation, snapshot)
    if question is not None:
        return View(title, tuple(Paragraph(f"{each.question.asks} {each.words}") for each in replies))
    return View(title, (Facts(_answer_facts(replies)), *_grounds(explanation, snapshot)))


def _answer_facts(replies: Sequence[Answer]) -> tuple[tuple[str, str], ...]:
    """Return each answer, and once at the end, for all questions that it stops, why there is none."""
    facts = [
        (f"{each.question.number} {each.question.asks}", each.words) for each in replies if each.is_known
    ]
    unknown: dict[str, list[str]] = {}
    for each in replies:
        if not each.is_known:
            unknown.setdefault(each.words, []).append(str(each.question.number))
    return (*facts, *((f"{and_list(numbers)} No answer", words) for words, numbers in unknown.items()))


def _grounds(e: Explanation, snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return what the answers rest on: constraints, next changes, parts of a step, measurements."""
    money = currency(snapshot)
    blocks: list[Block] = [Paragraph(e.why)] if e.proposal is None else []
    blocks += _gain_blocks(e, snapshot)
    if e.bottleneck:
        blocks.append(Paragraph(e.bottleneck))
    if e.marginals:
        blocks += marginal_blocks(e.marginals, money, snapshot)
    blocks += [*_probe_blocks(e), *parts_blocks(e.candidate, snapshot.fit)]
    if snapshot.began_from is not None:
        blocks.append(Paragraph(f"The job began from {snapshot.began_from}.", Tone.HINT))
    blocks += host_blocks(snapshot.nodes)
    if snapshot.quota is not None and not snapshot.phase.is_final:
        blocks.append(Paragraph(f"{snapshot.quota.words}.", Tone.HINT))
    if e.evidence:
        blocks.append(evidence_table(e.evidence))
    if snapshot.curves:
        blocks.append(CHARTS["curve"].static(snapshot, None))
    return tuple(blocks)


def _why_title(e: Explanation, snapshot: JobSnapshot) -> str:
    if e.proposal:
        return f"Why proposal {e.proposal} of {snapshot.title}: {e.plan.short}"
    runs = "ran" if snapshot.phase.is_final else "runs"
    return f"Why {snapshot.title} {runs} on {e.plan.short}"


def _gain_blocks(e: Explanation, snapshot: JobSnapshot) -> tuple[Block, ...]:
    money = currency(snapshot)
    if e.candidate is None:
        text = ENDED if snapshot.phase.is_final else UNKNOWN
        return (Paragraph(text), *((Facts(_binding(e)),) if e.binding else ()))
    if e.baseline is None or e.plan == e.baseline.plan:
        return (Facts((*_as_it_runs(e.candidate, snapshot), *_binding(e))),)
    when = _when(e, snapshot)
    facts = (
        ("plan", str(e.plan)),
        *with_tried(gain_facts(e.candidate, e.baseline, money, when=when), snapshot, e.plan),
        *(restart_facts(snapshot, e.plan) if when == PREDICTED_NOW else ()),
        *_binding(e),
    )
    return Facts(facts), plans_table(e.baseline.plan, e.plan, "explained")


def _when(e: Explanation, snapshot: JobSnapshot) -> str:
    """Return when the explained plan was predicted: a closed proposal keeps its numbers."""
    opened = snapshot.open_proposal
    is_closed = e.proposal and (opened is None or opened.id != e.proposal)
    return WHEN_PROPOSED if is_closed else PREDICTED_NOW


def _as_it_runs(c: Candidate, snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    """Return the prediction of the running plan, without reasons, and of an ended job without time left."""
    facts = candidate_facts(replace(c, reason=""), currency(snapshot))
    facts = (*facts[:3], *_measured(snapshot, c.plan), *facts[3:])  # behind the band
    return facts if not snapshot.phase.is_final else tuple(f for f in facts if f[0] != FINISH)


def _measured(snapshot: JobSnapshot, plan: ResourcePlan) -> tuple[tuple[str, str], ...]:
    """Return what the plan that runs has given so far."""
    return tuple(("measured", words.removeprefix("it gave ")) for _, words in tried_facts(snapshot, plan))


def candidate_facts(
    c: Candidate, money: units.Currency, *, when: str = PREDICTED_NOW
) -> tuple[tuple[str, str], ...]:
    """Return a plan's throughput and cost, without comparison."""
    return (
        ("plan", str(c.plan)),
        (when, units.rate(c.prediction.samples_per_s)),
        ("90 % band", band_words(c.prediction)),
        ("cost", units.money(c.cost_per_hour, money, per="h") + money.note),
        ("per million samples", units.money(c.cost_per_million, money)),
        (FINISH, units.duration(c.finish_s)),
        *deadline_facts(c),
        *budget_facts(c),
        *((("because", c.reason),) if c.reason else ()),
    )


def _binding(e: Explanation) -> tuple[tuple[str, str], ...]:
    """Return the constraint that binds the plan."""
    constraints = e.binding or ("no limit: larger plans are allowed too",)
    return tuple(("lies at" if i == 0 else "", each) for i, each in enumerate(constraints))


def marginal_blocks(
    marginals: Sequence[Marginal], money: units.Currency, snapshot: JobSnapshot | None = None
) -> tuple[Block, ...]:
    """Return the effect and cost of one change along each axis, and of plans that ran what they gave.

    Parameters
    ----------
    snapshot
        Of the job; in an ended one no change is possible. None: nothing is known of it.
    """
    has_ended = snapshot is not None and snapshot.phase.is_final
    refusal = () if has_ended else _refused(_refusal_of_all([m.weighed for m in marginals]))
    return (*refusal, _marginals_table(marginals, money, snapshot))


def _tried(weighed: Sequence[Weighed], snapshot: JobSnapshot | None) -> tuple[tuple[str, ...], ...]:
    """Return the head and the cells of a column of what plans gave when they ran; empty: none of them did."""
    ran = [None if snapshot is None else tried(snapshot, w.plan) for w in weighed]
    if not any(ran):
        return ((),) * (1 + len(weighed))
    cells = (units.number(None if each is None else each.samples_per_s) for each in ran)
    return ((TRIED,), *((cell,) for cell in cells))


def _refused(refusal: str) -> tuple[Block, ...]:
    """Return that none of the following plans is possible, and why; nothing where one is."""
    return (Paragraph(f"None of these is possible now: {refusal}", Tone.WARNING),) if refusal else ()


def _refusal_of_all(weighed: Sequence[Weighed]) -> str:
    """Return the refusal that is the same for all; empty: there is none."""
    refusals = {w.refusal for w in weighed}
    return refusals.pop() if len(refusals) == 1 else ""


def _possible(weighed: Sequence[Weighed]) -> list[tuple[str, ...]]:
    """Return the cells of a column "possible"; none where all are refused for one reason, shown above."""
    if _refusal_of_all(weighed):
        return [()] * len(weighed)
    return [(f"no: {w.refusal}" if w.refusal else "yes",) for w in weighed]


def _marginals_table(
    marginals: Sequence[Marginal], money: units.Currency, snapshot: JobSnapshot | None
) -> Table:
    weighed = [m.weighed for m in marginals]
    possible, (head_tried, *ran) = _possible(weighed), _tried(weighed, snapshot)
    head_auc, *auc = _auc(weighed)
    head = (
        "one change",
        "samples/s",
        "change",
        f"{money.name} per hour",
        "plan",
        *head_auc,
        *head_tried,
        *(POSSIBLE if any(possible) else ()),
    )
    cells = zip(marginals, auc, ran, possible, strict=True)
    rows = tuple((*_marginal_row(m), *change, *speed, *cell) for m, change, speed, cell in cells)
    return Table(
        "What one more change would bring", head, rows, "Predictions; everything else stays as in this plan."
    )


def _marginal_row(m: Marginal) -> tuple[str, ...]:
    c = m.weighed.candidate
    return (
        m.what,
        units.number(c.prediction.samples_per_s if c else None),
        _signed(m.samples_per_s),
        units.PRICE_UNKNOWN if m.cost_per_hour is None else f"{m.cost_per_hour:+.3g}",
        units.unbroken(m.weighed.plan.short),
    )


def _signed(value: float | None) -> str:
    if value is None:
        return units.MISSING
    return f"{'+' if value >= 0 else '-'}{units.number(abs(value))}"


def _probe_blocks(e: Explanation) -> tuple[Block, ...]:
    if e.probe is None or e.probe.plan == e.plan:
        return ()
    return (Paragraph(f"Next best experiment, {e.probe.plan.short}: {e.probe_why}", Tone.HINT),)


def parts_blocks(candidate: Candidate | None, fit: FitReport | None) -> tuple[Block, ...]:
    """Return the predicted parts of a step, as far as the measurements distinguish them."""
    if candidate is None or not candidate.breakdown:
        return ()
    terms = {c.term for c in fit.coefficients if c.identified} if fit else set()
    terms |= {HOST, *({REST} if terms else ())}
    parts = [
        (_PART_WORDS.get(t.term, t.term), t.seconds, t.share) for t in _felt(candidate) if t.term in terms
    ]
    rest = [t for t in candidate.breakdown if t.term not in terms]
    if rest:
        names = and_list(t.term for t in rest if t.term != REST)
        parts.append((names, sum(t.seconds for t in rest), sum(t.share for t in rest)))
    if len(rest) == len(candidate.breakdown) > 1:
        total = units.duration(parts[-1][1])
        return (Paragraph(f"We expect each step to take {total}. We can only measure its parts together."),)
    rows = tuple((name, units.duration(seconds), units.percent(share)) for name, seconds, share in parts)
    n = sum(t.term != REST for t in rest)
    note = f"We can only measure these {_COUNTS[n] if n < len(_COUNTS) else n} together." if n > 1 else ""
    return (Table("Predicted parts of a step", ("part", "time", "share"), rows, note),)


def _felt(candidate: Candidate) -> list[TermShare]:
    """Return the parts without a rest that is none: of the present plan it is zero."""
    return [part for part in candidate.breakdown if part.term != REST or abs(part.share) >= LEAST_REST]


def evidence_table(evidence: Sequence[Measured]) -> Table:
    """Return the measurements behind a prediction, beside the present fit's values."""
    head = ("plan", "measured samples/s", "windows", "by the fit", "90 % band", "error")
    return Table(
        "Measured plans behind the prediction, nearest first", head, tuple(map(_measured_row, evidence))
    )


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
    """Return the effect of plans compared with the present one, whether they may run, and the command.

    Whether a plan may run comes first: numbers of a refused plan must not look like an offer.
    """
    one = weighed[0] if len(weighed) == 1 else None
    blocks: list[Block] = [*_verdict(weighed, snapshot)]
    blocks += _one_blocks(one, snapshot) if one else [weighed_table(weighed, snapshot)]
    shown = [w.candidate for w in weighed if w.candidate and not _is_far(w.candidate, snapshot)]
    if shown:
        blocks.append(_asked_chart(shown, snapshot))
    what = one.plan.short if one else f"{len(weighed)} plans"
    ran = "had run" if snapshot.phase.is_final else "ran"
    return View(f"What if {snapshot.title} {ran} on {what}?", tuple(blocks))


def _verdict(weighed: Sequence[Weighed], snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return why none of the plans is possible, if so."""
    if snapshot.phase.is_final:
        return (Paragraph(f"The job has {snapshot.phase}: this is what would have been.", Tone.HINT),)
    refusal = _refusal_of_all(weighed)
    if len(weighed) == 1 and weighed[0].plan == snapshot.target:
        return ()  # it is marked as running below
    if refusal and len(weighed) == 1:
        return (Paragraph(f"This plan is not possible now: {refusal}", Tone.WARNING),)
    return _refused(refusal) or (caution_blocks(weighed[0]) if len(weighed) == 1 else ())


def caution_blocks(weighed: Weighed | None) -> tuple[Block, ...]:
    """Return what to know before a decision for a plan."""
    words = weighed.caution if weighed is not None else ""
    return (Paragraph(f"Mind its AUC: {words}.", Tone.WARNING),) if words else ()


def _one_blocks(w: Weighed, snapshot: JobSnapshot) -> tuple[Block, ...]:
    money = currency(snapshot)
    now = snapshot.front.current if snapshot.front else None
    if w.plan == snapshot.target:
        prediction = Facts(_as_it_runs(w.candidate, snapshot)) if w.candidate else Paragraph(UNKNOWN)
        does = "runs on" if snapshot.running == w.plan else "is changing to"
        return Paragraph(f"The job {'ran on' if snapshot.phase.is_final else does} this plan."), prediction
    if w.candidate is None:
        facts: Block = Paragraph(UNKNOWN)
    elif now is None:
        facts = Facts(candidate_facts(w.candidate, money))
    else:
        facts = Facts((("plan", str(w.plan)), *_gain(w.candidate, now, snapshot)))
    table = plans_table(snapshot.ran or snapshot.target, w.plan, "asked about")
    change = () if w.refusal else restart_facts(snapshot, w.plan)
    return facts, table, *([Facts(change)] if change else ()), *_offer(w, snapshot)


def _gain(new: Candidate, now: Candidate, snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    facts = with_tried(gain_facts(new, now, currency(snapshot)), snapshot, new.plan)
    over = {FINISH, "transition"} if snapshot.phase.is_final else set()
    return tuple(f for f in facts if f[0] not in over)


def _offer(w: Weighed, snapshot: JobSnapshot) -> tuple[Block, ...]:
    if w.refusal or snapshot.phase.is_final:
        return ()
    return (Paragraph("Apply it with:", Tone.HINT, (scale_command(snapshot.spec.name, w.plan),)),)


def scale_command(job: str, plan: ResourcePlan) -> str:
    """Return the command that requests a plan."""
    parts = (("worker", "workers", plan.worker), ("ps", "ps", plan.ps))
    flags = " ".join(
        f"--{count} {role.count} --{name}-cpu {role.cpu:g} --{name}-memory {role.memory_mib}"
        for name, count, role in parts
    )
    return f"%dlrover apply {job} {flags}"


def weighed_table(weighed: Sequence[Weighed], snapshot: JobSnapshot) -> Table:
    """Return plans as rows of a table."""
    possible, (head_tried, *ran) = _possible(weighed), _tried(weighed, snapshot)
    money = currency(snapshot)
    cost = f"{money.name} per hour{money.note}"
    may_run = POSSIBLE if any(possible) else ()
    head_auc, *auc = _auc(weighed)
    head = ("plan", "samples/s", "90 % band", cost, "finish", "pause", *head_auc, *head_tried, *may_run)
    cells = zip(weighed, auc, ran, possible, strict=True)
    rows = tuple((*_weighed_row(w), *change, *speed, *cell) for w, change, speed, cell in cells)
    return Table("Predicted plans", head, rows)


def _auc(weighed: Sequence[Weighed]) -> tuple[tuple[str, ...], ...]:
    """Return the head and the cells of a column of changes of AUC; empty: none is known."""
    changes = [None if w.candidate is None else w.candidate.quality for w in weighed]
    if not any(map(is_worth_telling, changes)):
        return ((),) * (1 + len(weighed))
    return (("AUC",), *((auc_words(change),) for change in changes))


def _weighed_row(w: Weighed) -> tuple[str, ...]:
    c = w.candidate
    if c is None:
        return (units.unbroken(w.plan.short), *(units.MISSING,) * 5)
    return (
        units.unbroken(w.plan.short),
        units.number(c.prediction.samples_per_s),
        units.interval(c.prediction.low, c.prediction.high),
        units.PRICE_UNKNOWN if c.cost_per_hour is None else units.number(c.cost_per_hour),
        units.duration(c.finish_s),
        units.duration(c.transition_s),
    )


def _is_far(candidate: Candidate, snapshot: JobSnapshot) -> bool:
    """Whether a plan is so large that a chart with it would hide all others."""
    others = snapshot.front.candidates if snapshot.front else ()
    largest = max((c.plan.total_cpu for c in others), default=candidate.plan.total_cpu)
    return candidate.plan.total_cpu > FAR * largest


def _asked_chart(candidates: Sequence[Candidate], snapshot: JobSnapshot) -> StaticChart:
    dots = tuple(front.Dot(c, ("asked about",)) for c in candidates)
    data = replace(front.columns(snapshot), queried=dots)
    return StaticChart(svg_drawing.draw(front.marks(data)), front.data_table(data, named_only=True))
