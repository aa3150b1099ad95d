"""AUC and log loss of distributed runs compared with a single process on the same rows.

Each run is a real job of processes on this machine, with two workers and one parameter server, in one of
these modes; the single process trains the same model on the same rows:

asp       asynchronous
overlap   asynchronous, and workers compute while their gradients are sent
bsp       bulk-synchronous; each worker has half the batch, so that a round is a batch of the single process
ssp       stale-synchronous, at most 4 iterations ahead, with overlap
gba       global batches, gathered from half batches without waiting, with overlap
elastic   overlap, and on the way: one worker and one parameter server become two of each, a worker and a
          parameter server are killed by kill -9 (training goes back to the last checkpoint), and one server
          is taken away again; it says how much of this came before the end

    python benchmarks/convergence.py [--data census criteo --ways asp bsp --seeds 0 1 2 --shared FOLDER]

Criteo is the first 60,000 rows of a public sample (48,000 to train on, 12,000 held out); it is left out, with
a message, where the file is missing. The last line is JSON.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from lengths import parsed, print_figures

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.models.metrics import auc, log_loss
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Mode, Sync
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.runtime.single_process import train_single

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

LIMIT_S = 600.0
BATCH_SIZE = 256
WAYS = ("asp", "overlap", "bsp", "ssp", "gba", "elastic")
EPOCHS = {"census": 2, "criteo": 4}
RATES = {"census": 0.02, "criteo": 0.1}
CRITEO = Path("criteo", "criteo_60k.parquet")


@dataclass(frozen=True)
class Quality:
    """A run's quality on the held-out rows, and the states of its shards."""

    auc: float
    log_loss: float
    counts: str = ""


def plan(workers: int, ps: int) -> ResourcePlan:
    return ResourcePlan(worker=RolePlan(workers, 0.5, 1024), ps=RolePlan(ps, 0.25, 512))


def data_of(name: str, shared: Path) -> DataSpec | None:
    """Return the path of the rows; None: they are not on this machine."""
    if name == "census":
        return DataSpec()
    path = (shared / CRITEO).resolve()
    numeric, categorical = (tuple(f"{kind}{i}" for i in range(1, n)) for kind, n in (("I", 14), ("C", 27)))
    return (
        DataSpec(DataFormat.PARQUET, str(path), "label", numeric, categorical, holdout=0.2)
        if path.exists()
        else None
    )


def job(name: str, data: DataSpec, seed: int) -> JobSpec:
    return JobSpec(
        name=f"convergence-{name}-{seed}",
        data=data,
        plan=plan(2, 1),
        mode=Mode.MANUAL,
        batch_size=BATCH_SIZE,
        n_epoch=EPOCHS[name],
        seed=seed,
        overlap=False,
        model=ModelSpec(seed=seed, learning_rate=RATES[name]),
    )


