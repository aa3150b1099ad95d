"""What to change by a diagnosis, and when to stop.

Cores that one role leaves idle go to the other before nodes are added, as that costs nothing. A change that
did not raise the used cores beyond the best so far was fruitless, and is not tried again until another one
bears fruit. As the used cores are bounded by the budget and each fruitful change raises them by a fixed
share, the search ends after finitely many changes on any job.

A job grows by larger workers until these do not use all they have, and by more of the size that did from
then on. The paper grows sizes alone, and spreads the cores over one worker more at a time after each growth.
By its own measurements a worker of 5 to 8 cores is at that limit, so that nearly all changes of a large job
would be single workers: 34 to 73 changes on the paper's jobs, more than Optimus needs.

Rejected: to stop at the first fruitless change. A worker that is added beside a full link brings nothing, but
it shows that the link is full, and a PS helps then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.diagnosis import Bottleneck, Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.job.tuning import Nearchus


class Remedy(StrEnum):
    """A kind of change."""

    SCALE_UP = "more cores for each node"
    MORE_WORKERS = "more workers of the same size"
    MOVE_CORES = "idle cores of one role to the other"
    ADD_WORKER = "the cores of the workers spread over more of them"
    PS_CORES = "more cores for each PS"
    ADD_PS = "a PS more"


# Growth of the used cores from which on a change counts as an improvement. The paper counts any. A worker
# more of 60 brings a tenth of a percent, so a larger number ends the search of large jobs early. By noise
# alone a change seems an improvement as rarely as a sequence has a new record.
MIN_GAIN = 1e-4

ADDING = frozenset({Remedy.MORE_WORKERS, Remedy.ADD_WORKER, Remedy.ADD_PS})  # nodes


@dataclass(frozen=True, slots=True)
class Step:
    """A change, and the cores that the job used and had after it; `remedy` None: the search begins there."""

    remedy: Remedy | None
    used_cores: float
    allocated_cores: float = 0.0

    def improves(self, best: Step, before: Step, tuning: Nearchus) -> bool:
        """Whether the job uses more cores than at its best, and those of added nodes well enough.

        Where nodes are added, the cores that the job has beyond its best must not be idle, by the same
        threshold as everywhere; or else those beyond the plan before, where the job uses clearly more than
        that did: a PS that frees workers which were in vain without it bears fruit.
        """
        if self.used_cores - best.used_cores <= MIN_GAIN * best.used_cores:
            return False
        if self.remedy not in ADDING or self._uses_what_it_has_beyond(best, tuning):
            return True
        is_clear = self.used_cores > (1 + tuning.stable_cv) * before.used_cores
        return is_clear and self._uses_what_it_has_beyond(before, tuning)

    def _uses_what_it_has_beyond(self, other: Step, tuning: Nearchus) -> bool:
        added = self.allocated_cores - other.allocated_cores
        return self.used_cores - other.used_cores >= tuning.node_efficiency * added


def wanted(diagnosis: Diagnosis) -> tuple[Remedy, ...]:
    """Return what could help, the first choice first.

    A PS that is busy without being full may keep workers waiting at times: one more is the last choice.
    Where the PS alone leave cores idle, the workers are as good as any: they are not spread, but grow, and
    the PS get more to do by that. Their idle cores are taken once the job can grow no more.
    """
    grow = (Remedy.SCALE_UP, Remedy.MORE_WORKERS)
    match diagnosis.bottleneck:
        case Bottleneck.NONE:
            return grow
        case Bottleneck.GPU:
            return (Remedy.MORE_WORKERS,)
        case Bottleneck.PS_NETWORK:
            add: tuple[Remedy, ...] = (Remedy.ADD_PS,)
        case Bottleneck.PS_COMPUTE:
            add = (Remedy.PS_CORES, Remedy.ADD_PS)
        case Bottleneck.MAXIMUM_UTILIZATION if diagnosis.worker >= diagnosis.tuning.job_efficiency:
            return (*grow, Remedy.MOVE_CORES)
        case Bottleneck.MAXIMUM_UTILIZATION:
            is_busy = diagnosis.ps >= diagnosis.tuning.node_efficiency
            add = (Remedy.ADD_WORKER, Remedy.ADD_PS) if is_busy else (Remedy.ADD_WORKER,)
    return (Remedy.MOVE_CORES, *add) if is_lopsided(diagnosis) else add


def is_lopsided(diagnosis: Diagnosis) -> bool:
    """Whether one role has idle cores and the other has none."""
    least, most = sorted((diagnosis.worker, diagnosis.ps))
    return least < diagnosis.tuning.node_efficiency <= most


def fruitless(steps: Iterable[Step], tuning: Nearchus) -> frozenset[Remedy]:
    """Return what was tried in vain since the last improvement."""
    best = before = Step(None, 0.0)
    tried = set[Remedy]()
    for step in steps:
        if step.remedy is None or step.improves(best, before, tuning):
            best, tried = step, set()
        else:
            tried.add(step.remedy)
        before = step
    return frozenset(tried)
