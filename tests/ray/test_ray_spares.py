"""The spare of a job on Ray: it becomes the next worker, holds nothing before, and does not outlive its job."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
import ray
from ray._private import state
from support.conformance.backend import BackendConformance, Master
from support.waiting import LIMIT_S, is_gone, until

from dlrover_nb.core.backends.ray.backend import RayBackend
from dlrover_nb.core.backends.ray.load import ray_load
from dlrover_nb.core.backends.ray.nodes import ray_node, spares
from dlrover_nb.core.backends.ray.nodes.ray_node import RayNode
from dlrover_nb.core.backends.ray.nodes.reservation import release, reserve, reserved
from dlrover_nb.core.backends.ray.reach import NAMESPACE
from dlrover_nb.core.backends.ray.summaries import master_of
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

pytestmark = [pytest.mark.ray, pytest.mark.more]

JOB = "spares-on-ray"
NEED = Need(0.25, 512, 0)
SPEC = JobSpec(JOB, plan=ResourcePlan(worker=RolePlan(1, 0.25, 512), ps=RolePlan(1, 0.25, 512)))
PLAN = ResourcePlan(worker=RolePlan(1, 0.25, 512), ps=RolePlan(1, 0.25, 256))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let a spare start as soon as it may, and be asked for at each poll."""
    for name in ("SETTLED_S", "LOST_S", "KEEP_S"):
        monkeypatch.setattr(spares, name, 0.0)


@pytest.fixture
def backend(cluster):
    backend = RayBackend(JOB, one_host=True, keeps_spare=True)
    yield backend
    backend.close()
    until(lambda: free() == whole() and not reserved(JOB), what="that all is free again")


def worker(master: Master, node: str, *, cpu: float = 0.25) -> NodeConfig:
    config = BackendConformance().config(master, "ipc", node)
    features = make_features(SPEC.data, SPEC.model)
    return replace(
        config, role=Role.WORKER, spec=SPEC, features=features, cpu=cpu, memory_mib=NEED.memory_mib
    )


def whole() -> float:
    return sum(each["Resources"]["CPU"] for each in ray.nodes() if each["Alive"])


def free() -> float:
    return sum(f.get("CPU", 0.0) for f in state.available_resources_per_node().values())


def pid_of(node: str) -> int | None:
    """Return the process of an actor that is up, by the name of its node."""
    try:
        actor = ray.get_actor(f"{JOB}/{node}", namespace=NAMESPACE)
    except ValueError:
        return None
    row = state.actors(actor._actor_id.hex())
    return row["Pid"] if row and row["State"] == "ALIVE" else None


def spare_of(backend: RayBackend, node: str) -> int:
    """Wait for the spare that becomes a node; return its process."""

    def pid() -> int | None:
        assert backend.poll() == ()
        return pid_of(node)

    return until(pid, what="a spare")


def start(backend: RayBackend, master: Master, node: str, **changes) -> int:
    backend.start_node(worker(master, node, **changes))
    assert (
        backend.poll() == ()
    )  # which requests the first node, as soon as there is room for all of the first plan
    hello = master.hello(LIMIT_S)
    assert (hello.node, hello.role) == (node, Role.WORKER)
    return hello.pid


def test_a_spare_holds_nothing_and_becomes_the_next_worker_which_holds_its_share(backend, master):
    start(backend, master, "worker-0")
    one = whole() - NEED.cpu
    until(lambda: free() == one, what="the first worker in Ray's tables")
    spare = spare_of(backend, "worker-1")
    assert free() == one
    (machine,) = ray_load("here").machines
    assert [(job, amount.cpu) for job, amount in machine.jobs if job == JOB] == [(JOB, NEED.cpu)]
    assert start(backend, master, "worker-1") == spare
    until(lambda: free() == one - NEED.cpu, what="the second worker in Ray's tables")
    (machine,) = ray_load("here").machines
    held = [(amount.cpu, amount.memory_mib) for job, amount in machine.jobs if job == JOB]
    assert held == [(2 * NEED.cpu, 2 * NEED.memory_mib)]
    assert backend.room().total_cpu == pytest.approx(whole())
    assert spare_of(backend, "worker-2") not in {spare, None}


@pytest.mark.parametrize("ends", ["stopped", "killed", "told to stop"])
def test_the_end_of_a_worker_that_was_a_spare_is_told_once_and_gives_its_room_back(backend, master, ends):
    start(backend, master, "worker-0")
    spare_of(backend, "worker-1")
    pid = start(backend, master, "worker-1")
    assert reserved(JOB) == {"worker-1"}
    match ends:
        case "stopped":
            backend.stop_node("worker-1")
        case "killed":
            os.kill(pid, signal.SIGKILL)
        case _:
            master.say_stop("worker-1")
    exited = until(backend.poll, what="its end")
    assert [each.node for each in exited] == ["worker-1"]
    assert exited[0].retryable
    assert exited[0].was_killed == (ends != "told to stop")
    until(lambda: not reserved(JOB) and free() == whole() - NEED.cpu, what="its room")
    until(lambda: is_gone(pid), what="the end of its process")


