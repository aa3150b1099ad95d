"""Elastic all-reduce on this machine: processes come and go, and every row is trained once in each pass."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys

import psutil
import pytest
import torch
from support.jobs.orders import ordered
from support.runtime.single_process import train_single
from support.waiting import until

from dlrover_nb.core.backends.local.record import read_master
from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import CheckpointError, InvalidValueError, NotFoundError
from dlrover_nb.core.models import metrics
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.runtime.allreduce.job import with_workers
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.sharding.continued import n_sample_of
from dlrover_nb.core.structs.decisions.actions import AdjustBatches
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

# Its parameters count how often each row was trained: no row is twice in a step, so ceil of its gradient is 1.
COUNTS = """
import pathlib, sys, time, torch
from dlrover_nb.client.elastic import Elastic

n_row, out = int(sys.argv[1]), sys.argv[2]

class Seen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = torch.nn.Parameter(torch.zeros(n_row))
    def forward(self, rows):
        return self.n[rows]

class Count(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.data += torch.ceil(p.grad)

model = Seen()
job = Elastic(model, Count(model.parameters()), n_row=n_row, batch_size=8, checkpoint_every_s=1, checkpoints=out)
for rows in job.batches():
    job.step(model(rows).mean())
    if not pathlib.Path(out, "go").exists():
        time.sleep(1.5)  # its few rows last until all that is tried has happened
if job.is_complete:
    torch.save(model.n.detach(), f"{out}/of-rank-{job.rank}")
"""
N_ROW, N_EPOCH = 4_000, 3  # minutes before `go`, seconds after it


def plan(n_worker):
    return ResourcePlan(RolePlan(n_worker, 0.5, 1024), RolePlan(1, 0.25, 512))


@pytest.fixture(scope="module")
def local(own_home):
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


def world(handle, n_member):
    """Wait until so many train."""

    def reached():
        now = handle.snapshot()
        assert not now.phase.is_final, (now.message, [line.text for line in handle.logs(n_line=200)])
        workers = [node for node in now.nodes if str(node.role) == "worker" and str(node.phase) == "ready"]
        return now.running == plan(n_member) and len(workers) == n_member and now

    return until(reached, what=f"a world of {n_member}")


def programs_of(handle):
    """Return the processes of the workers' programs by node."""
    found = {}
    for path in (handle.link.folder / "nodes").glob("worker-*.pid"):
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):  # it has just ended
            for each in psutil.Process(json.loads(path.read_bytes())["pid"]).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # a tool of the shell
                    if "python" in each.name():
                        found[path.stem] = each
    return found


@pytest.mark.release
def test_every_row_is_trained_once_in_each_pass_whoever_dies_or_comes(local, tmp_path):
    worker = ExternalRole((sys.executable, "-c", COUNTS, str(N_ROW), str(tmp_path)))
    spec = JobSpec(
        "counts",
        plan=plan(2),
        foreign=ExternalSpec(worker, N_ROW * N_EPOCH, framework=Framework.DDP),
        n_epoch=N_EPOCH,
        batch_size=8,
        shard_batches=10,
        mode=Mode.MANUAL,
    )
    handle = local.submit(spec)
    world(handle, 2)
    before = programs_of(handle)
    handle.decide(Scale.to(plan(3)))
    world(handle, 3)
    there = programs_of(handle)
    assert {node: there[node].pid for node in before} == {node: each.pid for node, each in before.items()}

    there["worker-0"].kill()  # rank 0
    until(lambda: "worker-3" in [node.id for node in handle.snapshot().nodes], what="its successor")
    world(handle, 3)
    assert programs_of(handle)["worker-1"].pid == there["worker-1"].pid, "who stays is not restarted"

    master = read_master(handle.link.folder)
    os.kill(master.pid, signal.SIGKILL)
    until(lambda: not master.is_alive, what="the end of the master")
    world(handle, 3)
    handle.decide(Scale.to(plan(2)))
    world(handle, 2)

    def is_there_without(pids):
        there = {each.pid for each in programs_of(handle).values()}
        return len(there) == 2 and not there & pids

    until(lambda: list(tmp_path.glob("*.dlnb")), what="a checkpoint")
    killed = programs_of(handle)
    for each in killed.values():
        with contextlib.suppress(psutil.NoSuchProcess):  # of the worker that has left
            each.kill()
    dead = {each.pid for each in killed.values()}
    until(lambda: is_there_without(dead), what="the successors of both")
    world(handle, 2)
    (tmp_path / "go").touch()
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    now = handle.snapshot()
    assert (now.phase, now.message) == (JobPhase.SUCCEEDED, "")
    assert now.train.n_sample_done == N_ROW * N_EPOCH
    counts = [torch.load(path) for path in sorted(tmp_path.glob("of-rank-*"))]
    assert len(counts) == 2
    assert all(torch.equal(each, torch.full((N_ROW,), float(N_EPOCH))) for each in counts)
    local.delete("counts")


