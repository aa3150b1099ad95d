"""Plans and decisions in views: the open proposal, the front, the fit, and how earlier plans turned out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.cluster.host_load import FELT_SHARE
from dlrover_nb.core.structs.decisions.candidates import UNKNOWN_QUALITY, auc_words
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.plan.deadline import margin_words
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.why import tried
from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, Table, Tone, View
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.jobs.headline import sentence_alone
from dlrover_nb.widgets.jobs.restarts import restart_facts
from dlrover_nb.widgets.jobs.status import commands, fit_words
from dlrover_nb.widgets.moves import band

SAME = "same"  # of a size that a change leaves as it is

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
    from dlrover_nb.core.structs.decisions.decisions import Outcome, Proposal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.fit import Coefficient, FitReport
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

TRIED = "tried before"
# A fit changes with each measurement, and predictions with it: no number of a plan goes without its time.
WHEN_PROPOSED, PREDICTED_NOW = "predicted when proposed", "predicted now"
WHICH_PREDICTION = (
    "Predicted: as the decision saw it, when the plan was proposed or, of another plan, when it was decided."
)


def plans_view(snapshot: JobSnapshot) -> View:
    """Return what is proposed, the alternatives, and the outcomes of earlier proposals."""
    blocks: list[Block] = [
        *proposal_blocks(snapshot),
        *mitigations.open_blocks(snapshot),
        *((CHARTS["front"].static(snapshot, None),) if snapshot.front else ()),
        *with_auc_blocks(snapshot),
        *((CHARTS["curve"].static(snapshot, None),) if snapshot.curves else ()),
        *fit_blocks(snapshot),
        *past_blocks(snapshot),
    ]
    return View(f"Plans of {snapshot.title}", tuple(blocks))


def with_auc_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the front with AUC as a third axis, of a job that asks for it by its bound."""
    front, most = snapshot.front, snapshot.spec.bounds.max_auc_loss
    if front is None or most is None or not front.with_auc:
        return ()
    rows = tuple(
        (
            units.unbroken(c.plan.short),
            units.number(c.cost),
            units.number(c.prediction.samples_per_s),
            auc_words(c.quality),
            "no" if _is_over(c, front.current, most) else "yes",
        )
        for c in front.with_auc
    )
    head = ("plan", front.cost_unit, "samples/s", "AUC", "keeps the bound")
    return (Table("Plans that nothing beats in cost, throughput and AUC", head, rows),)


def _is_over(c: Candidate, now: Candidate, most: float) -> bool:
    """Whether a plan may cost more AUC than the job's bound."""
    more = c.plan.worker.count > now.plan.worker.count
    return more and (c.quality is None or -c.quality.first_low > most)


def proposal_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the open proposal in full, or that none is open."""
    proposal = snapshot.open_proposal
    if proposal is None:
        return (Paragraph(none_open(snapshot)),)
    return (
        Heading(f"Open proposal {proposal.id}: {proposal.kind.words}"),
        sentence_alone(proposal, snapshot),
        Paragraph(proposal.why),
        Facts(proposal_facts(proposal, snapshot)),
        diff_table(proposal),
        Paragraph("Answer it with one of:", Tone.HINT, commands(snapshot.spec.name, proposal)),
    )


def none_open(snapshot: JobSnapshot) -> str:
    """Return why no proposal is open."""
    if snapshot.phase.is_final:
        return f"The job has {snapshot.phase}; there is nothing left to decide."
    if snapshot.front is None:
        return "No proposal yet: we are still measuring the plan that runs."
    if snapshot.front.why_empty:
        return f"No other plan is possible: {snapshot.front.why_empty}."
    return "No proposal is open: as far as we have measured, no plan is clearly better than the present one."


def currency(snapshot: JobSnapshot) -> units.Currency:
    """Return the currency of the job's prices."""
    prices = snapshot.spec.prices
    return units.Currency(snapshot.front.currency if snapshot.front else prices.currency, prices.assumed)


def predicted_now(snapshot: JobSnapshot, plan: ResourcePlan) -> Candidate | None:
    """Return a plan as the present fit predicts it; None: it is not on the front."""
    front = snapshot.front
    candidates = (front.current, *front.candidates) if front else ()
    return next((c for c in candidates if c.plan == plan), None)