def test_a_spare_that_was_killed_is_replaced_and_a_worker_that_comes_before_starts_as_ever(backend, master):
    start(backend, master, "worker-0")
    first = spare_of(backend, "worker-1")
    os.kill(first, signal.SIGKILL)
    until(lambda: backend.poll() == () and pid_of("worker-1") not in {first, None}, what="another spare")
    second = pid_of("worker-1")
    os.kill(second, signal.SIGKILL)
    until(lambda: pid_of("worker-1") is None, what="its end")
    assert start(backend, master, "worker-1") not in {first, second}
    assert backend.poll() == ()
    assert not reserved(JOB)


def test_a_worker_with_other_threads_starts_as_without_a_spare(backend, master):
    start(backend, master, "worker-0")
    spare = spare_of(backend, "worker-1")
    assert start(backend, master, "worker-1", cpu=2.0) != spare
    until(lambda: is_gone(spare), what="the end of the spare")
    assert not reserved(JOB)


def test_a_spare_is_no_use_where_no_room_is_left(backend, master):
    start(backend, master, "worker-0")
    spare = spare_of(backend, "worker-1")
    (machine,) = state.available_resources_per_node()
    assert reserve("others", "worker-0", Need(whole() - 0.4, 64, 0), machine)
    try:
        backend.start_node(worker(master, "worker-1"))
        until(lambda: is_gone(spare), what="the end of the spare")
        assert backend.poll() == ()
        assert not reserved(JOB)
    finally:
        release("others", "worker-0")
    assert master.hello(LIMIT_S).node == "worker-1"


def test_the_next_master_takes_the_node_that_was_a_spare_and_ends_the_one_that_still_is(backend, master):
    start(backend, master, "worker-0")
    spare_of(backend, "worker-1")
    grown = start(backend, master, "worker-1")
    spare = spare_of(backend, "worker-2")
    second = RayBackend(JOB, one_host=True, keeps_spare=True)
    second.adopt({"worker-0": NEED, "worker-1": NEED})
    until(lambda: is_gone(spare), what="the end of the spare")
    assert second.room().total_cpu == pytest.approx(whole())
    os.kill(grown, signal.SIGKILL)
    exited = until(second.poll, what="its end")
    assert [each.node for each in exited] == ["worker-1"]
    until(lambda: not reserved(JOB), what="its room")


def test_room_of_a_node_that_ended_while_its_master_was_away_is_given_back(backend, master):
    start(backend, master, "worker-0")
    spare_of(backend, "worker-1")
    grown = start(backend, master, "worker-1")
    os.kill(grown, signal.SIGKILL)
    until(lambda: pid_of("worker-1") is None, what="its end")
    second = RayBackend(JOB, one_host=True, keeps_spare=True)
    second.adopt({"worker-0": NEED, "worker-1": NEED})
    assert [each.node for each in second.poll()] == ["worker-1"]
    until(lambda: not reserved(JOB), what="its room")


def spare_where(free_mib: int):
    """Start a spare with two threads, where so much memory of the machine must be free beyond it."""

    class Spare(RayNode):  # within a function: workers of Ray cannot import this module
        def __init__(self):
            ray_node.FREE_MIB = free_mib
            super().__init__("worker", 2.0, is_spare=True)

        def variable(self):
            return os.environ["OMP_NUM_THREADS"]

    return ray.remote(Spare).options(num_cpus=0).remote()


def test_a_spare_has_the_threads_of_its_worker_and_ends_by_itself_where_memory_is_short(cluster):
    spare, short = spare_where(0), spare_where(1 << 40)
    ray.get(spare.keep.remote())
    assert ray.get(spare.variable.remote()) == "2"
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(short.keep.remote())
    ray.kill(spare)


@pytest.mark.release
def test_a_spare_of_which_no_master_asks_ends_by_itself(backend, master):
    start(backend, master, "worker-0")
    spare = spare_of(backend, "worker-1")
    until(lambda: is_gone(spare), what="the end of the spare")  # without a poll there is no master


@pytest.mark.release
def test_a_job_grows_into_its_spare_and_takes_all_along_when_it_ends(cluster):
    handle = cluster.submit(JobSpec(JOB, plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000))
    until(lambda: handle.snapshot().running == PLAN, what="training")
    spare = until(lambda: pid_of("worker-1"), what="a spare")
    assert [node.id for node in handle.snapshot().nodes if node.role == Role.WORKER] == ["worker-0"]
    more = ResourcePlan(worker=RolePlan(2, 0.25, 512), ps=PLAN.ps)
    handle.decide(Scale.to(more))
    until(lambda: handle.snapshot().running == more, what="growth")
    assert spare in {node.pid for node in handle.snapshot().nodes}
    last = until(lambda: pid_of("worker-2"), what="the next spare")
    psutil.Process(ray.get(master_of(JOB).pid.remote())).kill()
    until(lambda: is_gone(last), what="its end, with its master's")
    until(lambda: handle.snapshot().running == more, what="training under the next master")
    assert spare in {node.pid for node in handle.snapshot().nodes}
    last = until(lambda: pid_of("worker-2"), what="a spare of the next master")
    handle.stop()
    until(lambda: is_gone(last) and is_gone(spare), what="the end of all")
    until(lambda: not reserved(JOB), what="that nothing is reserved")
