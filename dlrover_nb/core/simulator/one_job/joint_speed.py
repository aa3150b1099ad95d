"""How fast the workers of a simulated job are together, when they differ in speed and in batch.

The true function says how long a worker of normal speed takes for a batch; a slow one takes longer by its
factor. Workers that keep in step take as long as the slowest of those that are waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Pacing:
    """Workers with batches of their own, in their order.

    Parameters
    ----------
    sizes
        Samples of each worker in one iteration.
    normal_s
        How long a worker of normal speed takes for that.
    factors
        Speed of each over its normal speed.
    n_backup
        How many of the slowest workers an iteration goes on without; None: workers do not keep in step.
    """

    sizes: Sequence[int]
    normal_s: Sequence[float]
    factors: Sequence[float]
    n_backup: int | None = None

    @property
    def own_s(self) -> list[float]:
        """Return how long each worker takes."""
        return [normal_s / factor for normal_s, factor in zip(self.normal_s, self.factors, strict=True)]

    @property
    def left_out(self) -> frozenset[int]:
        """Indices of the workers that an iteration goes on without: of equally slow ones the last."""
        own_s = self.own_s
        order = sorted(range(len(own_s)), key=lambda i: own_s[i])
        n = min(self.n_backup or 0, len(order) - 1)
        return frozenset(order[len(order) - n :])

    @property
    def iter_s(self) -> float:
        """How long an iteration takes of workers that keep in step."""
        out = self.left_out
        return max(own_s for i, own_s in enumerate(self.own_s) if i not in out)

    @property
    def speeds(self) -> list[float]:
        """Return the samples per second of each worker that count."""
        own_s, out = self.own_s, self.left_out
        if self.n_backup is None:
            return [size / each_s for size, each_s in zip(self.sizes, own_s, strict=True)]
        iter_s = self.iter_s
        return [0.0 if i in out else size / iter_s for i, size in enumerate(self.sizes)]
