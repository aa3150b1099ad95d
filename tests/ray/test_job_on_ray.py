"""The main job on a real local Ray: every test trains a real model on real rows."""

import contextlib
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.jobs.orders import ordered
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.ray.cluster import connect_ray
from dlrover_nb.core.backends.ray.head import running_head
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.commands.requests import Scale, Undo
from dlrover_nb.core.errors import (
    BackendError,
    CapacityError,
    InvalidValueError,
    NotFoundError,
    StaleDecisionError,
)
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, KillRestart, SetSize
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Mode, Sync
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.summary import summarize

pytestmark = [pytest.mark.ray, pytest.mark.more]

PLAN = ResourcePlan(worker=RolePlan(1, 1.0, 1024), ps=RolePlan(1, 0.5, 512))
FOREVER = 10_000  # epochs of a job that is stopped: on a slow machine two may end before


def job(name, **changes):
    return replace(JobSpec(name=name, plan=PLAN, mode=Mode.MANUAL, n_epoch=2), **changes)


def shards_of(spec, snapshot):
    n_train = snapshot.train.n_sample_total // spec.n_epoch
    return spec.n_epoch * math.ceil(n_train / (spec.batch_size * spec.shard_batches))


def assert_exact(spec, snapshot):
    assert snapshot.phase is JobPhase.SUCCEEDED, snapshot.message
    assert snapshot.train.done == snapshot.train.total == shards_of(spec, snapshot)
    assert snapshot.train.n_sample_done == snapshot.train.n_sample_total
    assert snapshot.evaluation.auc > 0.9


def carriers(snapshot):
    """What carries the arrays of workers."""
    return {node.last.carrier for node in snapshot.nodes if node.role is Role.WORKER and node.last}


def in_new_process(code):
    """Start Python code in a process of its own, connected to the same user's Ray."""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_job_survives_the_kill_of_a_worker_and_of_the_submitting_process(cluster, wait_until, kill_node):
    spec = job("survivor", n_epoch=8)
    submitter = in_new_process(
        "import os, signal\n"
        "from dlrover_nb.core.connect import connect\n"
        "from dlrover_nb.core.codec import from_json\n"
        "from dlrover_nb.core.structs.job.job import JobSpec\n"
        f"connect('ray').submit(from_json({to_json(spec)!r}, JobSpec)).snapshot()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    submitter.communicate(timeout=LIMIT_S)
    assert submitter.returncode == -signal.SIGKILL
    handle = cluster.job("survivor")
    snapshot = wait_until(lambda: training(handle, n_sample=5_000), what="training")
    wait_until(lambda: carriers(handle.snapshot()) == {"shared memory"}, what="actors that share memory")
    killed = kill_node(snapshot, "worker")
    final = handle.wait(LIMIT_S)
    assert_exact(spec, final)
    assert killed not in {n.id for n in final.nodes if n.phase != "gone"}
    assert final.train.returned >= 1
    assert not list(SHM.glob("dlrover-nb-survivor-*"))


@pytest.mark.release
def test_a_scaled_job_loses_no_shard(cluster, wait_until):
    spec = job("scaled", n_epoch=30)  # it outlasts two changes of its plan
    handle = cluster.submit(spec)
    wait_until(lambda: training(handle, n_sample=5_000), what="training")
    target = ResourcePlan(worker=RolePlan(2, 1.0, 1024), ps=RolePlan(2, 0.5, 512))
    huge = replace(PLAN, worker=RolePlan(1, 999, 1024))
    told = handle.weigh(target, huge)
    assert [bool(weighed.refusal) for weighed in told] == [False, True]
    decision = handle.decide(Scale.to(target, why="twice of all"))
    assert decision.id
    wait_until(
        lambda: handle.snapshot().running == target or handle.snapshot().phase.is_final, what="the plan"
    )
    assert handle.snapshot().running == target
    with pytest.raises(InvalidValueError, match="runs"):
        handle.decide(Scale.to(target))
    assert (handle.explain().proposal, handle.explain().plan) == (None, target)
    with pytest.raises(NotFoundError, match="there are none yet"):
        handle.explain("p1")
    with pytest.raises(NotFoundError, match="no change d9"):
        handle.decide(Undo("d9"))
    assert handle.decide(Undo("", why="it was enough")).undoes == decision.id
    wait_until(lambda: handle.snapshot().running == PLAN, what="the plan before")
    final = handle.wait(LIMIT_S)
    assert_exact(spec, final)
    assert [marker.plan for marker in final.markers] == [PLAN, target, PLAN]
    with pytest.raises(StaleDecisionError):
        handle.decide(Scale.to(PLAN))


@pytest.mark.release
def test_nodes_are_replaced_by_order_and_no_row_is_lost(cluster, wait_until):
    two = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.5, 512))
    spec = job("mitigated", plan=two, sync=Sync.BSP, n_epoch=20)
    handle = cluster.submit(spec)
    wait_until(lambda: training(handle, n_sample=5_000), what="training")
    with pytest.raises(InvalidValueError, match="worker-9"):
        handle.decide(ordered(KillRestart("worker-9", Role.WORKER)))
    for action in (
        KillRestart("worker-0", Role.WORKER),
        AdjustBatches((("worker-1", 700), ("worker-2", 324))),
        KillRestart("ps-0", Role.PS),
        SetSize("ps-1", Role.PS, 0.75, 640),
    ):
        decision = handle.decide(ordered(action, why="to see it done"))
        wait_until(
            lambda d=decision: ended(handle, d.id) or handle.snapshot().phase.is_final, what=action.words
        )
        assert ended(handle, decision.id) == ProposalStatus.APPLIED, handle.snapshot().mitigations
    sizes = {node.id: (node.cpu, node.memory_mib) for node in handle.snapshot().nodes}
    assert sizes == {"worker-1": (0.5, 1024), "worker-2": (0.5, 1024), "ps-2": (0.75, 640)}
    assert_exact(spec, handle.wait(LIMIT_S))


