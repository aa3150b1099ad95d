"""What to change by a diagnosis, and when to stop.

Cores that one role leaves idle go to the other before nodes are added, as that costs nothing. A change that
did not raise the used cores beyond the best so far was fruitless, and is not tried again until another one
bears fruit. As the used cores are bounded by the budget and each fruitful change raises them by a fixed
share, the search ends after finitely many changes on any job.

Rejected: to stop at the first fruitless change. A worker that is added beside a full link brings nothing, but
it shows that the link is full, and a PS helps then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.diagnosis import Bottleneck, Diagnosis
from dlrover_nb.core.bottleneck.thresholds import PAPER

if TYPE_CHECKING:
    from collections.abc import Iterable


class Remedy(StrEnum):
    """A kind of change."""

    SCALE_UP = "more cores for all nodes"
    MOVE_CORES = "idle cores of one role to the other"
    ADD_WORKER = "a worker more"
    ADD_PS = "a PS more"


@dataclass(frozen=True, slots=True)
class Step:
    """A change, and the cores that the job used and had after it; `remedy` None: the search begins there."""

    remedy: Remedy | None
    used_cores: float
    allocated_cores: float = 0.0

    def improves(self, best: Step) -> bool:
        """Whether the job uses more cores than at its best before, and those of an added node well enough.

        A node more takes cores from the others of its role, so the job has no more than before, unless they
        have the smallest size already. Then the added cores must not be idle, by the same threshold.
        """
        more = self.used_cores - best.used_cores
        if more <= PAPER.min_gain * best.used_cores:
            return False
        adds = self.remedy in {Remedy.ADD_WORKER, Remedy.ADD_PS}
        return not adds or more >= PAPER.assignment * (self.allocated_cores - best.allocated_cores)


def wanted(diagnosis: Diagnosis) -> tuple[Remedy, ...]:
    """Return what could help, the first choice first.

    Where the PS are busy, workers may wait for their computing (PSC of the paper's section III): one more PS
    is the last choice. The paper's design has no rule for it beyond moving cores.
    """
    match diagnosis.bottleneck:
        case Bottleneck.NONE:
            return (Remedy.SCALE_UP,)
        case Bottleneck.GPU:
            return (Remedy.ADD_WORKER,)
        case Bottleneck.PS_NETWORK:
            add: tuple[Remedy, ...] = (Remedy.ADD_PS,)
        case Bottleneck.MAXIMUM_UTILIZATION:
            is_busy = diagnosis.ps >= PAPER.assignment
            add = (Remedy.ADD_WORKER, Remedy.ADD_PS) if is_busy else (Remedy.ADD_WORKER,)
    return (Remedy.MOVE_CORES, *add) if is_lopsided(diagnosis) else add


def is_lopsided(diagnosis: Diagnosis) -> bool:
    """Whether one role has idle cores and the other has none."""
    least, most = sorted((diagnosis.worker, diagnosis.ps))
    return least < PAPER.assignment <= most


def fruitless(steps: Iterable[Step]) -> frozenset[Remedy]:
    """Return what was tried in vain since the last improvement."""
    best, tried = Step(None, 0.0), set[Remedy]()
    for step in steps:
        if step.remedy is None or step.improves(best):
            best, tried = step, set()
        else:
            tried.add(step.remedy)
    return frozenset(tried)
