"""How the nodes of an external job get other cores and memory: in place, at once, or one at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.master.external_world import TF, TORCH, plan, running
from test_elastic_master import Job

from dlrover_nb.core.master.external.changes.shapes import RESIZE_LIMIT_S
from dlrover_nb.core.master.shared.orders import ResizeNode, StartNode, StopNode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import PlanApplied

LARGER = plan(memory_mib=1024)


def resizing(foreign=TF):
    world = running(foreign)
    world.do(world.master.set_resizes_in_place(resizes=True, at_s=world.at_s))
    return world


@pytest.mark.parametrize("foreign", [TF, TORCH])
def test_where_the_cluster_resizes_nodes_no_program_restarts(foreign):
    world = resizing(foreign)
    pods, told = dict(world.pods), dict(world.told)
    world.do(world.master.set_target(LARGER, world.at_s))
    asked = []
    while world.asked:
        assert len(world.asked) == 1, "one at a time"
        assert world.master.running is None
        asked += world.asked
        world.resize()
    assert asked == ["worker-0", "worker-1"]
    assert (world.pods, world.told) == (pods, told)
    assert world.master.running == LARGER
    assert world.of(PlanApplied)[-1].plan == LARGER
    assert {node.memory_mib for node in world.last if node.id in asked} == {1024}


def test_a_node_that_cannot_be_resized_gets_a_successor_and_the_others_stay(words):
    world = resizing()
    world.do(world.master.set_target(LARGER, world.at_s))
    world.resize("its machine has no room")
    assert world.asked["worker-0"] == (0.5, 512), "what was asked is taken back"
    del world.asked["worker-0"]
    world.resize()
    assert " ".join(event.message for event in world.events if hasattr(event, "message")) == words
    world.come_up()
    world.train()
    assert sorted(world.pods) == ["ps-0", "worker-1", "worker-2"]
    assert world.master.running == LARGER


@pytest.mark.parametrize("ended", ["worker-0", "worker-1"], ids=["while it is resized", "before its turn"])
def test_a_node_whose_program_ends_well_is_not_resized_any_more(ended):
    world = resizing(replace(TF, chief=False))
    world.do(world.master.set_target(LARGER, world.at_s))
    world.leave(ended, succeeded=True)
    world.asked.pop(ended, None)
    while world.asked:
        assert ended not in world.asked
        world.resize()
    world.later(RESIZE_LIMIT_S + 1)
    assert ended not in world.asked
    world.come_up()
    world.train()
    assert world.master.running == LARGER


def test_a_cluster_that_does_not_answer_in_time_has_refused(words):
    world = resizing()
    world.do(world.master.set_target(LARGER, world.at_s))
    world.asked.clear()
    world.later(RESIZE_LIMIT_S + 1)
    assert world.master.message == words
    assert "worker-2" in world.pods


def test_a_newer_plan_takes_back_what_was_asked():
    world = resizing()
    world.do(world.master.set_target(LARGER, world.at_s))
    world.do(world.master.set_target(plan(3), world.at_s))
    assert world.asked == {"worker-0": (0.5, 512)}
    world.come_up()
    world.train()
    assert sorted(world.pods) == ["ps-0", "worker-0", "worker-1", "worker-2"]
    assert world.master.running == plan(3)


def test_nobody_is_replaced_while_it_is_not_known_whether_the_cluster_resizes():
    world = running()
    world.master.resizes_in_place = None
    world.do(world.master.set_target(LARGER, world.at_s))
    assert sorted(world.pods) == ["ps-0", "worker-0", "worker-1"]
    world.do(world.master.set_resizes_in_place(resizes=False, at_s=world.at_s))
    assert sorted(world.pods) == ["ps-0", "worker-0", "worker-1", "worker-2", "worker-3"]


@pytest.mark.parametrize("foreign", [TF, TORCH])
def test_programs_that_meet_restart_once_and_train_until_all_successors_are_up(foreign):
    world = running(foreign)
    told, wanted = dict(world.told), ResourcePlan(RolePlan(2, 1.0, 512), plan().ps)
    world.do(world.master.set_target(wanted, world.at_s))
    assert world.told == told
    n_before = world.master.n_rendezvous
    world.come_up()
    assert world.master.n_rendezvous == n_before + 1
    assert sorted(world.pods) == ["ps-0", "worker-2", "worker-3"]
    world.train()
    assert world.master.running == wanted


# elastic jobs


def elastic(n=3):
    job = Job(n)
    job.begin(*(f"worker-{i}" for i in range(n)))
    return job


def larger(n):
    return ResourcePlan(RolePlan(n, 2, 512), RolePlan(1, 0.5, 512))


def test_workers_of_an_elastic_job_are_replaced_one_at_a_time_and_never_fewer_train():
    job = elastic()
    members = job.master.worlds.now.members
    job.take(job.master.set_target(larger(3), job.at_s))
    for number in range(1, 4):
        new = f"worker-{number + 2}"
        job.take(job.master.tick(job.at_s))
        assert [o.node for o in job.of(StartNode) if o.role == "worker"][-1] == new
        assert job.master.worlds.now.members == members, "nobody leaves before its successor asks"
        job.ask(new)
        for node in members:
            job.ask(node, seen=number)
        members = job.master.worlds.now.members
        assert len(members) == 3
        assert new in members
    job.take(job.master.tick(job.at_s))
    assert set(members) == {"worker-3", "worker-4", "worker-5"}
    assert [o.node for o in job.of(StopNode)] == ["worker-2", "worker-1", "worker-0"]
    assert {n.cpu for n in job.master.nodes if n.role == "worker"} == {2}


def test_where_there_is_no_room_one_of_an_elastic_job_ends_first_and_the_last_one_never():
    for n, ended in ((3, ["worker-2"]), (1, [])):
        job = elastic(n)
        begun = job.master.set_target(larger(n), job.at_s)
        (new,) = [order.node for order in begun if isinstance(order, StartNode)]
        for _ in range(3):
            job.take(job.master.set_waiting({new: "Insufficient cpu"}, job.at_s))
            job.take(job.master.tick(job.at_s))
        assert [order.node for order in job.of(StopNode)] == ended


def test_an_elastic_job_is_resized_in_place_where_the_cluster_does_that():
    job = elastic(2)
    job.take(job.master.set_resizes_in_place(resizes=True, at_s=job.at_s))
    job.take(job.master.set_target(larger(2), job.at_s))
    for node in ("worker-0", "worker-1"):
        assert job.of(ResizeNode)[-1] == ResizeNode(node, 2, 512)
        job.take(job.master.on_allotted(node, (2, 512), "", job.at_s))
    assert not job.of(StopNode)
    assert job.master.worlds.now.number == 1
    assert {n.cpu for n in job.master.nodes if n.role == "worker"} == {2}


def test_more_memory_after_an_oom_of_an_elastic_worker_does_not_restart_the_others_at_once():
    job = elastic(3)
    job.take(job.master.on_exit("worker-1", "killed", job.at_s, out_of_memory=True))
    assert job.master.target.worker.memory_mib > 512
    there = [node.id for node in job.master.nodes if node.role == "worker"]
    assert {"worker-0", "worker-2"} <= set(there)
    assert len(there) == 3
