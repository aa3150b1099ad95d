"""A simulated day of jobs, each under its own controller in auto mode, on a thousand machines.

`policies.py --whole` runs it last. Alone it prints its figures as JSON, of thirty jobs; with `--whole`, of a
hundred.

    python benchmarks/simulated_day.py [--jobs 30] [--whole]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from lengths import parsed, print_figures

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.simulator import SimulatedWorld, WorldSettings
from dlrover_nb.core.simulator.workload import JobSampler, poisson_arrivals, read_arrivals
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.views.events import JobSubmitted

if TYPE_CHECKING:
    from pathlib import Path


def day(n_job: int, settings: ControllerSettings, arrivals: Path | None, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    at_s = poisson_arrivals(n_job, per_day=n_job * 1.5, rng=rng)
    if arrivals is not None:
        real = read_arrivals(arrivals, load=0.5, workload=1)
        at_s = real[np.linspace(0, len(real) - 1, n_job).astype(int)] * 2  # eight hours of work as a day
    machines = [NodeShape(32.0, 192 * 1024, 1000)]
    world = SimulatedWorld(machines, rng=rng, settings=WorldSettings(report_s=60.0))
    sampler = JobSampler()
    for i, t in enumerate(at_s):
        world.submit(sampler.sample(f"job-{i + 1}", rng), float(t))
    own = replace(
        settings, window_s=120.0, max_window_s=600.0, settle_s=60.0, refit_s=3600.0, refit_growth=1.0
    )
    return run_day(world, own)


def run_day(world: SimulatedWorld, settings: ControllerSettings) -> dict[str, float]:
    controllers: dict[str, Controller] = {}
    began, n_event, controllers_s, cpu_s = time.perf_counter(), 0, 0.0, time.process_time()
    while world.next_at_s <= 86_400:
        _, told = world.step(86_400)
        n_event += len(told)
        from_s = time.perf_counter()
        orders = []
        for name, event in told:
            if isinstance(event, JobSubmitted):
                controllers[name] = Controller(event, settings)
            else:
                orders += [(name, order) for order in controllers[name].handle(event)]
        controllers_s += time.perf_counter() - from_s
        for name, order in orders:
            world.obey(name, order)
    phases = [sim.phase for sim in world.jobs]
    day_s = time.perf_counter() - began
    return {
        "day_s": round(day_s, 1),
        "day_cpu_s": round(time.process_time() - cpu_s, 1),
        "day_simulator_s": round(day_s - controllers_s, 1),
        "day_events": n_event,
        "day_succeeded": phases.count(JobPhase.SUCCEEDED),
        "day_failed": phases.count(JobPhase.FAILED),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=30)
    options = parsed(parser, jobs=100)
    print_figures("simulated_day", day(options.jobs, ControllerSettings(memory_check_s=1200.0), None, 0))


if __name__ == "__main__":
    main()
