"""Why jobs wait, who holds what they wait for, when that ends, and the largest plan that fits now.

What is free is computed from what jobs hold: their nodes are placed on the machines, largest first, as a plan
is checked (`structs.capacity.fits`). The cluster may have placed them otherwise, and others than our jobs may
hold something; so this is an estimate, and the job's master checks a plan again when it is asked for.

A wait for capacity ends when enough jobs have ended. Their ends are predicted one by one, each at its present
speed; a job whose end is not known holds what it has for an unknown time, and this is said and not guessed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.space import PlanGrid, plan_grid, plan_of
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.planner.availability.placement import machines_of
from dlrover_nb.core.structs.cluster.waits import Holder, Wait, WaitEnd, WaitKind
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.plan.resources import CPU_STEP
from dlrover_nb.core.structs.views.snapshot import ROOM, JobSnapshot, is_for_room
from dlrover_nb.core.structs.views.summary import holding, need_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.cluster.waits import QueueWait
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan
    from dlrover_nb.core.structs.views.summary import JobSummary

_IMAGE = ("imagepull", "image", "registry")
_QUEUE = ("kueue", "volcano", "podgroup", "queue", "schedulinggated", "gang")


def kind_of(why: str) -> WaitKind:
    """Return what a wait is for, by the cluster's words."""
    words = why.lower()
    if "exceeded quota" in words:
        return WaitKind.QUOTA
    if why == ROOM or is_for_room(why):
        return WaitKind.CAPACITY
    if any(word in words for word in _QUEUE):
        return WaitKind.QUEUE
    return WaitKind.IMAGE if any(word in words for word in _IMAGE) else WaitKind.OTHER


def waits_of(snapshot: JobSnapshot, queued: Iterable[QueueWait] = ()) -> tuple[Wait, ...]:
    """Return what the nodes of a job wait for, those of one reason as one; queues of the cluster at last."""
    if snapshot.phase.is_final:
        return ()
    job, owner = snapshot.spec.name, snapshot.spec.owner
    waits = []
    if snapshot.queue is not None:
        plan, words = snapshot.target, f"the brain of its cluster: {snapshot.queue.words}"
        needs = (plan.total_cpu, plan.total_memory_mib, snapshot.queue.starts_in_s)
        waits.append(Wait(job, owner, WaitKind.QUEUE, words, (), *needs))
    for why in dict.fromkeys(node.waits_for for node in snapshot.nodes if node.waits_for):
        nodes = [node for node in snapshot.nodes if node.waits_for == why]
        cpu, mib = sum(node.cpu for node in nodes), sum(node.memory_mib for node in nodes)
        words = "free cores and memory" if why == ROOM else why
        waits.append(Wait(job, owner, kind_of(why), words, tuple(n.id for n in nodes), cpu, mib))
    for each in queued:
        if each.job == job:
            queue = f", queue {each.queue}" if each.queue else ""
            waits.append(Wait(job, owner, WaitKind.QUEUE, f"{each.system}{queue}: {each.why}", ()))
    return tuple(waits)


def holders_of(jobs: Iterable[JobSummary], *, beside: str = "") -> tuple[Holder, ...]:
    """Return the jobs that hold cores or memory, the largest first."""
    holders = [
        Holder(job.name, job.owner, job.cpu, job.memory_mib, job.left_s)
        for job in jobs
        if not job.phase.is_final and job.name != beside and (job.cpu > 0 or job.memory_mib > 0)
    ]
    return tuple(sorted(holders, key=lambda each: (-each.cpu, -each.memory_mib, each.job)))


def free_of(capacity: Capacity, needs: Sequence[Need]) -> Capacity:
    """Return what the machines have left beside nodes, which are placed largest first."""
    machines = machines_of(capacity, (("", need) for need in needs))
    left = [
        (m.free_cpu, m.free_memory_mib, m.free_gpu)
        for m in machines
        if m.free_cpu > 0 and m.free_memory_mib > 0
    ]
    left.sort(reverse=True)
    counts = {machine: left.count(machine) for machine in dict.fromkeys(left)}
    return Capacity(tuple(NodeShape(cpu, mib, n, gpu) for (cpu, mib, gpu), n in counts.items()))


def needs_of(job: JobSummary | JobSnapshot) -> list[Need]:
    """Return what each node of a job holds; of a summary, which has no nodes, as its plan says."""
    if isinstance(job, JobSnapshot):
        return [need_of(node, job.spec) for node in holding(job.nodes)]
    if job.phase.is_final or job.plan is None or not (job.cpu or job.memory_mib):
        return []
    roles = (job.plan.worker, job.plan.ps)
    nodes = [role.need for role in roles for _ in range(role.count)]
    left, needs = job.cpu + CPU_STEP / 2, []
    for need in nodes:  # while its plan changes, it may hold fewer
        if need.cpu <= left:
            needs.append(need)
            left -= need.cpu
    return needs


