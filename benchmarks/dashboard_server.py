"""A dashboard with simulated jobs, as a process of its own for `dashboard.py`: it tells what it costs.

It prints its address, then a line of JSON for each line that it reads: processor seconds without those of the
simulation, resident memory, and when the cluster was heard since the last question.

    python dashboard_server.py N_JOB SPEED [--proposals] [--history]
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from live_views import simulated

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.past_jobs import SeriesRow
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import OwnAccount

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.summary import JobSummary


MOST_REAL = 50
N_POINT = 100_000  # of the past run
LONG_AT_S = 1_790_000_000.0


def cost(process: psutil.Process) -> dict[str, float]:
    threads = {each.id: each.user_time + each.system_time for each in process.threads()}
    aside = [t.native_id or 0 for t in threading.enumerate() if t.name == "simulated-cluster"]
    all_s = sum(process.cpu_times()[:2])  # of threads that have ended too
    return {
        "cpu_s": all_s - sum(threads.get(each, 0.0) for each in aside),
        "rss_mib": process.memory_info().rss / 2**20,
        "threads": process.num_threads(),
        "blocks": sys.getallocatedblocks(),
    }


async def run(team: Team, heard: list[float]) -> None:
    over, loop, process = asyncio.Event(), asyncio.get_running_loop(), psutil.Process()

    def answer() -> None:
        for _ in sys.stdin:
            ticks, heard[:] = list(heard), []
            print(json.dumps({**cost(process), "heard_s": ticks}), flush=True)
        loop.call_soon_threadsafe(over.set)

    def ready(server: DashboardServer) -> None:
        print(server.url, flush=True)
        threading.Thread(target=answer, daemon=True).start()

    await serve(lambda: DashboardServer(team, OwnAccount(), ServeSettings(port=0)), ready, over)


class Repeated:
    """A cluster whose jobs are listed again under further names: 1,000 controllers would be too many here.

    What a page does with a list of jobs is the same; those who steer a job reach the one behind its name.
    """

    def __init__(self, core: Any, n_real: int, n_job: int) -> None:
        self._core, self._n_real, self._n_job = core, n_real, n_job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def live_jobs(self) -> tuple[JobSummary, ...]:
        real = self._core.live_jobs()
        return tuple(replace(real[i % len(real)], name=f"job-{i + 1}") for i in range(self._n_job))

    def job(self, name: str) -> Any:
        return self._core.job(f"job-{(int(name.removeprefix('job-')) - 1) % self._n_real + 1}")


def remember_long(team: Team) -> None:
    """Put a run with a point for each minute of ten weeks into the history."""
    team.history.remember("long", LONG_AT_S, parse_job("name: long\n"))
    for i in range(1, N_POINT + 1):
        speed = 1000.0 + 200.0 * math.sin(i / 50) + i % 7
        row = SeriesRow(LONG_AT_S + 60.0 * i, 60.0, speed, 4, 2, 700.0, 300.0)
        team.history.remember("long", LONG_AT_S, row)
    end = PhaseChanged(LONG_AT_S + 60.0 * N_POINT + 1, JobPhase.SUCCEEDED, "")
    team.history.remember("long", LONG_AT_S, end)


def main() -> None:
    n_job, speed = int(sys.argv[1]), float(sys.argv[2])
    mode = Mode.SUGGEST if "--proposals" in sys.argv else Mode.MANUAL
    heard: list[float] = []
    n_real = min(n_job, MOST_REAL)
    with simulated(n_real, speed, mode) as core, tempfile.TemporaryDirectory() as folder:
        watched: Any = WatchedCluster(Repeated(core, n_real, n_job) if n_real < n_job else core)
        watched.listen(lambda _jobs: heard.append(time.time()))
        team = Team({"sim": watched}, SystemClock().now_s, url=f"sqlite:///{Path(folder) / 'history.db'}")
        try:
            if "--history" in sys.argv:
                remember_long(team)
            asyncio.run(run(team, heard))
        finally:
            team.close()


if __name__ == "__main__":
    main()
