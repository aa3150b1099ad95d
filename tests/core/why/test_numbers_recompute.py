"""The law of `why`: every number that a person reads is found again by another way, over the lives of jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from support.plans.recount import Recount, known_words
from support.plans.simulated_life import FAULTS, PLAN, TRUTH, Life

from dlrover_nb.core.simulator import MemoryGrowth
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.why import Answer, Question, Quote, Sentence, Unit, Value, answers

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = ResourcePlan(RolePlan(8, 2.0, 2048), RolePlan(3, 2.0, 2048))
NUMBER = re.compile(r"([<>]\s)?([-+]?)(\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s?(%|ms|s|min|h)?(?![\w/])")
SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Token:
    """A number as a reader takes it from the text."""

    amount: float
    half_digit: float  # half of its last digit
    bound: str  # "<" or ">" where only a bound is said

    def is_of(self, amount: float, unit: Unit) -> bool:
        """Whether it says this value."""
        if self.bound:
            return unit is Unit.CHANCE and (
                amount < self.amount if self.bound == "<" else amount > self.amount
            )
        return abs(self.amount - amount) <= self.half_digit * (1 + 1e-9) + 1e-12


def tokens_of(text: str) -> list[Token]:
    """Return the numbers of a text, in its units: parts of one, and seconds."""
    found = []
    for bound, sign, digits, unit in NUMBER.findall(text):
        scale = 0.01 if unit == "%" else SECONDS.get(unit, 1.0)
        plain, _, power = digits.replace(",", "").partition("e")
        decimals = len(plain.partition(".")[2])
        amount = float(f"{sign}{plain}") * 10 ** float(power or 0)
        found.append(Token(amount * scale, 0.5 * 10 ** (float(power or 0) - decimals) * scale, bound.strip()))
    return found


def own_words(answer: Answer, known: set[str]) -> str:
    """Return an answer's words without what it quotes, which the job must have said."""
    text = []
    for sentence in answer.sentences:
        quotes = {item.name: item for item in sentence.items if isinstance(item, Quote)}
        assert {quote.text for quote in quotes.values()} <= known
        values = {item.name: item.text for item in sentence.items}
        text.append(sentence.template.format_map({**values, **dict.fromkeys(quotes, "")}))
    return " ".join(text)


def check(life: Life, proposal: str | None = None) -> dict[Question, Answer]:
    """Check all nine answers about a plan; return them."""
    explanation, snapshot = life.explained(proposal)
    replies = answers(explanation, snapshot)
    assert [answer.question for answer in replies] == [*Question]
    again, known = Recount(life, explanation, snapshot), known_words(explanation, snapshot)
    for answer in replies:
        verify(answer, again, known)
    return {answer.question: answer for answer in replies}


def verify(answer: Answer, again: Recount, known: set[str]) -> None:
    """Compare each value with the recomputed one, and the numbers in the text with all of these."""
    items = [item for sentence in answer.sentences for item in sentence.items]
    quotes = {item.name: item.text for item in items if isinstance(item, Quote)}
    recomputed = [(again.value(answer.question, v.name, quotes), v.unit) for v in answer.values]
    for value, (amount, _) in zip(answer.values, recomputed, strict=True):
        assert value.amount == pytest.approx(amount, rel=1e-6, abs=1e-9), (answer.words, value)
    tokens = tokens_of(own_words(answer, known))
    assert len(tokens) == len(recomputed), answer.words
    for token in tokens:
        assert any(token.is_of(*each) for each in recomputed), (answer.words, token)
    for each in recomputed:
        assert any(token.is_of(*each) for token in tokens), (answer.words, each)
    assert answer.is_known or answer.words.startswith("We cannot say")


# lives: each is brought to a state and checked there, and at what led to it


def growth() -> Life:
    life = Life()
    assert not check(life)[Question.SURE].is_known
    name = life.until_proposal()
    check(life, name)
    life.accepted()
    assert "accepted it" in check(life, name)[Question.WHAT].words
    name = life.until_proposal()
    life.step(life.world.now_s + 60)
    check(life, name)
    return life


def shrink() -> Life:
    life = Life(plan=LARGE, truth=replace(TRUTH, constant_s=0.02))
    for _ in range(3):
        name = life.until_proposal()
        check(life, name)
        life.accepted()
        check(life, name)
    assert life.snapshot.target.total_cpu < LARGE.total_cpu
    return life


def busy_host() -> Life:
    life = Life(faults=replace(FAULTS, host_parts=((0.0, 0.95), (700.0, 0.5))))
    life.accepted()
    life.until(lambda s: s.host is not None and s.host.is_felt)
    life.step(life.world.now_s + 1200)
    told = check(life)
    assert "host" in " ".join(answer.words for answer in told.values())
    life.decide(Verdict.MODE, mode=Mode.MANUAL)
    assert "Other work on the host takes" in check(life)[Question.WHY].words
    return life


def deadline() -> Life:
    life = Life(deadline_s=9_000.0)
    name = life.until_proposal()
    assert "The deadline is in" in check(life, name)[Question.WHEN].words
    life.accepted()
    check(life, name)
    check(life, life.until_proposal())
    return life


