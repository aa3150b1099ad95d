"""Small jobs in small worlds, and a way to play them through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.simulator import CALM, Pending, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.structs.views.events import Event

    Played = list[tuple[float, str, Event]]

TRUTH = TermsTruth(grad_s=2e-3, update_s=0.02, sync_s=0.01, lookup_s=1e-4, constant_s=0.05)
N_SAMPLE = 3_000_000
SIZES = (1.0, 2.0, 4.0)
UP_S = 30.0  # of a node in a world where nothing scatters


def make_plan(workers: int = 2, ps: int = 1, *, cpu: float = 4.0, ps_mib: int = 4096) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, cpu, 4096), RolePlan(ps, cpu, ps_mib))


def make_job(
    name: str = "job", plan: ResourcePlan | None = None, *, n_sample: int = N_SAMPLE, **rest: Any
) -> SimulatedJob:
    own = {name: rest.pop(name) for name in ("global_batch", "sync") if name in rest}
    mode = rest.pop("mode", Mode.MANUAL)
    bounds = PlanBounds(16, 4, SIZES, SIZES)
    spec = JobSpec(name=name, plan=plan or make_plan(), bounds=bounds, mode=mode, batch_size=512, **own)
    return SimulatedJob(spec, rest.pop("truth", TRUTH), n_sample, **rest)


def make_world(*, seed: int = 0, machines: Sequence[NodeShape] = (), **settings: Any) -> SimulatedWorld:
    known = {"faults": CALM, "pending": Pending(20.0, 0.0, UP_S - 20.0), "report_s": 30.0} | settings
    return SimulatedWorld(
        machines or [NodeShape(32.0, 128 * 1024, 20)],
        rng=np.random.default_rng(seed),
        settings=WorldSettings(**known),
    )


def play(
    world: SimulatedWorld, *, orders: Sequence[tuple[float, Callable[[], None]]] = (), until_s: float = 1e7
) -> Played:
    """Run a world with orders at their times; return all that was told as (time, job, event)."""
    played: Played = []
    for at_s, order in (*sorted(orders, key=lambda o: o[0]), (until_s, lambda: None)):
        while world.next_at_s <= at_s:
            now_s, events = world.step(at_s)
            played += [(now_s, name, event) for name, event in events]
        if at_s < until_s:
            world.step(at_s)
            order()
    return played


def scale(world: SimulatedWorld, plan: ResourcePlan, name: str = "job") -> Callable[[], None]:
    return lambda: world.obey(name, Scale("d1", plan))


def only(played: Played, kind: type) -> list[Any]:
    return [event for _, _, event in played if isinstance(event, kind)]
