"""Nodes that a master on Ray requests before it knows their configurations: taken, or ended and replaced."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest
import ray
from support.conformance.backend import BackendConformance, Master
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.ray.backend import RayBackend
from dlrover_nb.core.backends.ray.reach import NAMESPACE
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.node import preflight
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.ray, pytest.mark.more]

JOB = "prepared"
PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 512), ps=RolePlan(1, 0.25, 256))


def actors() -> dict[str, str]:
    """Return the ids of the nodes' actors that there are, by their names."""
    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    ours = [name for name in names if name.startswith(f"{JOB}/")]
    return {
        name.removeprefix(f"{JOB}/"): ray.get_actor(name, namespace=NAMESPACE)._actor_id.hex()
        for name in ours
    }


@pytest.fixture
def backend(cluster):
    backend = RayBackend(JOB, one_host=True)
    yield backend
    backend.close()
    until(lambda: not actors(), what="the end of all nodes")


def ps(master: Master, **changes):
    config = replace(BackendConformance().config(master, "ipc"), cpu=PLAN.ps.cpu, memory_mib=256, **changes)
    return replace(config, spec=JobSpec(JOB, plan=PLAN))


def test_the_minimal_set_is_prepared_and_becomes_the_nodes_or_is_ended(backend, master):
    backend.prepare(PLAN)
    before = actors()
    assert before.keys() == {"ps-0", "worker-0"}
    backend.start_node(ps(master))
    assert master.hello(LIMIT_S).node == "ps-0"
    assert backend.poll() == ()
    assert actors() == {"ps-0": before["ps-0"]}  # the worker was not among the first orders
    backend.stop_node("ps-0")
    exited = until(backend.poll, what="the end of the node")
    assert [each.node for each in exited] == ["ps-0"]


def test_a_node_of_another_size_takes_the_place_of_the_prepared_one(backend, master):
    backend.prepare(PLAN)
    before = actors()
    backend.start_node(replace(ps(master), memory_mib=300))
    assert backend.poll() == ()
    after = until(actors, what="its actor")
    assert after.keys() == {"ps-0"}
    assert after["ps-0"] != before["ps-0"]
    assert master.hello(LIMIT_S).node == "ps-0"


def test_a_master_that_died_before_its_job_began_leaves_its_nodes_to_the_next(backend, master):
    RayBackend(JOB, one_host=True).prepare(PLAN)
    before = actors()
    backend.prepare(PLAN)
    assert actors() == before
    backend.start_node(ps(master))
    assert master.hello(LIMIT_S).node == "ps-0"


def test_a_client_requests_them_before_it_reads_the_data_and_ends_them_if_it_cannot(cluster, monkeypatch):
    there = []

    def refused(spec, **_):
        there.append(actors())
        raise InvalidValueError(spec.name)

    monkeypatch.setattr(preflight, "validate_job", refused)
    with pytest.raises(InvalidValueError, match=JOB):
        cluster.submit(JobSpec(JOB, plan=PLAN))
    assert [each.keys() for each in there] == [{"ps-0", "worker-0"}]
    assert actors() == {}
    until(lambda: cluster.load().machines[0].jobs == (), what="that nothing is held")


def test_a_client_leaves_the_nodes_of_a_running_job_alone(cluster):
    handle = cluster.submit(JobSpec(JOB, plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000))
    until(lambda: handle.snapshot().running == PLAN, what="training")
    before = actors()
    with pytest.raises(InvalidValueError, match=JOB):
        cluster.submit(JobSpec(JOB, plan=PLAN))
    assert actors() == before
    handle.stop()
    until(lambda: not actors(), what="the end of all nodes")


def test_a_master_takes_what_its_client_requested_where_nothing_else_is_free(backend, master, cluster):
    most = cluster.capacity().total_cpu - PLAN.ps.cpu
    plan = replace(PLAN, worker=RolePlan(1, most, 512))
    client = RayBackend(JOB, one_host=True)
    until(lambda: client.prepare(plan) or actors(), what="room for them")
    before = actors()
    until(lambda: backend.room().total_cpu == 0, what="that nothing is free")
    backend.prepare(plan)
    config = ps(master)
    backend.start_node(replace(config, spec=replace(config.spec, plan=plan)))
    assert master.hello(LIMIT_S).node == "ps-0"
    assert actors() == before
    backend.poll()


def test_without_room_for_all_nothing_is_prepared(backend, master):
    plan = replace(PLAN, worker=RolePlan(1, 64.0, 512))
    backend.prepare(plan)
    assert actors() == {}
    config = ps(master)
    backend.start_node(replace(config, spec=replace(config.spec, plan=plan)))
    backend.poll()
    assert actors() == {}


def test_a_job_trains_in_the_processes_that_were_prepared_and_grows_beside_them(cluster):
    """The further workers are requested as ever."""
    spec = JobSpec(JOB, plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000)
    handle = cluster.submit(spec)
    until(actors, what="the first nodes")
    first = dict(actors())
    until(lambda: handle.snapshot().running == PLAN, what="training")
    now = actors()
    assert now.keys() - {"worker-2"} == {"ps-0", "worker-0", "worker-1"}  # that one is a spare
    assert first.items() <= now.items()
    more = replace(PLAN, worker=replace(PLAN.worker, count=3))
    handle.decide(Scale.to(more))
    until(lambda: handle.snapshot().running == more, what="growth")
    pids = [node.pid for node in handle.snapshot().nodes]
    handle.stop()
    until(lambda: not any(map(psutil.pid_exists, pids)), what="the end of its nodes")
