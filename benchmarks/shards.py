"""Cost of assigning shards: in process, over the wire, with a thousand workers, against DLRover.

in_process   grant and complete of one ledger (a task is both), by n threads that share it as DLRover's do
wire         a complete job master (socket, job master, write-ahead log on disk, controller) in one process,
             and n clients in another that send the workers' messages without training: a task is
             "finished, next one" and its answer, in one message each where the peer needs two
crowd        the same with a thousand workers: at the maximum rate, and at one task and one report a second
             each, with the latency of answers
memory       10^6 shards: bytes, and seconds to split, to checkpoint and restore, to record and recover
share        CPU time of a task, of master and worker, as a share of the time that training its shard takes

The figures of the summary stand at the top of the JSON: `cpu_us_per_task` in one process,
`wire_cpu_us_per_task` over the wire (clients and master), and rates, which other load disturbs more.

DLRover's figures come from its own scripts in the same run, round by round (`--peers DIR`,
which is not part of this repository, and `--venv DIR` with DLRover in it); the ratio is the rounds' median.

    python benchmarks/shards.py [--whole] [--peers DIR --venv DIR]

Takes a minute without options; `--seconds 5` measures each part for longer.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengths import parsed, print_figures

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.runtime.single_process import train_single

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import zmq
from handed_out import HandedOut, percentile_ms

from dlrover_nb.core import codec
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, connect_dealer
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerCheckpoint, LedgerRecord, Split
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Mode
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.wire.messages import (
    Granted,
    Hello,
    Load,
    Loaded,
    Report,
    ShardAsked,
    ShardFinished,
    Train,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from dlrover_nb.core.structs.wire.node_config import NodeConfig

MILLION = 1_000_000
WARM_UP_S = 0.5
PATIENCE_S = 60.0  # for the last messages to be counted
PACE_S = 1.0  # of a training worker in a crowd: a task, and a report
BATCH_SIZE, SHARD_BATCHES = 10, 10  # as in the peers' script
N_SAMPLE = MILLION * BATCH_SIZE * SHARD_BATCHES


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--crowd", type=int, default=1000, help="simulated workers")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--peers", type=Path, help="folder of the peers' scripts")
    parser.add_argument("--venv", type=Path, help="virtual environment of DLRover")
    return parsed(parser, rounds=3, seconds=1.5)


# in process


def in_process(n_client: int, seconds: float) -> dict[str, Any]:
    """Grant and complete in threads, each call under a lock, as a ledger belongs to one thread."""
    ledger = ShardLedger(Split(N_SAMPLE, BATCH_SIZE, SHARD_BATCHES, n_epoch=20))
    ledger.changes.keep()
    lock, stop = threading.Lock(), threading.Event()
    times: list[list[float]] = [[] for _ in range(n_client)]

    def work(index: int) -> None:
        owner = f"worker-{index}"
        while not stop.is_set():
            began_s = time.perf_counter()
            with lock:
                shard = ledger.grant(owner)
            times[index].append(time.perf_counter() - began_s)
            if shard is None:
                raise RuntimeError("out of shards; ask for fewer seconds")
            with lock:
                ledger.complete(owner, shard.lease)
                if len(times[index]) % 1000 == 0:
                    ledger.changes.drain()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n_client)]
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return tally(n_client, list(chain(*times)), took_s) | {
        "cpu_us_per_task": round(cpu_s / sum(map(len, times)) * 1e6, 2)
    }


def tally(n_client: int, answers_s: list[float], took_s: float) -> dict[str, Any]:
    return {
        "clients": n_client,
        "tasks": len(answers_s),
        "tasks_s": round(len(answers_s) / took_s, 1),
        "p50_ms": percentile_ms(answers_s, 0.5),
        "p99_ms": percentile_ms(answers_s, 0.99),
    }


# a job master in a separate process


def run_master(n_worker: int, clients: Connection) -> None:
    """Run the master of a job until the clients end it."""
    logging.disable(logging.WARNING)
    plan = ResourcePlan(RolePlan(n_worker, 1.0, 512), RolePlan(1, 1.0, 512))
    spec = JobSpec(
        "shards",
        data=DataSpec(DataFormat.CENSUS),
        plan=plan,
        mode=Mode.MANUAL,
        batch_size=BATCH_SIZE,
        shard_batches=SHARD_BATCHES,
        n_epoch=2,
        checkpoint_every_s=0.0,
        heartbeat_timeout_s=3600.0,
    )
    rows = FeatureSpec("label", (), (CategoricalColumn("id", 0, 8),), N_SAMPLE, 0)
    with tempfile.TemporaryDirectory(prefix="dn") as folder:
        driver = own_job.begin(
            spec,
            rows,
            own_job.RunSetup(
                HandedOut(NodeShape(2.0, 4096, n_worker + 1), "ipc", clients),
                Path(folder) / "run",
                history_url=f"sqlite:///{folder}/history.db",
                clock=SystemClock(),
            ),
        )
        driver.start()
        n_task, until_s = clients.recv(), time.monotonic() + PATIENCE_S
        while driver.snapshot().train.done < n_task and time.monotonic() < until_s:
            time.sleep(0.1)
        counts = driver.snapshot().train
        driver.close()
        clients.send((counts.done, counts.refused))


@dataclass
class Client:
    """One worker without a model."""

    node: str
    socket: Any
    asked_s: float = 0.0
    n_task: int = 0
    holds: Any = None
    answers_s: list[float] = field(default_factory=list)


class Crowd:
    """All nodes of a job in this process: one PS, and workers that finish a shard at once."""

    def __init__(self, n_worker: int) -> None:
        here, there = multiprocessing.get_context("spawn").Pipe()
        self._master = multiprocessing.get_context("spawn").Process(
            target=run_master, args=(n_worker, there), daemon=True
        )
        self._master.start()
        self._pipe, self._context = here, zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4 * n_worker + 100)
        self._poller, self.workers = zmq.Poller(), dict[Any, Client]()
        self._ps = self._connect(self._config(Role.PS))
        clients = [self._connect(self._config(Role.WORKER)) for _ in range(n_worker)]
        self.workers = {client.socket: client for client in clients}
        self._assemble()

    def _config(self, role: Role) -> NodeConfig:
        config = self._pipe.recv()
        assert config.role is role, config
        return config

    def _connect(self, config: NodeConfig) -> Client:
        keys = JobKeys(config.public_key, config.secret_key)
        client = Client(config.node, connect_dealer(self._context, config.master, config.node, keys))
        endpoint = "ipc://nobody" if config.role is Role.PS else ""
        hello = Hello(config.node, config.role, 1, "here", endpoint, cpu_enforced=False)
        client.socket.send_multipart(encode(hello))
        self._poller.register(client.socket, zmq.POLLIN)
        return client

    def _assemble(self) -> None:
        """Answer until every worker holds its first shard."""
        while any(client.holds is None for client in self.workers.values()):
            for socket, _ in self._poller.poll():
                message, _ = decode(socket.recv_multipart())
                match message:
                    case Load():
                        socket.send_multipart(encode(Loaded(self._ps.node, message.ps_epoch)))
                    case Train():
                        socket.send_multipart(encode(ShardAsked(self.workers[socket].node)))
                    case Granted(shard=shard):
                        self.workers[socket].holds = shard
        self._poller.unregister(self._ps.socket)

    def rush(self, seconds: float) -> dict[str, Any]:
        """Let every worker send its next request as soon as it is answered."""
        for client in self.workers.values():
            if client.holds is not None:  # else its answer is pending
                self._finish(client)
        return self._measure(seconds, self._finish)

    def pace(self, seconds: float) -> dict[str, Any]:
        """Let every worker finish a shard and report once in `PACE_S`, one after the other."""
        clients, began_s, n_sent = list(self.workers.values()), time.perf_counter(), 0

        def send_due() -> None:
            nonlocal n_sent
            n_due = int((time.perf_counter() - began_s) / PACE_S * len(clients))
            for n in range(n_sent, n_due):
                client = clients[n % len(clients)]
                if client.holds is not None:  # else it is late, and so are all that come after it
                    client.socket.send_multipart(encode(report(client.node)))
                    self._finish(client)
            n_sent = max(n_sent, n_due)

        return self._measure(seconds, lambda _: None, between=send_due)

    def _measure(
        self, seconds: float, on_answer: Callable[[Client], None], between: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        def run(until_s: float) -> float:
            while (now_s := time.perf_counter()) < until_s:
                if between is not None:
                    between()
                for socket, _ in self._poller.poll(10 if between is None else 1):
                    self._hear(self.workers[socket], on_answer)
            return now_s

        run(time.perf_counter() + WARM_UP_S)
        for client in self.workers.values():
            client.answers_s = []
        cpu_s, master_s = time.process_time(), self._master_cpu_s()
        began_s = time.perf_counter()
        now_s = run(began_s + seconds)
        cpu_s, master_s = time.process_time() - cpu_s, self._master_cpu_s() - master_s
        answers_s = list(chain(*(client.answers_s for client in self.workers.values())))
        per_task = 1e6 / len(answers_s)
        return tally(len(self.workers), answers_s, now_s - began_s) | {
            "clients_cpu_us_per_task": round(cpu_s * per_task, 1),
            "master_cpu_us_per_task": round(master_s * per_task, 1),
        }

    def _hear(self, client: Client, on_answer: Callable[[Client], None]) -> None:
        message, _ = decode(client.socket.recv_multipart())
        if isinstance(message, Granted):
            client.holds = message.shard
            client.answers_s.append(time.perf_counter() - client.asked_s)
            on_answer(client)

    def _finish(self, client: Client) -> None:
        shard, client.holds, client.asked_s = client.holds, None, time.perf_counter()
        client.n_task += 1
        client.socket.send_multipart(encode(ShardFinished(client.node, shard.lease)))

    def _master_cpu_s(self) -> float:
        return sum(psutil.Process(self._master.pid).cpu_times()[:2])

    def close(self) -> None:
        """End the job, and check that the master's counts equal the clients'."""
        n_task = sum(client.n_task for client in self.workers.values())
        self._pipe.send(n_task)
        counted = self._pipe.recv()
        assert counted == (n_task, 0), (counted, n_task)
        for client in (self._ps, *self.workers.values()):
            client.socket.close(linger=0)
        self._context.term()
        self._master.join()


def report(node: str) -> Report:
    split = TimeSplit(compute_s=0.01)
    return Report(NodeSample(node, Role.WORKER, time.time(), 1.0, 100, 51_200, 0.01, split, 1.0, 300.0))


def over_the_wire(n_client: int, seconds: float) -> dict[str, Any]:
    crowd = Crowd(n_client)
    try:
        return crowd.rush(seconds)
    finally:
        crowd.close()


def a_crowd(n_worker: int, seconds: float) -> dict[str, Any]:
    """Measure a fixed rate first, then the maximum rate, at which every answer waits in a queue."""
    crowd = Crowd(n_worker)
    try:
        return {"paced": crowd.pace(seconds), "rush": crowd.rush(seconds)}
    finally:
        crowd.close()


# memory, and the share of training


def memory() -> dict[str, Any]:
    """Measure one million shards: time without, then bytes with `tracemalloc`."""
    split, out = Split(N_SAMPLE, BATCH_SIZE, SHARD_BATCHES), {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began_s = time.perf_counter()
        result = call()
        out[name] = round(time.perf_counter() - began_s, 4)
        return result

    def begin() -> ShardLedger:
        ledger = ShardLedger(split)
        assert ledger.grant("worker-0")
        return ledger

    ledger = timed("split_s", begin)
    for _ in range(MILLION // 2):
        ledger.complete("worker-1", ledger.grant("worker-1").lease)
    kept = timed("checkpoint_s", lambda: codec.to_json(ledger.checkpoint()))
    timed("restore_s", lambda: ledger.restore(codec.from_json(kept, LedgerCheckpoint)))
    timed("first_grant_after_restore_s", lambda: ledger.grant("worker-0"))
    written = timed("record_s", lambda: codec.to_json(ledger.record()))
    timed("come_back_s", lambda: ShardLedger.from_record(codec.from_json(written, LedgerRecord)))
    del ledger
    tracemalloc.start()
    ledger = begin()
    held, _ = tracemalloc.get_traced_memory()
    ledger.restore(ledger.checkpoint())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return out | {
        "shards": MILLION,
        "memory_mb": round(held / 1e6, 2),
        "most_memory_mb": round(most / 1e6, 2),
        "checkpoint_kb": round(len(kept) / 1e3, 1),
    }


def share_of_training(cpu_us_per_task: float) -> dict[str, Any]:
    """Compare a task with the time to train a shard of a default job in one process."""
    spec = JobSpec("one", n_epoch=1)
    trained = train_single(spec, make_features(spec.data, spec.model))
    n_row = spec.batch_size * spec.shard_batches
    shard_s = n_row / trained.samples_per_s
    return {
        "samples_per_s": round(trained.samples_per_s, 1),
        "rows_per_shard": n_row,
        "shard_s": round(shard_s, 4),
        "task_cpu_us": round(cpu_us_per_task, 1),
        "share_percent": round(cpu_us_per_task / 1e6 / shard_s * 100, 4),
    }


# beside the peer


def peer(args: argparse.Namespace) -> dict[str, Any]:
    """Run DLRover's own measurement once."""
    script = args.peers / "dlrover" / "sharding.py"
    command = [str(args.venv / "bin" / "python"), str(script), "--parts", "in_process", "grpc"]
    command += ["--seconds", str(args.seconds), "--clients", *map(str, args.clients)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    args = arguments()
    out: dict[str, Any] = {"cpus": os.cpu_count(), "rounds": args.rounds, "seconds": args.seconds}
    out |= {"in_process": [], "wire": [], "peer": [], "over_peer": []}
    for _ in range(args.rounds):
        out["in_process"].append([in_process(n, args.seconds) for n in args.clients])
        out["wire"].append([over_the_wire(n, args.seconds) for n in args.clients])
        if args.peers and args.venv:
            theirs = peer(args)
            out["peer"].append(theirs)
            pairs = zip(out["wire"][-1], theirs["grpc"]["runs"], strict=True)
            out["over_peer"].append([round(our["tasks_s"] / their["tasks_s"], 2) for our, their in pairs])
    out["crowd"] = a_crowd(args.crowd, args.seconds)
    out["memory"] = memory()
    out["share"] = share_of_training(
        statistics.median(
            each[-1]["clients_cpu_us_per_task"] + each[-1]["master_cpu_us_per_task"] for each in out["wire"]
        )
    )
    print_figures("shards", out | summary(args, out))


def summary(args: argparse.Namespace, out: dict[str, Any]) -> dict[str, Any]:
    def median(rounds: list[Any]) -> float:
        return round(statistics.median(rounds), 2) if rounds else math.nan

    last = len(args.clients) - 1
    wire = [each[-1]["clients_cpu_us_per_task"] + each[-1]["master_cpu_us_per_task"] for each in out["wire"]]
    return {
        "cpu_us_per_task": median([each[0]["cpu_us_per_task"] for each in out["in_process"]]),
        "wire_cpu_us_per_task": median(wire),
        "tasks_s": median([each[last]["tasks_s"] for each in out["wire"]]),
        "over_peer": median([each[last] for each in out["over_peer"]]) if out["over_peer"] else None,
        "cpu_over_peer": median([_cpu_ratio(*pair) for pair in zip(out["wire"], out["peer"], strict=True)])
        if out["peer"]
        else None,
        "crowd_tasks_s": out["crowd"]["rush"]["tasks_s"],
        "crowd_p99_ms": out["crowd"]["paced"]["p99_ms"],
        "share_percent": out["share"]["share_percent"],
        "memory_mb": out["memory"]["memory_mb"],
    }


def _cpu_ratio(ours: list[dict[str, Any]], theirs: dict[str, Any]) -> float:
    """Return the peer's CPU time of a task, clients and master, over ours."""
    our, their = ours[-1], theirs["grpc"]["runs"][-1]["cpu_us_per_task"]
    own = our["clients_cpu_us_per_task"] + our["master_cpu_us_per_task"]
    return (their + theirs["grpc"]["master_cpu_us_per_task"]) / own


if __name__ == "__main__":
    main()
