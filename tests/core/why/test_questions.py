"""The catalogue of questions, and answers about jobs of which little is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs import builders as b

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.query_answers import Explanation
from dlrover_nb.core.why import Question, Unit, Value, answers, question_of, reply_to


def test_there_are_nine_questions_each_found_by_its_number_and_its_word():
    assert [each.number for each in Question] == [*range(1, 10)]
    for each in Question:
        assert question_of(str(each.number)) is each
        assert question_of(each.value.upper()) is each
    assert question_of("why not?") is Question.WHY_NOT
    assert question_of("what_if") is Question.WHAT_IF


@pytest.mark.parametrize("text", ["", "0", "10", "who", "1.0"])
def test_another_question_is_refused_with_those_that_there_are(text, error_words):
    with error_words(InvalidValueError) as refused:
        question_of(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("phase", "missing_words"),
    [
        (b.JobPhase.TRAINING, "the running plan is still being measured"),
        (b.JobPhase.BLOCKED, "some rows need your decision first"),
        (b.JobPhase.STOPPED, "has ended"),
    ],
)
def test_a_question_without_an_answer_says_what_is_missing(phase, missing_words):
    snapshot = b.snapshot(phase=phase, front=None, proposals=(), outcomes=(), decisions=())
    replies = answers(Explanation(b.NOW_PLAN, None, None, None, ""), snapshot)
    assert len(replies) == 9
    missing = {each.question: each.words for each in replies if not each.is_known}
    assert {Question.SURE, Question.HOW, Question.WHY_NOT, Question.WHAT_IF, Question.OTHERWISE} == {*missing}
    for words in missing.values():
        assert missing_words in words


def test_a_proposal_that_an_older_snapshot_lacks_is_open():
    c, now = b.candidate(b.BETTER_PLAN), b.candidate(b.NOW_PLAN)
    replies = answers(Explanation(b.BETTER_PLAN, "p9", c, now, ""), b.snapshot(proposals=(), outcomes=()))
    assert replies[0].words.startswith("p9 proposes ")
    assert "waits for your answer" in replies[Question.WHEN.number - 1].words


def test_one_question_has_one_answer_and_a_program_reads_its_numbers():
    snapshot = b.snapshot()
    candidate = b.candidate(b.NOW_PLAN)
    explanation = Explanation(b.NOW_PLAN, None, candidate, candidate, "")
    reply = reply_to(explanation, snapshot, Question.SURE)
    (row,) = reply.answers
    assert (row.question, row.asks, row.is_known) == (Question.SURE, "How sure is that?", True)
    assert {value.name: value.amount for value in row.values}["low"] == candidate.prediction.low


def test_a_reason_with_braces_is_quoted_as_it_is():
    proposal = next(p for p in b.snapshot().proposals)
    rejected = replace(
        b.snapshot().decisions[0],
        verdict=b.Verdict.REJECT,
        proposal=proposal.id,
        why="{now} {0} {x!r}",
        plan=None,
    )
    closed = replace(proposal, status=b.ProposalStatus.REJECTED)
    snapshot = b.snapshot(decisions=(rejected,), proposals=(closed,), outcomes=())
    c = proposal.candidate
    (before,) = answers(Explanation(c.plan, proposal.id, c, c, ""), snapshot, Question.BEFORE)
    assert "because “{now} {0} {x!r}”" in before.words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value("x", -0.0001, Unit.CHANGE), "+0.0 %"),
        (Value("x", 0.0, Unit.TIME), "0 s"),
        (Value("x", 0.0123, Unit.TIME), "12.3 ms"),
        (Value("x", 5400.0, Unit.TIME), "90 min"),
        (Value("x", -0.25, Unit.MORE_MONEY, "USD an hour"), "-0.25 USD an hour"),
        (Value("x", 0.999, Unit.CHANCE), "> 99 %"),
        (Value("x", -12.0, Unit.MORE_SPEED), "-12 samples/s"),
    ],
)
def test_a_value_is_said_with_its_unit(value, text):
    assert value.text == text