def end_of(wait: Wait, free: Capacity, holders: Sequence[Holder]) -> WaitEnd:
    """Return when a wait ends by prediction, by sums of cores and memory."""
    if wait.ends_in_s is not None:
        return WaitEnd(wait.ends_in_s, "The brain of the cluster predicts it.")
    if wait.kind not in {WaitKind.CAPACITY, WaitKind.QUOTA}:
        return WaitEnd(None, "No job here holds what it waits for, so we cannot say when it will start.")
    cpu, mib = free.total_cpu, free.total_memory_mib
    if _is_enough(wait, cpu, mib):
        return WaitEnd(
            0.0, "Enough is free in total: it waits for one machine with room for a node, or for its turn."
        )
    predictable = sorted((h for h in holders if h.left_s is not None), key=lambda h: h.left_s or 0.0)
    for i, holder in enumerate(predictable):
        cpu, mib = cpu + holder.cpu, mib + holder.memory_mib
        if _is_enough(wait, cpu, mib):
            names = and_list(h.job for h in predictable[: i + 1])
            return WaitEnd(holder.left_s, f"When {names} {'end' if i else 'ends'} at the present speed.")
    unknown = [h for h in holders if h.left_s is None]
    all_cpu, all_mib = cpu + sum(h.cpu for h in unknown), mib + sum(h.memory_mib for h in unknown)
    if unknown and _is_enough(wait, all_cpu, all_mib):
        names = and_list(h.job for h in unknown)
        return WaitEnd(None, f"After {names}; no progress has been measured there to predict when.")
    return WaitEnd(
        None, "Never at this size: it needs more than all jobs here hold and the free room together."
    )


def _is_enough(wait: Wait, cpu: float, memory_mib: float) -> bool:
    return wait.cpu <= cpu + CPU_STEP / 2 and wait.memory_mib <= memory_mib


def largest_fitting(
    wanted: ResourcePlan, free: Capacity, bounds: PlanBounds, pins: Pins | None = None
) -> ResourcePlan | None:
    """Return the largest plan that fits now: most cores, then most nodes; None where none fits.

    It keeps to the job's bounds, quota and pins, and asks for no more of anything than the plan that waits,
    except where a pin does.

    Parameters
    ----------
    free
        What the machines have left beside the other jobs; the waiting job's own nodes do not count as held.
    """
    fixed = pins or Pins()
    limits = completed(bounds, free, wanted)
    grid = plan_grid(
        limits,
        free,
        worker_memory_mib=wanted.worker.memory_mib,
        ps_memory_mib=wanted.ps.memory_mib,
        pins=fixed,
    )
    most = (wanted.worker.count, wanted.ps.count, wanted.worker.cpu, wanted.ps.cpu)
    w, p, worker_cpu, ps_cpu = (
        tuple(v for v in ladder if v <= top + CPU_STEP / 2) or ladder[:1]
        for ladder, top in zip(grid.ladders, most, strict=True)
    )
    cut = replace(grid, ladders=(w, p, worker_cpu, ps_cpu), gpus=wanted.gpus)
    best = _largest(cut)
    if best is None:
        return None
    plan = plan_of(np.array(best), cut.worker_memory_mib, cut.ps_memory_mib, cut.gpus)
    return plan if has_room(plan, free, limits) else None


def _largest(grid: PlanGrid) -> tuple[float, ...] | None:
    """Return the row (w, p, lambda_w, lambda_p) of most cores, then most nodes, then most workers."""
    best: tuple[float, ...] | None = None
    size = (-1.0, -1.0, -1.0)
    for axes in grid.chunks():
        if not len(axes):
            continue
        w, p, worker_cpu, ps_cpu = axes.T
        order = np.lexsort((w, w + p, np.round(w * worker_cpu + p * ps_cpu, 2)))
        row = axes[order[-1]]
        mine = (round(float(row[0] * row[2] + row[1] * row[3]), 2), float(row[0] + row[1]), float(row[0]))
        if mine > size:
            best, size = tuple(row.tolist()), mine
    return best


def fitting_plan(snapshot: JobSnapshot, capacity: Capacity, others: Iterable[Need]) -> ResourcePlan | None:
    """Return the largest plan of a waiting job that fits beside the nodes of others now; None: none does."""
    free = free_of(capacity, tuple(others))
    try:
        return largest_fitting(snapshot.target, free, snapshot.spec.bounds, snapshot.pins)
    except InvalidValueError:  # nothing is free at all, so that no bounds follow
        return None
