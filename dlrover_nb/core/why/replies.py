"""The answers to the nine questions about a plan: from its explanation and a snapshot, and from nothing else.

So each face of the product (text, notebook, live view, HTTP, agents) shows the same words, and a test can
compute each number anew from the same records and from those behind them. They are made where they are shown
and not by the job's master: what a running job sends does not change.

Rejected: to quote the sentence with which a plan was proposed. It is written once, its numbers are rounded
into words, and nothing can be checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.why.about_choice import how, otherwise, sure, what_if, why_not
from dlrover_nb.core.why.about_course import before, when
from dlrover_nb.core.why.about_plan import what, why
from dlrover_nb.core.why.catalogue import Question
from dlrover_nb.core.why.subject import Subject, subject_of
from dlrover_nb.core.why.values import Value  # noqa: TC001 - records are decoded by their annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.structs.decisions.query_answers import Explanation
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.why.values import Answer

ANSWERS: Mapping[Question, Callable[[Subject], Answer]] = {
    Question.WHAT: what,
    Question.WHY: why,
    Question.SURE: sure,
    Question.WHEN: when,
    Question.HOW: how,
    Question.WHY_NOT: why_not,
    Question.WHAT_IF: what_if,
    Question.OTHERWISE: otherwise,
    Question.BEFORE: before,
}


def answers(
    explanation: Explanation, snapshot: JobSnapshot, question: Question | None = None
) -> tuple[Answer, ...]:
    """Return the answers to all questions in their order, or to one."""
    subject = subject_of(explanation, snapshot)
    return tuple(ANSWERS[each](subject) for each in ([*Question] if question is None else [question]))


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer as data: its words, and each number in them with its unit."""

    question: Question
    asks: str
    words: str
    is_known: bool
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answers about a plan, for programs; `proposal` is None where they are about the plan that runs."""

    proposal: str | None
    plan: str
    answers: tuple[AnswerRow, ...]


def reply_to(explanation: Explanation, snapshot: JobSnapshot, question: Question | None = None) -> Reply:
    """Return the answers to all questions, or to one, as data."""
    rows = (
        AnswerRow(a.question, a.question.asks, a.words, a.is_known, a.values)
        for a in answers(explanation, snapshot, question)
    )
    return Reply(explanation.proposal, explanation.plan.short, tuple(rows))