def budget() -> Life:
    life = Life(budget_per_hour=0.25)
    life.accepted()
    life.step(life.world.now_s + 1500)
    check(life)
    return life


def memory() -> Life:
    growth = MemoryGrowth(900.0, scale_mib=9000.0, n_scale=1.2e9, exponent=0.9)
    life = Life(ps_memory=growth)
    life.until(lambda s: any(p.kind is ProposalKind.PROTECT for p in s.proposals))
    (name,) = [p.id for p in life.snapshot.proposals if p.kind is ProposalKind.PROTECT][:1]
    assert "instead of" in check(life, name)[Question.WHY].words
    return life


def rejected() -> Life:
    life = Life()
    name = life.until_proposal()
    life.decide(Verdict.REJECT, proposal=name, why="busy until {18:00}, 5 more jobs wait")
    life.step(life.world.now_s + 900)
    told = check(life, name)
    assert "ada rejected it" in told[Question.WHAT].words
    assert "because “busy until {18:00}, 5 more jobs wait”" in told[Question.BEFORE].words
    check(life)
    return life


def undone() -> Life:
    life = Life()
    name = life.accepted()
    life.undo("it was 2 times slower")
    told = check(life, name)
    assert "bob undid it" in told[Question.WHAT].words
    life.step(life.world.now_s + 1200)
    check(life, name)
    check(life)
    life.undo()  # of the undo
    assert "undid it" not in check(life, name)[Question.WHAT].words
    return life


def overridden() -> Life:
    life = Life()
    name = life.until_proposal()
    other = replace(PLAN, worker=replace(PLAN.worker, count=3))
    decision = life.decide(Verdict.OVERRIDE, proposal=name, plan=other)
    life.until(lambda s: any(o.decision == decision.id for o in s.outcomes))
    assert f"ada chose {other.short} instead" in check(life, name)[Question.WHAT].words
    check(life)
    return life


def auto() -> Life:
    life = Life(mode=Mode.AUTO)
    life.until(lambda s: len(s.outcomes) >= 2)
    for proposal in life.snapshot.proposals:
        check(life, proposal.id)
    check(life)
    return life


def manual() -> Life:
    life = Life(mode=Mode.MANUAL)
    life.step(1200)
    assert check(life)[Question.WHY].words == "There are no proposals in manual mode."
    return life


def settled() -> Life:
    life = Life(prices=PriceTable(cpu_hour=None))
    life.decide(Verdict.PIN, pins=Pins(workers=2, ps=1, worker_cpu=1.0, ps_cpu=1.0))
    life.step(2400)
    check(life)
    return life


def ended() -> Life:
    life = Life(n_sample=200_000_000)
    life.accepted()
    life.until(lambda s: s.phase is JobPhase.SUCCEEDED)
    told = check(life)
    assert told[Question.WHAT].words.endswith("it has succeeded.")
    assert not told[Question.WHY_NOT].is_known
    for proposal in life.snapshot.proposals:
        check(life, proposal.id)
    return life


CHEAP = (growth, busy_host, rejected, auto)
LIVES = (
    growth, shrink, busy_host, deadline, budget, memory, rejected, undone, overridden, auto, manual, settled, ended,
)  # fmt: skip


@pytest.mark.parametrize(
    "live",
    [pytest.param(each, id=each.__name__, marks=() if each in CHEAP else pytest.mark.more) for each in LIVES],
)
def test_every_number_of_an_answer_recomputes(live: Callable[[], Life]) -> None:
    life = live()
    for proposal in life.snapshot.proposals:
        check(life, proposal.id)
    check(life)


def test_the_law_notices_each_wrong_number_and_each_number_that_is_no_value() -> None:
    life = Life()
    name = life.accepted()
    explanation, snapshot = life.explained(name)
    again, known = Recount(life, explanation, snapshot), known_words(explanation, snapshot)
    for answer in answers(explanation, snapshot):
        for i, sentence in enumerate(answer.sentences):
            for item in sentence.items:
                bent = Quote(item.name, "7 of 9") if isinstance(item, Quote) else _bent(item)
                wrong = replace(
                    sentence, items=tuple(bent if each is item else each for each in sentence.items)
                )
                sentences = (*answer.sentences[:i], wrong, *answer.sentences[i + 1 :])
                with pytest.raises((AssertionError, ValueError)):
                    verify(replace(answer, sentences=sentences), again, known)
    with pytest.raises(AssertionError):
        Sentence("It is 3 % faster.")


def _bent(value: Value) -> Value:
    return replace(value, amount=value.amount + max(0.02 * abs(value.amount), 0.02))


def test_numbers_are_read_from_a_text_in_its_units() -> None:
    amounts = [token.amount for token in tokens_of("1,234 samples/s, -5 %, < 1 %, 12 min, +0.5 USD, 1.2e+03")]
    assert amounts == pytest.approx([1234, -0.05, 0.01, 720, 0.5, 1200])