def proposal_facts(proposal: Proposal, snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    """Return the effect of a proposal as it was proposed, and of an open one as predicted now."""
    now = predicted_now(snapshot, proposal.candidate.plan)
    facts = change_facts(proposal, currency(snapshot))
    if proposal.status is not ProposalStatus.PENDING:
        return facts
    facts = (*facts, *restart_facts(snapshot, proposal.candidate.plan))
    measured = tried_facts(snapshot, proposal.candidate.plan)
    if now is None:
        return with_tried(facts, snapshot, proposal.candidate.plan)
    words = f"{units.rate(now.prediction.samples_per_s)}, 90 % band {band_words(now.prediction)}"
    return (*facts[:2], (PREDICTED_NOW, words), *measured, *facts[2:])


def with_tried(
    facts: tuple[tuple[str, str], ...], snapshot: JobSnapshot, plan: ResourcePlan
) -> tuple[tuple[str, str], ...]:
    """Return the facts of a prediction with what the plan gave when it ran, behind its band."""
    return (*facts[:2], *tried_facts(snapshot, plan), *facts[2:])


def tried_facts(snapshot: JobSnapshot, plan: ResourcePlan) -> tuple[tuple[str, str], ...]:
    """Return what a plan gave when it ran; nothing where it did not."""
    measured = tried(snapshot, plan)
    if measured is None:
        return ()
    windows = units.counted(measured.n_window, "window")
    return ((TRIED, f"it gave {units.rate(measured.samples_per_s)} on average of {windows}"),)


def change_facts(proposal: Proposal, money: units.Currency) -> tuple[tuple[str, str], ...]:
    """Return the predicted effect of a proposal, and the cost of the change itself."""
    return (
        *gain_facts(proposal.candidate, proposal.baseline, money, when=WHEN_PROPOSED),
        *((("what would change it", proposal.flip.words),) if proposal.flip else ()),
        *_refused_before(proposal),
        *((("waits", proposal.note),) if proposal.note and proposal.status is ProposalStatus.PENDING else ()),
    )


def _refused_before(proposal: Proposal) -> tuple[tuple[str, str], ...]:
    """Return who refused the plan before, and when; what has changed since stands in the reason."""
    if proposal.returned is None:
        return ()
    refusal = proposal.returned.refusal
    return (("refused before", f"{refusal.by} {refusal.did} it, {units.clock(refusal.at_s)}"),)


def gain_facts(
    new: Candidate, old: Candidate, money: units.Currency, *, when: str = PREDICTED_NOW
) -> tuple[tuple[str, str], ...]:
    """Return the predicted effect of one plan compared with another, and the cost of the change."""
    return (
        (when, _change_words(new, old)),
        ("90 % band", f"{band_words(new.prediction)}; {band(new.prediction, old.prediction)} times now"),
        *_cost_facts(new, old, money),
        ("finish in", f"{units.duration(old.finish_s)} to {units.duration(new.finish_s)}"),
        *deadline_facts(new, old),
        *budget_facts(new, old),
        *quality_facts(new),
        ("transition", transition_words(new.transition_s)),
        *((("because", new.reason),) if new.reason else ()),
    )


def deadline_facts(new: Candidate, old: Candidate | None = None) -> tuple[tuple[str, str], ...]:
    """Return how probable a plan meets the deadline, and its margin; nothing without a deadline."""
    if new.in_time is None or new.margin_s is None:
        return ()
    before = "" if old is None or old.in_time is None else f"{chance_words(old.in_time)} to "
    chance = f"{before}{chance_words(new.in_time)} chance"
    return (("by the deadline", f"{chance}, {margin_words(new.margin_s)}"),)


def budget_facts(new: Candidate, old: Candidate | None = None) -> tuple[tuple[str, str], ...]:
    """Return what a plan costs until the end, and how probable the rest of the total budget is enough."""
    if new.in_budget is None or new.end_cost is None:
        return ()
    before = "" if old is None or old.in_budget is None else f"{chance_words(old.in_budget)} to "
    cost = "" if old is None or old.end_cost is None else f"{old.end_cost:,.4g} to "
    words = f"{before}{chance_words(new.in_budget)} chance, {cost}{new.end_cost:,.4g} until the end"
    return (("within the budget", words),)


def quality_facts(new: Candidate) -> tuple[tuple[str, str], ...]:
    """Return the change of held-out AUC and loss, and where it was measured; nothing where there is none."""
    change = new.quality
    if change is None:
        return (("AUC", UNKNOWN_QUALITY),) if _has_other_workers(new) else ()
    if change.is_none:
        return ()
    loss = f"{change.loss:+.4f} ({change.loss_low:+.4f} to {change.loss_high:+.4f})"
    ages = f"gradients {change.age:.3g} updates old, now {change.age_now:.3g}"
    return ("AUC", f"{change.words}, measured {change.source}; {ages}"), ("held-out loss", loss)


def _has_other_workers(new: Candidate) -> bool:
    return any(
        each.role is Role.WORKER and each.before.count != each.after.count for each in new.scale.changes
    )


def band_words(predicted: Prediction) -> str:
    """Return the 90 % band, and whether it rests on tried plans."""
    basis = ", extrapolated beyond what was tried" if predicted.extrapolates else ""
    return f"{units.interval(predicted.low, predicted.high)} samples/s{basis}"


def _cost_facts(new: Candidate, old: Candidate, money: units.Currency) -> tuple[tuple[str, str], ...]:
    """Return the money per hour and per million samples; the cores where a price is unknown."""
    if old.cost_per_hour is None or new.cost_per_hour is None:
        cores = f"{old.plan.total_cpu:g} to {new.plan.total_cpu:g} cores"
        return (("cost", f"{units.PRICE_UNKNOWN}; {cores}"),)
    before, after = (units.money(c.cost_per_hour, money, per="h") for c in (old, new))
    more = units.signed_money(new.cost_per_hour - old.cost_per_hour, money, per="h")
    each = f"{units.money(old.cost_per_million, money)} to {units.money(new.cost_per_million, money)}"
    return ("cost", f"{before} to {after} ({more}){money.note}"), (
        "per million samples",
        each,
    )


def transition_words(pause_s: float) -> str:
    """Return the cost of a change in training time."""
    return f"about {units.duration(pause_s)} without training" if pause_s > 0 else "training goes on"


def _change_words(new: Candidate, old: Candidate) -> str:
    before, after = old.prediction.samples_per_s, new.prediction.samples_per_s
    change = units.signed_percent(after / before - 1) if before else units.MISSING
    return f"{units.number(before)} to {units.rate(after)} ({change})"


def _memory_change(mib: int) -> str:
    return f"{'+' if mib > 0 else '-'}{units.memory(abs(mib))}" if mib else _signed(0)


def diff_rows(before: ResourcePlan, after: ResourcePlan) -> tuple[tuple[str, str, str, str], ...]:
    """Return plan fields as (field, now, then, change), changed or not."""
    rows: list[tuple[str, str, str, str]] = []
    for name, a, b in (("workers", before.worker, after.worker), ("ps", before.ps, after.ps)):
        rows += [
            (name, f"{a.count}", f"{b.count}", _signed(b.count - a.count)),
            (f"{name}: cores each", f"{a.cpu:g}", f"{b.cpu:g}", _signed(b.cpu - a.cpu)),
            (
                f"{name}: memory each",
                units.memory(a.memory_mib),
                units.memory(b.memory_mib),
                _memory_change(b.memory_mib - a.memory_mib),
            ),
        ]
    total = (f"{before.total_cpu:g}", f"{after.total_cpu:g}", _signed(after.total_cpu - before.total_cpu))
    return (*rows, ("cores in all", *total))


def _signed(value: float) -> str:
    return f"{value:+.4g}" if abs(value) > 1e-9 else SAME


def diff_table(proposal: Proposal) -> Table:
    """Return the plan now and the plan proposed, side by side."""
    return plans_table(proposal.baseline.plan, proposal.candidate.plan, "proposed")


def plans_table(before: ResourcePlan, after: ResourcePlan, name: str) -> Table:
    """Return the plan now and another one, side by side."""
    return Table(f"Plan now and plan {name}", ("", "now", name, "change"), diff_rows(before, after))


def fit_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the fitted coefficients; one that the data does not determine shows no number to trust."""
    if snapshot.fit is None:
        return (Paragraph(f"Fit: {fit_words(None, is_over=snapshot.phase.is_final)}."),)
    return fit_tables(snapshot.fit)


def fit_tables(fit: FitReport) -> tuple[Block, ...]:
    """Return a fit in numbers."""
    note = f"{_error_words(fit)}; {fit_words(fit)}"
    if not any(c.identified for c in fit.coefficients):
        return (Paragraph(f"So far we can only measure the terms of the step time together. {note}"),)
    rows = tuple(_coefficient_row(c) for c in fit.coefficients)
    head = ("term", "coefficient", "standard error", "determined")
    return (Table("Terms of the fitted step time", head, rows, note), *_form_blocks(fit))


def _error_words(fit: FitReport) -> str:
    """Return the error of the fit, on fitted and on held-out data."""
    words = [f"RMSLE {fit.rmsle:.3g} in sample"]
    if fit.rmsle_cv is not None:
        words.append(f"{fit.rmsle_cv:.3g} on plans left out of the fit")
    if fit.latest_error is not None:
        words.append(f"the latest plan, predicted without it: {units.signed_percent(fit.latest_error)}")
    return "; ".join(words)


def _form_blocks(fit: FitReport) -> tuple[Block, ...]:
    """Return the forms of the step time behind the prediction, where there is a choice."""
    if len(fit.forms) < 2:
        return ()
    rows = tuple(
        (f.name, units.percent(f.weight), units.MISSING if f.cv_error is None else f"{f.cv_error:.3g}")
        for f in fit.forms
    )
    head = ("form of the step time", "weight", "error on plans left out")
    return (Table("Forms behind the prediction", head, rows),)


def _coefficient_row(c: Coefficient) -> tuple[str, str, str, str]:
    if not c.identified:
        return (c.term, units.MISSING, units.MISSING, "not measurable yet")
    value = "0" if abs(c.value) < 1e-3 * c.std_error else f"{c.value:.3g}"  # the fit's floor means zero
    return (c.term, value, f"{c.std_error:.2g}", "yes")


def past_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return proposals so far, decisions, outcomes, and actions against stragglers."""
    acted = mitigations.told_actions(snapshot.mitigations, snapshot.decisions)
    return (*told_blocks(snapshot.proposals, snapshot.decisions, snapshot.outcomes), *acted)


def told_blocks(
    proposals: Sequence[Proposal], decisions: Sequence[Decision], outcomes: Sequence[Outcome]
) -> tuple[Block, ...]:
    """Return proposals, decisions and outcomes, without empty tables."""
    blocks: list[Block] = []
    if proposals:
        head = ("id", "kind", "from", "to", f"samples/s {WHEN_PROPOSED}", "status", "note")
        blocks.append(Table("Proposals so far", head, tuple(map(_proposal_row, proposals))))
    if decisions:
        blocks.append(decisions_table(decisions))
    if outcomes:
        blocks.append(outcomes_table(outcomes))
    return tuple(blocks)


def _proposal_row(p: Proposal) -> tuple[str, ...]:
    kind, status = p.kind.words, str(p.status)
    return (
        p.id, kind, *_ends(p), units.number(p.candidate.prediction.samples_per_s), status,
        p.note or units.MISSING,
    )  # fmt: skip


def _ends(p: Proposal) -> tuple[str, str]:
    """Return the plan before and after: in short, unless only the memory differs."""
    before, after = p.baseline.plan, p.candidate.plan
    if before.short == after.short:
        return str(before), str(after)
    return units.unbroken(before.short), units.unbroken(after.short)


def decisions_table(decisions: Sequence[Decision]) -> Table:
    """Return who decided what, when and why."""
    rows = tuple(
        (d.id or units.MISSING, units.clock(d.at_s), d.by, decision_words(d), d.why or units.MISSING)
        for d in decisions
    )
    return Table("Decisions", ("id", "when", "who", "what", "why"), rows)


def decision_words(decision: Decision) -> str:
    """Describe the decision, and which one it undoes."""
    what = f"{decision.verdict} {decision.proposal or ''}".strip()
    changed = decision.plan or decision.mode or decision.pins or (decision.action and decision.action.words)
    words = what if changed is None else f"{what}: {changed}"
    return f"{words} (undoes {decision.undoes})" if decision.undoes else words


def outcomes_table(outcomes: Sequence[Outcome]) -> Table:
    """Return predicted against measured throughput of the plans that were applied."""
    head: tuple[str, ...] = (
        "decision", "plan", "before", "predicted", "90 % band", "measured", "error", "in band", "pause",
    )  # fmt: skip
    rows = tuple(map(_outcome_row, outcomes))
    if any(o.has_host_changed for o in outcomes):
        head = (*head, "measured, with the host as predicted")
        alike = (units.number(o.comparable_samples_per_s) for o in outcomes)
        rows = tuple((*row, cell) for row, cell in zip(rows, alike, strict=True))
    if any(host_cell(o) != units.MISSING for o in outcomes):  # of most jobs it would only take the room
        head = (*head, "host gave")
        rows = tuple((*row, host_cell(o)) for row, o in zip(rows, outcomes, strict=True))
    return Table("Predicted and measured (samples/s)", head, rows, WHICH_PREDICTION)


def host_cell(o: Outcome) -> str:
    """Say which part of the plan's speed its host gave: when it was predicted, and while it was measured."""
    then, now = 1.0 if o.predicted is None else o.predicted.host, 1 - o.host_share
    if min(then, now) > 1 - FELT_SHARE:
        return units.MISSING
    return f"{units.percent(then)}, then {units.percent(now)}"


def _outcome_row(o: Outcome) -> tuple[str, ...]:
    p = o.predicted
    inside = {True: "yes", False: "no", None: units.MISSING}[o.inside_band]
    return (
        o.decision,
        units.unbroken(o.plan.short),
        units.number(o.before_samples_per_s),
        units.number(p.samples_per_s if p else None),
        units.interval(p.low, p.high) if p else units.MISSING,
        units.number(o.measured_samples_per_s),
        units.signed_percent(o.error),
        inside,
        units.duration(o.pause_s),
    )


def decision_view(
    decision: Decision, snapshot: JobSnapshot, change: tuple[tuple[str, str], ...] = ()
) -> View:
    """Return the decision and its progress so far; `change` is what it restarts."""
    proposal = next((p for p in snapshot.proposals if p.id == decision.proposal), None)
    facts = [
        ("decision", f"{decision.id or units.MISSING}: {decision_words(decision)}"),
        ("by", f"{decision.by}, {units.clock(decision.at_s)}"),
        ("why", decision.why or units.MISSING),
        ("state", state_words(decision, proposal, snapshot)),
    ]
    acted = mitigations.of_decision(decision, snapshot)
    if acted is not None:
        facts.insert(1, ("action", acted.words))
        facts += [("gain", mitigations.gain_words(acted.gain)), ("cost", acted.cost or units.MISSING)]
    blocks: list[Block] = [Facts((*facts, *change))]
    target = decision.plan or (proposal.candidate.plan if proposal else None)
    if proposal is not None and decision.verdict is Verdict.ACCEPT:
        blocks += [Facts(proposal_facts(proposal, snapshot)), diff_table(proposal)]
    elif target is not None and proposal is not None and decision.verdict is Verdict.OVERRIDE:
        blocks.append(plans_table(proposal.baseline.plan, target, "requested"))
    return View(f"Decision on {snapshot.title}", tuple(blocks))


def state_words(decision: Decision, proposal: Proposal | None, snapshot: JobSnapshot) -> str:
    """Describe the progress of a decision from facts alone: never 'done' before the plan runs."""
    if acted := mitigations.state_words(decision, snapshot):
        return acted
    is_heard = decision.id in {each.id for each in snapshot.decisions}
    if not is_heard and (proposal is not None or not decision.verdict.sets_plan):
        return "the job's next report will show the result"
    if proposal is not None:
        return f"proposal {proposal.id} is {status_words(proposal, snapshot)}"
    if not decision.verdict.sets_plan:
        return _setting_words(decision.verdict, snapshot)
    return _own_plan_words(decision, snapshot, is_heard=is_heard)


def _setting_words(verdict: Verdict, snapshot: JobSnapshot) -> str:
    """Describe what holds now of a setting that a decision changed."""
    match verdict:
        case Verdict.MODE:
            return f"the job is in {snapshot.mode} mode"
        case Verdict.PIN:
            return f"pinned now: {snapshot.pins}"
        case Verdict.BUDGET:
            left = snapshot.budget
            return "the job has no limit now" if left is None else f"budget now: {left.words}"
        case _:
            return "done"


def _own_plan_words(decision: Decision, snapshot: JobSnapshot, *, is_heard: bool) -> str:
    """Describe the progress of a decision for a plan that answers no proposal."""
    if decision.plan is not None and snapshot.running == decision.plan:
        return "applied: the previous plan runs again" if decision.undoes else "applied"
    if not is_heard or decision.id == snapshot.under_way:
        return "requested, not applied yet"
    ran = any(m.plan == decision.plan and m.at_s >= decision.at_s for m in snapshot.markers)
    return "applied, then replaced" if ran else "not applied: cancelled, replaced, or given up"


def status_words(proposal: Proposal, snapshot: JobSnapshot) -> str:
    """Describe the status of a proposal, with the measured pause once it is applied."""
    note = f" ({proposal.note})" if proposal.note else ""
    match proposal.status:
        case ProposalStatus.PENDING:
            return "open"
        case ProposalStatus.ACCEPTED | ProposalStatus.OVERRIDDEN:
            return f"{proposal.status}, not applied yet{note}"
        case ProposalStatus.APPLYING:
            return f"being applied now{note}"
        case ProposalStatus.APPLIED:
            return f"applied{_pause_words(proposal, snapshot) or note}"
        case _:
            return f"{proposal.status}{note}"


def _pause_words(proposal: Proposal, snapshot: JobSnapshot) -> str:
    after = (m for m in snapshot.markers if m.at_s >= proposal.created_at_s)
    marker = next(after, None)
    if marker is None:
        return ""
    return f" after a pause of {units.duration(marker.pause_s)}" if marker.pause_s else " without a pause"
