"""External jobs as children of Ray's actors."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import psutil
import pytest
import ray
from support.conformance.programs import (
    TORCH,
    ProgramsConformance,
    ended,
    plan_of,
    supervisor_of,
    texts,
    torch_job,
    trains,
)
from support.waiting import until

from dlrover_nb.core.backends.ray.cluster import RayCluster
from dlrover_nb.core.backends.ray.head import running_head
from dlrover_nb.core.backends.ray.reach import NAMESPACE
from dlrover_nb.core.structs.job.external import Counting, ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

pytestmark = pytest.mark.ray


@pytest.mark.release
class TestRayPrograms(ProgramsConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, cluster):
        return cluster

    def kill_master(self, handle):
        pid = ray.get(ray.get_actor(handle.name, namespace=NAMESPACE).pid.remote())
        psutil.Process(pid).kill()
        until(lambda: not psutil.pid_exists(pid), what="the end of the master")

    def test_all_of_torchrun_ends_with_its_killed_actor_and_the_job_goes_on(
        self, submitted, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("USERS", "own")
        script = tmp_path / "train.py"
        script.write_text(TORCH)
        command = (sys.executable, "-m", "torch.distributed.run", str(script), str(tmp_path / "end"))
        role = ExternalRole(command, env=("OWN=ada",))
        spec = ExternalSpec(role, 1_000_000, framework=Framework.TORCH, counting=Counting.JOB)
        handle = submitted("widowed", spec)
        trains(handle, 2)
        until(lambda: any("of 2" in text for text in texts(handle, "worker-1")), what="its words")
        supervisor = supervisor_of(handle, "worker-1")
        processes = [supervisor, *supervisor.children(recursive=True)]
        assert len({os.getsid(each.pid) for each in processes}) > 1, "torchrun starts sessions of their own"
        supervisor.parent().kill()
        until(lambda: not any(each.is_running() for each in processes), what="the end of its program")
        until(lambda: "worker-2" in [node.id for node in handle.snapshot().nodes], what="another worker")
        trains(handle, 2)
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED

    def test_a_ray_of_others_runs_programs_as_ray_starts_its_actors(self, cluster, tmp_path):
        others = RayCluster(running_head().address, None)
        foreign = torch_job(tmp_path)
        foreign = replace(foreign, worker=replace(foreign.worker, env=("OWN=ada", "USERS=own")))
        spec = JobSpec("elsewhere", plan=plan_of(2), foreign=foreign, batch_size=8, mode=Mode.MANUAL)
        handle = others.submit(spec)
        trains(handle, 2)
        until(lambda: handle.snapshot().train.n_sample_done, what="reports")
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED
        cluster.delete("elsewhere")

    def test_actors_leave_when_their_programs_have_ended(self, submitted, tmp_path, monkeypatch):
        monkeypatch.setenv("USERS", "own")
        handle = submitted("leaves", torch_job(tmp_path), n_worker=1)
        trains(handle, 1)
        actors = {node.id: supervisor_of(handle, node.id).parent() for node in handle.snapshot().nodes}
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED
        until(lambda: not any(each.is_running() for each in actors.values()), what="the end of the actors")
