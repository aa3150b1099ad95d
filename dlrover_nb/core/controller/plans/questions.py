"""What the decisions on a job compute for long, as a pure function of a record: for another process.

A fit, its front and the advice take .2 to 1.6 s of CPU time, in which a job's loop would answer no node. All
that they depend on is in a `Question`. Its `Answer` is only ever a value known already of what the controller
would compute itself: without it (in a replay, or when the other process was killed) the same is computed
inline, with the same result to the last bit. So an answer is in no journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.plans.advisor import KnownAdvice
from dlrover_nb.core.planner import analyse, break_even_of

if TYPE_CHECKING:
    from dlrover_nb.core.controller.plans.advisor import BoundPolicy
    from dlrover_nb.core.planner import Analysis, Situation
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be computed.

    Parameters
    ----------
    number
        Of the question: 1 is the first of its job.
    situation
        What is fitted and analysed.
    decide
        Advises on the analysis; None: no advice is needed.
    known
        The plan that is proposed already: what would change the advice is not asked of it again.
    """

    number: int
    situation: Situation
    decide: BoundPolicy | None
    known: ResourcePlan | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was computed; `known` where advice was needed."""

    number: int
    analysis: Analysis
    known: KnownAdvice | None = None


def answer(question: Question) -> Answer:
    """Return the answer, with all that the views of a job show of its analysis laid out.

    Raises
    ------
    DlroverError
        As the same computations do inline.
    """
    analysis, decide = analyse(question.situation), question.decide
    _ = analysis.front, analysis.curves, analysis.deadline  # kept in the analysis
    if decide is None:
        return Answer(question.number, analysis)
    advice = decide(analysis)
    if advice is None or advice.batches or advice.candidate.plan == question.known:
        return Answer(question.number, analysis, KnownAdvice(advice))
    explained = (break_even_of(analysis, advice, decide),)
    return Answer(question.number, analysis, KnownAdvice(advice, explained))
