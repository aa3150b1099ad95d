"""Answers on the course of things: when a plan was proposed, decided and applied, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.why.catalogue import Question
from dlrover_nb.core.why.values import Answer, Quote, Sentence, Unit, Value, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.decisions.decisions import Decision, Outcome, Proposal
    from dlrover_nb.core.why.subject import Subject

LEAST_HOST = 0.005  # of the time of an outcome: less of it is not said


def when(x: Subject) -> Answer:
    """Say when it was proposed, decided and applied, and when the job would end."""
    steps = _running(x) if x.proposal is None else _proposed(x, x.proposal)
    return Answer(Question.WHEN, (*steps, *_end(x), *_deadline(x)))


def _running(x: Subject) -> Iterator[Sentence]:
    s = x.snapshot
    if not s.markers:
        yield say("No plan has run yet.")
        return
    began_s = s.markers[-1].at_s
    if s.ended_at_s is None:
        yield say("Its present plan has run for {age}.", x.since("age", began_s))
    else:
        length = Value("length", max(s.ended_at_s - began_s, 0.0), Unit.TIME)
        yield say("Its last plan ran for {length}, until the job ended.", length)


def _proposed(x: Subject, p: Proposal) -> Iterator[Sentence]:
    made = x.since("proposed", p.created_at_s)
    if x.is_open:
        yield say("It was proposed {proposed} ago and waits for your answer.", made)
        return
    d, o, u = x.decision, x.outcome, x.undo
    steps = [("proposed {proposed} ago", made)]
    if d is not None:
        steps.append(("answered {answered} ago", x.since("answered", d.at_s)))
    elif p.closed_at_s is not None:
        steps.append(("closed {closed} ago", x.since("closed", p.closed_at_s)))
    if o is not None:
        steps.append(("in place {applied} ago", x.since("applied", o.applied_at_s)))
    if u is not None:
        steps.append(("undone {undone} ago", x.since("undone", u.at_s)))
    yield say(f"It was {and_list(words for words, _ in steps)}.", *(value for _, value in steps))


def _end(x: Subject) -> Iterator[Sentence]:
    c = x.explanation.candidate
    if x.is_over or not (x.is_open or x.proposal is None):
        return
    if c is None or c.finish_s is None:
        yield say("We do not know yet when the job will end.")
    else:
        lead = "With it the job" if x.proposal else "The job"
        yield say(f"{lead} should end in {{finish}}.", Value("finish", c.finish_s, Unit.TIME))


def _deadline(x: Subject) -> Iterator[Sentence]:
    due = x.snapshot.deadline
    if due is None or x.is_over:
        return
    left = Value("left", abs(due.left_s), Unit.TIME)
    yield say("The deadline is in {left}." if due.left_s >= 0 else "The deadline was {left} ago.", left)


def before(x: Subject) -> Answer:
    """Say what became of the plan, and of others before it."""
    sentences = tuple(_history(x))
    if not sentences:
        sentences = (say("Nothing: this is the first plan of this job."),)
    return Answer(Question.BEFORE, sentences)


def _history(x: Subject) -> Iterator[Sentence]:
    if x.outcome is not None:
        yield from _measured(x.outcome)
    yield from _reasons(x)
    if x.outcome is None:
        yield from _not_measured(x)
        yield from _others(x)


def _measured(o: Outcome) -> Iterator[Sentence]:
    reached = Value("reached", o.measured_samples_per_s, Unit.SPEED)
    n_window, predicted = Value("n_window", o.n_sample, Unit.COUNT), o.predicted
    before, last = "", tuple[Value, ...]()
    if o.before_samples_per_s is not None:
        before = "; the plan before it reached {before}"
        last = (Value("before", o.before_samples_per_s, Unit.SPEED),)
    if predicted is None:
        yield say("It reached {reached} in {n_window} windows; there was no prediction.", reached, n_window)
    else:
        side = "inside" if o.inside_band else "outside"
        yield say(
            "When it was decided we had predicted {promised}, and it reached {reached} in {n_window} "
            f"windows{before}; that is {{off}} and {side} the band.",
            Value("promised", predicted.samples_per_s, Unit.SPEED),
            reached,
            n_window,
            Value("off", o.comparable_samples_per_s / predicted.samples_per_s - 1, Unit.CHANGE),
            *last,
        )
    yield from _on_host(o)


def _on_host(o: Outcome) -> Iterator[Sentence]:
    """Say what other work on the host took meanwhile, and what is compared where it took another part."""
    if o.has_host_changed and o.predicted is not None:
        yield say(
            "Other work on the host took {host} of that time, and {host_then} when we predicted it; so we "
            "compare with {alike}, the speed on the host as it was then.",
            Value("host", o.host_share, Unit.SHARE),
            Value("host_then", 1 - o.predicted.host, Unit.SHARE),
            Value("alike", o.comparable_samples_per_s, Unit.SPEED),
        )
    elif o.host_share > LEAST_HOST:
        yield say(
            "Other work on the host took {host} of that time; both numbers include that.",
            Value("host", o.host_share, Unit.SHARE),
        )


def _reasons(x: Subject) -> Iterator[Sentence]:
    """Repeat the reasons that were given for a decision, and for taking it back."""
    for name, decision in (("decision", x.decision), ("undo", x.undo)):
        if decision is not None:
            yield _decided(name, decision, is_own=x.proposal is None or decision.why != x.proposal.why)
    if x.decision is None and x.proposal is not None and x.proposal.note:
        yield say("It was closed: “{note}”.", Quote("note", x.proposal.note))


def _decided(name: str, d: Decision, *, is_own: bool) -> Sentence:
    who, verdict = Quote(f"{name}_by", d.by), Quote(name, f"{d.id}, {d.words}")
    reason = f", because “{{{name}_why}}”" if d.why and is_own else ""
    return say(f"{{{name}_by}} decided {{{name}}}{reason}.", who, verdict, Quote(f"{name}_why", d.why))


def _not_measured(x: Subject) -> Iterator[Sentence]:
    if x.proposal is not None and not x.is_open:
        yield say("The plan was not measured.")


def _others(x: Subject) -> Iterator[Sentence]:
    """Name an earlier proposal of the same plan, and the latest change that was measured."""
    s, plan = x.snapshot, x.explanation.plan
    same = [p for p in s.proposals if p.id != x.explanation.proposal and p.candidate.plan == plan]
    if same and x.is_open:
        status = Quote("status", str(same[-1].status))
        yield say("{same} proposed the same plan and was {status}.", Quote("same", same[-1].id), status)
    if not s.outcomes or not (x.is_open or x.proposal is None):
        return
    o = s.outcomes[-1]
    reached = Value("last_reached", o.measured_samples_per_s, Unit.SPEED)
    items = (Quote("last", o.decision), Quote("last_plan", o.plan.short), reached)
    if o.predicted is None:
        yield say("The latest measured change, {last} to {last_plan}, reached {last_reached}.", *items)
    else:
        promised = Value("last_promised", o.predicted.samples_per_s, Unit.SPEED)
        alike = Value("last_alike", o.comparable_samples_per_s, Unit.SPEED)
        host = " ({last_alike} with the host as it was then)" if o.has_host_changed else ""
        yield say(
            "The latest measured change, {last} to {last_plan}, reached {last_reached}; we had predicted "
            f"{{last_promised}}{host}.",
            *items, promised, alike,
        )  # fmt: skip
