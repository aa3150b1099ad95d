"""Nine questions about a plan and their answers, of which every number is a value with a unit."""

from dlrover_nb.core.why.catalogue import Question, question_of
from dlrover_nb.core.why.replies import Reply, answers, reply_to
from dlrover_nb.core.why.trials import tried
from dlrover_nb.core.why.values import Answer, Quote, Sentence, Unit, Value

__all__ = [
    "Answer",
    "Question",
    "Quote",
    "Reply",
    "Sentence",
    "Unit",
    "Value",
    "answers",
    "question_of",
    "reply_to",
    "tried",
]
