"""A remedy as a change of plan: within bounds and pins, on the sizes that nodes may have.

Sizes of nodes are a ladder, so cores are rounded to it: to the nearest size where a role's cores are spread
over one node more, down where cores move, as a move must not cost any. Where the wanted plan is not allowed,
smaller ones are tried, down to the present one.

`balanced` and `moved` are the paper's method: cores of single nodes are taken where they are idle and given
where they are used, the sum unchanged. A plan of this product gives all
nodes of a role the same: moves between roles are changes of plan (`with_remedy`), those within a role
exceptions from it (`node_moves`).
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.remedies import Remedy
from dlrover_nb.core.bottleneck.use import efficiency
from dlrover_nb.core.structs.plan.resources import CPU_STEP, ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dlrover_nb.core.bottleneck.use import JobUse, NodeUse
    from dlrover_nb.core.structs.job.tuning import Nearchus
    from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds

    Holds = Callable[[ResourcePlan], bool]

Cores = tuple[float, ...]  # of each node, in the order of the nodes
START_PS, START_WORKERS = 1, 2


def start_cores(budget_cores: float, share: float) -> Cores:
    """Return the cores of the first PS and the first two workers: an even part of a share of the budget."""
    n_node = START_PS + START_WORKERS
    return (budget_cores * share / n_node,) * n_node


def scaled(cores: Sequence[float], total: float) -> Cores:
    """Return cores that sum to `total`, in the proportions of now."""
    factor = total / sum(cores)
    return tuple(each * factor for each in cores)


def spread(cores: Sequence[float]) -> Cores:
    """Return the same sum, as much for each: after a node was added to a role."""
    return (fmean(cores),) * len(cores)


def balanced(nodes: Sequence[NodeUse]) -> Cores:
    """Return the cores after the node-level adjustment of each role.

    Where a node uses less than the threshold, the cores of its role are divided in proportion to what its
    nodes use, so that all have the same efficiency. A role with a node that uses nothing stays, as that node
    would get nothing.
    """
    cores: dict[int, float] = {}
    for role in Role:
        own = [i for i, node in enumerate(nodes) if node.role is role]
        cores |= zip(own, _balanced_role([nodes[i] for i in own]), strict=True)
    return tuple(cores[i] for i in range(len(nodes)))


def _balanced_role(own: Sequence[NodeUse]) -> Cores:
    now, used = tuple(node.allocated_cores for node in own), [node.cores() for node in own]
    if not own or min(used) <= 0 or min(n.efficiency() for n in own) >= own[0].tuning.node_efficiency:
        return now
    return tuple(sum(now) * each / sum(used) for each in used)


def idle_cores(cores: float, share: float, others: float, tuning: Nearchus) -> float:
    """Return how many of its cores a role can give to the other one, which has `others`.

    Then it uses the threshold's share of the rest. The other role gets faster in proportion to its cores, and
    this one has as much more to do: else a PS that gave its idle cores away would be the next bottleneck. The
    paper does not say how much moves.
    """
    t, used = tuning.node_efficiency, share * cores
    return max((t * cores - used) / (t + used / others), 0.0)


def moved(nodes: Sequence[NodeUse]) -> Cores:
    """Return the cores after the component-level adjustment: what one role leaves idle goes to the other.

    Unchanged where both roles are above the threshold, or both below.
    """
    now = tuple(node.allocated_cores for node in nodes)
    shares = {role: efficiency([node for node in nodes if node.role is role]) for role in Role}
    giver, taker = sorted(Role, key=shares.__getitem__)
    if not nodes or not shares[giver] < nodes[0].tuning.node_efficiency <= shares[taker]:
        return now
    totals = {role: sum(n.allocated_cores for n in nodes if n.role is role) for role in Role}
    idle = idle_cores(totals[giver], shares[giver], totals[taker], nodes[0].tuning)
    factor = {giver: 1 - idle / totals[giver], taker: 1 + idle / totals[taker]}
    return tuple(node.allocated_cores * factor[node.role] for node in nodes)


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


def fixed_roles(plan: ResourcePlan, bounds: PlanBounds, pins: Pins) -> frozenset[Role]:
    """Return the roles whose nodes can give up no cores: pinned ones, and those of the smallest size."""
    pinned = {Role.WORKER: pins.worker_cpu, Role.PS: pins.ps_cpu}
    return frozenset(
        role for role in Role if pinned[role] is not None or plan.role(role).cpu <= _sizes(bounds, role)[0]
    )


def remedy_between(before: ResourcePlan, after: ResourcePlan) -> Remedy | None:
    """Return which remedy a change of plan was; None for any other, as of a user."""
    workers, ps = after.worker.count - before.worker.count, after.ps.count - before.ps.count
    cores = [after.role(role).cpu - before.role(role).cpu for role in Role]
    match (max(min(workers, 1), -1), max(min(ps, 1), -1)):
        case (1, 0):
            return Remedy.ADD_WORKER
        case (0, 1):
            return Remedy.ADD_PS
        case (0, 0):
            return None if not any(cores) else Remedy.MOVE_CORES if min(cores) < 0 else Remedy.SCALE_UP
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
    """Return the plan with a remedy; None where no plan that `holds` has it."""
    match remedy:
        case Remedy.SCALE_UP:
            plans = _scaled_up(use, bounds)
        case Remedy.MOVE_CORES:
            plans = _moved(use, bounds)
        case Remedy.ADD_WORKER:
            plans = _one_more(use.plan, Role.WORKER, bounds)
        case Remedy.ADD_PS:
            plans = _one_more(use.plan, Role.PS, bounds)
    most_workers, most_ps = bounds.counts
    pinned = (pins.applied(plan) for plan in plans)
    within = (p for p in pinned if p.worker.count <= most_workers and p.ps.count <= most_ps)
    return next((plan for plan in within if plan != use.plan and holds(plan)), None)


def _scaled_up(use: JobUse, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield plans with about half as many cores again, largest first; by more workers last.

    A role with idle cores gets none, where the paper gives all nodes more in proportion: on a ladder of sizes
    its nodes would double, and the next change would take the cores back. Workers of the largest size, or
    of a pinned one, cannot get more cores: there are more of them then.
    """
    plan, factor = use.plan, 1 + use.tuning.scale_up
    ps_is_idle = efficiency(use.of({Role.PS})) < use.tuning.node_efficiency
    workers = _larger(_sizes(bounds, Role.WORKER), plan.worker.cpu, factor)
    ps = [] if ps_is_idle else _larger(_sizes(bounds, Role.PS), plan.ps.cpu, factor)
    for worker_cpu in workers:
        for ps_cpu in (*ps, plan.ps.cpu):
            yield ResourcePlan(replace(plan.worker, cpu=worker_cpu), replace(plan.ps, cpu=ps_cpu))
    now = plan.worker.count
    for count in range(max(int(now * factor), now + 1), now, -1):
        yield replace(plan, worker=replace(plan.worker, count=count))


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
    keeps = own.total_cpu - idle_cores(own.total_cpu, shares[giver], other.total_cpu, use.tuning)
    needed = [size for size in _sizes(bounds, giver) if size >= keeps / own.count - CPU_STEP / 2]
    if not needed or needed[0] >= own.cpu:
        return
    total = other.cpu + own.count * (own.cpu - needed[0]) / other.count
    smaller = replace(own, cpu=needed[0])
    larger = replace(other, cpu=max(_at_most(_sizes(bounds, taker), total), other.cpu))
    yield _plan(giver, smaller, larger)


def _one_more(plan: ResourcePlan, role: Role, bounds: PlanBounds) -> Iterator[ResourcePlan]:
    """Yield the plan with a node more of a role, whose cores are spread over all of them."""
    own = plan.role(role)
    each = own.total_cpu / (own.count + 1)
    sizes = [size for size in _sizes(bounds, role) if size <= own.cpu] or [own.cpu]
    for cpu in (_nearest(sizes, each), _at_most(sizes, each)):
        yield _plan(role, replace(own, count=own.count + 1, cpu=cpu), plan.role(_other(role)))


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
