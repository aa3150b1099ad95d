"""Answers on the plan itself: what it is, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.pareto.reasons import FELT, PHRASES, change_words
from dlrover_nb.core.structs.decisions.candidates import HOST, REST, SOURCES
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role, diff
from dlrover_nb.core.why.catalogue import Question
from dlrover_nb.core.why.values import Answer, Quote, Sentence, Unit, Value, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.decisions.candidates import Candidate, TermShare
    from dlrover_nb.core.structs.decisions.decisions import Proposal
    from dlrover_nb.core.why.subject import Subject

_PURPOSE = {
    ProposalKind.EXPLORE: "It is an experiment: it shows which plans are better.",
    ProposalKind.PROTECT: "It keeps nodes from running out of memory.",
}
_PURPOSE_THEN = {
    ProposalKind.EXPLORE: "It was an experiment, to learn which plans are better.",
    ProposalKind.PROTECT: "It would have kept nodes from running out of memory.",
}
_CLOSED = {
    ProposalStatus.SUPERSEDED: "a better proposal replaced it",
    ProposalStatus.EXPIRED: "it was withdrawn",
    ProposalStatus.APPLYING: "it is being applied",
    ProposalStatus.FAILED: "it could not be applied",
}
_THEN = ("was predicted to reach", "the plan before it was predicted to reach")  # of a closed proposal
LEAST_NEWS = 0.01  # of a speed: predictions that differ by less are the same to a reader
LEAST_RISK = 0.05  # chance of a full node: a smaller one is no reason for more memory, a killed node is
_ROLE_WORDS = {Role.WORKER: "worker", Role.PS: "PS"}


def what(x: Subject) -> Answer:
    """Say what is proposed, or what runs, and what became of it."""
    p, plan = x.proposal, Quote("plan", x.explanation.plan.short)
    if p is None:
        return Answer(Question.WHAT, (_runs(x, plan),))
    change = Quote("change", change_words(p.baseline.plan, p.candidate.plan))
    name = Quote("proposal", p.id)
    if x.is_open:
        sentence = say("{proposal} proposes {change}: {plan}.", name, change, plan)
    else:
        fate, *items = _fate(x, p)
        sentence = say(f"{{proposal}} proposed {{change}}: {{plan}}; {fate}.", name, change, plan, *items)
    purpose = (_PURPOSE if x.is_open else _PURPOSE_THEN).get(p.kind)
    return Answer(Question.WHAT, (sentence,) if purpose is None else (sentence, say(purpose)))


def _runs(x: Subject, plan: Quote) -> Sentence:
    phase = x.snapshot.phase
    if x.is_over:
        be = "has" if phase.is_final else "is"
        return say(f"The job ran on {{plan}}; it {be} {{phase}}.", plan, Quote("phase", str(phase)))
    if x.snapshot.under_way:
        return say("The job is changing to {plan}.", plan)
    return say("The job runs on {plan}; no other plan is proposed.", plan)


def _fate(x: Subject, p: Proposal) -> tuple[str, *tuple[Quote, ...]]:
    """Return what became of a closed proposal, as the template of a clause and its quotes."""
    d, undo = x.decision, x.undo
    if undo is not None and d is not None:
        return "{by} accepted it, and {undoer} undid it", Quote("by", d.by), Quote("undoer", undo.by)
    if d is None or p.status in {ProposalStatus.FAILED, ProposalStatus.APPLYING}:
        fate = _CLOSED.get(p.status)
        return (fate,) if fate else ("it was {status}", Quote("status", str(p.status)))
    by = Quote("by", d.by)
    if p.status is ProposalStatus.REJECTED:
        return "{by} rejected it", by
    if d.plan is not None:
        return "{by} chose {other} instead", by, Quote("other", d.plan.short)
    return "{by} accepted it", by


def why(x: Subject) -> Answer:
    """Say why it is proposed, or why nothing is."""
    p = x.proposal
    if p is None:
        return Answer(Question.WHY, (*_why_none(x), *_host(x)))
    c, b = x.explanation.candidate or p.candidate, x.explanation.baseline or p.baseline
    if p.kind is ProposalKind.PROTECT:
        return Answer(Question.WHY, tuple(_memory(x, p.baseline, c)))
    sentences = (
        _speed(x, p, c, b),
        *_as_proposed(p, c),
        *_part(x, c, b),
        *_in_time(c, b),
        *_quality(x, c),
        *_returned(x, p),
    )
    return Answer(Question.WHY, sentences)


def _as_proposed(p: Proposal, c: Candidate) -> Iterator[Sentence]:
    """Say what was predicted when it was proposed, by which it is scored, where it is another number now."""
    then, now = p.candidate.prediction.samples_per_s, c.prediction.samples_per_s
    if abs(now / then - 1) > LEAST_NEWS:
        yield say(
            "When it was proposed we predicted {proposed_speed}; once it runs, it is measured against that.",
            Value("proposed_speed", then, Unit.SPEED),
        )


def _returned(x: Subject, p: Proposal) -> Iterator[Sentence]:
    """Say who refused the plan before, and what has changed since."""
    if p.returned is None:
        return
    was, n_more = p.returned.refusal, p.returned.n_plan - p.returned.refusal.n_plan
    after = "{n_more} more measured plans" if n_more > 0 else "measuring the same plans for longer"
    yield say(
        f"{{refuser}} {was.did} this plan {{refused}} ago, when we predicted {{then}}; it was proposed "
        f"again, as we predicted {{again}} after {after}.",
        Quote("refuser", was.by),
        x.since("refused", was.at_s),
        Value("then", was.samples_per_s, Unit.SPEED),
        Value("again", p.returned.samples_per_s, Unit.SPEED),
        Value("n_more", n_more, Unit.COUNT),
    )


def _host(x: Subject) -> Iterator[Sentence]:
    """Say what other work on the host takes of the running job, where that is felt."""
    load = x.snapshot.host
    if load is not None and load.is_felt and not x.is_over:
        help_ = ": more nodes would not help" * load.is_limiting
        yield say(
            f"Other work on the host takes {{host}} of its time{help_}.",
            Value("host", load.share, Unit.SHARE),
        )


def _speed(x: Subject, p: Proposal, c: Candidate, b: Candidate) -> Sentence:
    now = Value("now", b.prediction.samples_per_s, Unit.SPEED)
    would, present = ("would reach", "the present plan reaches") if x.is_open else _THEN
    if p.kind is ProposalKind.EXPLORE:
        low = Value("low", c.prediction.low, Unit.SPEED)
        high = Value("high", c.prediction.high, Unit.SPEED)
        return say(
            f"It {would} between {{low}} and {{high}}, for {{more}}; {present} {{now}}.",
            low, high, x.dearer("more", c, b), now,
        )  # fmt: skip
    speed = Value("speed", c.prediction.samples_per_s, Unit.SPEED)
    gain = Value("gain", c.prediction.samples_per_s / b.prediction.samples_per_s - 1, Unit.CHANGE)
    return say(
        f"It {would} {{speed}} where {present} {{now}} ({{gain}}), for {{more}}.",
        speed,
        now,
        gain,
        x.dearer("more", c, b),
    )


def _part(x: Subject, c: Candidate, b: Candidate) -> Iterator[Sentence]:
    """Name the part of an iteration that becomes shorter most, and what the plan does not explain."""
    fit = x.snapshot.fit
    identified = {each.term for each in fit.coefficients if each.identified} if fit else set()
    after = {part.term: part for part in c.breakdown}
    own = [part for part in b.breakdown if part.term in identified and part.term in after]
    total_s = sum(part.seconds for part in b.breakdown if part.term != HOST)
    if not own or not total_s:
        if abs(c.prediction.samples_per_s / b.prediction.samples_per_s - 1) > FELT:
            yield say("We cannot tell yet which part of a step gets faster.")
        return
    longest = max(own, key=lambda part: part.seconds - after[part.term].seconds)
    left = after[longest.term]
    if longest.seconds - left.seconds > FELT * total_s:
        yield say(
            f"{{share}} of each step is {PHRASES[longest.term]}: {{part_before}} now, {{part_after}} then.",
            Value("share", longest.share, Unit.SHARE),
            Value("part_before", longest.seconds, Unit.TIME),
            Value("part_after", max(left.seconds, 0.0), Unit.TIME),
        )
    elif c.plan.worker.count > b.plan.worker.count:
        yield say("The added workers run in parallel with the others.")
    rest_s = _seconds(c.breakdown, REST) - _seconds(b.breakdown, REST)
    if abs(rest_s) > FELT * total_s:
        side, rest = "more" if rest_s > 0 else "less", Value("rest", abs(rest_s), Unit.TIME)
        yield say(f"Each step takes {{rest}} {side} for reasons that the plan does not explain.", rest)


def _seconds(breakdown: tuple[TermShare, ...], term: str) -> float:
    return sum(part.seconds for part in breakdown if part.term == term)


def _in_time(c: Candidate, b: Candidate) -> Iterator[Sentence]:
    if c.in_time is None or b.in_time is None:
        return
    yield say(
        "Its chance to meet the deadline is {in_time}; the present plan has {in_time_now}.",
        Value("in_time", c.in_time, Unit.CHANCE),
        Value("in_time_now", b.in_time, Unit.CHANCE),
    )


def _quality(x: Subject, c: Candidate) -> Iterator[Sentence]:
    """Say what the plan changes in held-out AUC, and how that is known."""
    change, is_ours = c.quality, x.snapshot.spec.foreign is None
    if change is None and is_ours and x.is_open and c.plan.worker.count > x.snapshot.target.worker.count:
        yield say("We do not know yet what its workers cost in AUC; a rehearsal measures it.")
    if change is None or change.is_none:
        return
    yield say(
        "{n_worker} workers change AUC by {auc} ({auc_low} to {auc_high}), measured {source} of {n_row} "
        "rows.",
        Value("n_worker", c.plan.worker.count, Unit.COUNT),
        Value("auc", change.auc, Unit.AUC),
        Value("auc_low", change.auc_low, Unit.AUC),
        Value("auc_high", change.auc_high, Unit.AUC),
        Quote("source", " and ".join(SOURCES[origin] for origin in change.origins)),
        Value("n_row", change.n_row, Unit.COUNT),
    )
    for way in change.ways:
        name = way.way
        yield say(
            f"With {{{name}}} in the next run they would change it by {{{name}_auc}} "
            f"({{{name}_low}} to {{{name}_high}}).",
            Quote(name, name),
            Value(f"{name}_auc", way.auc, Unit.AUC),
            Value(f"{name}_low", way.low, Unit.AUC),
            Value(f"{name}_high", way.high, Unit.AUC),
        )


def _memory(x: Subject, b: Candidate, c: Candidate) -> Iterator[Sentence]:
    if x.is_open and x.snapshot.memory_needs:
        yield say("“{need}”.", Quote("need", x.snapshot.memory_needs[0]))
    for change in diff(b.plan, c.plan).changes:
        role, name = change.role, _ROLE_WORDS[change.role]
        line = next((line for line in x.snapshot.memory if line.role is role), None)
        if x.is_open and line is not None and (line.oom_probability or 0.0) >= LEAST_RISK:
            yield say(
                f"A {name} uses {{{role}_used}} of {{{role}_limit}}; the chance that it needs more before "
                "the "
                f"end is {{{role}_full}}.",
                Value(f"{role}_used", line.now_mib, Unit.MIB),
                Value(f"{role}_limit", float(line.limit_mib), Unit.MIB),
                Value(f"{role}_full", line.oom_probability or 0.0, Unit.CHANCE),
            )  # fmt: skip
        yield say(
            f"It gives each {name} {{{role}_after}} instead of {{{role}_before}}.",
            Value(f"{role}_after", float(change.after.memory_mib), Unit.MIB),
            Value(f"{role}_before", float(change.before.memory_mib), Unit.MIB),
        )


def _why_none(x: Subject) -> Iterator[Sentence]:
    """Say why nothing is proposed."""
    s, e = x.snapshot, x.explanation
    if x.is_blocked:
        yield say("Planning waits for your decision on some rows.")
    elif x.is_over:
        yield say("There is nothing left to plan.")
    elif not s.markers:
        yield say("The job is not training yet. Advice comes once it has trained for a while.")
    elif s.mode is Mode.MANUAL:
        yield say("There are no proposals in manual mode.")
    elif s.under_way:
        yield say("A change is under way. Advice follows once it is measured.")
    elif e.candidate is None or not any(sample.plan.short == s.target.short for sample in s.samples):
        yield say("We are still measuring {plan}.", Quote("plan", s.target.short))
    elif s.front is not None and s.front.why_empty:
        yield say("No plan is allowed: “{constraint}”.", Quote("constraint", s.front.why_empty))
    elif e.min_gain is None or e.min_saving is None:
        yield say("No other plan is surely better.")
        yield from _bound(x)
    else:
        yield say(
            "No other plan is surely better: we look for a gain of {least_gain}, or {least_saving} lower "
            "cost "
            "at the same speed.",
            Value("least_gain", e.min_gain, Unit.SHARE),
            Value("least_saving", e.min_saving, Unit.SHARE),
        )
        yield from _bound(x)


def _bound(x: Subject) -> Iterator[Sentence]:
    """Say that plans were left out for what they may cost of AUC."""
    most, front = x.snapshot.spec.bounds.max_auc_loss, x.snapshot.front
    if most is None or front is None:
        return
    more = [c for c in front.candidates if c.plan.worker.count > front.current.plan.worker.count]
    if any(c.quality is None for c in more):
        yield say(
            "We do not know yet what more workers cost in AUC, and the job has a bound for that. "
            "A rehearsal measures it."
        )
    elif any(c.quality is not None and -c.quality.first_low > most for c in more):
        yield say(
            "Plans that may cost more than {most_auc} of AUC are left out.",
            Value("most_auc", most, Unit.AUC_PART),
        )
