"""Which delay a node has at which time: the straggler patterns of AntDT, as values.

A delay is T = sleep x intensity per iteration of a worker, or per request of a PS. Whether a transient
straggler strikes is drawn once per node and period. The draw is a hash of seed, node and period and not a
random generator: so it does not depend on the order of the calls, and processes that slow different nodes
agree about all of them without talking to each other.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check


@dataclass(frozen=True, slots=True)
class Persistent:
    """A constant delay from the start to the end; the paper's is 4 s.

    Parameters
    ----------
    sleep_s, intensity
        Their product is the delay of one iteration, or request.
    nodes
        Names of the nodes that have it; empty: every node.
    """

    sleep_s: float = 4.0
    intensity: float = 1.0
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_delay(self.sleep_s, self.intensity)


@dataclass(frozen=True, slots=True)
class Transient:
    """A delay in the first part of each period, on the nodes that are drawn for that period.

    The defaults are the paper's: 15 of every 30 minutes, on a node with a probability of 0.3.

    Parameters
    ----------
    sleep_s, intensity, nodes
        As of `Persistent`; of the named nodes, those that are drawn have it.
    probability
        That a node is drawn for a period.
    lasts_s, every_s
        Length of the delayed part of a period, and of a period.
    seed
        Of the draws.
    """

    sleep_s: float = 1.5
    intensity: float = 0.8
    probability: float = 0.3
    lasts_s: float = 900.0
    every_s: float = 1800.0
    seed: int = 0
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_delay(self.sleep_s, self.intensity)
        _check.seed(self.seed)
        _check.above_zero("lasts_s", self.lasts_s)
        _check.above_zero("every_s", self.every_s)
        if not 0 <= self.probability <= 1:
            raise InvalidValueError(f"probability must be in [0, 1], got {self.probability}")
        if self.lasts_s > self.every_s:
            raise InvalidValueError(
                f"lasts_s must be <= every_s, got {self.lasts_s:g} of {self.every_s:g}; "
                "use Persistent for a delay without an end"
            )


@dataclass(frozen=True, slots=True)
class Together:
    """Several patterns at once: their delays add up."""

    patterns: tuple[Pattern, ...]


Pattern: TypeAlias = Persistent | Transient | Together


def delay_s(pattern: Pattern, node: str, at_s: float) -> float:
    """Return the seconds that a pattern adds to each iteration of a node.

    Parameters
    ----------
    at_s
        Seconds since the pattern began; before that there is no delay.
    """
    match pattern:
        case Together():
            return sum(delay_s(each, node, at_s) for each in pattern.patterns)
        case Persistent():
            strikes = at_s >= 0
        case Transient():
            strikes = _strikes(pattern, node, at_s)
        case _:
            assert_never(pattern)
    is_named = not pattern.nodes or node in pattern.nodes
    return pattern.sleep_s * pattern.intensity if strikes and is_named else 0.0


def in_time(pattern: Pattern, factor: float) -> Pattern:
    """Return a pattern whose periods take `factor` times as long, so that short jobs see several.

    Delays stay as they are: they belong to an iteration.
    """
    _check.above_zero("factor", factor)
    match pattern:
        case Together():
            return Together(tuple(in_time(each, factor) for each in pattern.patterns))
        case Persistent():
            return pattern
        case Transient():
            return replace(pattern, lasts_s=pattern.lasts_s * factor, every_s=pattern.every_s * factor)
        case _:
            assert_never(pattern)


def single(pattern: Pattern) -> tuple[Persistent | Transient, ...]:
    """Return the patterns that a pattern is made of."""
    if isinstance(pattern, Together):
        return tuple(one for each in pattern.patterns for one in single(each))
    return (pattern,)


def _strikes(pattern: Transient, node: str, at_s: float) -> bool:
    if at_s < 0:
        return False
    period = math.floor(at_s / pattern.every_s)
    in_period_s = at_s - period * pattern.every_s
    return in_period_s < pattern.lasts_s and _draw(pattern.seed, node, period) < pattern.probability


def _draw(seed: int, node: str, period: int) -> float:
    """Return a number in [0, 1) that is uniform over seeds, nodes and periods."""
    digest = hashlib.blake2b(f"{seed}/{node}/{period}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / (1 << 53)


def _check_delay(sleep_s: float, intensity: float) -> None:
    _check.at_least("sleep_s", sleep_s, 0)
    if not 0 <= intensity <= 1:
        raise InvalidValueError(f"intensity must be in [0, 1], got {intensity}; raise sleep_s instead")
