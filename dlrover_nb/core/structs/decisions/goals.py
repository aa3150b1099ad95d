"""Goals that a user names for a plan: the cheapest plan that meets all, or which goal is in the way.

The plans are those of a job's Pareto front, with what runs now. A goal is in the way when plans meet all the
others: then its nearest feasible value is shown, which is what the user would have to allow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.moments import read_moment
from dlrover_nb.core.structs.plan.prices import MIB_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dlrover_nb.core.structs.decisions.candidates import Candidate


class GoalKind(StrEnum):
    """What a goal limits."""

    COST = "cost per hour"
    TOTAL = "cost in total"
    FINISH = "finish"
    SPEED = "samples/s"
    CORES = "cores"
    MEMORY = "GiB"


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal.

    Parameters
    ----------
    kind
        What it limits.
    limit
        In the unit of its kind; of FINISH in seconds from now.
    text
        As it was written.
    """

    kind: GoalKind
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A goal that is in the way, and its best value among plans that meet all others."""

    goal: Goal
    nearest: float


@dataclass(frozen=True, slots=True)
class GoalAnswer:
    """What can be done about some goals.

    Parameters
    ----------
    goals
        All of them.
    plan
        The cheapest plan that meets all; None: there is none.
    is_sure
        Whether it meets them at the lower end of its predicted speed too.
    bindings
        Goals of which one alone would have to be relaxed.
    alone
        Goals that no plan meets, whatever the others; with the best value of any plan (None: not known).
    """

    goals: tuple[Goal, ...]
    plan: Candidate | None = None
    is_sure: bool = False
    bindings: tuple[Binding, ...] = ()
    alone: tuple[tuple[Goal, float | None], ...] = ()


_NUMBER = r"(?P<n>\d+(?:[.,]\d+)?)"
_MOST, _LEAST = r"(?:(?:≤|<=|<|at most|up to)\s*)?", r"(?:(?:≥|>=|>|at least)\s*)?"
_MONEY = r"(?:\$|€|£|[A-Za-z]{3})?"
_PATTERNS: Mapping[GoalKind, re.Pattern[str]] = MappingProxyType(
    {
        GoalKind.COST: re.compile(
            rf"{_MOST}{_MONEY}\s*{_NUMBER}\s*{_MONEY}\s*(?:/|per)\s*(?:h|hour)", re.IGNORECASE
        ),
        GoalKind.TOTAL: re.compile(
            rf"{_MOST}{_MONEY}\s*{_NUMBER}\s*{_MONEY}\s*(?:in total|total)", re.IGNORECASE
        ),
        GoalKind.SPEED: re.compile(
            rf"{_LEAST}{_NUMBER}\s*(?:samples|rows)\s*(?:/|per)\s*(?:s|second)", re.IGNORECASE
        ),
        GoalKind.CORES: re.compile(rf"{_MOST}{_NUMBER}\s*(?:cores?|cpus?)", re.IGNORECASE),
        GoalKind.MEMORY: re.compile(rf"{_MOST}{_NUMBER}\s*(?:GiB|GB)(?: of memory)?", re.IGNORECASE),
    }
)
_WITHIN = re.compile(
    rf"(?:done|finished|ready)?\s*(?:with)?in\s*{_NUMBER}\s*(?P<unit>s|min|m|h|d)\w*", re.IGNORECASE
)
_BY = re.compile(r"(?:done|finished|ready)?\s*by\s+(?P<at>.+)", re.IGNORECASE)
_UNIT_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
EXAMPLES = "≤ 12 $/h, ≤ 40 $ in total, done by 18:00, done within 3 h, ≥ 5000 samples/s, ≤ 16 cores, ≤ 64 GiB"


def read_goals(text: str, now_s: float) -> tuple[Goal, ...]:
    """Return the goals of a text, separated by commas, semicolons, lines or ``and``.

    Parameters
    ----------
    now_s
        The present moment, from which times count.

    Raises
    ------
    InvalidValueError
        For a part that is no goal, a moment that has passed, two goals of one kind, or none at all.
    """
    parts = [part.strip() for part in re.split(r"[;\n]|,(?!\d)|\band\b", text)]
    goals = tuple(_goal(part, now_s) for part in parts if part and not part.startswith("#"))
    if not goals:
        raise InvalidValueError(f"expected goals such as {EXAMPLES}; got none")
    kinds = [goal.kind for goal in goals]
    twice = next((goal for goal in goals if kinds.count(goal.kind) > 1), None)
    if twice is not None:
        raise InvalidValueError(f"expected one goal for {twice.kind}, got more: {twice.text}; keep one")
    return goals


def _goal(text: str, now_s: float) -> Goal:
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(text):
            return _positive(kind, float(match["n"].replace(",", ".")), text)
    if match := _WITHIN.fullmatch(text):
        seconds = float(match["n"].replace(",", ".")) * _UNIT_S[match["unit"].lower()]
        return _positive(GoalKind.FINISH, seconds, text)
    if match := _BY.fullmatch(text):
        left_s = read_moment(match["at"], what=f"the time in {shown(text)}", now_s=now_s) - now_s
        if left_s <= 0:
            raise InvalidValueError(f"expected a time in the future, got {shown(text)}; name a later one")
        return Goal(GoalKind.FINISH, left_s, text)
    raise InvalidValueError(f"expected a goal such as {EXAMPLES}; got {shown(text)}")


def _positive(kind: GoalKind, limit: float, text: str) -> Goal:
    if limit <= 0:
        raise InvalidValueError(f"expected a number above zero, got {shown(text)}")
    return Goal(kind, limit, text)


def _total(candidate: Candidate) -> float | None:
    if candidate.cost_per_hour is None or candidate.finish_s is None:
        return None
    return candidate.cost_per_hour * candidate.finish_s / 3600


VALUES: Mapping[GoalKind, Callable[[Candidate], float | None]] = MappingProxyType(
    {
        GoalKind.COST: lambda c: c.cost_per_hour,
        GoalKind.TOTAL: _total,
        GoalKind.FINISH: lambda c: c.finish_s,
        GoalKind.SPEED: lambda c: c.prediction.samples_per_s,
        GoalKind.CORES: lambda c: c.plan.total_cpu,
        GoalKind.MEMORY: lambda c: c.plan.total_memory_mib / MIB_PER_GIB,
    }
)


def meets(goal: Goal, candidate: Candidate) -> bool:
    """Whether a plan meets a goal, by its predicted speed; an unknown value meets none."""
    value = VALUES[goal.kind](candidate)
    if value is None:
        return False
    return value >= goal.limit if goal.kind is GoalKind.SPEED else value <= goal.limit * (1 + 1e-9)


def answer(goals: Sequence[Goal], candidates: Iterable[Candidate]) -> GoalAnswer:
    """Return the cheapest plan that meets all goals, or what is in the way."""
    plans = tuple(candidates)
    able = [each for each in plans if all(meets(goal, each) for goal in goals)]
    if able:
        best = min(able, key=lambda each: (each.cost, each.finish_s or 0.0))
        return GoalAnswer(tuple(goals), best, all(_surely(goal, best) for goal in goals))
    nearest = [(goal, _best(goal, _others(goal, goals, plans))) for goal in goals]
    return GoalAnswer(
        tuple(goals),
        bindings=tuple(Binding(goal, best) for goal, best in nearest if best is not None),
        alone=tuple((g, _best(g, plans)) for g in goals if not any(meets(g, each) for each in plans)),
    )


def _others(goal: Goal, goals: Sequence[Goal], plans: Sequence[Candidate]) -> list[Candidate]:
    """Return the plans that meet all other goals."""
    return [each for each in plans if all(meets(other, each) for other in goals if other is not goal)]


def _best(goal: Goal, some: Sequence[Candidate]) -> float | None:
    values = [value for each in some if (value := VALUES[goal.kind](each)) is not None]
    if not values:
        return None
    return max(values) if goal.kind is GoalKind.SPEED else min(values)


def _surely(goal: Goal, candidate: Candidate) -> bool:
    """Whether a plan meets a goal at the lower end of its predicted speed."""
    slower = candidate.prediction.samples_per_s / max(candidate.prediction.low, 1e-12)
    value = VALUES[goal.kind](candidate)
    assert value is not None
    match goal.kind:
        case GoalKind.FINISH | GoalKind.TOTAL:
            return value * slower <= goal.limit
        case GoalKind.SPEED:
            return candidate.prediction.low >= goal.limit
        case _:
            return True