@pytest.mark.release
def test_workers_get_other_cores_one_at_a_time_and_every_row_is_trained_once(local, tmp_path, error_words):
    worker = ExternalRole((sys.executable, "-c", COUNTS, str(N_ROW), str(tmp_path)))
    foreign = ExternalSpec(worker, N_ROW, framework=Framework.DDP)
    spec = JobSpec("sized", plan=plan(2), foreign=foreign, batch_size=8, shard_batches=10, mode=Mode.MANUAL)
    handle = local.submit(spec)
    world(handle, 2)

    def is_ordered():
        with contextlib.suppress(NotFoundError):  # until both have reported under the plan
            return handle.decide(ordered(AdjustBatches((("worker-0", 12), ("worker-1", 4)))))

    until(is_ordered, what="other batches")
    closed = until(lambda: (m := handle.snapshot().mitigations) and m[-1].closed_at_s and m[-1], what="it")
    assert closed.status is ProposalStatus.APPLIED, closed.note
    larger = ResourcePlan(RolePlan(2, 0.75, 1024), RolePlan(1, 0.25, 512))
    with error_words(InvalidValueError):
        handle.decide(Scale.to(ResourcePlan(larger.worker, RolePlan(1, 0.5, 512))))
    handle.decide(Scale.to(larger))
    fewest = 2

    def reached():
        nonlocal fewest
        now = handle.snapshot()
        ready = [n for n in now.nodes if str(n.role) == "worker" and str(n.phase) == "ready"]
        fewest = min(fewest, len(ready))
        return now.running == larger and now

    now = until(reached, what="the other size")
    assert {n.id for n in now.nodes if str(n.role) == "worker"} == {"worker-2", "worker-3"}
    assert fewest == 2, "an old one trains until its successor does"
    (tmp_path / "go").touch()
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    assert handle.snapshot().phase is JobPhase.SUCCEEDED
    for path in tmp_path.glob("of-rank-*"):
        assert torch.equal(torch.load(path), torch.ones(N_ROW))
    local.delete("sized")


@pytest.mark.release
def test_a_job_that_is_stopped_keeps_its_parameters_first(local, tmp_path):
    worker = ExternalRole((sys.executable, "-c", COUNTS, str(N_ROW), str(tmp_path)))
    foreign = ExternalSpec(worker, N_ROW, framework=Framework.DDP)
    spec = JobSpec("stopped", plan=plan(1), foreign=foreign, batch_size=8, mode=Mode.MANUAL)
    handle = local.submit(spec)
    world(handle, 1)
    until(lambda: handle.snapshot().train.n_sample_done > 100, what="some steps")
    handle.stop(why="enough")
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    assert handle.snapshot().phase is JobPhase.STOPPED
    assert list(tmp_path.glob("*.dlnb"))
    assert not list(tmp_path.glob("of-rank-*")), "its rows were not all trained"
    local.delete("stopped")


