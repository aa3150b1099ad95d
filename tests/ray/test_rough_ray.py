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

from dlrover_nb.core.backends.ray.backend import NAMESPACE
from dlrover_nb.core.backends.ray.cluster import jobs_folder
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.session.client import JobHandle
from dlrover_nb.core.structs.job import JobPhase, JobSpec, Mode
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 512), ps=RolePlan(1, 0.25, 256))


def job(name, **changes):
    return replace(JobSpec(name=name, plan=PLAN, mode=Mode.MANUAL, n_epoch=200), **changes)


def test_a_killed_master_takes_its_nodes_along_and_its_name_is_free_again(cluster, wait_until):
    handle = cluster.submit(job("headless"))
    wait_until(lambda: handle.snapshot().running, what="training")
    pids = [node.pid for node in handle.snapshot().nodes]
    master = ray.get_actor("headless", namespace=NAMESPACE)
    psutil.Process(ray.get(master.pid.remote())).kill()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), what="the end of all nodes")
    with pytest.raises(BackendError, match="the master of job headless is gone"):
        handle.snapshot()
    assert next(j for j in cluster.jobs() if j.name == "headless").phase is JobPhase.FAILED
    (left,) = jobs_folder().glob("headless-*")
    again = cluster.submit(job("headless"))
    assert not [path for path in left.iterdir() if path.is_socket()]
    again.stop()


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


def test_a_job_without_room_says_so_and_starts_when_another_ends(cluster, wait_until):
    wide = replace(PLAN, worker=RolePlan(1, 3.0, 512))
    first = cluster.submit(job("first", plan=wide))
    wait_until(lambda: first.snapshot().running, what="training")
    second = cluster.submit(job("second", plan=wide))
    wait_until(lambda: "waiting for room: needs 3 cores" in second.snapshot().message, what="the reason")
    assert second.snapshot().phase is JobPhase.STARTING
    first.stop()
    wait_until(lambda: second.snapshot().running == wide, what="the second job")
    second.stop()


KILLED_HEAD = textwrap.dedent("""
    import os, signal, time
    import psutil
    from dlrover_nb.core.backends.ray.head import running_head
    from dlrover_nb.core.errors import BackendError
    from dlrover_nb.core.session import connect

    def kill_head():
        session = running_head().session
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == session:
                    process.kill()
            except (ProcessLookupError, psutil.NoSuchProcess):
                pass

    cluster = connect("ray", cpus=1)
    kill_head()
    for call in (cluster.jobs, cluster.capacity):
        try:
            call()
        except BackendError as error:
            print("has ended" in str(error))
    again = connect("ray", cpus=1)
    print(again.jobs(), again.capacity().total_cpu)
    kill_head()
    print("has ended" in again.shutdown(), running_head())
""")


def test_a_process_outlives_its_ray_and_connects_again():
    with tempfile.TemporaryDirectory(prefix="dlh") as home:
        places = {f"XDG_{kind}_HOME": home for kind in ("STATE", "DATA", "CONFIG")}
        run = subprocess.run(
            [sys.executable, "-c", KILLED_HEAD],
            capture_output=True,
            text=True,
            env=os.environ | places,
            timeout=200,
            check=False,
        )
    assert run.stdout.split("\n") == ["True", "True", "() 1.0", "True None", ""], run.stderr
