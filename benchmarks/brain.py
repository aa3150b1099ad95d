"""The brain of a cluster: how many jobs it plans for, how fast, and how soon another one takes over.

jobs_per_cpu_s       jobs that are planned for in a second of CPU time: offers read from bytes, chosen for,
                     explained; of 10,000 jobs with fronts of 33 plans on a cluster too small for all
round_s, round_cpu_s one round with 100 live masters (1,000 with `--whole`): asked over HTTP by the real
                     calls, planned for, allotted; wall time, and CPU time of the brain alone; the jobs are
                     simulated, in another process
bytes_per_job_day    growth of the history by rounds, from rounds of that cluster while its jobs go on
takeover_s           from the kill -9 of a brain until another one has planned, with the default lease

    python benchmarks/brain.py [--jobs 100] [--whole] [--real]

--real runs four real jobs on a local Ray instead (`brain_real`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengths import parsed, print_figures

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.brain.offer_columns import check
from dlrover_nb.core.brain.planning_round import Rounds, Term
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.client.link.call_ends import CallLink, unpack_answer
from dlrover_nb.core.client.link.calls import ANSWERS, CALLS
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.offers import JobOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.summary import JobSummary

N_JOB, N_PLAN, N_ROUND = 10_000, 33, 3
DAY_S, INTERVAL_S = 86_400.0, 30.0
WARM_S, MOST_OFFER = 1200.0, 0.6
MACHINE = NodeShape(64.0, 256 * 1024)


def offers(rng: np.random.Generator, n_job: int) -> list[bytes]:
    """Return packed offers: speeds saturate over workers, as fits of real jobs have it."""
    found = []
    for i in range(n_job):
        workers = np.arange(1, N_PLAN + 1, dtype=float)
        cpu, ps = float(rng.choice([0.5, 1.0, 2.0])), np.ceil(workers / 4)
        speed = rng.uniform(500, 5000) * workers * cpu / (1 + rng.uniform(0.01, 0.2) * workers)
        now = int(rng.integers(0, N_PLAN // 2))
        cost = 0.04 * (workers * cpu + ps * cpu)
        columns = np.vstack((workers, ps, *[np.full(N_PLAN, cpu)] * 2, speed, speed - speed[now], cost))
        plan = ResourcePlan(RolePlan(int(workers[now]), cpu, 2048), RolePlan(int(ps[now]), cpu, 2048))
        left = int(rng.lognormal(17, 1.5))
        deadline_s = float(rng.uniform(600, 86_400)) if rng.random() < 0.1 else None
        found.append(
            ANSWERS.pack(
                JobOffer(
                    f"job-{i}",
                    f"team-{i % 20}",
                    plan,
                    float(speed[now]),
                    float(cost[now]),
                    True,
                    left,
                    columns.astype("<f8").tobytes(),
                    2048,
                    2048,
                    deadline_s,
                )
            )
        )
    return found


def planned(n_job: int = N_JOB) -> dict[str, Any]:
    """Return how many jobs are planned for in a second of CPU time."""
    packed = offers(np.random.default_rng(1), n_job)
    first = [ANSWERS.unpack(each) for each in packed]
    held = sum(each.plan.total_cpu for each in first if isinstance(each, JobOffer))
    room = Capacity((NodeShape(MACHINE.cpu, MACHINE.memory_mib, int(1.3 * held / MACHINE.cpu)),))
    times, before, found = [], {}, None
    for _ in range(N_ROUND):
        began_s = time.process_time()
        read = [ANSWERS.unpack(each) for each in packed]
        for each in read:
            check(each)  # type: ignore[arg-type]
        found = plan_cluster(read, room, BrainSettings(), before)  # type: ignore[arg-type]
        times.append(time.process_time() - began_s)
        before = {job: share.plan for job, share in found.shares.items()}
    assert found is not None
    grown = sum(found.shares[each.job].plan != each.plan for each in first if isinstance(each, JobOffer))
    gap = 0.0 if not found.bound else 1 - found.objective / found.bound
    return {
        "jobs_per_cpu_s": round(n_job / statistics.median(times)),
        "n_grown": grown,
        "gap_percent": round(100 * gap, 3),
    }


# live masters


class FarLink(CallLink):
    """The calls of a master behind one HTTP server of many."""

    def __init__(self, port: int, name: str, access: str) -> None:
        super().__init__()
        self._port, self._name, self._access = port, name, access

    def send(self, call: Any) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            head = {"X-Dlrover-Access": self._access, "X-Job": self._name}
            connection.request("POST", "/call", CALLS.pack(call), head)
            return unpack_answer(connection.getresponse().read())
        finally:
            connection.close()


class FarCluster:
    """The part of a cluster that a brain uses, of masters in another process."""

    def __init__(self, port: int, access: str, room: Capacity) -> None:
        self._port, self._access, self._room = port, access, room

    def capacity(self) -> Capacity:
        return self._room

    def live_jobs(self) -> tuple[JobSummary, ...]:
        return self._summaries("/live")

    def jobs(self) -> tuple[JobSummary, ...]:
        return self._summaries("/jobs")

    def _summaries(self, path: str) -> tuple[JobSummary, ...]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=600)
        try:
            connection.request("GET", path)
            found = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return tuple(ANSWERS.unpack(bytes.fromhex(each)) for each in found)  # type: ignore[misc]

    def job(self, name: str) -> JobHandle:
        return JobHandle(name, FarLink(self._port, name, self._access))


def live(n_job: int) -> dict[str, Any]:
    """Return what rounds with live masters cost."""
    command = [sys.executable, str(Path(__file__).with_name("brain_masters.py")), str(n_job)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as masters,
    ):
        try:
            assert masters.stdout is not None
            told = json.loads(masters.stdout.readline())
            cluster = FarCluster(told["port"], told["access"], Capacity((NodeShape(*told["shape"]),)))
            rounds = Rounds(cluster, "far", BrainSettings(), lasts_s=300.0, clock=SystemClock())  # type: ignore[arg-type]
            file = Path(folder) / "history.db"
            store = RoundStore(f"sqlite:///{file}")
            wall, cpu, sizes, kept, last, newest, found = [], [], [], 0, None, None, None
            _await_offers(rounds, n_job)
            for _ in range(N_ROUND + 1):
                began_s, cpu_s = time.monotonic(), time.process_time()
                found = rounds.run(Term("bench", 1, lambda: True))
                wall.append(time.monotonic() - began_s)
                cpu.append(time.process_time() - cpu_s)
                is_new = found.says_more_than(last)
                store.add(found, instead_of=None if is_new else newest)
                last, newest = (found, None) if is_new else (last, found)
                kept += is_new
                sizes.append(_size(file))
                time.sleep(2.0)
        finally:
            masters.terminate()
    assert found is not None
    per_round = (sizes[-1] - sizes[0]) / max(len(sizes) - 1, 1)
    return {
        "n_live": n_job,
        "n_offer": len(found.shares),
        "n_refused": sum(bool(share.refused) for share in found.shares),
        "round_s": round(statistics.median(wall[1:]), 3),
        "round_cpu_s": round(statistics.median(cpu[1:]), 3),
        "bytes_per_job_day": round(per_round * DAY_S / INTERVAL_S / n_job),
        "rounds_kept": kept,
    }


def _await_offers(rounds: Rounds, n_job: int) -> None:
    """Plan until most masters have offered plans; one that changes its plan offers none meanwhile."""
    end_s, names = time.monotonic() + WARM_S, set[str]()
    while time.monotonic() < end_s:
        names |= {share.job for share in rounds.run(Term("bench", 1, lambda: True)).shares}
        print(f"{len(names)} of {n_job} masters have offered plans", flush=True)
        if len(names) >= MOST_OFFER * n_job:
            return
        time.sleep(10.0)  # each round asks all masters, which need their core to fit


def _size(file: Path) -> int:
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))


# takeover


def takeover() -> dict[str, Any]:
    """Return how long nobody plans after a brain was killed."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {
            "HOME": folder,
            "XDG_STATE_HOME": f"{folder}/state",
            "XDG_DATA_HOME": f"{folder}/data",
            "DLROVER_NB_ADDRESS": "local",
        }
        command = [sys.executable, "-m", "dlrover_nb.cli", "brain", "--interval", "1", "--name", "bench"]
        command += ["--history", f"sqlite:///{folder}/history.db"]
        subprocess.run(
            [sys.executable, "-m", "dlrover_nb.cli", "connect", "local"],
            env=env,
            check=True,
            capture_output=True,
        )
        brains = [
            subprocess.Popen(
                [*command], env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
            for _ in range(2)
        ]
        try:
            first = _planning(brains[0], brains[1])
            other = next(each for each in brains if each is not first)
            os.kill(first.pid, signal.SIGKILL)
            began_s = time.monotonic()
            assert other.stderr is not None
            for line in other.stderr:
                if " round " in line:
                    return {"takeover_s": round(time.monotonic() - began_s, 1)}
            raise SystemExit("no brain took over")
        finally:
            for each in brains:
                each.kill()
                each.wait()


def _planning(*brains: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Return the brain that plans."""
    import selectors

    with selectors.DefaultSelector() as waiting:
        for each in brains:
            assert each.stderr is not None
            waiting.register(each.stderr, selectors.EVENT_READ, each)
        while True:
            for key, _ in waiting.select():
                if " round " in key.fileobj.readline():  # type: ignore[union-attr]
                    return key.data  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100, help="live masters")
    parser.add_argument("--real", action="store_true", help="four real jobs on a local Ray")
    options = parsed(parser, jobs=1000)
    if options.real:
        import brain_real

        print_figures("brain --real", brain_real.measured())
        return
    figures = planned()
    print(figures, flush=True)
    figures |= live(options.jobs)
    print(figures, flush=True)
    figures |= takeover()
    print_figures("brain", figures)


if __name__ == "__main__":
    main()
