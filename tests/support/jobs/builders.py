"""Snapshots made by hand for the views' tests: data in the shapes that a job master sends."""

from __future__ import annotations

import math
from dataclasses import replace

from dlrover_nb.core.structs.decisions.actions import Action, ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.candidates import Candidate, ParetoFront, Pick, Prediction, TermShare
from dlrover_nb.core.structs.decisions.decisions import (
    Decision,
    Mitigation,
    Outcome,
    Proposal,
    ProposalKind,
    ProposalStatus,
    Verdict,
)
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan, diff
from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample, TimeSplit
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler
from dlrover_nb.core.structs.views.fit import Coefficient, Curve, FitReport
from dlrover_nb.core.structs.views.snapshot import (
    Evaluation,
    FanPoint,
    JobSnapshot,
    MemoryLine,
    NodePhase,
    NodeView,
    PlanMarker,
    SeriesChunk,
)
from dlrover_nb.core.telemetry import SPLIT_COLUMNS

START_S = 1_790_000_000.0
HOSTILE = "<script>alert('x')</script>"


def plan(workers: int = 1, ps: int = 1, worker_cpu: float = 0.5, ps_cpu: float = 0.25) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, worker_cpu, 1024), RolePlan(ps, ps_cpu, 512))


NOW_PLAN = plan(1, 1)
BETTER_PLAN = plan(2, 1, 0.5, 0.5)


def speed(p: ResourcePlan, batch: int = 512) -> float:
    iter_s = 0.004 * batch / 512 / p.worker.cpu + 0.002 * p.worker.count / p.ps.total_cpu + 0.003
    return p.worker.count * batch / iter_s


def prediction(p: ResourcePlan, *, width: float = 0.2, extrapolates: bool = False) -> Prediction:
    v = speed(p)
    return Prediction(v, v * (1 - width / 2), v * (1 + width / 2), extrapolates)


def candidate(p: ResourcePlan, now: ResourcePlan = NOW_PLAN, *, reason: str = "") -> Candidate:
    tried = p.worker.count <= 2
    forecast = prediction(p, width=0.1 if tried else 0.45, extrapolates=not tried)
    cost = 0.034 * p.total_cpu + 0.0045 * p.total_memory_mib / 1024
    return Candidate(
        plan=p,
        prediction=forecast,
        cost_per_hour=cost,
        cost_per_million=cost / 3600 / forecast.samples_per_s * 1e6,
        finish_s=4e6 / forecast.samples_per_s,
        scale=diff(now, p),
        transition_s=2.4 if p != now else 0.0,
        gain_samples_per_s=forecast.samples_per_s - speed(now) - 5,
        breakdown=(TermShare("gradient", 0.008, 0.5), TermShare("update", 0.008, 0.5)),
        reason=reason or "46 % of each step is gradient; one more worker adds half again",
    )


def front(now: ResourcePlan = NOW_PLAN) -> ParetoFront:
    plans = [plan(w, p, c, 0.25 * p) for w, p, c in ((1, 1, 0.25), (1, 1, 0.5), (2, 1, 0.5), (3, 1, 0.5),
             (3, 2, 0.5), (4, 2, 0.5), (4, 2, 0.75), (4, 2, 1.0))]  # fmt: skip
    ordered = sorted((candidate(p, now) for p in plans), key=lambda c: c.cost_per_hour)
    best, kept = -math.inf, []
    for c in ordered:
        if c.prediction.samples_per_s > best:
            best = c.prediction.samples_per_s
            kept.append(c)
    picks = (Pick("cheapest", 0), Pick("best value", 1), Pick("knee", 2), Pick("fastest", len(kept) - 1))
    return ParetoFront(tuple(kept), candidate(now, now), picks, 512, "USD", with_auc=tuple(kept))


def proposal(
    name: str = "p1",
    *,
    kind: ProposalKind = ProposalKind.IMPROVE,
    status: ProposalStatus = ProposalStatus.PENDING,
    why: str = "2 workers and a wider PS train 1.9 times as fast for 1.6 times the cost",
    target: ResourcePlan = BETTER_PLAN,
    note: str = "",
) -> Proposal:
    closed = None if status == ProposalStatus.PENDING else START_S + 300
    return Proposal(name, "quick-start", kind, candidate(target), candidate(NOW_PLAN), why, START_S + 280,
                    status, closed, note)  # fmt: skip


