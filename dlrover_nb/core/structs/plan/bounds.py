"""What restricts the plans that a job may be given: bounds, pins of the user, and a quota."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import CPU_STEP, MOST_NODES, ResourcePlan, RolePlan


@dataclass(frozen=True, slots=True)
class PlanBounds:
    """The plans that a job may be given.

    What is None, or empty, follows from the cluster (`structs.default_bounds`), once it is known.

    Parameters
    ----------
    max_workers, max_ps
        Largest counts, 1 to 100,000.
    worker_cpus, ps_cpus
        Allowed cores per node, ascending.
    quota_cpu, quota_memory_mib
        The most that the whole job may use, whatever the machines hold; None means no quota.
    max_auc_loss
        The most that a plan with more workers may cost of the held-out AUC, a fraction such as 0.001, against
        the plan that the job was submitted with; the bad end of the 90 % band counts. None: no bound.
    """

    max_workers: int | None = None
    max_ps: int | None = None
    worker_cpus: tuple[float, ...] = ()
    ps_cpus: tuple[float, ...] = ()
    quota_cpu: float | None = None
    quota_memory_mib: int | None = None
    max_auc_loss: float | None = None

    def __post_init__(self) -> None:
        if self.max_auc_loss is not None:
            _check.within("max_auc_loss", self.max_auc_loss, 0, 1)
        for name in ("quota_cpu", "quota_memory_mib"):
            if getattr(self, name) is not None:
                _check.above_zero(name, getattr(self, name))
        for name in ("max_workers", "max_ps"):
            if getattr(self, name) is not None:
                _check.at_least(name, getattr(self, name), 1)
                _check.at_most(name, getattr(self, name), MOST_NODES)
        for name in ("worker_cpus", "ps_cpus"):
            values = tuple(sorted({round(float(v), 2) for v in getattr(self, name)}))
            if values:
                _check.above_zero(f"least of {name}", values[0])
            object.__setattr__(self, name, values)

    @property
    def open(self) -> tuple[str, ...]:
        """The names of what follows from the cluster."""
        axes = ("max_workers", "max_ps", "worker_cpus", "ps_cpus")
        return tuple(name for name in axes if getattr(self, name) in {None, ()})

    @property
    def counts(self) -> tuple[int, int]:
        """The largest counts of workers and of PS.

        Raises
        ------
        InvalidValueError
            While one follows from a cluster that is not known yet.
        """
        if self.max_workers is None or self.max_ps is None:
            raise InvalidValueError(
                f"bounds must be complete to plan with, but {and_list(self.open)} follow from the cluster; "
                "name them, or complete them for its machines"
            )
        return self.max_workers, self.max_ps


@dataclass(frozen=True, slots=True)
class Pins:
    """Parts of every plan that the user has fixed; None leaves a part to the search.

    The search treats a pin as a constraint: no candidate, proposal or automatic change departs from it.
    """

    workers: int | None = None
    ps: int | None = None
    worker_cpu: float | None = None
    ps_cpu: float | None = None
    worker_memory_mib: int | None = None
    ps_memory_mib: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "ps"):
            if getattr(self, name) is not None:
                _check.at_least(name, getattr(self, name), 1, hint="a job needs at least 1")
        for name in ("worker_cpu", "ps_cpu"):
            if getattr(self, name) is not None:
                _check.above_zero(name, getattr(self, name))
                object.__setattr__(self, name, round(max(getattr(self, name), CPU_STEP), 2))
        for name in ("worker_memory_mib", "ps_memory_mib"):
            if getattr(self, name) is not None:
                _check.at_least(name, getattr(self, name), 64)

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)

    def __str__(self) -> str:
        fixed = ((name, getattr(self, name)) for name in self.__slots__)
        return ", ".join(f"{name} = {value:g}" for name, value in fixed if value is not None) or "nothing"

    @classmethod
    def of(cls, plan: ResourcePlan) -> Self:
        """Return all parts of a plan."""
        w, p = plan.worker, plan.ps
        return cls(w.count, p.count, w.cpu, p.cpu, w.memory_mib, p.memory_mib)

    @property
    def plan(self) -> ResourcePlan | None:
        """The plan whose parts are all fixed; None: some are left to the search."""
        worker = (self.workers, self.worker_cpu, self.worker_memory_mib)
        ps = (self.ps, self.ps_cpu, self.ps_memory_mib)
        if None in {*worker, *ps}:
            return None
        return ResourcePlan(RolePlan(*worker), RolePlan(*ps))  # type: ignore[arg-type]  # none is None

    def allows(self, plan: ResourcePlan) -> bool:
        """Whether a plan satisfies every pin."""
        return self.applied(plan) == plan

    def applied(self, plan: ResourcePlan) -> ResourcePlan:
        """Return the plan with each pinned part set to its pin."""
        worker = _pinned(plan.worker, (self.workers, self.worker_cpu, self.worker_memory_mib))
        return ResourcePlan(worker, _pinned(plan.ps, (self.ps, self.ps_cpu, self.ps_memory_mib)))


def _pinned(role: RolePlan, pins: tuple[int | None, float | None, int | None]) -> RolePlan:
    if pins == (None, None, None):  # of most jobs, and asked of each plan
        return role
    own = (role.count, role.cpu, role.memory_mib)
    count, cpu, memory_mib = (mine if pin is None else pin for pin, mine in zip(pins, own, strict=True))
    return replace(role, count=int(count), cpu=cpu, memory_mib=int(memory_mib))


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that a whole plan may use of a shared cluster; None: no limit.

    `binds`: a running plan beyond it gives way, where auto mode decides; else that is kept.
    `leads`: who planned for all jobs decides alone who grows and who gives back by deadlines, so that a
    policy that does the same leaves it to that.
    """

    cpu: float | None = None
    memory_mib: int | None = None
    binds: bool = False
    leads: bool = False

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_mib"):
            if getattr(self, name) is not None:
                _check.above_zero(f"quota of {name}", getattr(self, name))

    def __str__(self) -> str:
        cpu = "" if self.cpu is None else f"{self.cpu:g} cores"
        memory = "" if self.memory_mib is None else f"{self.memory_mib} MiB"
        return " and ".join(part for part in (cpu, memory) if part) or "no quota"

    def ends(self, plan: ResourcePlan) -> bool:
        """Whether a running plan gives way to it."""
        return self.binds and not self.allows(plan)

    def invites(self, plan: ResourcePlan) -> bool:
        """Whether a running plan is to grow into it."""
        return self.leads and (self.cpu is None or self.cpu > plan.total_cpu + CPU_STEP)

    def allows(self, plan: ResourcePlan) -> bool:
        """Whether a plan is within the quota."""
        cpu_fits = self.cpu is None or plan.total_cpu <= self.cpu + CPU_STEP / 2
        return cpu_fits and (self.memory_mib is None or plan.total_memory_mib <= self.memory_mib)
