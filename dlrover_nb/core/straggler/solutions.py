"""Decide what to do about stragglers: findings and the job's situation in, proposed actions with reasons out.

Each solution is a function of one signature, named in `SOLUTIONS`. None knows whether its proposals may be
carried out now; that is the arbiter's part. Node actions come first, since a global one could be repeated at
each decision and would keep a restart waiting for ever.

``antdt-nd`` follows AntDT, section VI-A: smaller batches for a slow worker, a restart for one that is slow
for long where the cluster has room; in ASP only restarts. Four things are more precise here:

- A worker is restarted if it is slow for long and smaller batches do not make up for it: with its present
  batch its own time is still λ times its peers'. By the long window alone, the 5 minutes before the sizes
  were adjusted would get each strong transient straggler restarted just after that helped.
- Workers that differ for good, as on machines of several kinds, are no stragglers, but get sizes too.
- Sizes are solved for again as long as they are uneven, also without a finding. A worker that recovers
  with a small batch is fast, and fast is no finding, so by the paper's words it would keep the small
  batch.
- A PS first gives buckets to the others while the job goes on, in proportion to what each can serve. One
  that is slow with its smaller part too gets more cores than its role has, if it uses all of its own (a
  bucket cannot be divided, so one with hot rows stays hot) and may have more. Else it is replaced, by another
  that takes its buckets over; so no checkpoint has to be read.

A new size costs all workers an agreement, therefore it has to shorten an iteration by at least `MIN_GAIN`. So
has what is done about a PS: one that is slower than its peers and that no worker waits for is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.accumulation import Accumulated, Kind, share_accumulated
from dlrover_nb.core.straggler.batch_solver import Share, share_batch
from dlrover_nb.core.straggler.costs import (
    gain_of,
    gain_of_restart,
    gain_of_server,
    most_gain_of_server,
    seconds_text,
)
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    Proposed,
)
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import LEAST_SPREAD, Pace, Straggler

MIN_GAIN = 0.05  # of an iteration: less is within what measured speeds scatter
ALIKE = 1.2  # time of the slowest worker with equal batches over the best one: below it speeds are alike
FULL = 0.95  # of its cores used: a PS is slow for want of more of them


Findings = tuple[Straggler, ...]
Solution = Callable[[Findings, Situation], tuple[Proposed, ...]]


def nothing(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:  # noqa: ARG001 - as all solutions
    """Leave stragglers alone (NONE)."""
    return ()


def antdt_nd(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    """Answer the stragglers of a shared cluster; see above."""
    nodes = (*_restarted_workers(findings, situation), *_moved_ps(findings, situation))
    if not situation.divides:
        return nodes
    is_uneven = len({worker.samples for worker in situation.workers}) > 1 or situation.is_off
    slow = [finding for finding in findings if finding.role is Role.WORKER]
    if not (slow or is_uneven or situation.spread):
        return nodes
    if not (slow or situation.spread) and (even := _even_batches(situation)):
        return (*nodes, *_if_it_pays(situation, even, "workers are about equally fast", MIN_GAIN))
    return (*nodes, *_adjusted(situation, _why_uneven(slow, situation), MIN_GAIN))


def antdt_dd(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:  # noqa: ARG001
    """Give each kind of device full mini-batches and as many of them as it has time for (Eq. 4).

    Where devices are not told, workers that differ for good are of kinds by their speed. Eq. 4 counts
    samples; that each further mini-batch has a fixed cost too, as measured, may make one mini-batch each
    the faster answer where those fit into memory. So the faster one of the two is taken.

    Raises
    ------
    InvalidValueError
        When no mini-batches within the bounds sum to the global batch.
    """
    if not situation.divides or not situation.measured:
        return ()
    groups = _kinds(situation)
    answers, refusals = [], []
    for solve in (_accumulated, _one_each):
        try:
            answers.append(solve(groups, situation.total))
        except InvalidValueError as error:
            refusals.append(error)
    if not answers:
        raise refusals[0]
    given = min(answers, key=lambda given: _slowest_s(situation, given))
    action = AdjustBatches(
        tuple((w.node, given[w.node].size) for w in situation.workers),
        tuple((w.node, given[w.node].times) for w in situation.workers if given[w.node].times > 1),
    )
    why = "devices are of one kind" if len(groups) == 1 else f"{len(groups)} kinds of devices differ in speed"
    return _if_it_pays(situation, action, why, MIN_GAIN)


def _kinds(situation: Situation) -> list[list[WorkerState]]:
    """Return the workers by kind of device; those of one kind have the bounds that all of them keep."""
    by_device: dict[tuple[str, int], list[WorkerState]] = defaultdict(list)
    for worker in _with_devices(situation):
        by_device[worker.device, worker.most_times].append(worker)
    groups = []
    for group in by_device.values():
        most = min((w.most for w in group if w.most is not None), default=None)
        least = max(w.least for w in group)
        least = least if most is None else min(least, most)
        groups.append([replace(w, least=least, most=most) for w in group])
    return groups


def _accumulated(groups: Sequence[Sequence[WorkerState]], total: int) -> dict[str, Accumulated]:
    """Return the answer of Eq. 4, with speeds of mini-batches that use the devices."""
    kinds = []
    for group in groups:
        first = group[0]
        size = max(first.least, min(first.most or total, total // len(group)))
        speed = fmean(w.samples_per_s_at(max(size, 1)) for w in group)
        kinds.append(Kind(len(group), speed, first.least, first.most or total, 1, first.most_times))
    shares = share_accumulated(kinds, total)
    return {w.node: share for group, share in zip(groups, shares, strict=True) for w in group}


def _one_each(groups: Sequence[Sequence[WorkerState]], total: int) -> dict[str, Accumulated]:
    """Return one mini-batch for each worker, by measured costs; refused where those are not known."""
    workers = [w for group in groups for w in group]
    if any(w.cost is None for w in workers):
        raise InvalidValueError("what mini-batches cost must be measured on each worker; wait for it")
    even = max(total // len(workers), 1)
    speeds = [fmean(w.samples_per_s_at(even) for w in group) for group in groups for _ in group]
    shares = [Share(v, 1, w.most, w.samples) for v, w in zip(speeds, workers, strict=True)]
    sizes = share_batch(shares, total)
    return {w.node: Accumulated(size, 1) for w, size in zip(workers, sizes, strict=True)}


def _slowest_s(situation: Situation, given: Mapping[str, Accumulated]) -> float:
    return max(w.seconds(given[w.node].size, given[w.node].times) for w in situation.measured)


def _with_devices(situation: Situation) -> tuple[WorkerState, ...]:
    """Return the measured workers with their device; one that is not told is named after the speed.

    In the order of speeds a new kind begins where a worker is faster than the slowest of its kind by
    `LEAST_SPREAD`: so within a kind speeds are alike.
    """
    workers = situation.measured
    if situation.spread is None or any(worker.device for worker in workers):
        return workers
    kind_of, slowest = dict[str, str](), 0.0
    for worker in sorted(workers, key=_speed):
        slowest = slowest if _speed(worker) < LEAST_SPREAD * slowest else _speed(worker)
        kind_of[worker.node] = f"{slowest:.4g} samples/s"
    return tuple(replace(worker, device=kind_of[worker.node]) for worker in workers)


def lb_bsp(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:  # noqa: ARG001
    """Set sizes by speeds at each decision, straggler or not (LB-BSP, a baseline)."""
    return _adjusted(situation, "sizes follow speeds", 0.0) if situation.divides else ()


def backup_workers(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    """Go on without as many workers as are slow, at most `AntDT.backup_share` of all and at least one.

    Each one left out costs its share of every iteration.

    Who comes too late has few samples counted, and may be no finding any more. So all are waited for again
    only when all of them keep up, else the number would change at each decision.
    """
    slow = {finding.node for finding in findings if finding.role is Role.WORKER}
    most = max(int(situation.tuning.backup_share * len(situation.workers)), 1)
    n = min(len(slow), most, len(situation.workers) - 1)
    if not situation.divides or n == situation.n_backup:
        return ()
    if n < situation.n_backup and not _keep_up(situation):
        return ()
    why = f"{_counted(len(slow))} slow, and at most {most} of {len(situation.workers)} may be left out"
    return (Proposed(BackupWorkers(n), why),)


def _keep_up(situation: Situation) -> bool:
    """Whether all workers have trained about as many samples in the same time of own work."""
    speeds = [worker.samples_per_s or 0.0 for worker in situation.workers]
    return bool(speeds) and max(speeds) < situation.tuning.slowness_ratio * min(speeds)


def adjust_rates(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    """Multiply a slow worker's learning rate by its peers' time over its own (ADJUST_LR).

    Its gradients are older than its peers' in that proportion. Where workers keep in step none are old, and
    where gradients are gathered into global batches old ones count less anyway.
    """
    ratios = {f.node: f.ratio for f in findings if f.role is Role.WORKER}
    factors = tuple((w.node, 1 / max(ratios.get(w.node, 1.0), 1.0)) for w in situation.workers)
    now = {worker.node: worker.rate for worker in situation.workers}
    is_weighed = situation.sync in {Sync.BSP, Sync.GBA}
    if is_weighed or all(abs(now[node] - x) <= MIN_GAIN * x for node, x in factors):
        return ()
    return (
        Proposed(AdjustRates(factors), f"{_counted(len(ratios))} slow, with older gradients than the others"),
    )


SOLUTIONS: Mapping[str, Solution] = {
    SolutionName.NONE: nothing,
    SolutionName.ANTDT_ND: antdt_nd,
    SolutionName.ANTDT_DD: antdt_dd,
    SolutionName.BACKUP_WORKERS: backup_workers,
    SolutionName.ADJUST_LR: adjust_rates,
    SolutionName.LB_BSP: lb_bsp,
}


def _even_batches(situation: Situation) -> AdjustBatches | None:
    """Return equal batches where no others would do much better: speeds differ by noise alone; else None.

    Without this, sizes would follow the noise of speeds for as long as a job trains.
    """
    workers = situation.measured
    if len(workers) < 2 or any(worker.times > 1 for worker in workers):
        return None
    total = situation.total
    each, rest = divmod(total, len(workers))
    sizes = [each + (i < rest) for i in range(len(workers))]
    pairs = list(zip(workers, sizes, strict=True))
    then_s, best_s = max(size / _speed(w) for w, size in pairs), total / sum(map(_speed, workers))
    is_within = all(w.least <= size <= (w.most or size) for w, size in pairs)
    if not is_within or then_s > best_s * ALIKE:
        return None
    return AdjustBatches(tuple((w.node, size) for w, size in pairs))


def _why_uneven(slow: list[Straggler], situation: Situation) -> str:
    if slow:
        return _said(max(slow, key=lambda f: f.ratio))
    return situation.spread.words if situation.spread else "workers have unequal batches"


def _restarted_workers(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    if situation.is_busy:
        return ()
    now, least = _ratios_now(situation), situation.tuning.slowness_ratio
    return tuple(
        Proposed(KillRestart(f.node, f.role), _said(f), gain_of_restart(f, situation))
        for f in sorted(findings, key=lambda f: -f.ratio)
        if f.role is Role.WORKER
        and f.pace is Pace.PERSISTENT
        and (f.by_rows or now.get(f.node, f.ratio) >= least)
    )


def _ratios_now(situation: Situation) -> dict[str, float]:
    """Return each measured worker's time with its present batch, over the mean of the others."""
    times_s = {w.node: w.samples / w.samples_per_s for w in situation.workers if w.samples_per_s}
    total_s, n_other = sum(times_s.values()), len(times_s) - 1
    if n_other < 1:
        return {}
    return {node: own_s * n_other / (total_s - own_s) for node, own_s in times_s.items()}


