"""The true speed of a simulated job, which its controller has to learn.

`TermsTruth` is Eqs. 1-6 of DLRover-RM with chosen coefficients, with a term in w that real synchronous jobs
show and the paper lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.samples import TimeSplit

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


class SpeedTruth(Protocol):
    """The speed of a job as a function of its plan."""

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        """Return samples per second of the whole job under a plan, without noise; > 0."""
        ...

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        """Return the parts of T_iter; they sum to w*m/speed."""
        ...


@dataclass(frozen=True, slots=True)
class TermsTruth:
    """Eqs. 1-6 with chosen coefficients, all >= 0 and not all zero.

    Parameters
    ----------
    grad_s
        Core seconds per sample (alpha_grad of Eq. 2).
    update_s
        Core seconds that one worker's update costs the PS (alpha_upd of Eq. 3).
    sync_s
        Seconds to move the dense parameters over one link (alpha_sync*M/B of Eq. 4).
    lookup_s
        Seconds that one PS takes for the rows of one sample (alpha_emb*D of Eq. 5).
    constant_s
        The sum of all beta.
    contention_s
        Seconds that each further worker adds, whatever the PS; not in the paper.
    """

    grad_s: float
    update_s: float = 0.0
    sync_s: float = 0.0
    lookup_s: float = 0.0
    constant_s: float = 0.0
    contention_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _check.at_least(name, getattr(self, name), 0)
        _check.above_zero("sum of the coefficients", sum(getattr(self, n) for n in self.__slots__))

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        """Return samples per second (Eq. 1)."""
        return plan.worker.count * batch_size / self.split(plan, batch_size).total_s  # (eq. 1)

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        """Return the terms of T_iter; dense parameters travel both ways, half of it with the gradients."""
        w, p, m = plan.worker.count, plan.ps.count, batch_size
        sync_s = self.sync_s * w / p  # (eq. 4)
        return TimeSplit(
            compute_s=self.grad_s * m / plan.worker.cpu,  # (eq. 2)
            update_s=self.update_s * w / (p * plan.ps.cpu) + sync_s / 2,  # (eq. 3)
            lookup_s=self.lookup_s * m / p + sync_s / 2,  # (eq. 5)
            other_s=self.constant_s + self.contention_s * (w - 1),
        )
