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
from typing import TYPE_CHECKING

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


Fitness = Callable[
    ["NDArray[np.intp]"], "NDArray[np.float64]"
]  # of codes (n,) to values (n,); -inf: not allowed


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

    Parameters
    ----------
    fitness
        Values to maximise, of genotypes of shape (n,).
    rng
        Of the first population, crossover and mutation.
    """
    from pymoo.algorithms.soo.nonconvex.ga import GA  # noqa: PLC0415 - pymoo takes .3 s to import
    from pymoo.core.evaluator import Evaluator  # noqa: PLC0415 - as above
    from pymoo.core.problem import Problem  # noqa: PLC0415 - as above
    from pymoo.operators.crossover.pntx import TwoPointCrossover  # noqa: PLC0415 - as above
    from pymoo.operators.mutation.bitflip import BitflipMutation  # noqa: PLC0415 - as above
    from pymoo.operators.sampling.rnd import BinaryRandomSampling  # noqa: PLC0415 - as above
    from pymoo.problems.static import StaticProblem  # noqa: PLC0415 - as above

    problem = Problem(n_var=N_BIT, n_obj=1, xl=0, xu=1, vtype=bool)
    algorithm = GA(
        pop_size=N_PARENT,
        sampling=BinaryRandomSampling(),
        crossover=TwoPointCrossover(),
        mutation=BitflipMutation(prob_var=1 / N_BIT),
        eliminate_duplicates=True,
    )
    algorithm.setup(problem, termination=("n_gen", N_GENERATION), seed=rng, verbose=False)
    values, place = dict[int, float](), 1 << np.arange(N_BIT)[::-1]
    while algorithm.has_next():
        population = algorithm.ask()
        if population is None:  # crossover and mutation found no new genotype
            break
        codes = population.get("X").astype(np.intp) @ place
        new = np.array(sorted(set(codes.tolist()) - set(values)), dtype=np.intp)
        if len(new):
            values.update(zip(new.tolist(), fitness(new).tolist(), strict=True))
        costs = np.array([[min(-values[int(code)], 1e12)] for code in codes])
        Evaluator().eval(StaticProblem(problem, F=costs), population)
        algorithm.tell(infills=population)
    return max(values, key=lambda code: (values[code], -code))
