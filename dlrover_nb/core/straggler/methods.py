"""The rule and the solution that a job names: ours, or those that an installed package adds.

A rule finds slow nodes, a solution answers them; both are functions of their arguments, so a job that names
one of another package decides by it wherever its controller runs. They are handed to the controller, which
reads no files. A package's solution that fails is told in the job's story, and its rule that fails finds no
node slow and is logged: nodes that are slow cost time, a master that ends costs the job.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.rules import RULES, Rule
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import Proposed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.straggler.rules import Thresholds, Window
    from dlrover_nb.core.straggler.situation import Situation
    from dlrover_nb.core.straggler.solutions import Findings, Solution
    from dlrover_nb.core.structs.job.job import JobSpec

logger = logging.getLogger(__name__)


class StragglerMethods(NamedTuple):
    """How a job finds slow nodes, and how it answers them."""

    rule: Rule
    solution: Solution


def shipped(spec: JobSpec) -> StragglerMethods:
    """Return the methods of a job that names ours; reads no files."""
    return StragglerMethods(RULES[spec.straggler_rule], SOLUTIONS[spec.stragglers])


def find_methods(spec: JobSpec) -> StragglerMethods:
    """Return the methods of a job; raises as `find_rule` and `find_solution` do."""
    return StragglerMethods(find_rule(spec.straggler_rule), find_solution(spec.stragglers))


def find_solution(name: str) -> Solution:
    """Return the solution of a name.

    Raises
    ------
    InvalidValueError
        When there is none, with the nearest name, or the package that adds it is broken.
    """
    if name in SOLUTIONS:
        return SOLUTIONS[name]
    solution = extensions.find_function(extensions.STRAGGLER_SOLUTIONS, name, SOLUTIONS)

    def answer(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
        proposed = tuple(solution(findings, situation))
        if not all(isinstance(each, Proposed) for each in proposed):
            raise InvalidValueError("it must return Proposed actions; repair the package that adds it")
        return proposed

    return answer


def find_rule(name: str) -> Rule:
    """Return the rule of a name; raises as `find_solution` does."""
    if name in RULES:
        return RULES[name]
    rule = extensions.find(extensions.STRAGGLER_RULES, name, RULES)
    if not isinstance(rule, Rule):
        raise InvalidValueError(f"rule {name} must be a Rule(words, is_slow), got {type(rule).__name__}")
    return replace(rule, is_slow=_Careful(name, rule))


class _Careful:
    """Asks a package's rule; from its first failure on no node is slow by it."""

    def __init__(self, name: str, rule: Rule) -> None:
        self._name, self._rule, self._is_broken = name, rule, False

    def __call__(self, window: Window, thresholds: Thresholds) -> NDArray[np.bool_]:
        none = np.zeros(len(window.means), dtype=np.bool_)
        if self._is_broken:
            return none
        try:
            is_slow = np.asarray(self._rule.is_slow(window, thresholds), dtype=np.bool_)
            return none | is_slow.reshape(none.shape)
        except Exception:
            logger.exception(
                "rule %s failed, so no node counts as slow any more; repair its package", self._name
            )
            self._is_broken = True
            return none
