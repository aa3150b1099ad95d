"""Courses of a node's memory, harmless and not, and what a job says of each.

Harmless are those that never fill the node: starts, teeth of a collector, spikes, steps, noise, growth that
ends with the first epoch or by itself. Each is played through the measurement and the protection of a job as
reports of one node and second; an alarm is a need of more memory, or a view that names a full node.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.measured.measurement import Measurement
from dlrover_nb.core.controller.protection import Protection
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from collections.abc import Callable

    Mib = Callable[[float], float]

RATE = 10_000  # samples per second
JOB_S = 7200  # length of a job
WORTH_A_WORD = 0.05  # probability from which views name a full node
BUSY = TimeSplit(compute_s=0.05)


@dataclass(frozen=True, slots=True)
class Shape:
    """A node's memory in MiB by the second, to which noise of so many MiB is added.

    `for_s` is how long it is played, of a job of `job_s`; it ends when the node is full.
    """

    name: str
    mib: Mib
    limit_mib: int
    for_s: int
    noise_mib: float = 2.0
    role: Role = Role.WORKER
    n_epoch: int = 1
    job_s: int = JOB_S

    def series(self, n_s: int, seed: int = 0) -> list[float]:
        """Return the memory of the first seconds."""
        rng = random.Random(seed)
        return [max(self.mib(t) + rng.gauss(0, self.noise_mib), 1.0) for t in range(1, n_s + 1)]


@dataclass(frozen=True, slots=True)
class Played:
    """What was said of a shape: seconds at which an alarm began, and when the node was full; None: never."""

    alarms_s: tuple[int, ...]
    full_s: int | None

    @property
    def lead_min(self) -> float | None:
        """Minutes from the first alarm until the node was full."""
        return (self.full_s - self.alarms_s[0]) / 60 if self.alarms_s and self.full_s is not None else None


def played(shape: Shape, seed: int = 0) -> Played:
    """Play a shape through measurement and protection."""
    plan = ResourcePlan(RolePlan(1, 1.0, shape.limit_mib), RolePlan(1, 1.0, shape.limit_mib))
    spec = replace(JobSpec("memory", plan=plan), n_epoch=shape.n_epoch, batch_size=500)
    settings = ControllerSettings()
    measured = Measurement(settings, spec, RATE * shape.job_s)
    protection = Protection(settings, measured, spec)
    measured.restart(plan, 0.0)
    protection.changed(0.0)
    alarms: list[int] = []
    was_alarm = False
    for second, mib in enumerate(shape.series(shape.for_s, seed), start=1):
        if mib >= shape.limit_mib:
            return Played(tuple(alarms), second)
        at_s = float(second)
        measured.progress(RATE * second)
        for role in Role:
            measured.add(_report(role, at_s, mib if role is shape.role else 0.0), at_s)
        if measured.publish_memory(at_s):
            protection.hasten(at_s)
        protection.forecast(at_s)
        is_alarm = bool(protection.needs(plan)) or any(
            line.full_in_s is not None or (line.oom_probability or 0.0) >= WORTH_A_WORD
            for line in measured.published_memory
        )
        if is_alarm and not was_alarm:
            alarms.append(second)
        was_alarm = is_alarm
    return Played(tuple(alarms), None)


def _report(role: Role, at_s: float, mib: float) -> NodeSample:
    n_sample = RATE if role is Role.WORKER else 0
    return NodeSample(f"{role}-0", role, at_s, 1.0, 20, n_sample, 0.05, BUSY, 0.5, mib)


# courses


def _flat(mib: float) -> Mib:
    return lambda _: mib


def _line(start: float, per_s: float, from_s: float = 0.0) -> Mib:
    return lambda t: start + per_s * max(t - from_s, 0.0)


def _ramp(start: float, end: float, for_s: float, from_s: float = 0.0) -> Mib:
    return lambda t: start + (end - start) * min(max(t - from_s, 0.0) / for_s, 1.0)


def _saturating(start: float, end: float, scale_s: float) -> Mib:
    return lambda t: end - (end - start) * math.exp(-t / scale_s)


def _saw(low: float, high: float, period_s: float, from_s: float = 0.0) -> Mib:
    return lambda t: low + (high - low) * ((t - from_s) % period_s) / period_s if t >= from_s else low


def _spikes(usual: float, high: float, every_s: float) -> Mib:
    return lambda t: high if t % every_s < 3 else usual


def _stairs(start: float, rise: float, every_s: float) -> Mib:
    return lambda t: start + rise * (t // every_s)


def _sum(*parts: Mib) -> Mib:
    return lambda t: sum(part(t) for part in parts)


def _keys(exponent: float, for_s: float) -> Mib:
    return lambda t: 500 + 300 * (min(t, for_s) / for_s) ** exponent


def harmless() -> list[Shape]:
    """Return courses of which nothing is to be said."""
    return [
        *(Shape(f"start of {s} s", _ramp(300, 1200, s), 1536, 900) for s in (5, 10, 20, 40, 120, 300)),
        *(Shape(f"start of {s} s, noise", _ramp(300, 1200, s), 1536, 900, 20.0) for s in (20, 40)),
        Shape("start of 40 s, close to the limit", _ramp(300, 1200, 40), 1400, 900),
        Shape("load of 40 s after 10 min", _ramp(300, 1200, 40, 600), 1536, 1500),
        *(Shape(f"saw of {s} s", _saw(600, 1000, s), 1200, 1200) for s in (30, 60, 120, 300)),
        *(Shape(f"late saw of {s} s", _saw(600, 1000, s, 400), 1200, 1800, 10.0) for s in (30, 60, 120, 300)),
        *(
            Shape(f"collector of {s} s", _sum(_ramp(300, 950, 30), _saw(0, 150, s, 60)), 1200, 1500, 5.0)
            for s in (20, 45, 90, 200)
        ),
        Shape("collector near the limit", _sum(_ramp(300, 900, 40), _saw(0, 250, 70, 100)), 1200, 1500, 8.0),
        Shape("spikes", _spikes(700, 1000, 90), 1200, 1200),
        Shape("rare spikes", _spikes(700, 1100, 400), 1200, 1800),
        *(Shape(f"step after {s} s", _ramp(700, 950, 1, s), 1200, s + 1200) for s in (30, 300, 1800)),
        Shape("step near the limit", _ramp(700, 1120, 1, 300), 1200, 1500),
        Shape("two steps", _sum(_ramp(700, 850, 1, 300), _ramp(0, 150, 1, 600)), 1200, 2000),
        Shape("flat", _flat(800), 1536, 1200),
        *(Shape(f"noise of {mib} MiB", _flat(850), 1200, 1800, float(mib)) for mib in (10, 30, 60)),
        *(
            Shape(f"keys of one epoch, power {e}", _keys(e, 450), 1024, 1200, 2.0, Role.PS, 4, 1800)
            for e in (0.5, 0.7, 1.0)
        ),
        *(
            Shape(f"end by itself, {s} s", _saturating(300, 1200, s), 1536, 5 * s + 600)
            for s in (20, 60, 150)
        ),
        *(Shape(f"end by itself, {s} s", _saturating(300, 1200, s), 1536, 3600) for s in (300, 600, 1200)),
        Shape("end by itself, noise", _saturating(300, 1200, 600), 1536, 3000, 20.0),
    ]


def filling() -> list[Shape]:
    """Return leaks and stairs that fill their node in more than ten minutes."""
    return [
        *(Shape(f"leak of {r} MiB/s", _line(600, r), 1200, JOB_S) for r in (0.1, 0.3, 0.8)),
        Shape("leak, low limit", _line(600, 0.3), 1000, JOB_S),
        Shape("leak, high limit", _line(600, 0.3), 2048, JOB_S),
        Shape("leak in noise", _line(600, 0.3), 1200, JOB_S, 20.0),
        Shape("slow leak in noise", _line(600, 0.1), 1200, JOB_S, 30.0),
        Shape("leak of a root", lambda t: 600 + 600 * math.sqrt(t / 5000), 1200, JOB_S),
        Shape("leak after 30 min", _line(600, 0.3, 1800), 1200, JOB_S),
        Shape("slow leak after 10 min", _line(600, 0.1, 600), 900, JOB_S),
        Shape("leak after a start", _sum(_ramp(300, 700, 30), _line(0, 0.3)), 1200, JOB_S),
        *(
            Shape(f"leak under a saw of {s} s", _sum(_saw(600, 800, s), _line(0, 0.2)), 1200, JOB_S)
            for s in (60, 120)
        ),
        Shape("leak under a saw, noise", _sum(_saw(600, 800, 30), _line(0, 0.1)), 1200, JOB_S, 10.0),
        Shape("stairs of 300 s", _stairs(600, 100, 300), 1536, JOB_S),
        Shape("stairs of 120 s", _stairs(600, 30, 120), 1200, JOB_S),
        Shape("stairs of 600 s", _stairs(600, 100, 600), 1200, JOB_S),
        Shape("leak of a PS", _line(600, 0.2), 1200, JOB_S, role=Role.PS),
    ]


def fast() -> list[Shape]:
    """Return leaks that fill their node within minutes."""
    late = Shape("fast leak of 300 s after 15 min", _line(500, 7 / 3, 900), 1200, 1300)
    return [
        *(Shape(f"fast leak of {s} s", _line(300, 900 / s), 1200, s + 100) for s in (60, 120, 200, 300, 400)),
        late,
    ]