@pytest.mark.release
def test_a_model_of_ours_is_trained_by_all_reduce_as_well_as_in_one_process(local, tmp_path):
    spec = JobSpec("ours", plan=plan(2), sync=Sync.ALLREDUCE, mode=Mode.MANUAL, batch_size=256)
    handle = local.submit(spec)
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    now = handle.snapshot()
    assert now.phase is JobPhase.SUCCEEDED, now.message
    assert now.train.n_sample_done == 99_000
    alone = JobSpec("alone", batch_size=512)  # two workers with 256 rows each take the same steps
    run = train_single(alone, validate_job(alone).features)
    expected = metrics.evaluate(run.scores, run.labels)
    assert now.evaluation is not None
    assert now.evaluation.n_sample == expected.n_sample
    assert abs(now.evaluation.auc - expected.auc) < 0.01
    model = load_model(handle)
    again = model.evaluate()
    assert abs(again.auc - now.evaluation.auc) < 1e-6, "what is loaded is what was evaluated"
    manifest = CheckpointFolder(handle.link.folder).latest()
    assert manifest is not None
    assert manifest.trained is not None
    assert n_sample_of(manifest.ledger) == 99_000
    damaged = shutil.copytree(handle.link.folder / "checkpoints", tmp_path / "damaged")
    next(damaged.glob("*/*.part")).write_bytes(b"half of it")
    half = JobSpec("half", plan=plan(2), sync=Sync.ALLREDUCE, start_from=StartFrom(str(damaged)))
    with pytest.raises(CheckpointError, match="is damaged"):
        local.submit(half)
    assert "half" not in {summary.name for summary in local.jobs()}
    for name, sync in (("again", Sync.ALLREDUCE), ("served", Sync.ASP)):
        still = ModelSpec(learning_rate=1e-9)  # what comes out is what it began with
        start = StartFrom(str(handle.link.folder))
        other = JobSpec(name, plan=plan(2), model=still, sync=sync, mode=Mode.MANUAL, start_from=start)
        begun = local.submit(other)
        until(lambda begun=begun: begun.snapshot().phase.is_final, what="the end")
        then = begun.snapshot()
        assert then.phase is JobPhase.SUCCEEDED, then.message
        assert then.began_from is not None
        assert abs(then.evaluation.auc - now.evaluation.auc) < 1e-4
        local.delete(name)
    local.delete("ours")


@pytest.mark.release_variants(
    "rule1-no gain of more than 0.9 in log loss since pass 1",
    "rule2-training loss 0.* has reached the target of 5",
)
@pytest.mark.more
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (EarlyStopping(target=0.51, patience=50), "AUC 0.* has reached the target of 0.51"),
        (EarlyStopping(Metric.LOG_LOSS, min_gain=0.9), "no gain of more than 0.9 in log loss since pass 1"),
        (
            EarlyStopping(Metric.LOSS, patience=50, target=5.0),
            "training loss 0.* has reached the target of 5",
        ),
    ],
)
def test_all_reduce_stops_early_by_each_metric(local, rule, expected):
    spec = JobSpec(
        f"early-{rule.metric.replace('_', '-')}",
        plan=plan(2),
        sync=Sync.ALLREDUCE,
        mode=Mode.MANUAL,
        n_epoch=50,
        early_stopping=rule,
    )
    handle = local.submit(spec)
    until(lambda: handle.snapshot().phase.is_final, what="the end")
    now = handle.snapshot()
    assert now.phase is JobPhase.SUCCEEDED, now.message
    assert re.search(expected, now.message), now.message
    assert 0 < now.train.n_sample_done < now.train.n_sample_total / 2
    assert now.train.finished
    assert now.evaluation is not None, "the trained model is evaluated as after its last pass"
    assert bool(now.rounds) is rule.is_held_out
    assert all(each.evaluation.n_sample == now.evaluation.n_sample for each in now.rounds)
    local.delete(spec.name)


def test_what_all_reduce_cannot_do_is_refused(local, error_words):
    rows = JobSpec("refused", sync=Sync.ALLREDUCE, start_from=StartFrom("ours", rows=True))
    with error_words(InvalidValueError):
        with_workers(rows, validate_job(JobSpec("x")).features, python=sys.executable)
