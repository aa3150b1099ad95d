"""Reports in parts of time of one length: the bounded memory of the monitor.

Parts lie at whole multiples of their length on the caller's clock. A report is divided among the parts in
which its iterations ran, so that reports of any length, and iterations longer than a part, fill the windows
that they cover. A part that is older than the long window is dropped, and with its last part a node: the
memory is bounded by the nodes that reported within the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.training.samples import NodeSample


@dataclass(frozen=True, slots=True)
class Part:
    """What a node did in one part of time.

    Parameters
    ----------
    n_iter
        Iterations, or requests of a PS; a fraction where an iteration lies in two parts.
    n_sample
        Samples trained.
    work_s
        Seconds of its own work.
    exchange_s
        Seconds in which a worker exchanged rows and gradients with the PS: T_s and T_m of AntDT.
    """

    n_iter: float = 0.0
    n_sample: float = 0.0
    work_s: float = 0.0
    exchange_s: float = 0.0

    def plus(self, other: Part, share: float = 1.0) -> Part:
        """Add a share of another."""
        return Part(
            self.n_iter + share * other.n_iter,
            self.n_sample + share * other.n_sample,
            self.work_s + share * other.work_s,
            self.exchange_s + share * other.exchange_s,
        )


def part_of(sample: NodeSample, *, exchange_s: float, work_s: float) -> Part | None:
    """Return what a report says about times; None where it finished nothing, or told no number."""
    total_s = work_s + exchange_s
    if sample.n_iter <= 0 or not (math.isfinite(total_s) and work_s > 0 and exchange_s >= 0):
        return None
    n_iter = sample.n_iter
    return Part(float(n_iter), float(sample.n_sample), n_iter * work_s, n_iter * exchange_s)


def shares(from_s: float, to_s: float, part_s: float) -> Iterator[tuple[int, float]]:
    """Yield the index of each part that a stretch of time touches, and its share of the stretch."""
    first = math.floor(from_s / part_s)
    last = max(first, math.ceil(to_s / part_s) - 1)
    if last == first:
        yield first, 1.0
        return
    for index in range(first, last + 1):
        inside_s = min(to_s, (index + 1) * part_s) - max(from_s, index * part_s)
        if inside_s > 0:
            yield index, inside_s / (to_s - from_s)
