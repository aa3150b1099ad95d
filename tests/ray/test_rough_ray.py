"""Unkind things done to a real local Ray: masters and heads killed, no room, two clients at once."""

import os
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest
import ray
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.ray.cluster import jobs_folder
from dlrover_nb.core.backends.ray.master import RayLink
from dlrover_nb.core.backends.ray.reach import NAMESPACE
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG
from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import RoomChanged

pytestmark = [pytest.mark.ray, pytest.mark.more]

PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 512), ps=RolePlan(1, 0.25, 256))


def job(name, **changes):
    return replace(JobSpec(name=name, plan=PLAN, mode=Mode.MANUAL, n_epoch=200), **changes)


def pids_of(handle):
    return {node.id: node.pid for node in handle.snapshot().nodes}


def kill_master(name):
    """End the master's process as a crash would; return its process id."""
    pid = ray.get(ray.get_actor(name, namespace=NAMESPACE).pid.remote())
    psutil.Process(pid).kill()
    return pid


@pytest.mark.release
def test_a_killed_master_comes_back_to_its_nodes_and_the_job_ends_exactly(cluster, wait_until):
    spec = job("phoenix", n_epoch=6, checkpoint_every_s=2.0)
    handle = cluster.submit(spec)
    before = wait_until(lambda: trained(handle, 5_000), what="training")
    nodes = pids_of(handle)
    killed = kill_master("phoenix")
    after = wait_until(
        lambda: trained(handle, before.train.n_sample_done + 5_000), what="training after the kill"
    )
    assert pids_of(handle) == nodes
    assert ray.get(ray.get_actor("phoenix", namespace=NAMESPACE).pid.remote()) != killed
    assert after.started_at_s == before.started_at_s
    kill_master("phoenix")
    final = handle.wait(LIMIT_S)
    assert final.phase is JobPhase.SUCCEEDED, final.message
    assert final.train.done == final.train.total
    assert final.train.n_sample_done == final.train.n_sample_total
    assert sum("the master restarted" in line for line in final.story) == 2
    wait_until(lambda: not any(map(psutil.pid_exists, nodes.values())), what="the end of its nodes")


@pytest.mark.release
def test_a_job_whose_master_cannot_come_back_is_gone_and_its_name_is_free_again(cluster, wait_until):
    handle = cluster.submit(job("headless"))
    wait_until(lambda: handle.snapshot().running, what="training")
    nodes = pids_of(handle)
    (left,) = jobs_folder().glob("headless-*")
    (left / WRITE_AHEAD_LOG).unlink()
    kill_master("headless")
    with pytest.raises(
        BackendError,
        match=r"the master of job headless could not begin: .* left no write-ahead log .*; submit the job again",
    ):
        wait_until(lambda: handle.snapshot() is None)
    assert next(j for j in cluster.jobs() if j.name == "headless").phase is JobPhase.FAILED
    with pytest.raises(NotFoundError, match="`%dlrover history headless` shows what it did"):
        cluster.job("headless")
    again = cluster.submit(job("headless"))
    wait_until(lambda: not any(map(psutil.pid_exists, nodes.values())), what="the end of all nodes")
    wait_until(lambda: again.snapshot().running, what="training")
    again.stop()


@pytest.mark.release
def test_two_jobs_that_fit_only_one_after_the_other_both_finish(cluster):
    halves = replace(PLAN, worker=RolePlan(1, 1.5, 512), ps=RolePlan(1, 1.0, 256))
    with ThreadPoolExecutor(2) as pool:
        handles = list(
            pool.map(cluster.submit, [job(name, plan=halves, n_epoch=1) for name in ("one", "other")])
        )
    for handle in handles:
        final = handle.wait(LIMIT_S)
        assert final.phase is JobPhase.SUCCEEDED, final.message
        assert final.train.finished


@pytest.mark.release
def test_a_job_plans_with_what_it_holds_and_what_nobody_does(cluster, wait_until):
    first = cluster.submit(job("planner"))
    wait_until(lambda: first.snapshot().running, what="training")
    second = cluster.submit(job("neighbour"))
    wait_until(lambda: second.snapshot().running, what="training of the second")
    (folder,) = jobs_folder().glob("planner-*")

    def rooms():
        events = read_events(folder)
        return [each.capacity.total_cpu for each in events if isinstance(each, RoomChanged)]

    wait_until(lambda: rooms()[-1:] == [4 - 0.75], what="less room")
    second.stop()
    wait_until(lambda: rooms()[-1:] == [4.0], what="all room again")
    first.stop()


