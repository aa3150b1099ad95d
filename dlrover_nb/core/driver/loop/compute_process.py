"""The process that computes fits and advice of one job: questions in, answers out, until its input ends.

It is the child of a job's master and speaks with it alone, by pickles over its own pipes. It has no file and
no state: a killed one is replaced by a new one.

An answer is a pure function of its question. A fit, its front and the advice take .2 to 1.6 s of CPU time, in
which a job's loop would answer no node.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from typing import TYPE_CHECKING, BinaryIO

from dlrover_nb.core.controller.plans.questions import Answer, KnownAdvice, Question
from dlrover_nb.core.planner.advising.sensitivity import break_even_of
from dlrover_nb.core.planner.analysis import analyse

if TYPE_CHECKING:
    from dlrover_nb.core.controller.plans.questions import Question

LOWER_PRIORITY = 5  # than the master's, which answers nodes meanwhile


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


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer each question with an `Answer`, or with the text of an error."""
    while True:
        try:
            question = pickle.load(questions)  # noqa: S301 - of our own parent
        except EOFError:
            return
        pickle.dump(_answer(question), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _answer(question: Question) -> Answer | str:
    try:
        return answer(question)
    except Exception as error:  # noqa: BLE001 - the master computes the same and tells what is wrong
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Serve the parent; what anything prints goes to the log, not into the answers."""
    with contextlib.suppress(OSError):
        os.nice(LOWER_PRIORITY)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