def mitigation(
    name: str = "m1",
    action: Action = KillRestart("worker-1", Role.WORKER),  # noqa: B008 - a frozen record
    *,
    status: ProposalStatus = ProposalStatus.PENDING,
    gain: float | None = 0.12,
    decision: str = "",
) -> Mitigation:
    return Mitigation(
        name, "quick-start", ActionChoice.of(action),
        "worker-1 takes 24.0 ms in a step, the others 12.0 ms, for 10 min",
        "the start of another worker beside it; training goes on", START_S + 285, gain, status, decision=decision,
    )  # fmt: skip


def straggler(node: str = "worker-1", role: Role = Role.WORKER, *, pace: Pace = Pace.PERSISTENT) -> Straggler:
    return Straggler(node, role, pace, 0.024, 0.012, 600.0, START_S + 60, "z-score 4.1 over 3")


def node(name: str, role: Role, *, memory: float, enforced: bool = False) -> NodeView:
    split = SPLITS[role is Role.PS]
    sample = NodeSample(name, role, START_S + 299, 1.0, 80, 80 * 512, split.total_s, split, 0.47, memory,
                        parameter_mib=80.0 if role is Role.PS else 0.0, n_row=40_000, loss=0.1423)  # fmt: skip
    cpu, limit = (0.5, 1024) if role is Role.WORKER else (0.25, 512)
    return NodeView(name, role, NodePhase.READY, cpu, limit, enforced, START_S + 5, 4242, sample)


def curve(axis: str, values: tuple[float, ...], at: float) -> Curve:
    field = {"workers": "workers", "ps": "ps", "worker_cpu": "worker_cpu", "ps_cpu": "ps_cpu"}[axis]
    plans = [plan(**{field: int(v) if axis in {"workers", "ps"} else v}) for v in values]  # type: ignore[arg-type]
    predictions = tuple(
        prediction(p, width=0.1 + 0.15 * max(0.0, v - at), extrapolates=v > at + 1)
        for p, v in zip(plans, values, strict=True)
    )
    return Curve(
        axis,
        at,
        values,
        predictions,
        (at, at, at),
        (speed(NOW_PLAN) * 0.97, speed(NOW_PLAN), speed(NOW_PLAN) * 1.04),
    )


def fan(now_mib: float, mib_per_hour: float, *, left_s: float = 380.0, n: int = 24) -> tuple[FanPoint, ...]:
    """Return a forecast to the end of the job that grows, with a band that widens."""
    in_s = [left_s * (i / (n - 1)) ** 2 for i in range(n)]
    rise = [mib_per_hour * s / 3600 for s in in_s]
    return tuple(
        FanPoint(s, now_mib + r, now_mib + 0.8 * r, now_mib + 1.15 * r + s / 40)
        for s, r in zip(in_s, rise, strict=True)
    )


