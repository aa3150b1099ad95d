"""Snapshots and telemetry of random jobs, for laws that each chart keeps: of any size, speed, price and past."""

from __future__ import annotations

import random
from dataclasses import replace

from dlrover_nb.core.structs.decisions.candidates import Candidate, ParetoFront, Pick, Prediction
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.fit import Curve
from dlrover_nb.core.structs.views.snapshot import (
    Evaluation,
    EvaluationRound,
    JobSnapshot,
    MemoryLine,
    PlanMarker,
    SeriesChunk,
)
from support.jobs import builders as b

_AXES = {
    "workers": (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 126.0, 256.0),
    "ps": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "worker_cpu": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "ps_cpu": (0.25, 0.5, 1.0, 2.0),
}


def picture(seed: int) -> tuple[JobSnapshot, SeriesChunk]:
    """Return a random job and its telemetry, always the same of a seed."""
    rng = random.Random(seed)
    speed, price, n_s = 10 ** rng.uniform(-2, 5), 10 ** rng.uniform(-4, 3), rng.choice((5, 90, 400))
    now = _plan(rng, rng.choice((1, 2, 40)))
    front = _front(rng, now, speed, price)
    proposed = rng.choice((*front.candidates, front.current))
    proposals = rng.choice(((), (replace(b.proposal("p2"), candidate=proposed, baseline=front.current),)))
    snapshot = replace(
        b.snapshot(proposals=proposals, front=front, target=now, running=now),
        at_s=b.START_S + n_s, curves=tuple(_curve(rng, axis, now, speed) for axis in _AXES),
        markers=tuple(sorted(_markers(rng, n_s), key=lambda m: m.at_s)), memory=_memory(rng),
        outcomes=tuple(_outcomes(rng, speed)),
        rounds=tuple(_round(rng, i) for i in range(rng.choice((0, 1, 4, 12)))),
    )  # fmt: skip
    return snapshot, _scaled(b.series(n_s, nodes=_nodes(rng)), speed)


def _plan(rng: random.Random, most: int) -> ResourcePlan:
    cpus = (0.125, 0.25, 0.5, 1.0, 2.0)
    return ResourcePlan(
        RolePlan(rng.randint(1, most), rng.choice(cpus), 1024),
        RolePlan(rng.randint(1, 4), rng.choice(cpus), 512),
    )


def _prediction(rng: random.Random, value: float) -> Prediction:
    width = rng.uniform(0.0, 1.5)
    return Prediction(value, value / (1 + width), value * (1 + width), rng.random() < 0.5)


def _front(rng: random.Random, now: ResourcePlan, speed: float, price: float) -> ParetoFront:
    known = {_plan(rng, rng.choice((2, 16, 256))) for _ in range(rng.choice((1, 5, 30)))} - {now}

    def weighed(plan: ResourcePlan) -> Candidate:
        base = b.candidate(plan, now)
        cost = price * plan.total_cpu
        return replace(base, cost_per_hour=cost, prediction=_prediction(rng, speed * plan.worker.count**0.7))

    candidates = tuple(sorted(map(weighed, known), key=lambda c: c.cost))
    names = ("cheapest", "best value", "knee", "fastest")
    picks = tuple(Pick(name, rng.randrange(len(candidates))) for name in names if candidates)
    return ParetoFront(candidates, weighed(now), picks, 512, "USD")


def _curve(rng: random.Random, axis: str, now: ResourcePlan, speed: float) -> Curve:
    at = {
        "workers": now.worker.count,
        "ps": now.ps.count,
        "worker_cpu": now.worker.cpu,
        "ps_cpu": now.ps.cpu,
    }[axis]
    x = tuple(sorted({*_AXES[axis][: rng.randint(1, len(_AXES[axis]))], float(at)}))
    predictions = tuple(replace(_prediction(rng, speed * v**0.7), extrapolates=v > 2 * at) for v in x)
    return Curve(axis, float(at), x, predictions, (float(at),) * 3, (speed, 1.1 * speed, 0.9 * speed))


def _markers(rng: random.Random, n_s: int) -> list[PlanMarker]:
    n = rng.choice((1, 2, 3, 8))
    return [
        PlanMarker(b.START_S + rng.uniform(0, n_s), plan, 1.0, rng.choice((None, b.prediction(plan))))
        for plan in (_plan(rng, 64) for _ in range(n))
    ]


def _memory(rng: random.Random) -> tuple[MemoryLine, ...]:
    limit, now = rng.choice((512, 1024, 65_536)), rng.uniform(50, 500)
    full_s = rng.choice((None, rng.uniform(1, 400)))
    fan = b.fan(now, rng.uniform(0, 5000))
    return (
        MemoryLine(Role.WORKER, limit, now, 300.0, now, None, fan=fan),
        MemoryLine(Role.PS, 512, now, 3000.0, 700.0, full_s, oom_probability=0.7, fan=fan),
    )


def _outcomes(rng: random.Random, speed: float) -> list[object]:
    base = b.snapshot().outcomes[0]
    values = [
        speed * rng.uniform(0.9999, 1.0001) ** rng.choice((1, 9000)) for _ in range(rng.choice((0, 1, 2, 9)))
    ]
    return [
        replace(base, measured_samples_per_s=value, predicted=_prediction(rng, value * rng.uniform(0.8, 1.2)))
        for value in values
    ]


def _round(rng: random.Random, i: int) -> EvaluationRound:
    quality = Evaluation(0.78 + rng.random() * 10 ** -rng.randint(1, 6), rng.uniform(0.1, 0.7), 20_000)
    return EvaluationRound(i + 1, b.START_S + 10 * i, quality)


def _nodes(rng: random.Random) -> tuple[str, ...]:
    workers = (f"worker-{i}" for i in range(rng.choice((1, 2, 8, 18))))
    return (*workers, *(f"ps-{i}" for i in range(rng.choice((1, 3)))))


def _scaled(series: SeriesChunk, speed: float) -> SeriesChunk:
    job = dict(series.job)
    top = max(job["samples_per_s"])
    job["samples_per_s"] = [speed * v / top for v in job["samples_per_s"]]
    return replace(series, job=job)
