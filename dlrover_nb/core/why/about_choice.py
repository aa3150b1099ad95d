"""Answers on the choice: how sure it is, how it is done, and what others would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.why.catalogue import Question
from dlrover_nb.core.why.trials import tried
from dlrover_nb.core.why.values import Answer, Quote, Sentence, Unit, Value, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.query_answers import Marginal
    from dlrover_nb.core.why.subject import Subject

BAND_CHANCE = 0.9
LEAST_HOST = 0.01  # of a plan's time: less of it is not said
_AIMS = {Objective.VALUE: "speed that is worth its cost", Objective.SPEED: "speed alone"}
_NO_WINDOWS = "It rests on no measurements of this job"
_REFUSED = {ProposalStatus.REJECTED, ProposalStatus.FAILED}


def unknown(question: Question, x: Subject) -> Answer:
    """Return that a question cannot be answered, and what is missing."""
    if x.is_blocked:
        text = say(
            "We cannot say: some rows need your decision first. Plans are compared again once the job trains."
        )
    elif x.is_over:
        text = say("We cannot say: the job has ended, so other plans are no longer compared.")
    else:
        text = say("We cannot say yet: the running plan is still being measured.")
    return Answer(question, (text,), is_known=False)


def sure(x: Subject) -> Answer:
    """Say how sure the prediction is, from what, and how good predictions of this job were."""
    c = x.explanation.candidate
    if c is None:
        return unknown(Question.SURE, x)
    p, reaches = c.prediction, "would reach" if x.proposal else "reaches"
    band = say(
        f"With {{chance}} probability it {reaches} {{low}} to {{high}}.",
        Value("chance", BAND_CHANCE, Unit.SHARE),
        Value("low", p.low, Unit.SPEED),
        Value("high", p.high, Unit.SPEED),
    )  # fmt: skip
    return Answer(Question.SURE, (band, *_tried(x), _evidence(x, c), *_host(c)))


def _tried(x: Subject) -> Iterator[Sentence]:
    """Say what the plan gave when it ran; of a closed proposal its outcome says that."""
    measured = tried(x.snapshot, x.explanation.plan)
    if measured is None or not (x.is_open or x.proposal is None):
        return
    words = "It ran before and gave {tried}." if x.is_open else "It gives {tried} on average."
    yield say(words, Value("tried", measured.samples_per_s, Unit.SPEED))


def _evidence(x: Subject, c: Candidate) -> Sentence:
    """Say from what it is known, and how many predictions of this job held."""
    measured = x.explanation.evidence
    verdicts = [o.inside_band for o in x.snapshot.outcomes if o.inside_band is not None]
    outcome = "; {n_right} of {n_judged} predictions of this job were right" * bool(verdicts)
    far = f", and {'goes' if x.is_open else 'went'} beyond what was tried" * c.prediction.extrapolates
    n_window, n_plan = sum(each.n_window for each in measured), len(measured)
    windows = (
        f"It rests on {{n_window}} window{'s' * (n_window != 1)} of "
        f"{{n_plan}} measured plan{'s' * (n_plan != 1)}"
    )
    return say(
        f"{windows if measured else _NO_WINDOWS}{far}{outcome}.",
        Value("n_window", n_window, Unit.COUNT),
        Value("n_plan", n_plan, Unit.COUNT),
        Value("n_right", sum(verdicts), Unit.COUNT),
        Value("n_judged", len(verdicts), Unit.COUNT),
    )


def _host(c: Candidate) -> Iterator[Sentence]:
    lost = 1 - c.prediction.host
    if lost > LEAST_HOST:
        yield say(
            "That includes other work on the host, which takes {host} of its time.",
            Value("host", lost, Unit.SHARE),
        )


def how(x: Subject) -> Answer:
    """Say how the change is made, and how the plan was chosen."""
    if x.proposal is None and x.snapshot.front is None:
        return unknown(Question.HOW, x)
    return Answer(Question.HOW, (*_applied(x), *_chosen(x)))


def _applied(x: Subject) -> Iterator[Sentence]:
    p = x.proposal
    if p is None:
        return
    c = x.explanation.candidate or p.candidate
    if x.outcome is not None:
        yield say(
            "Switching to it paused training for {pause}.", Value("pause", x.outcome.pause_s, Unit.TIME)
        )
        return
    verb = "pauses" if x.is_open else "would have paused"
    yield say(
        f"The change ({{change}}) {verb} training for {{pause}}.",
        Quote("change", change_words(p.baseline.plan, p.candidate.plan)),
        Value("pause", c.transition_s, Unit.TIME),
    )


def _chosen(x: Subject) -> Iterator[Sentence]:
    front, spec = x.snapshot.front, x.snapshot.spec
    if front is None:
        yield say("We do not know how many plans are being compared.")
        return
    yield say(
        f"The policy {{policy}} compares {{n_plan}} allowed plans, aiming at {_AIMS[spec.objective]}.",
        Quote("policy", spec.policy),
        Value("n_plan", front.n_plan, Unit.COUNT),
    )


def why_not(x: Subject) -> Answer:
    """Say which plan is next best, and what it lacks."""
    e = x.explanation
    rival, own = e.runner_up, e.candidate
    if rival is None or own is None:
        if own is None or x.is_over:
            return unknown(Question.WHY_NOT, x)
        sentence = say("No other plan is worth its cost: for each there is a cheaper one that is as fast.")
        return Answer(Question.WHY_NOT, (sentence,))
    compared = say(
        "The next best is {rival}: {speed}, {gain} compared with this plan, for {more}.",
        Quote("rival", rival.plan.short),
        Value("speed", rival.prediction.samples_per_s, Unit.SPEED),
        Value("gain", rival.prediction.samples_per_s / own.prediction.samples_per_s - 1, Unit.CHANGE),
        x.dearer("more", rival, own),
    )
    lack = next(_lacks(x, rival), None)
    return Answer(Question.WHY_NOT, (compared,) if lack is None else (compared, lack))


def _lacks(x: Subject, rival: Candidate) -> Iterator[Sentence]:
    """Yield what speaks against a plan, the strongest first."""
    s, now = x.snapshot, x.present
    refused = [p for p in s.proposals if p.status in _REFUSED and p.candidate.plan.short == rival.plan.short]
    if refused:
        yield say(
            "It was proposed as {earlier}, but it was rejected or it failed.",
            Quote("earlier", refused[-1].id),
        )
    budget, price = s.spec.budget_per_hour, rival.cost_per_hour
    if budget is not None and price is not None and price > budget:
        yield say(
            "It costs {price}, above the budget of {budget}.",
            Value("price", price, Unit.MONEY, x.per_hour),
            Value("budget", budget, Unit.MONEY, x.per_hour),
        )
    if s.deadline is not None and rival.in_time is not None and rival.in_time < s.deadline.wanted:
        yield say(
            "Its chance to meet the deadline is {in_time}; you want {wanted}.",
            Value("in_time", rival.in_time, Unit.CHANCE),
            Value("wanted", s.deadline.wanted, Unit.CHANCE),
        )
    if now is None or rival.prediction.samples_per_s <= now.prediction.samples_per_s:
        return
    if rival.gain_samples_per_s <= 0:
        pause = Value("pause", rival.transition_s, Unit.TIME)
        yield say("Too little training is left to make up for its pause of {pause}.", pause)
    least = x.explanation.min_gain
    if least is not None and rival.prediction.low < (1 + least) * now.prediction.samples_per_s:
        yield say(
            "Its gain is uncertain: it may reach only {low}, and a change needs {least}.",
            Value("low", rival.prediction.low, Unit.SPEED),
            Value("least", (1 + least) * now.prediction.samples_per_s, Unit.SPEED),
        )


def what_if(x: Subject) -> Answer:
    """Say what the most useful step up and the cheapest step down would bring."""
    steps = [m for m in x.explanation.marginals if m.samples_per_s is not None]
    if not steps:
        return unknown(Question.WHAT_IF, x)
    free = steps if x.is_over else [m for m in steps if not m.weighed.refusal]
    if not free:
        sentence = say(
            "No larger or smaller plan is possible now: limits, machines, pins or the state of the job rule "
            "out each one."
        )
        return Answer(Question.WHAT_IF, (sentence,))
    fastest = max(free, key=lambda m: m.samples_per_s or 0.0)
    cheapest = min(free, key=lambda m: m.weighed.plan.effort)
    shown = {"fastest": fastest} if cheapest is fastest else {"fastest": fastest, "smallest": cheapest}
    return Answer(Question.WHAT_IF, tuple(_step(x, name, m) for name, m in shown.items()))


def _step(x: Subject, name: str, m: Marginal) -> Sentence:
    speed = Value(f"{name}_speed", m.samples_per_s or 0.0, Unit.MORE_SPEED)
    if m.cost_per_hour:
        cost = Value(f"{name}_cost", m.cost_per_hour, Unit.MORE_MONEY, x.per_hour)
    else:
        cost = Value(f"{name}_cost", m.weighed.plan.effort - x.explanation.plan.effort, Unit.MORE_CORES)
    return say(f"With {{{name}}}: {{{speed.name}}} for {{{cost.name}}}.", Quote(name, m.what), speed, cost)


def otherwise(x: Subject) -> Answer:
    """Say which number would have to be different for other advice, and by how much."""
    flip = x.explanation.flip
    if flip is None:
        return _no_flip(x)
    side = "above" if flip.at > flip.now else "below"
    then = "we would change nothing" if flip.plan == x.snapshot.target else "{then} would win"
    sentence = say(
        f"If the {{quantity}} were {side} {{at}} (now {{now}}), {then}.",
        Quote("quantity", flip.quantity),
        Value("at", flip.at, Unit.OTHER, flip.unit),
        Value("now", flip.now, Unit.OTHER, flip.unit),
        Quote("then", flip.plan.short),
    )
    return Answer(Question.OTHERWISE, (sentence,))


def _no_flip(x: Subject) -> Answer:
    p = x.proposal
    if p is not None and p.kind is ProposalKind.PROTECT:
        sentence = say("Only if nodes needed less memory; speed and price do not matter here.")
    elif p is not None and not x.is_open:
        sentence = say("When it was proposed, no other value of a single number would have changed it.")
    elif x.explanation.candidate is None or x.is_over:
        return unknown(Question.OTHERWISE, x)
    else:
        sentence = say(
            "Nothing likely. No plausible change of one number (a speed, the pause, a price, the work left) "
            "leads to another plan."
        )
    return Answer(Question.OTHERWISE, (sentence,))
