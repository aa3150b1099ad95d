"""How much memory a node should have where it has far more than it will ever hold.

Users ask for too much: over 80 % of the jobs that DLRover-RM found used less than half of what they had
reserved (section 2.2). A smaller request must not kill a node, so it rests on the most that it can hold by
the end: the upper end of the forecast, and never less than `ceiling`, which is above every law. On top come
a margin for peaks between two reports and for what no report has shown yet (an evaluation), and on a
parameter server room for copies of parameters: one of its own, without which a checkpoint stops training
until it is written. Where peers keep copies there are four, two of its own and two of another server: the
last checkpoint that is whole stays while the next one is copied.

Parameter servers share what grows, the parameters: their sum does not depend on how many servers there are,
so it is one series over all plans of a job, and tells what each of more or fewer servers will hold. Where no
node reports its parameters (a job of another program) that cannot be told, and their memory stays.

`ceiling` is the most that memory can hold by the end, where it grows by any of the laws. No law bends upwards
(`laws`), so a straight line through what was measured lies above all of them from there on: the fitted slope
is a mean of slopes that never rise. That holds whatever the law, also where the reports are too few or too
noisy to tell one, and is what a smaller request may rely on. The band of the forecast may not: it says what
is likely, and where no growth stands out of the noise it forecasts none.

Two lines are drawn, through all reports and through their later half, each at the upper end of its interval,
and the lower one counts: both are above the law, the second is closer to one that bends. Rejected: the chord
from the origin (needs the level at the origin, which the reports of a later plan do not show) and the
steepest law that the reports do not exclude (a law outside the table would not be covered).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import stdtrit
from dlrover_nb.core.memory.choice import MIN_BLOCK, N_BLOCK, averaged
from dlrover_nb.core.memory.forecast import forecast
from dlrover_nb.core.memory.role_memory import step_up
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import PsShare, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from dlrover_nb.core.memory.report_series import Report
    from dlrover_nb.core.structs.plan.resources import RolePlan

    Floats = npt.NDArray[np.float64]

MARGIN = 1.2  # times the most that is expected
LEAST_MIB = 1024  # of a node: a Python process with its libraries takes some hundred MiB before any work
LEAST_SPAN_S = 60.0  # of the reports: the growth of a start is no course
COPIES_WITH_PEERS = 4  # of a part, where peers keep copies: two checkpoints, with their PS and with a peer
LEAST_PART = 0.02  # of the job that was trained meanwhile


SURE = 0.9987  # of an interval's upper end: three deviations of a normal
DEVIATIONS = 3.0  # of a report from its course
STRETCHES = (1.0, 0.5)  # shares of the reports through which a line is drawn


def ceiling_mib(work: Floats, memory_mib: Floats, end: float) -> float | None:
    """Return what no report exceeds by the end of the job; None where work is too little known.

    Parameters
    ----------
    work
        Samples trained at each report, one at least, ascending; ndarray of shape (n_report,).
    memory_mib
        Memory at each, of the same shape.
    end
        Work at the end of the job, not before the last report.
    """
    x, y = averaged(work, np.ones(len(work)), work, memory_mib, n_part=N_BLOCK)[1:]
    lines = [_line(x[-n:], y[-n:], end) for n in (round(share * len(x)) for share in STRETCHES)]
    at_end = [line for line in lines if line is not None]
    if not at_end:
        return None
    rest = memory_mib - np.interp(work, x, y)
    scatter = DEVIATIONS * float(np.sqrt(rest @ rest / len(rest)))
    return max(min(at_end) + scatter, float(memory_mib.max()))


def _line(x: Floats, y: Floats, end: float) -> float | None:
    """Return the upper end of a line's interval at `end`; a falling line stays as it is now."""
    n = len(x)
    if n < MIN_BLOCK:
        return None
    off, ahead = x - x.mean(), end - float(x.mean())
    spread = float(off @ off)
    slope = float(off @ y) / spread
    rest = y - y.mean() - slope * off
    deviation = np.sqrt(float(rest @ rest) / (n - 2) * (1 / n + ahead * ahead / spread))
    return float(y.mean() + max(slope, 0.0) * ahead + stdtrit(n - 2, SURE) * deviation)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What each node of a role holds, measured and expected.

    Parameters
    ----------
    n_node
        Nodes of the role when it was measured last.
    used_mib
        The most that one of them held so far.
    own_mib, shared_mib
        The most by the end of the job: of each node for itself, and of all together.
    n_copy
        Copies of a part of what is shared that each node keeps, for checkpoints.
    least_mib
        The least that a node may be given, by other evidence: OOM kills, the user's refusal.
    """

    role: Role
    n_node: int
    used_mib: float
    own_mib: float
    shared_mib: float = 0.0
    n_copy: int = 0
    least_mib: int = LEAST_MIB

    def __post_init__(self) -> None:
        _check.at_least("n_node", self.n_node, 1)
        for name in ("used_mib", "own_mib", "shared_mib", "n_copy"):
            _check.at_least(name, getattr(self, name), 0)

    def held_by(self, n_node: int) -> float:
        """Return the most that each of `n_node` nodes will hold."""
        return self.own_mib + self.shared_mib / n_node

    def wanted_mib(self, n_node: int) -> int:
        """Return what each of `n_node` nodes should have."""
        wanted = MARGIN * self.held_by(n_node) + self._copy_mib(n_node)
        return step_up(max(wanted, self.least_mib))

    @property
    def share(self) -> PsShare:
        """`wanted_mib` for any number of parameter servers."""
        shared = (MARGIN + self.n_copy) * self.shared_mib
        return PsShare(math.ceil(MARGIN * self.own_mib), math.ceil(shared), self.least_mib)

    def words(self, before: RolePlan, after: RolePlan) -> str:
        """Say why each node gets less."""
        name, n = ("PS" if self.role is Role.PS else "worker"), after.count
        copy = self._copy_mib(n)
        copies = "a copy of its parameters" if self.n_copy == 1 else f"{self.n_copy} copies of parameters"
        extra = f" and {copy:,.0f} MiB for {copies}" if copy >= 1 else ""
        plural = name if self.role is Role.PS else "workers"
        peaked = f"The {name}" if self.n_node == 1 else f"{plural[0].upper()}{plural[1:]}"
        some = "" if n == 1 else f"with {n} of them "
        return (
            f"{peaked} peaked at {self.used_mib:,.0f} MiB; {some}we expect at most {self.held_by(n):,.0f} "
            "MiB, "
            f"plus {100 * (MARGIN - 1):.0f} % margin{extra}. "
            f"So each {name} gets {after.memory_mib:,} MiB instead of {before.memory_mib:,}."
        )

    def _copy_mib(self, n_node: int) -> float:
        return self.n_copy * self.shared_mib / n_node


def most_by_end(reports: Sequence[Report], n_sample_end: int) -> float | None:
    """Return what no later report exceeds by the end of the job; None where too little was measured.

    Parameters
    ----------
    reports
        Oldest first.
    n_sample_end
        Samples at which growth ends.
    """
    if not reports or reports[-1].at_s - reports[0].at_s < LEAST_SPAN_S:
        return None
    if reports[-1].n_sample - reports[0].n_sample < LEAST_PART * n_sample_end:
        return None
    work = np.array([float(r.n_sample) for r in reports])
    memory = np.array([r.memory_mib for r in reports])
    end = float(max(n_sample_end, reports[-1].n_sample))
    ceiling = ceiling_mib(work, memory, end)
    prediction = forecast(work, memory, limit_mib=math.inf, end=end, origin=0.0)
    if ceiling is None or prediction.at_end is None:
        return None
    return max(ceiling, prediction.at_end.high, *(high for *_, high in prediction.fan))
