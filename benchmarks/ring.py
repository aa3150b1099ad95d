"""Error of the form of T_iter for ring all-reduce beside the forms for PS, on plans not shown to the fit.

gpus    three jobs of the Pollux testbed (AWS T4 GPUs, torch DDP), 1 to 16 nodes of one GPU, several batches
here    elastic jobs of this machine, 1 to 4 processes of two sizes, two batches (three with `--whole`)

Two protocols, RMSLE of throughput on plans not shown: `12probes`, 12 random plans, over seeded draws; and
`extrapolate`, plans with the fewest workers are shown (up to half of the numbers tried), all larger ones are
predicted. Coverage is the share of those plans inside the 90 % band of the ring's fit.

    python benchmarks/ring.py [--shared ../shared --draws 3 --seconds 1.5 --batches 128 2048 --whole]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # small matrices: more threads only wait
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from allreduce import N_ROW, SCRIPT, read_steps, until
from lengths import parsed, print_figures

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.perf.forms import Exchange
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.client.cluster import Cluster

AXES = ["workers", "ps", "worker_cpu", "ps_cpu"]
PROTOCOLS = ("12probes", "extrapolate")
N_PROBE, SETTLE_S = 12, 0.5
WORKERS, CORES = (1, 2, 3, 4), (0.25, 0.5)


def main() -> None:
    """Measure, fit, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 2048])
    args = parsed(parser, draws=20, seconds=3.0, batches=[128, 512, 2048])
    jobs = {**gpu_jobs(args.shared), "here": measured_here(args.seconds, args.batches)}
    found = {job: compared(samples, args.draws) for job, samples in jobs.items()}
    for job, figures in found.items():
        print(f"{job:<10}{len(jobs[job]):>4} plans  {figures}")
    print_figures("ring", {"draws": args.draws, **found})


# measurements


def gpu_jobs(shared: Path) -> dict[str, pd.DataFrame]:
    """Return the samples of each job of the Pollux testbed with one GPU per node; empty without the data."""
    folder = shared / "data" / "pollux_adaptdl"
    if not folder.exists():
        return {}
    few = pd.read_csv(folder / "placements.csv.gz", dtype={"placement": str})
    few = few[few["placement"].map(set) == {"1"}]
    few = few.assign(num_replicas=few["placement"].map(len))
    many = pd.read_csv(folder / "scalability.csv")
    many = many[many["num_nodes"] == many["num_replicas"]]
    rows = pd.concat((few, many))
    return {str(model): samples(of_job) for model, of_job in rows.groupby("model")}


def samples(rows: pd.DataFrame) -> pd.DataFrame:
    """Return measured steps in the form that a fit reads."""
    workers = rows["num_replicas"].astype(float)
    table = pd.DataFrame({"workers": workers, "ps": 1.0, "worker_cpu": 1.0, "ps_cpu": 1.0})
    table["batch_size"] = rows["local_bsz"].astype(float)
    table["samples_per_s"] = workers * rows["local_bsz"] / rows["step_time"]
    return table.reset_index(drop=True)


def measured_here(seconds: float, batches: Sequence[int]) -> pd.DataFrame:
    """Return the speeds of elastic jobs of this machine."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ring-") as home:
        os.environ["HOME"], os.environ["XDG_STATE_HOME"] = home, f"{home}/state"
        cluster = connect("local", cpus=8.0)
        try:
            for cpu in CORES:
                for batch in batches:
                    rows += speeds(cluster, Path(home), cpu, batch, seconds)
        finally:
            cluster.shutdown(force=True)
    return pd.DataFrame(rows, columns=[*AXES, "batch_size", "samples_per_s"])


def speeds(cluster: Cluster, home: Path, cpu: float, batch: int, seconds: float) -> list[tuple[float, ...]]:
    """Return the rows of one job over the number of workers."""
    folder = home / f"ring-{batch}-{int(100 * cpu)}"
    folder.mkdir()
    command = [sys.executable, str(SCRIPT), "elastic", str(folder)]
    command += ["--rows", str(N_ROW), "--batch", str(batch)]
    handle = cluster.submit(
        JobSpec(
            folder.name,
            plan=plan(WORKERS[0], cpu),
            foreign=ExternalSpec(ExternalRole(tuple(command)), N_ROW * 1000, framework=Framework.DDP),
            n_epoch=1000,
            batch_size=batch,
            mode=Mode.MANUAL,
        )
    )
    rows: list[tuple[float, ...]] = []
    for n in WORKERS:
        if n != WORKERS[0]:
            handle.decide(Scale.to(plan(n, cpu)))
        until(partial(all_train, folder, n), f"{n} members", every_s=0.2)
        time.sleep(SETTLE_S + seconds)  # steps are read from the programs' files afterwards
        rows.append((n, 1, cpu, 0.5, batch, rate(folder, n, seconds)))
        sys.stderr.write(f"{rows[-1]}\n")
    cluster.delete(handle.name, force=True)
    return rows


def plan(n_worker: int, cpu: float) -> ResourcePlan:
    """Return a plan of so many workers."""
    return ResourcePlan(RolePlan(n_worker, cpu, 2048), RolePlan(1, 0.5, 512))


def all_train(folder: Path, n: int) -> bool:
    """Whether so many members are in the newest steps."""
    return sum(steps[-1][3] == n for steps in read_steps(folder).values()) == n


def rate(folder: Path, n: int, seconds: float) -> float:
    """Return the samples/s of all members over the last seconds."""
    each = read_steps(folder).values()
    now_s = max(steps[-1][0] for steps in each)
    total = 0.0
    for steps in each:
        late = [step for step in steps if step[0] > now_s - seconds and step[3] == n]
        if len(late) > 1:
            total += sum(step[1] for step in late[1:]) / (late[-1][0] - late[0][0])
    return total


# comparison


def splits(table: pd.DataFrame, protocol: str, draws: int) -> Iterator[NDArray[np.bool_]]:
    """Yield masks of the plans shown to the fit."""
    workers = table["workers"]
    if protocol == "extrapolate":
        tried = sorted(workers.unique())
        for most in tried[1 : len(tried) // 2 + 1]:
            yield (workers <= most).to_numpy()
        return
    for seed in range(draws):
        shown = np.zeros(len(table), dtype=bool)
        shown[np.random.default_rng(seed).permutation(len(table))[:N_PROBE]] = True
        yield shown


def compared(table: pd.DataFrame, draws: int) -> dict[str, object]:
    """Return the mean error of both kinds of forms by protocol, and the coverage of the ring's bands."""
    figures: dict[str, object] = {}
    for protocol in PROTOCOLS:
        errors: dict[str, list[float]] = {str(kind): [] for kind in Exchange}
        inside = []
        for shown in splits(table, protocol, draws):
            hidden = table[~shown]
            seen = hidden["samples_per_s"].to_numpy()
            for kind in Exchange:
                model = ThroughputModel(dense_bytes=1, embedding_dim=1, exchange=kind).fit(table[shown])
                told = model.predict(hidden[AXES].to_numpy(float), hidden["batch_size"].to_numpy(float))
                off = np.log(told.samples_per_s / seen)
                errors[str(kind)].append(float(np.sqrt(np.mean(off**2))))
            inside.append(float(np.mean((told.low <= seen) & (seen <= told.high))))
        figures[protocol] = {kind: round(statistics.mean(each), 3) for kind, each in errors.items()}
        figures[f"coverage90_{protocol}"] = round(statistics.mean(inside), 3)
    return figures


if __name__ == "__main__":
    main()
