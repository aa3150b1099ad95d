"""External jobs as children of Ray's actors."""

from __future__ import annotations

import psutil
import pytest
import ray
from programs_conformance import ProgramsConformance, ended, supervisor_of, texts, torch_job, trains
from waiting import until

from dlrover_nb.core.backends.ray.reach import NAMESPACE
from dlrover_nb.core.structs.job import JobPhase

pytestmark = pytest.mark.ray


class TestRayPrograms(ProgramsConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, cluster):
        return cluster

    def kill_master(self, handle):
        pid = ray.get(ray.get_actor(handle.name, namespace=NAMESPACE).pid.remote())
        psutil.Process(pid).kill()
        until(lambda: not psutil.pid_exists(pid), what="the end of the master")

    def test_a_program_ends_with_its_killed_actor_and_the_job_goes_on(self, submitted, tmp_path, monkeypatch):
        monkeypatch.setenv("USERS", "own")
        handle = submitted("widowed", torch_job(tmp_path))
        trains(handle, 2)
        until(lambda: any("of 2" in text for text in texts(handle, "worker-1")), what="its words")
        supervisor = supervisor_of(handle, "worker-1")
        processes = [supervisor, *supervisor.children(recursive=True)]
        supervisor.parent().kill()
        until(lambda: not any(each.is_running() for each in processes), what="the end of its program")
        until(lambda: "worker-2" in [node.id for node in handle.snapshot().nodes], what="another worker")
        trains(handle, 2)
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED

    def test_actors_leave_when_their_programs_have_ended(self, submitted, tmp_path, monkeypatch):
        monkeypatch.setenv("USERS", "own")
        handle = submitted("leaves", torch_job(tmp_path), n_worker=1)
        trains(handle, 1)
        actors = {node.id: supervisor_of(handle, node.id).parent() for node in handle.snapshot().nodes}
        (tmp_path / "end").touch()
        assert ended(handle).phase is JobPhase.SUCCEEDED
        until(lambda: not any(each.is_running() for each in actors.values()), what="the end of the actors")