def snapshot(**changes: object) -> JobSnapshot:
    """Return a job 300 s into its training, with an open proposal."""
    base = JobSnapshot(
        at_s=START_S + 300,
        spec=JobSpec("quick-start", owner="ada", n_epoch=2),
        capacity=Capacity((NodeShape(2, 8192),)),
        phase=JobPhase.TRAINING,
        message="",
        mode=Mode.SUGGEST,
        started_at_s=START_S,
        ended_at_s=None,
        target=NOW_PLAN,
        running=NOW_PLAN,
        samples_per_s=speed(NOW_PLAN),
        loss=0.1423,
        nodes=(node("worker-0", Role.WORKER, memory=412.0), node("ps-0", Role.PS, memory=419.1, enforced=True)),
        train=ShardCounts(todo=30, doing=2, done=25, n_sample_done=256_000, n_sample_total=583_680, refused=1, returned=2),
        evaluate=ShardCounts(todo=4, n_sample_total=20_000),
        fit=FitReport(
            (
                Coefficient("gradient", 3.9e-6, 2e-7, identified=True),
                Coefficient("update", 2.1e-3, 9e-4, identified=False),
                Coefficient("fixed", 3.2e-3, 4e-4, identified=True),
            ),
            n_sample=24, n_plan=2, rmsle=0.031, mape=0.027,
            note="the PS cores were never varied: update and synchronisation cannot be told apart",
        ),
        curves=(
            curve("workers", (1.0, 2.0, 3.0, 4.0), 1.0),
            curve("ps", (1.0, 2.0), 1.0),
            curve("worker_cpu", (0.25, 0.5, 0.75, 1.0), 0.5),
            curve("ps_cpu", (0.25, 0.5, 0.75, 1.0), 0.25),
        ),
        samples=(ProfileSample(START_S + 100, 5.0, NOW_PLAN, 512, speed(NOW_PLAN)),),
        front=front(),
        memory=(
            MemoryLine(Role.WORKER, 1024, 412.0, 300.0, 440.0, None, fan=fan(412.0, 300.0)),
            MemoryLine(
                Role.PS, 512, 419.1, 3240.0, 760.0, 103.0, law="power", at_end_low_mib=690.0, at_end_high_mib=810.0,
                full_in_low_s=85.0, full_in_high_s=130.0, oom_probability=0.98, fan=fan(419.1, 3240.0),
            ),
        ),
        proposals=(
            proposal("p1", kind=ProposalKind.EXPLORE, status=ProposalStatus.REJECTED, note="not now"),
            proposal("p2"),
        ),
        decisions=(Decision(Verdict.REJECT, "ada", START_S + 290, "p1", why="not now", id="d1"),),
        outcomes=(
            Outcome("d0", NOW_PLAN, prediction(NOW_PLAN), speed(NOW_PLAN) * 0.96, 9000.0, 12, START_S + 150, 2.1),
        ),
        markers=(
            PlanMarker(START_S + 2, plan(1, 1, 0.25, 0.25), 0.0, None),
            PlanMarker(START_S + 150, NOW_PLAN, 2.1, prediction(NOW_PLAN)),
        ),
        evaluation=Evaluation(0.9401, 0.1312, 20_000),
        story=("t+0 job submitted", "t+150 plan applied", "t+290 p1 rejected by ada: not now"),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


SPLITS = (  # of a worker, of a PS
    TimeSplit(data_s=0.001, lookup_s=0.004, compute_s=0.006, other_s=0.001),
    TimeSplit(lookup_s=0.002, update_s=0.003, idle_s=0.005),
)


def _split(t: int, name: str) -> TimeSplit:
    mean = SPLITS[name.startswith("ps")]
    return replace(mean, lookup_s=mean.lookup_s * (1 + 0.1 * math.sin(t / 11)))


def _n_done(t: int) -> int:
    return min(25 * t // 300, 55)


def series(
    n_s: int = 300,
    *,
    nodes: tuple[str, ...] = ("worker-0", "ps-0"),
    start: int = 0,
    cursor: int | None = None,
) -> SeriesChunk:
    """Return a row a second, with a hole of 20 s (the job's pause and a little more)."""
    at = [t for t in range(start, n_s) if not 140 < t < 160]
    job = {
        "at_s": [START_S + t for t in at],
        "samples_per_s": [speed(NOW_PLAN) * (0.6 if t < 150 else 1.0) * (1 + 0.05 * math.sin(t)) for t in at],
        "workers": [1.0 for _ in at],
        "ps": [1.0 for _ in at],
        "todo": [float(57 - 2 - _n_done(t)) for t in at],
        "doing": [2.0 for _ in at],
        "done": [float(_n_done(t)) for t in at],
    }
    rows = [(t, name) for t in at for name in nodes]
    node_columns: dict[str, list[float | str]] = {
        "at_s": [START_S + t for t, _ in rows],
        "node": [name for _, name in rows],
        "role": ["ps" if name.startswith("ps") else "worker" for _, name in rows],
        "memory_mib": [
            (150 + 0.9 * t if name.startswith("ps") else 400 + 10 * math.sin(t / 9)) for t, name in rows
        ],
        "cpu_cores": [0.4 for _ in rows],
        "iter_s": [_split(t, name).total_s for t, name in rows],
        "samples_per_s": [
            0.0 if name.startswith("ps") else speed(NOW_PLAN) * (1 + 0.1 * math.sin(t / 7))
            for t, name in rows
        ],
        **{part: [getattr(_split(t, name), part) for t, name in rows] for part in SPLIT_COLUMNS},
        "n_sample": [0.0 if name.startswith("ps") else 256.0 * (3 + t % 2) for t, name in rows],
        "batch_size": [0.0 if name.startswith("ps") else 256.0 for _, name in rows],
    }
    workers = [name for name in nodes if name.startswith("worker")]
    in_unit = {"updates": (0, 1, 4), "milliseconds": (8, 12), "row updates": (0, 2)}
    aged = [
        (t, name, age, unit)
        for t in at
        if not t % 5
        for name in workers
        for unit, ages_in_it in in_unit.items()
        for age in ages_in_it
    ]
    ages: dict[str, list[float | str]] = {
        "at_s": [START_S + t for t, *_ in aged],
        "node": [name for _, name, *_ in aged],
        "age": [float(age) for _, _, age, _ in aged],
        "n_update": [float(max(20 - 4 * age, 1)) for _, _, age, _ in aged],
        "unit": [unit for *_, unit in aged],
        "ps": ["ps-0" for _ in aged],
        "of_first": [1.0 for _ in aged],
    }
    return SeriesChunk(cursor if cursor is not None else n_s, job, node_columns, ages=ages)
