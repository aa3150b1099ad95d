"""The nine questions that `why` answers about a plan, in the order in which an engineer asks them.

Klinaku, Speth, Zilch and Becker ("Hitchhiker's Guide for Explainability in Autoscaling", ICPE 2023 Companion,
10.1145/3578245.3584728) asked engineers who operate autoscalers what they want explained, and assess an
autoscaler by three goals and nine questions. Only the paper's abstract was at hand, and not its list. So the
nine here are the established kinds of explanation questions, put to a change of plan:

- input, output, why, why not, how, what if, certainty, situation: Lim and Dey, "Assessing Demand for
  Intelligibility in Context-Aware Applications" (UbiComp 2009);
- performance, how to be that, how to still be this: Liao, Gruen and Miller, "Questioning the AI" (CHI 2020,
  10.1145/3313831.3376590), whose question bank has nine categories as well.

"Output" is `WHAT`; "input", "certainty" and "performance" are `SURE`; "how to be that" and "how to still be
this" are `OTHERWISE`; "situation" is `WHEN` and `BEFORE`.
"""

from __future__ import annotations

from enum import StrEnum

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError


class Question(StrEnum):
    """A question about a plan: proposed, applied, rejected, undone, or the one that runs."""

    WHAT = "what"
    WHY = "why"
    SURE = "sure"
    WHEN = "when"
    HOW = "how"
    WHY_NOT = "why-not"
    WHAT_IF = "what-if"
    OTHERWISE = "otherwise"
    BEFORE = "before"

    @property
    def number(self) -> int:
        """Its place, from 1 on."""
        return list(Question).index(self) + 1

    @property
    def asks(self) -> str:
        """The question as a sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Question.WHAT: "What is it?",
    Question.WHY: "Why?",
    Question.SURE: "How sure is that?",
    Question.WHEN: "When?",
    Question.HOW: "How is it done?",
    Question.WHY_NOT: "Why not another plan?",
    Question.WHAT_IF: "What would one more bring?",
    Question.OTHERWISE: "What would change it?",
    Question.BEFORE: "What happened before?",
}


def question_of(text: str) -> Question:
    """Return the question of a number or a word.

    Raises
    ------
    InvalidValueError
        For any other text.
    """
    word = text.strip().lower().rstrip("?").replace(" ", "-").replace("_", "-")
    for question in Question:
        if word in {question.value, str(question.number)}:
            return question
    words = ", ".join(f"{each.number} {each}" for each in Question)
    raise InvalidValueError(f"question must be a number or a word of {words}; got {shown(text)}")