def _moved_ps(findings: Findings, situation: Situation) -> tuple[Proposed, ...]:
    """Relieve each PS that is slow for long, if there is another; replace one that was relieved before."""
    slow = {f.node: f for f in findings if f.role is Role.PS and f.pace is Pace.PERSISTENT}
    proposed: list[Proposed] = []
    for ps in (each for each in situation.ps if each in slow):
        if ps in situation.relieved_ps:
            proposed += _with_more_cores(slow[ps], situation) or _replaced_ps(slow[ps], situation)
        elif len(situation.ps) > 1:
            n, ratio = len(situation.ps), slow[ps].ratio  # each is to serve what it can
            gain = gain_of_server(slow[ps], situation, n / (n - 1 + 1 / ratio))
            proposed.append(Proposed(MoveBuckets(ps), _said(slow[ps]), gain))
    most = most_gain_of_server(situation)
    return tuple(each for each in proposed if (most if each.gain is None else each.gain) >= MIN_GAIN)


def _with_more_cores(straggler: Straggler, situation: Situation) -> tuple[Proposed, ...]:
    """Give a PS that uses all its cores as many as make it as fast as the others, or the most it may have."""
    own = next((each for each in situation.ps_states if each.node == straggler.node), None)
    if own is None or own.used_cores is None or own.used_cores < FULL * own.size.cpu or not own.larger:
        return ()
    needed = own.size.cpu * straggler.ratio
    size = next((each for each in own.larger if each.cpu >= needed), own.larger[-1])
    cores = f"{own.used_cores:.2f} of {own.size.cpu:g} cores"
    why = f"{_said(straggler)}, with fewer parameters too, and used {cores}"
    return (Proposed(size, why, gain_of_server(straggler, situation, max(needed / size.cpu, 1.0))),)


