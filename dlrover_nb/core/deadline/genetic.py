"""The size of a change as nine bits, searched by a genetic algorithm (Qore-DL's adjuster).

The highest bit is the way: 1 changes the number of workers, 0 the size of each. The other eight bits are two
amounts of four bits, of cores and of memory, whose bits alternate, so that neighbouring bits that crossover
keeps together are of equal weight. An amount of c is what c workers have.

All 512 genotypes can be listed, and `listed` does that: it is the measure for the search. The search asks for
fewer, in a few calls of the fitness, which costs a prediction each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_BIT = 9
N_CODE = 1 << N_BIT
N_PARENT, N_GENERATION = 24, 12


@dataclass(frozen=True, slots=True)
class Change:
    """A decoded genotype: amounts in workers' resources, 0 to 15."""

    is_horizontal: bool
    cpu: int
    memory: int

    def __post_init__(self) -> None:
        for name in ("cpu", "memory"):
            _check.at_least(name, getattr(self, name), 0)
            _check.at_most(name, getattr(self, name), 15)


Codes: TypeAlias = "NDArray[np.intp]"
Fitness = Callable[[Codes], "NDArray[np.float64]"]  # of codes (n,) to values (n,); -inf: not allowed


def decoded(code: int) -> Change:
    """Return what a genotype of 0 to 511 means."""
    cpu = sum((code >> (2 * i + 1) & 1) << i for i in range(4))
    memory = sum((code >> (2 * i) & 1) << i for i in range(4))
    return Change(bool(code >> (N_BIT - 1) & 1), cpu, memory)


def encoded(change: Change) -> int:
    """Return the genotype of a change; the inverse of `decoded`."""
    bits = sum(
        ((change.cpu >> i & 1) << (2 * i + 1)) | ((change.memory >> i & 1) << (2 * i)) for i in range(4)
    )
    return bits | int(change.is_horizontal) << (N_BIT - 1)


def listed(fitness: Fitness) -> int:
    """Return the fittest of all genotypes, the smallest of equal ones."""
    return int(np.argmax(fitness(np.arange(N_CODE))))


def evolved(fitness: Fitness, rng: np.random.Generator) -> int:
    """Return the fittest genotype that the genetic algorithm has evaluated; the seed decides.

    Parents are chosen by tournaments of two, and crossed between two points; each bit of a child flips once
    in `N_BIT` times. The fittest of parents and children are the next parents.

    Parameters
    ----------
    fitness
        Values to maximise, of genotypes of shape (n,).
    rng
        Of the first population, selection, crossover and mutation.

    Notes
    -----
    Rejected: pymoo's, which this was. It takes ten times as long for nine bits, most of it for objects.
    """
    values = dict[int, float]()
    parents = np.sort(rng.choice(N_CODE, N_PARENT, replace=False))
    children = parents
    for _ in range(N_GENERATION):
        new = np.array([code for code in children.tolist() if code not in values], dtype=np.intp)
        if len(new):
            values.update(zip(new.tolist(), fitness(new).tolist(), strict=True))
        fittest = sorted({*parents.tolist(), *children.tolist()}, key=lambda code: (-values[code], code))
        parents = np.array(fittest[:N_PARENT])
        children = _children(parents, np.array([values[code] for code in parents.tolist()]), rng)
    return max(values, key=lambda code: (values[code], -code))


def _children(parents: Codes, values: NDArray[np.float64], rng: np.random.Generator) -> Codes:
    """Return different genotypes that the parents do not have, at most as many as there are parents."""
    n = 2 * len(parents)  # about half of them are there already
    first, second = rng.integers(len(parents), size=(2, 2, n))
    mother, father = parents[np.where(values[first] >= values[second], first, second)]
    cuts = np.sort(rng.integers(N_BIT + 1, size=(2, n)), axis=0)
    between = (1 << cuts[1]) - (1 << cuts[0])
    flipped = (rng.random((n, N_BIT)) < 1 / N_BIT) @ (1 << np.arange(N_BIT))
    crossed = ((mother & ~between) | (father & between)) ^ flipped
    old = set(parents.tolist())
    new = [code for code in dict.fromkeys(crossed.tolist()) if code not in old]
    return np.array(new[: len(parents)], dtype=np.intp)
