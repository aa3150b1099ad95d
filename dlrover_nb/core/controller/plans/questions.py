"""What is asked for the decisions on a job that takes long to compute, and what was computed.

All that a fit and advice depend on is in a `Question`, so that another process can answer it (`computation`).
Its `Answer` is only ever a value known already of what the controller would compute itself: without it (in a
replay, or when the other process was killed) the same is computed inline, with the same result to the last
bit. So an answer is in no journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.controller.plans.bound_policy import BoundPolicy
    from dlrover_nb.core.planner.advising.advice import Advice
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.decisions.decisions import BreakEven
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class KnownAdvice:
    """Advice that another process has computed, with what would change it; empty where no view needs that."""

    advice: Advice | None
    break_even: tuple[BreakEven | None, ...] = ()


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