def trained(handle, n_sample):
    try:
        snapshot = handle.snapshot()
    except BackendError:  # its master has not come back yet
        return None
    assert not snapshot.phase.is_final, snapshot.message
    return snapshot if snapshot.running and snapshot.train.n_sample_done >= n_sample else None


def test_of_two_jobs_submitted_at_once_under_one_name_one_runs(cluster):
    def submit(_):
        try:
            return cluster.submit(job("twin"))
        except InvalidValueError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(submit, range(2)))
    (handle,) = [each for each in told if isinstance(each, JobHandle)]
    (refusal,) = [each for each in told if isinstance(each, str)]
    assert "twin" in refusal
    assert handle.stop().phase is JobPhase.STOPPED
    assert handle.stop().phase is JobPhase.STOPPED


@pytest.mark.release
def test_a_job_without_room_says_so_and_starts_when_another_ends(cluster, wait_until):
    wide = replace(PLAN, worker=RolePlan(1, 3.0, 512))
    first = cluster.submit(job("first", plan=wide))
    wait_until(lambda: first.snapshot().running, what="training")
    second = cluster.submit(job("second", plan=wide))
    wait_until(lambda: "waiting for room: needs 3.25 cores" in second.snapshot().message, what="the reason")
    assert second.snapshot().phase is JobPhase.STARTING
    first.stop()
    wait_until(lambda: second.snapshot().running == wide, what="the second job")
    second.stop()


KILLED_HEAD = textwrap.dedent("""
    import faulthandler, os
    import psutil
    from dlrover_nb.core.backends.ray.head import running_head
    from dlrover_nb.core.errors import BackendError
    from dlrover_nb.core.connect import connect

    faulthandler.dump_traceback_later(500, exit=True)  # says where it hangs, if it does

    def kill_head():
        session = running_head().session
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == session:
                    process.kill()
            except (ProcessLookupError, psutil.NoSuchProcess):
                pass

    cluster = connect("ray", cpus=1)
    handle = cluster._handle("watched", None)  # nothing is asked of an actor when Ray is gone
    kill_head()
    for call in (cluster.jobs, cluster.capacity, handle.snapshot, handle.logs, handle.stop):
        try:
            call()
        except BackendError as error:
            told = str(error)
            print("has ended" in told and told.endswith("connect again") and len(told.splitlines()) == 1)
    again = connect("ray", cpus=1)
    print(again.jobs(), again.capacity().total_cpu)
    kill_head()
    print("has ended" in again.shutdown(), running_head())
""")


@pytest.mark.release
def test_a_process_outlives_its_ray_and_connects_again():
    with tempfile.TemporaryDirectory(prefix="dlh") as home:
        places = {f"XDG_{kind}_HOME": home for kind in ("STATE", "DATA", "CONFIG")}
        run = subprocess.run(
            [sys.executable, "-c", KILLED_HEAD],
            capture_output=True,
            text=True,
            env=os.environ | places,
            timeout=LIMIT_S,
            check=False,
        )
    assert run.stdout.split("\n") == [*["True"] * 5, "() 1.0", "True None", ""], run.stderr


def test_a_client_of_release_0_1_is_refused_in_one_line(cluster):
    handle = cluster.submit(job("later"))
    actor = ray.get_actor("later", namespace=NAMESPACE)
    for call, arguments in (("snapshot", ()), ("summary", ()), ("series", (0,)), ("stop", ("ada", ""))):
        error, text = ray.get(getattr(actor, call).remote(*arguments))
        assert error == "BackendError"
        assert "the master of job later is of another release" in text
        assert len(text.splitlines()) == 1
    assert handle.stop().phase is JobPhase.STOPPED


def test_a_master_of_release_0_1_is_refused_in_one_line(cluster):
    class Master:
        def snapshot(self):
            return ("ok", None)

    with pytest.raises(BackendError, match="the master of job old is of another release") as refused:
        RayLink("old", ray.remote(Master).options(num_cpus=0).remote()).snapshot()
    assert len(str(refused.value).splitlines()) == 1
