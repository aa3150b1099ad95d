"""Programs of others with our shards: whether rows are exact under kills, and what a batch costs more.

exact        `external_train.py` as the one worker of an external job, killed (-9) while it trains; at the end
             its parameters must have seen each row once, and the master must have counted each once
overhead     the same program without checkpoints, in a job and alone, in turn: milliseconds a batch
back         a kill to the next grant of a shard, with the start of Python and torch

The programs are processes of this machine in the place of pods; the master has its loop, files and HTTP.
TensorFlow is measured where the interpreter of `--tensorflow` has it.

    python benchmarks/external.py --rounds 5 --tensorflow VENV/bin/python
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengths import parsed, print_figures
from waitress.server import create_server

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.calls.service import REPORT_PATH, SERVER, MasterService
from dlrover_nb.core.driver.external import external_job
from dlrover_nb.core.master.external.launch.pod_script import program
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dlrover_nb.core.structs.job.external import StepsDone, Written
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("external_train.py")
LIMIT_S = 300.0
SPEED_ROWS = 500_000


class Processes:
    """Programs of an external job as processes of this machine; fits `driver.backend.ExternalBackend`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._gone = folder, set[str]()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def capacity(self) -> Capacity:
        return Capacity((NodeShape(8.0, 16384),))

    room = capacity

    def listen(self) -> str:
        return ""

    def start_node(self, config: NodeConfig) -> None:
        assert config.spec.foreign is not None
        place = self.folder / config.node
        place.mkdir(parents=True)
        (place / "master").write_text(config.master)
        env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "DLROVER_NB_CLUSTER": str(place / "cluster"),
            "DLROVER_NB_NODE": config.node,
            "DLROVER_NB_REPORT_TOKEN": "t",
            "DLROVER_NB_REPORT_FILE": str(place / "master"),
        }
        with (place / "log").open("wb") as log:
            self.running[config.node] = subprocess.Popen(
                program(config.spec.foreign, config.role),
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def addresses(self) -> Mapping[str, str]:
        return {node: "127.0.0.1" for node in self.running if node not in self._gone}

    def send_environment(self, node: str, text: str) -> None:
        new = self.folder / node / "cluster.new"
        new.write_text(text)
        new.replace(self.folder / node / "cluster")

    def stop_node(self, node: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.running[node].pid, signal.SIGKILL)
        self.running[node].wait()

    def poll(self) -> tuple[NodeExited, ...]:
        gone = [
            n for n, process in self.running.items() if n not in self._gone and process.poll() is not None
        ]
        self._gone.update(gone)
        codes = ((node, self.running[node].returncode) for node in gone)
        return tuple(
            NodeExited(node, f"exit code {code}", failed=0 < code < 128, succeeded=code == 0)
            for node, code in codes
        )

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        pass

    def written(self) -> tuple[Written, ...]:
        return ()

    def adopt(self, nodes: Mapping[str, tuple[float, int]]) -> None:
        pass

    def set_master_endpoint(self, endpoint: str) -> None:
        pass

    def waiting(self) -> Mapping[str, str]:
        return {}

    def denied(self) -> str:
        return ""

    def close(self) -> None:
        for node in self.running:
            self.stop_node(node)


@contextlib.contextmanager
def job(
    folder: Path, command: tuple[str, ...], n_row: int
) -> Iterator[tuple[external_job.ExternalJob, Processes]]:
    """Run a job of one worker, and yield its loop and its processes."""
    store = ExternalRole(("sleep", "3600"))
    foreign = ExternalSpec(ExternalRole(command), n_row, ps=store, framework=Framework.TORCH)
    plan = ResourcePlan(RolePlan(1, 1.0, 1024), RolePlan(1, 0.1, 64))
    spec = JobSpec("external", plan=plan, foreign=foreign, mode=Mode.MANUAL, batch_size=256)
    service = MasterService("access")
    reports: queue.SimpleQueue[StepsDone] = queue.SimpleQueue()
    server = create_server(service, host="127.0.0.1", port=0, **SERVER)
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    url = f"http://127.0.0.1:{server.effective_port}{REPORT_PATH}"
    history = f"sqlite:///{folder / 'history.db'}"
    around = external_job.Surroundings(folder / "run", history, SystemClock(), url, reports)
    processes = Processes(folder / "pods")
    loop = external_job.begin(spec, processes, around)
    service.take_reports("t", reports.put)
    service.take_calls("t", around.calls)
    loop.start()
    try:
        yield loop, processes
    finally:
        loop.close()
        server.close()
        server.task_dispatcher.shutdown()
        serving.join()


def until(condition: Callable[[JobSnapshot], object], loop: external_job.ExternalJob) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition(now := loop.snapshot()):
        if now.phase.is_final or time.monotonic() > end:
            raise SystemExit(f"the job is {now.phase}: {now.message}; expected it to train")
        time.sleep(0.02)


def result_of(loop: external_job.ExternalJob, folder: Path) -> tuple[JobSnapshot, dict[str, Any]]:
    loop.join(LIMIT_S)
    now = loop.snapshot()
    if now.phase is not JobPhase.SUCCEEDED:
        logs = "\n".join(path.read_text() for path in folder.glob("pods/worker-*/log"))
        raise SystemExit(f"the job has {now.phase}: {now.message}\n{logs[-2000:]}")
    return now, json.loads((folder / "result.json").read_text())


def exact(python: str, framework: str, n_kill: int) -> tuple[bool, list[float]]:
    """Return whether all rows are exact after kills, and the seconds from each kill to the next grant."""
    n_row, waits = 40_000, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        more = ("--rows", str(n_row), "--save-every", "8", "--slow-s", "0.02")
        command = (python, str(SCRIPT), framework, str(folder), *more)
        with job(folder, command, n_row) as (loop, processes):
            for i in range(n_kill):
                mark = n_row * (i + 1) // (n_kill + 2)
                until(lambda now, mark=mark: now.train.n_sample_done > mark, loop)
                (node,) = (each.id for each in loop.snapshot().nodes if each.id.startswith("worker"))
                began_s = time.monotonic()
                os.killpg(processes.running[node].pid, signal.SIGKILL)
                until(lambda now, node=node: node not in {each.id for each in now.nodes}, loop)
                before = loop.snapshot().train
                until(lambda now, before=before: now.train != before and now.train.doing, loop)
                waits.append(time.monotonic() - began_s)
            now, result = result_of(loop, folder)
    counted = now.train.n_sample_done == now.train.n_sample_total == n_row and now.train.doing == 0
    return counted and result["least_seen"] == result["most_seen"] == 1, waits


def one_speed(python: str, framework: str, *, in_job: bool) -> dict[str, float]:
    """Return milliseconds per batch of the program, in a job or alone; of wall and of CPU."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = (python, str(SCRIPT), framework, str(folder), "--rows", str(SPEED_ROWS))
        if in_job:
            with job(folder, command, SPEED_ROWS) as (loop, _):
                result = result_of(loop, folder)[1]
        else:
            subprocess.run(
                command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True
            )
            result = json.loads((folder / "result.json").read_text())
    return {"wall": result["ms_per_batch"], "cpu": result["cpu_ms_per_batch"]}


def overhead(python: str, framework: str, n_round: int) -> list[dict[bool, dict[str, float]]]:
    """Return ms per batch in the job and alone, by round; who is first takes turns."""
    rounds = []
    for i in range(n_round):
        order = (True, False) if i % 2 else (False, True)
        rounds.append({in_job: one_speed(python, framework, in_job=in_job) for in_job in order})
    return rounds


def measured(python: str, framework: str, args: argparse.Namespace) -> dict[str, Any]:
    is_exact, waits = exact(python, framework, args.kills)
    rounds = overhead(python, framework, args.rounds)
    more, cpu = (
        statistics.median(each[True][kind] - each[False][kind] for each in rounds) for kind in ("wall", "cpu")
    )
    alone = statistics.median(each[False]["wall"] for each in rounds)
    print(f"{framework:12} rows exact after {args.kills} kills: {is_exact}; back in {max(waits):.1f} s")
    print(f"{framework:12} {alone:.3f} ms a batch alone, {more:+.3f} ms in a job ({cpu:+.3f} ms of CPU)")
    return {
        "rows_exact": is_exact,
        "overhead_ms_per_batch": round(more, 4),
        "cpu_overhead_ms_per_batch": round(cpu, 4),
        "ms_per_batch_alone": round(alone, 4),
        "back_after_kill_s": [round(wait, 2) for wait in waits],
    }


def has_tensorflow(python: str) -> bool:
    return (
        subprocess.run((python, "-c", "import tensorflow"), capture_output=True, check=False).returncode == 0
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--tensorflow", default=sys.executable, help="an interpreter that has TensorFlow")
    args = parsed(parser, rounds=3, kills=3)
    result = measured(sys.executable, "torch", args)
    if has_tensorflow(args.tensorflow):
        result["tensorflow"] = measured(args.tensorflow, "tensorflow", args)
    else:
        why = f"{args.tensorflow} has no tensorflow; name one that has it by --tensorflow"
        result |= {"tensorflow": None, "tensorflow_missing": why}
    print_figures("external", result)


if __name__ == "__main__":
    main()
