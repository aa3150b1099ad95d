"""A remedy as a change of plan: within bounds and pins, on the sizes that nodes may have.

Sizes of nodes are a ladder, often of doubles, so cores are rounded to it: down where cores move, as a move
must not cost any. Workers that are spread get the next smaller size, and there are as many of them as have
the same cores: with one worker more of half the size the job would have fewer cores than before, and the
search would end there. Where the wanted plan is not allowed, smaller ones are tried, down to the present one.

The paper gives single nodes any part of a core. A plan of this product gives all nodes of a role the same:
cores move between roles by a change of plan (`with_remedy`), within a role by exceptions (`node_moves`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf, log
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.remedies import Remedy
from dlrover_nb.core.bottleneck.use import efficiency
from dlrover_nb.core.structs.plan.resources import CPU_STEP, ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dlrover_nb.core.bottleneck.use import JobUse
    from dlrover_nb.core.structs.job.tuning import Nearchus
    from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds

    Holds = Callable[[ResourcePlan], bool]

START_PS, START_WORKERS = 1, 2


def idle_cores(cores: float, share: float, others: float, tuning: Nearchus) -> float:
    """Return how many of its cores a role can give to the other one, which has `others`.

    Then it uses the threshold's share of the rest. The other role gets faster in proportion to its cores, and
    this one has as much more to do: else a PS that gave its idle cores away would be the next bottleneck. The
    paper does not say how much moves.
    """
    t, used = tuning.node_efficiency, share * cores
    return max((t * cores - used) / (t + used / others), 0.0)


def start_plan(
    plan: ResourcePlan, bounds: PlanBounds, budget_cores: float, start_share: float
) -> ResourcePlan:
    """Return the first plan: 1 PS and 2 workers that share a part of the budget, with the memory of `plan`.

    Where even the smallest nodes exceed the budget there is one worker.
    """
    each = start_share * budget_cores / (START_PS + START_WORKERS)
    worker = replace(plan.worker, cpu=_at_most(bounds.worker_cpus, each))
    ps = replace(plan.ps, count=START_PS, cpu=_at_most(bounds.ps_cpus, each))
    most = min(START_WORKERS, bounds.counts[0])
    room = int((budget_cores - ps.cpu) / worker.cpu + 1e-9)
    return ResourcePlan(replace(worker, count=max(min(most, room), 1)), ps)


def fixed_roles(use: JobUse, bounds: PlanBounds, pins: Pins) -> frozenset[Role]:
    """Return the roles whose nodes can give up no cores: pinned ones, those of the smallest size, busy PS.

    PS are busy where the next smaller size of the ladder is too small for what they do. Workers never are:
    more of a smaller size can do the same.
    """
    plan, pinned = use.plan, {Role.WORKER: pins.worker_cpu, Role.PS: pins.ps_cpu}
    least = {Role.WORKER: _sizes(bounds, Role.WORKER)[0], Role.PS: _enough(use, Role.PS, bounds)}
    return frozenset(role for role in Role if pinned[role] is not None or plan.role(role).cpu <= least[role])


def remedy_between(before: ResourcePlan, after: ResourcePlan) -> Remedy | None:
    """Return which remedy a change of plan was; None for any other, as of a user."""
    workers, ps = after.worker.count - before.worker.count, after.ps.count - before.ps.count
    worker_cpu, ps_cpu = (after.role(role).cpu - before.role(role).cpu for role in (Role.WORKER, Role.PS))
    match (max(min(workers, 1), -1), max(min(ps, 1), -1)):
        case (1, 0):
            return Remedy.ADD_WORKER if worker_cpu < 0 else Remedy.MORE_WORKERS
        case (0, 1):
            return Remedy.ADD_PS
        case (0, 0) if min(worker_cpu, ps_cpu) < 0:
            return Remedy.MOVE_CORES
        case (0, 0) if worker_cpu > 0:
            return Remedy.SCALE_UP
        case (0, 0) if ps_cpu > 0:
            return Remedy.PS_CORES
        case _:
            return None


def with_remedy(
    remedy: Remedy,
    use: JobUse,
    bounds: PlanBounds,
    *,
    pins: Pins,
    holds: Holds,
) -> ResourcePlan | None:
    """Return the plan with a remedy; None where no plan that `holds` has it.

    Pins may turn a plan into another remedy: smaller workers whose number is pinned have fewer cores than
    now. Such plans are left out.
    """
    spreads = {Remedy.ADD_WORKER, Remedy.MORE_WORKERS}
    kinds = spreads if remedy is Remedy.ADD_WORKER else {remedy}
    match remedy:
        case Remedy.SCALE_UP:
            plans = _scaled_up(use, bounds)
        case Remedy.MORE_WORKERS:
            plans = _more_workers(use, bounds)
        case Remedy.MOVE_CORES:
            plans = _moved(use, bounds)
        case Remedy.ADD_WORKER:
            plans = _spread(use.plan, bounds)
        case Remedy.PS_CORES:
            plans = _larger_ps(use, bounds)
        case Remedy.ADD_PS:
            plans = _one_more_ps(use.plan, bounds)
    most_workers, most_ps = bounds.counts
    pinned = (pins.applied(plan) for plan in plans)
    within = (p for p in pinned if p.worker.count <= most_workers and p.ps.count <= most_ps)
    return next((p for p in within if remedy_between(use.plan, p) in kinds and holds(p)), None)


def _scaled_up(use: JobUse, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield plans of the same nodes with about half as many cores again, largest first.

    Not of a size from which workers were spread before: they could not use it.
    """
    plan, too_large = use.plan, _too_large(use)
    for cpu in _larger(_sizes(bounds, Role.WORKER), plan.worker.cpu, 1 + use.tuning.scale_up):
        if cpu < too_large:
            yield from _beside(use, bounds, replace(plan.worker, cpu=cpu))