def ended(handle, decision):
    """Return how an ordered action ended; None while it has not."""
    found = [each.status for each in handle.snapshot().mitigations if each.decision == decision]
    return next((each for each in found if each in {ProposalStatus.APPLIED, ProposalStatus.FAILED}), None)


def test_a_job_is_found_again_by_name_from_another_process(cluster, wait_until):
    handle = cluster.submit(job("found", n_epoch=FOREVER))
    other = in_new_process(
        "from dlrover_nb.core.connect import connect\n"
        "c = connect('ray')\n"
        "print(c.job('found').name, sorted(j.name for j in c.jobs() if j.live))\n"
    )
    out, err = other.communicate(timeout=LIMIT_S)
    assert out.startswith("found ["), err
    with pytest.raises(NotFoundError, match="did you mean found"):
        cluster.job("fuond")
    with pytest.raises(InvalidValueError, match="exists already"):
        cluster.submit(job("found", n_epoch=FOREVER))
    stopped = handle.stop(why="seen enough")
    assert stopped.phase is JobPhase.STOPPED
    told = next(line for line in cluster.live_jobs() if line.name == "found")
    assert told == summarize(handle.snapshot())


def test_bad_input_is_refused_before_anything_starts(cluster):
    before = {j.name for j in cluster.jobs()}
    with pytest.raises(CapacityError, match="no machine holds one worker of 999 cores"):
        cluster.submit(job("big", plan=replace(PLAN, worker=RolePlan(1, 999, 1024))))
    with pytest.raises(NotFoundError, match="nowhere"):
        cluster.submit(job("file", data=DataSpec(format=DataFormat.PARQUET, path="/nowhere.parquet")))
    with pytest.raises((InvalidValueError, NotFoundError), match="income"):
        cluster.submit(job("column", data=DataSpec(label="income")))
    assert {j.name for j in cluster.jobs()} == before


def test_a_second_connect_joins_the_same_head(cluster):
    assert connect_ray().description == cluster.description
    assert running_head().address in cluster.description


def test_an_address_where_no_ray_is_is_refused_and_the_connection_stays(cluster):
    for address in ("127.0.0.1:1", "nonsense", "ray://127.0.0.1:1"):
        with pytest.raises(BackendError, match=f"no Ray at {address}"):
            connect_ray(address)
    assert cluster.capacity().total_cpu == 4
    other = in_new_process("from dlrover_nb.core.connect import connect; connect('ray').jobs()")
    _, err = other.communicate(timeout=LIMIT_S)
    assert other.returncode == 0, err


def test_an_ended_job_makes_room_for_the_next_of_its_name(cluster):
    first = cluster.submit(job("again", n_epoch=FOREVER))
    first.stop()
    second = cluster.submit(job("again", n_epoch=FOREVER))
    assert not second.snapshot().phase.is_final
    second.stop()


def test_a_deleted_job_leaves_nothing_and_one_that_runs_is_not_deleted_by_mistake(cluster, wait_until):
    handle = cluster.submit(job("unwanted", n_epoch=FOREVER))
    wait_until(lambda: handle.snapshot().running, what="training")
    folder = Path(handle.snapshot().folder)
    with pytest.raises(
        InvalidValueError, match=r"job unwanted runs \(training\); stop unwanted first, or delete"
    ):
        cluster.delete("unwanted")
    assert folder.exists()
    assert "with 1 run folder" in cluster.delete("unwanted", force=True)
    assert not folder.exists()
    assert "unwanted" not in {each.name for each in cluster.live_jobs()}
    with pytest.raises(NotFoundError):
        cluster.delete("unwanted")


def of_session(session):
    """Return the processes of a session; others of this machine may end meanwhile."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == session:
                found.add(process.pid)
    return found


def test_the_head_listens_on_loopback_alone(cluster):
    ours = of_session(running_head().session)
    listening = [c for c in psutil.net_connections("tcp") if c.pid in ours and c.status == "LISTEN"]
    assert listening
    assert {c.laddr.ip for c in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def training(handle, n_sample):
    snapshot = handle.snapshot()
    assert not snapshot.phase.is_final, snapshot.message
    return snapshot if snapshot.train.n_sample_done >= n_sample and snapshot.running else None
