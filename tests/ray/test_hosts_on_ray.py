"""Nodes stand on the machine of a Ray that has least to do: two raylets on one machine, with other resources."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import ray
from ray._private import state
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dlrover_nb.core.backends.ray import head
from dlrover_nb.core.backends.ray.backend import RayBackend
from dlrover_nb.core.backends.ray.host_wishes import HostWishes
from dlrover_nb.core.backends.ray.nodes import spares
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.wire.node_config import NodeConfig

pytestmark = [pytest.mark.ray, pytest.mark.more]

PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 512), ps=RolePlan(1, 0.5, 512))
SECOND_CPUS = 3


@ray.remote
class Other:
    """What another user runs."""

    def stands_on(self):
        """Return Ray's id of its machine."""
        return ray.get_runtime_context().get_node_id()


def machines():
    return {each["NodeID"]: each["Resources"]["CPU"] for each in ray.nodes() if each["Alive"]}


@pytest.fixture
def second(cluster, wait_until, tmp_path):
    """A second raylet of the cluster; gives the ids of the first and of the second."""
    (first,) = machines()
    command = [sys.executable, str(Path(__file__).with_name("second_raylet.py"))]
    command += [cluster._address, str(SECOND_CPUS)]
    log = tmp_path / "raylet.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=dict(head._process_environment()), stdin=subprocess.PIPE, stdout=file, stderr=file
        )
    try:
        wait_until(lambda: len(machines()) == 2 or process.poll() is not None, what=log.read_text)
        assert process.poll() is None, log.read_text()
        yield first, next(key for key in machines() if key != first)
    finally:
        process.stdin.close()
        process.wait(120)
        wait_until(lambda: list(machines()) == [first], what="the end of the second raylet")


def held_on(machine, cpu, wait_until):
    """Let another user hold cores on a machine, and wait until Ray's tables say so."""
    before = state.available_resources_per_node()[machine]["CPU"]
    where = NodeAffinitySchedulingStrategy(machine, soft=False)
    other = Other.options(num_cpus=cpu, scheduling_strategy=where).remote()
    assert ray.get(other.stands_on.remote()) == machine
    wait_until(lambda: state.available_resources_per_node()[machine].get("CPU", 0) <= before - cpu + 1e-6)
    return other


def stands_on(job, node):
    actor = ray.get_actor(f"{job}/{node}", namespace="dlrover-nb")
    return state.actors(actor._actor_id.hex())["Address"]["NodeID"]


@pytest.mark.release
def test_a_jobs_nodes_stand_on_the_light_machine_and_say_why(cluster, second, wait_until):
    first, light = second
    other = held_on(first, 3, wait_until)
    spec = JobSpec(name="light", plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000)
    handle = cluster.submit(spec)
    try:
        wait_until(lambda: handle.snapshot().running == PLAN, what=lambda: handle.snapshot().message)
        wait_until(lambda: all(node.wish and node.wish.got for node in handle.snapshot().nodes))
        nodes = {node.id: node for node in handle.snapshot().nodes}
        assert {stands_on("light", node) for node in nodes} == {light}
        for node in nodes.values():
            assert node.wish.host == node.wish.got
            assert "on 1 other that can hold it" in node.wish.why
        handle.decide(Scale.to(replace(PLAN, worker=RolePlan(2, 0.5, 512))))
        wait_until(lambda: len(handle.snapshot().nodes) == 3 and handle.snapshot().running is not None)
        grown = next(node.id for node in handle.snapshot().nodes if node.id not in nodes)
        assert stands_on("light", grown) == light
    finally:
        handle.stop()
        ray.kill(other)


def config(node):
    features = FeatureSpec("label", (), (), 1, 1)
    return NodeConfig(node, Role.WORKER, JobSpec(name="spill"), features, 1.0, 256, "", "ipc", "", "", "")


def test_a_wished_machine_that_filled_up_meanwhile_is_no_demand(second, wait_until):
    first, light = second
    wishes = HostWishes("spill")
    busy = held_on(first, 3, wait_until)
    wishes.make([config("worker-0")], unplaced={}, reserved=tuple)
    options = wishes.options("worker-0")
    assert options["scheduling_strategy"].node_id == light
    full = held_on(light, SECOND_CPUS, wait_until)
    node = Other.options(num_cpus=1, **options).remote()
    assert ray.get(node.stands_on.remote(), timeout=120) == first
    told = wishes.by_node(lambda _: first)["worker-0"]
    assert told.got != told.host
    for each in (busy, full, node):
        ray.kill(each)


def test_a_spare_stands_where_the_next_worker_would_and_one_whose_machine_ends_is_replaced(
    cluster, second, wait_until, monkeypatch
):
    first, light = second
    for name in ("SETTLED_S", "LOST_S", "KEEP_S"):
        monkeypatch.setattr(spares, name, 0.0)
    busy = held_on(first, 3.9, wait_until)
    backend = RayBackend("spill", one_host=False, keeps_spare=True)

    def stands_on_now():
        assert backend.poll() == ()
        with contextlib.suppress(ValueError):
            return stands_on("spill", "worker-1")
        return ""

    try:
        backend.adopt({"worker-0": Need(1.0, 256, 0)})
        assert [each.node for each in backend.poll()] == ["worker-0"]
        wait_until(lambda: stands_on_now() == light, what="a spare where there is room")
        ray.kill(busy)
        socket = next(each["RayletSocketName"] for each in ray.nodes() if each["NodeID"] == light)
        raylets = [each for each in psutil.process_iter() if each.name() == "raylet"]
        next(each for each in raylets if f"--raylet_socket_name={socket}" in each.cmdline()).kill()
        wait_until(lambda: stands_on_now() == first, what="another spare where there is room now")
    finally:
        backend.close()


@pytest.mark.release
def test_what_was_requested_and_is_not_placed_yet_counts(second, wait_until):
    first, light = second
    wishes = HostWishes("spill")
    busy = held_on(first, 2, wait_until)
    needs = {f"worker-{i}": (1.0, 256) for i in range(3)}
    for i, node in enumerate(needs):
        wishes.make([config(node)], unplaced=dict(list(needs.items())[:i]), reserved=tuple)
    chosen = [wishes.options(node)["scheduling_strategy"].node_id for node in needs]
    assert chosen == [light, light, first]
    ray.kill(busy)


def test_a_machine_alone_is_never_wished(cluster):
    wishes = HostWishes("alone")
    wishes.make([config("worker-0")], unplaced={}, reserved=tuple)
    assert wishes.options("worker-0") == {}
    assert wishes.by_node(lambda _: "") == {}