def in_the_way(way: str, spec: JobSpec) -> JobSpec:
    """Return the job that trains `spec` in one mode of `WAYS`."""
    match way:
        case "asp":
            return spec
        case "overlap":
            return replace(spec, overlap=True)
        case "bsp":
            return replace(spec, sync=Sync.BSP, batch_size=BATCH_SIZE // 2)
        case "ssp":
            return replace(spec, sync=Sync.SSP, overlap=True)
        case "gba":
            half = BATCH_SIZE // 2
            return replace(spec, sync=Sync.GBA, overlap=True, batch_size=half, global_batch=BATCH_SIZE)
        case _:
            return replace(spec, overlap=True, plan=plan(1, 1), checkpoint_every_s=1.0)


def wait(handle: JobHandle, condition: Callable[[JobSnapshot], bool]) -> JobSnapshot:
    end = time.monotonic() + LIMIT_S
    while not condition(snapshot := handle.snapshot()) and not snapshot.phase.is_final:
        if time.monotonic() > end:
            raise TimeoutError(f"{snapshot.phase} {snapshot.message}: {snapshot.story[-5:]}")
        time.sleep(0.05)
    return snapshot


def share_done(snapshot: JobSnapshot) -> float:
    return snapshot.train.n_sample_done / max(snapshot.train.n_sample_total, 1)


def kill(handle: JobHandle, role: Role) -> None:
    """Kill the newest running node of a role."""
    nodes: list[NodeView] = [n for n in handle.snapshot().nodes if n.role is role and n.pid]
    if nodes and nodes[-1].pid is not None:
        psutil.Process(nodes[-1].pid).kill()


def disturb(handle: JobHandle) -> str:
    """Scale out, kill a worker and a parameter server, scale in; return what happened in time."""
    done = []
    wait(handle, lambda s: share_done(s) > 0.02)
    handle.decide(Scale.to(plan(2, 2)))
    if not wait(handle, lambda s: s.running == plan(2, 2)).phase.is_final:
        done.append("scaled out")
    for role, share in ((Role.WORKER, 0.3), (Role.PS, 0.5)):
        if not wait(handle, lambda s, share=share: share_done(s) > share).phase.is_final:  # type: ignore[misc]
            kill(handle, role)
            done.append(f"{role} killed")
    time.sleep(1.0)  # until the master has noticed
    wait(handle, lambda s: s.running == plan(2, 2))
    if not handle.snapshot().phase.is_final:
        handle.decide(Scale.to(plan(2, 1)))
        done.append("scaled in")
    return ", ".join(done)


def distributed(spec: JobSpec, *, is_disturbed: bool) -> Quality:
    features = make_features(spec.data, spec.model)
    with tempfile.TemporaryDirectory(prefix="dlb") as name:
        driver = own_job.begin(
            spec,
            features,
            own_job.RunSetup(
                LocalBackend(Path(name) / "run"),
                Path(name) / "run",
                history_url=f"sqlite:///{name}/history.db",
                clock=SystemClock(),
            ),
        )
        driver.start()
        try:
            handle = JobHandle(spec.name, driver)
            what = disturb(handle) if is_disturbed else ""
            snapshot = wait(handle, lambda s: s.phase.is_final)
        finally:
            driver.close()
    if snapshot.phase is not JobPhase.SUCCEEDED or snapshot.evaluation is None:
        raise RuntimeError(f"{snapshot.phase}: {snapshot.message}: {snapshot.story[-5:]}")
    train = snapshot.train
    counts = f"{train.done} of {train.total} shards, {train.returned} returned"
    return Quality(
        snapshot.evaluation.auc, snapshot.evaluation.log_loss, f"{counts}; {what}" if what else counts
    )


def alone(spec: JobSpec) -> Quality:
    run = train_single(spec, make_features(spec.data, spec.model))
    return Quality(auc(run.scores, run.labels), log_loss(run.scores, run.labels))


def measure(name: str, data: DataSpec, seed: int, ways: list[str]) -> dict[str, Quality]:
    """Return the quality of each mode and of the single process, and print it."""
    spec = job(name, data, seed)
    single = alone(spec)
    print(f"{name:8} {seed:4}  single   {single.auc:.4f}           {single.log_loss:.4f}", flush=True)
    found = {"single": single}
    for way in ways:
        run = distributed(in_the_way(way, spec), is_disturbed=way == "elastic")
        found[way] = run
        gain = run.auc - single.auc
        print(
            f"{name:8} {seed:4}  {way:8} {run.auc:.4f} {gain:+.4f}   {run.log_loss:.4f}  {run.counts}",
            flush=True,
        )
    return found


def summary(runs: list[dict[str, Quality]], ways: list[str]) -> dict[str, object]:
    """Return per mode the mean AUC and log loss, and the largest AUC difference to the single process."""
    rows: dict[str, object] = {}
    for way in ("single", *ways):
        rows[way] = {
            "auc": round(statistics.mean(run[way].auc for run in runs), 5),
            "log_loss": round(statistics.mean(run[way].log_loss for run in runs), 5),
            "largest_auc_difference": round(max(abs(run[way].auc - run["single"].auc) for run in runs), 5),
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["census"], choices=EPOCHS)
    parser.add_argument("--ways", nargs="+", default=["overlap"], choices=WAYS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="where criteo/ is")
    options = parsed(parser, data=["census", "criteo"], ways=list(WAYS), seeds=[0, 1, 2])
    result: dict[str, object] = {"benchmark": "convergence", "seeds": options.seeds, "batch_size": BATCH_SIZE}
    print("data     seed  way      AUC    difference log loss")
    for name in options.data:
        data = data_of(name, options.shared)
        if data is None:
            print(f"{name}: {options.shared / CRITEO} is not there; say where with --shared")
            continue
        runs = [measure(name, data, seed, options.ways) for seed in options.seeds]
        result[name] = {"epochs": EPOCHS[name], **summary(runs, options.ways)}
    print_figures("convergence", result)


if __name__ == "__main__":
    main()
