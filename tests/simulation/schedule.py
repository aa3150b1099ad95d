"""When things happen: alone, about one moment, or the same one again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Draw: TypeAlias = Callable[
    [random.Random, float, float], Any
]  # generator, time, and a limit of time that matters


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a seed stands for, and what happens in it, in order."""

    seed: int
    events: tuple[Any, ...]

    @property
    def words(self) -> str:
        """What it is, without its events."""
        raise NotImplementedError


def drawn(
    rng: random.Random, kinds: Mapping[Draw, float], *, limit_s: float, span_s: float
) -> tuple[Any, ...]:
    """Return some events of kinds with these weights, within a span of time."""
    events: list[Any] = []
    at_s = 0.0
    for _ in range(rng.choice([1, 1, 2, 3, 4, 6, 8])):
        is_close = events and rng.random() < 0.5
        at_s = at_s + rng.choice([0.0, 0.1, 0.5, 1.0]) if is_close else rng.uniform(0.2, span_s)
        kind = rng.choices(list(kinds), weights=list(kinds.values()))[0]
        n_time = rng.choice([1, 1, 1, 1, 2, 3])
        events += [
            kind(rng, round(at_s + i * rng.choice([0.5, 1.0, 2.0]), 3), limit_s) for i in range(n_time)
        ]
    return tuple(sorted(events, key=lambda each: each.at_s))
