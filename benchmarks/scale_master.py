"""The job master at a thousand workers: its CPU, its memory, and how long a request for a shard waits.

A complete job master (socket on TCP with the job's key, decisions, write-ahead log and journal on disk,
telemetry, history) is one process. A second one has all nodes of the job without a model: each has its own
socket and sends what a real node sends. A worker trains some 10,000 rows a second, reports once a second,
asks for its next shard when half of the present one is done and says when one is finished; a parameter server
(one for `WORKERS_OF_A_PS`) reports too, with the loads of its buckets every ten seconds; all of them write
log lines.

master_cpu_share     cores that the master takes
request_p99_ms       from a request for a shard to its answer, 99 of 100 (`_p50_`: half, `_most_`: all)
message_cpu_us       CPU time of the master for each message that it gets
master_mib           memory of the master's process at the end
start_s, start_cpu_s from the first order to start a node until all workers train, and CPU of the master

With a new plan the first fits come close together, so figures count from `--warm-up` on. By default that is
after 15 s, so that the run takes about a minute; some of those fits may fall in it. `--whole` waits for 60 s.

    python benchmarks/scale_master.py [--workers 1000 --warm-up 60 --seconds 60]
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
from handed_out import HandedOut, percentile_ms
from lengths import end_cleanly, parsed, print_figures
from scale_nodes import Nodes

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.runtime.process.lasting_imports import collect_rarely
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

WORKERS_OF_A_PS = 25
N_ROW = 40_000_000_000


def shape_of(n_worker: int) -> NodeShape:
    return NodeShape(96.0, 384 * 1024, max(n_worker // 40, 2))


def plan_of(n_worker: int) -> ResourcePlan:
    n_ps = max(n_worker // WORKERS_OF_A_PS, 1)
    return ResourcePlan(RolePlan(n_worker, 1.0, 2048), RolePlan(n_ps, 2.0, 4096))


def run_master(n_worker: int, clients: Connection) -> None:
    """Run the master of a job until the clients end it."""
    logging.disable(logging.WARNING)
    collect_rarely()  # as every master
    end_cleanly()  # a process that ends without its clients deletes its folder too
    spec = JobSpec("scale", plan=plan_of(n_worker), n_epoch=2, checkpoint_every_s=0.0)
    features = replace(make_features(spec.data, spec.model), n_train=N_ROW, n_eval=0)
    with tempfile.TemporaryDirectory(prefix="dn") as folder:
        driver = own_job.begin(
            spec,
            features,
            own_job.RunSetup(
                HandedOut(shape_of(n_worker), "tcp://127.0.0.1", clients),
                Path(folder) / "run",
                history_url=f"sqlite:///{folder}/history.db",
                clock=SystemClock(),
            ),
        )
        driver.start()
        try:
            clients.recv()
            now = driver.snapshot()
        finally:
            driver.close()
        clients.send((now.train.done, now.train.refused, str(now.phase), now.message))


def measure(n_worker: int, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """Run a job of so many workers; return the figures of its master."""
    nodes = Nodes(n_worker, run_master)
    process = psutil.Process(nodes.master.pid)

    def cpu_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    def n_message() -> int:
        return sum(node.n_sent for node in nodes.nodes.values())

    start_s = nodes.assemble(n_worker)
    start_cpu_s = cpu_s()
    nodes.run(time.monotonic() + warm_up_s)
    for node in nodes.workers:
        node.answers_s.clear()
    before, began_s, own_s, n_before = cpu_s(), time.monotonic(), time.process_time(), n_message()
    nodes.run(began_s + seconds)
    took_s, spent_s, n_sent = time.monotonic() - began_s, cpu_s() - before, n_message() - n_before
    own_s = time.process_time() - own_s
    memory_mib = process.memory_info().rss / (1 << 20)
    answers_s = [answer for node in nodes.workers for answer in node.answers_s]
    n_done, n_refused, phase, message = nodes.close()
    assert n_refused == 0, n_refused
    assert phase == "training", (phase, message)
    return {
        "workers": n_worker,
        "warm_up_s": warm_up_s,
        "measured_s": round(took_s, 1),
        "messages_per_s": round(n_sent / took_s),
        "requests_per_s": round(len(answers_s) / took_s),
        "master_cpu_share": round(spent_s / took_s, 3),
        "message_cpu_us": round(1e6 * spent_s / n_sent, 1),
        "request_p50_ms": percentile_ms(answers_s, 0.5),
        "request_p99_ms": percentile_ms(answers_s, 0.99),
        "request_most_ms": percentile_ms(answers_s, 1.0),
        "master_mib": round(memory_mib, 1),
        "start_s": round(start_s, 2),
        "start_cpu_s": round(start_cpu_s, 2),
        "shards_done": n_done,
        "clients_cpu_share": round(own_s / took_s, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0, help="that are measured")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before them")
    options = parsed(parser, seconds=60.0, warm_up=60.0)
    figures = measure(options.workers, options.warm_up, options.seconds)
    for name, value in figures.items():
        print(f"  {name:20} {value}")
    print_figures("scale_master", figures)


if __name__ == "__main__":
    main()