def _replaced_ps(straggler: Straggler, situation: Situation) -> tuple[Proposed, ...]:
    if situation.is_busy:
        return ()
    why = f"{_said(straggler)}, with fewer parameters too"
    return (Proposed(KillRestart(straggler.node, Role.PS), why, gain_of_server(straggler, situation, 1.0)),)


def _adjusted(situation: Situation, why: str, min_gain: float) -> tuple[Proposed, ...]:
    workers = situation.measured
    if len(workers) < 2:
        return ()
    shares = [Share(_speed(w), w.least * w.times, _most(w), w.samples) for w in workers]
    sizes = share_batch(shares, situation.total)
    if all(worker.times == 1 for worker in workers):
        action = AdjustBatches(tuple((w.node, size) for w, size in zip(workers, sizes, strict=True)))
        return _if_it_pays(situation, action, why, min_gain)
    return ()  # whole mini-batches are the business of antdt-dd


def _most(worker: WorkerState) -> int | None:
    return None if worker.most is None else worker.most * worker.times


def _if_it_pays(
    situation: Situation, action: AdjustBatches, why: str, min_gain: float
) -> tuple[Proposed, ...]:
    sizes, times = dict(action.sizes), dict(action.accumulate)
    now_s = max(w.samples / _speed(w) for w in situation.measured)
    then_s = max(w.seconds(sizes[w.node], times.get(w.node, 1)) for w in situation.measured)
    rest_s = situation.exchange_s or 0.0
    if all((sizes[w.node], times.get(w.node, 1)) == (w.size, w.times) for w in situation.workers):
        return ()
    if situation.is_off:
        now = sum(w.samples for w in situation.workers)
        why = f"batches sum to {now:,} and not to the global batch of {situation.total:,}; {why}"
    elif then_s + rest_s > (now_s + rest_s) * (1 - min_gain):
        return ()
    why = f"{why}: the slowest worker would take {seconds_text(then_s)} instead of {seconds_text(now_s)}"
    gain = None if situation.is_off else gain_of(now_s, then_s, situation.exchange_s)
    return (Proposed(action, why, gain),)


def _speed(worker: WorkerState) -> float:
    assert worker.samples_per_s is not None, worker
    return worker.samples_per_s


def _said(f: Straggler) -> str:
    part = "as many rows as others train" if f.by_rows else "a step"
    return (
        f"{f.node} worked {seconds_text(f.iter_s)} on {part}, {f.ratio:.1f} times as long as its peers, "
        f"in the last {f.window_s:.0f} s"
    )


def _counted(n_slow: int) -> str:
    return f"{n_slow} worker is" if n_slow == 1 else f"{n_slow} workers are"