def _more_workers(use: JobUse, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield plans with up to half as many workers again, of the same size."""
    worker = use.plan.worker
    most = max(int(worker.count * (1 + use.tuning.scale_up)), worker.count + 1)
    for count in range(most, worker.count, -1):
        yield from _beside(use, bounds, replace(worker, count=count))


def _beside(use: JobUse, bounds: PlanBounds, worker: RolePlan) -> Iterator[ResourcePlan]:
    """Yield plans with these workers: with PS that are busy no less than now, then with the present PS.

    PS have as much more to do as the workers have cores. Idle ones get none, where the paper gives all nodes
    more in proportion: on a ladder of sizes they would double, and the next change would take that back.
    """
    plan = use.plan
    needed = efficiency(use.of({Role.PS})) * plan.ps.cpu * worker.total_cpu / plan.worker.total_cpu
    share = use.tuning.node_efficiency
    if needed > share * plan.ps.cpu:
        larger = [s for s in _sizes(bounds, Role.PS) if s > plan.ps.cpu]
        enough = next(
            (size for size in larger if needed <= use.tuning.node_efficiency * size), max(larger, default=0)
        )
        if enough:
            yield ResourcePlan(worker, replace(plan.ps, cpu=enough))
    yield ResourcePlan(worker, plan.ps)


def _too_large(use: JobUse) -> float:
    """Return the smallest size from which workers were spread; infinity where they never were."""
    plans = [*(each.plan for each in use.earlier), use.plan]
    spread = (a.worker.cpu for a, b in pairwise(plans) if remedy_between(a, b) is Remedy.ADD_WORKER)
    return min(spread, default=inf)


def _larger(sizes: Sequence[float], cpu: float, factor: float) -> list[float]:
    """Return sizes above `cpu`, up to the nearest one to `factor` times it, at least one; largest first."""
    above = [size for size in sizes if size > cpu]
    if not above:
        return []
    most = max(_nearest(above, cpu * factor), above[0])
    return [size for size in reversed(above) if size <= most]


def _moved(use: JobUse, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield the plan in which the role with idle cores keeps what it needs and the other has the rest."""
    shares = {role: efficiency(use.of({role})) for role in Role}
    giver, taker = sorted(Role, key=shares.__getitem__)
    own, other = use.plan.role(giver), use.plan.role(taker)
    enough = _enough(use, giver, bounds)
    if enough >= own.cpu:
        return
    total = other.cpu + own.count * (own.cpu - enough) / other.count
    smaller = replace(own, cpu=enough)
    larger = replace(other, cpu=max(_at_most(_sizes(bounds, taker), total), other.cpu))
    yield _plan(giver, smaller, larger)


def _enough(use: JobUse, role: Role, bounds: PlanBounds) -> float:
    """Return the smallest size of a role's nodes once the other role has their idle cores; infinity: none."""
    own, other = use.plan.role(role), use.plan.role(_other(role))
    keeps = own.total_cpu - idle_cores(own.total_cpu, efficiency(use.of({role})), other.total_cpu, use.tuning)
    return next((s for s in _sizes(bounds, role) if s >= keeps / own.count - CPU_STEP / 2), inf)


def _spread(plan: ResourcePlan, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield the plan with more and smaller workers of the same cores, then with one worker more."""
    own = plan.worker
    each = own.total_cpu / (own.count + 1)
    smaller = [size for size in _sizes(bounds, Role.WORKER) if size <= each + 1e-9]
    if smaller:
        cpu = smaller[-1]
        count = max(int(own.total_cpu / cpu + 1e-9), own.count + 1)
        yield replace(plan, worker=replace(own, count=count, cpu=cpu))
    yield replace(plan, worker=replace(own, count=own.count + 1))


def _larger_ps(use: JobUse, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield plans with about half as many cores again for each PS, largest first."""
    plan = use.plan
    for cpu in _larger(_sizes(bounds, Role.PS), plan.ps.cpu, 1 + use.tuning.scale_up):
        yield replace(plan, ps=replace(plan.ps, cpu=cpu))


def _one_more_ps(plan: ResourcePlan, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield the plan with a PS more, among which the cores of all are divided."""
    own = plan.ps
    each = own.total_cpu / (own.count + 1)
    sizes = [size for size in _sizes(bounds, Role.PS) if size <= own.cpu] or [own.cpu]
    for cpu in (_nearest(sizes, each), _at_most(sizes, each)):
        yield replace(plan, ps=replace(own, count=own.count + 1, cpu=cpu))


def _plan(role: Role, own: RolePlan, other: RolePlan) -> ResourcePlan:
    return ResourcePlan(own, other) if role is Role.WORKER else ResourcePlan(other, own)


def _other(role: Role) -> Role:
    return Role.PS if role is Role.WORKER else Role.WORKER


def _sizes(bounds: PlanBounds, role: Role) -> tuple[float, ...]:
    return bounds.worker_cpus if role is Role.WORKER else bounds.ps_cpus


def _nearest(sizes: Sequence[float], cpu: float) -> float:
    """Return the size whose ratio to `cpu` is nearest to 1."""
    return min(sizes, key=lambda size: abs(log(size / cpu)))


def _at_most(sizes: Sequence[float], cpu: float) -> float:
    """Return the largest size up to `cpu`, else the smallest."""
    return max((size for size in sizes if size <= cpu + 1e-9), default=sizes[0])
