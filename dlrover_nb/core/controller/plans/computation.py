"""The answer to a question about a job, as a pure function of it: for another process.

A fit, its front and the advice take .2 to 1.6 s of CPU time, in which a job's loop would answer no node.
"""

from __future__ import annotations

from dlrover_nb.core.controller.plans.questions import Answer, KnownAdvice, Question
from dlrover_nb.core.planner.advising.sensitivity import break_even_of
from dlrover_nb.core.planner.analysis import analyse


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
