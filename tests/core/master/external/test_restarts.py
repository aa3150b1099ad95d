"""The law of restarts: what is said before a change of plan is what the master then does."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.master.external_world import ROOM, TF, TORCH, World, plan, running
from test_elastic_master import Job

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.changes.restarts import foretold
from dlrover_nb.core.master.external.changes.restarts import words as sentence_of
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.master.shared.orders import ResizeNode
from dlrover_nb.core.structs.job.external import FixedRole, Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.wire.services import Caller, RowsRestored, RowsWanted

EVAL, READER, LEAD = FixedRole("evaluator", ("e",)), FixedRole("reader", ("r",)), FixedRole("chief", ("c",))
DYNAMIC = replace(TF, dynamic_workers=True)
JOBS = [
    TF,
    replace(TF, chief=False, roles=(EVAL, READER)),
    replace(TF, roles=(LEAD, EVAL)),
    DYNAMIC,
    replace(DYNAMIC, chief=False, roles=(EVAL,)),
    replace(DYNAMIC, roles=(LEAD, READER)),
    TORCH,
    replace(TORCH, roles=(LEAD, EVAL, READER)),
]


def plans(foreign):
    n_ps = st.just(1) if foreign.framework is Framework.TORCH else st.integers(1, 3)
    found = st.builds(plan, st.integers(1, 4), n_ps, st.sampled_from([512, 1024]))
    return st.builds(ps_of, found, st.sampled_from([512, 512, 1024]))


def ps_of(found, memory_mib):
    return replace(found, ps=replace(found.ps, memory_mib=memory_mib))


def done(world, target):
    """Let the master carry out a plan; return what began, ended, restarted, went on, and was resized."""
    before, resized = dict(world.told), set()
    world.do(world.master.set_target(target, world.at_s))
    world.come_up()
    while world.asked:
        resized |= world.asked.keys()
        world.resize()
        world.come_up()
    started = sorted(node.partition("-")[0] for node in world.pods.keys() - before.keys())
    both = before.keys() & world.pods.keys()
    restarted = {node for node in both if world.told[node] != before[node]}
    return started, before.keys() - world.pods.keys(), restarted, both - restarted, resized


@pytest.mark.release
@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(JOBS), st.booleans())
def test_what_is_foretold_is_what_the_master_does(data, foreign, in_place):
    world = running(foreign, data.draw(plans(foreign)), resizes=in_place)
    workers = [node for node in world.pods if node.startswith("worker")]
    for node in data.draw(st.lists(st.sampled_from(workers), unique=True)):
        if len(world.master.record.members) and not world.master.phase.is_final:
            world.leave(node, succeeded=True)
    if world.master.phase.is_final:
        return
    for _ in range(2):
        target = data.draw(plans(foreign))
        # a program that ended well has no pod, and none is told: it is its node that is there
        ended = {node.id for node in world.master.nodes} - world.pods.keys()
        told = foretold(foreign, world.master.nodes, target, in_place=in_place)
        started, stopped, restarted, kept, resized = done(world, target)
        if world.master.phase.is_final:  # a resized node was the last that the job waited for
            assert ended, "only programs that ended well end a job"
            return
        assert sorted(str(role) for role, n in told.started for _ in range(n)) == started
        assert set(told.stopped) - ended == stopped
        assert set(told.restarted) == restarted
        assert set(told.undisturbed) - ended == kept
        assert set(told.resized) == resized
        world.train()
        world.later()
        if world.master.phase.is_final:  # those that are left had all ended well
            return


def test_the_same_plan_changes_nothing():
    for foreign in JOBS:
        world = running(foreign)
        found = foretold(foreign, world.master.nodes, plan())
        assert not found
        assert set(found.undisturbed) == world.pods.keys()


@for_each(
    ("foreign", "target", "restarted"),
    [
        (TF, plan(3), {"worker-0", "worker-1", "ps-0"}),
        (TORCH, plan(3), {"worker-0", "worker-1"}),
        (DYNAMIC, plan(3), set()),
        (DYNAMIC, plan(1), set()),
        (DYNAMIC, plan(2, 2), {"worker-0", "worker-1", "ps-0"}),
        (replace(TORCH, framework=Framework.DDP), plan(3), set()),
    ],
)
def test_each_framework_restarts_what_it_needs(foreign, target, restarted):
    nodes = running(TORCH if foreign.framework is Framework.DDP else foreign).master.nodes
    assert set(foretold(foreign, nodes, target).restarted) == restarted


def test_nodes_that_are_resized_in_place_restart_nothing(words):
    for foreign in JOBS:
        found = foretold(foreign, running(foreign).master.nodes, plan(memory_mib=1024), in_place=True)
        assert found.resized == ("worker-0", "worker-1")
        assert (found.started, found.stopped, found.restarted) == ((), (), ())
        assert sentence_of(found, foreign) == words


# elastic jobs: in a master of their own, as their programs ask for their world


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans())
def test_what_is_foretold_is_what_the_master_of_an_elastic_job_does(n, n_then, is_larger, in_place):
    job = Job(n)
    names = [f"worker-{i}" for i in range(n)]
    job.begin(*names)
    job.take(job.master.set_resizes_in_place(resizes=in_place, at_s=job.at_s))
    target = ResourcePlan(RolePlan(n_then, 1 + is_larger, 512), RolePlan(1, 0.5, 512))
    before = {node.id for node in job.master.nodes}
    told = foretold(job.master.external, job.master.nodes, target, in_place=in_place)
    n_before, resized = len(job.orders), []
    job.take(job.master.set_target(target, job.at_s))
    for _ in range(2 * (n + n_then)):  # at most one node changes with each
        for node in [node.id for node in job.master.nodes if node.role == "worker"]:
            job.ask(node, seen=job.master.worlds.now.number if node in job.master.worlds.now.members else 0)
        asked = [order for order in job.of(ResizeNode) if order.node not in resized]
        for order in asked:
            resized.append(order.node)
            job.take(job.master.on_allotted(order.node, (order.cpu, order.memory_mib), "", job.at_s))
        job.take(job.master.tick(job.at_s))
    there = {node.id for node in job.master.nodes}
    assert {node.cpu for node in job.master.nodes if node.role == "worker"} == {1 + is_larger}
    assert sum(count for _, count in told.started) == len(there - before)
    assert set(told.stopped) == before - there
    assert set(told.undisturbed) == before & there
    assert list(told.resized) == resized
    assert not told.restarted
    assert not [o for o in job.orders[n_before:] if isinstance(o, SendEnvironment) and o.node in before]
    assert ("one at a time" in sentence_of(told, job.master.external)) == bool(told.started and told.stopped)


def test_dynamic_workers_know_the_ps_and_themselves():
    world = running(replace(DYNAMIC, roles=(LEAD,)))
    config = json.loads(world.told["worker-1"].removeprefix("TF_CONFIG="))
    assert config["cluster"].keys() == {"chief", "ps", "worker"}
    assert config["cluster"]["worker"].keys() == {"1"}
    assert config["task"] == {"type": "worker", "index": 1}


def test_a_dynamic_worker_that_joins_or_is_lost_leaves_the_others_training():
    world = running(replace(DYNAMIC, chief=False))
    told = dict(world.told)
    world.do(world.master.set_target(plan(3), world.at_s))
    world.come_up()
    world.train()
    assert world.master.running == plan(3)
    assert {node: world.told[node] for node in told} == told
    world.leave("worker-0")
    world.come_up()
    world.train()
    assert world.master.running == plan(3)
    assert world.told["worker-1"] == told["worker-1"]
    assert "worker-3" in world.told


def test_dynamic_workers_that_finished_are_not_begun_anew_for_one_that_joins():
    world = running(replace(DYNAMIC, chief=False))
    world.leave("worker-0", succeeded=True)
    world.do(world.master.set_target(plan(3), world.at_s))
    world.come_up()
    assert sorted(world.pods) == ["ps-0", "worker-1", "worker-2"]
    for node in ("worker-1", "worker-2"):
        world.leave(node, succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED


def test_the_change_is_told_in_one_sentence(words):
    world = World(TF)
    world.come_up()
    told = sentence_of(foretold(TF, world.master.nodes, plan(3)), TF)
    assert told == words
    torch = running(replace(TORCH, roles=(EVAL,)))
    told = sentence_of(foretold(replace(TORCH, roles=(EVAL,)), torch.master.nodes, plan(1)), TORCH)
    assert told == words


def test_dynamic_workers_are_tensorflows(error_words):
    with error_words(InvalidValueError):
        replace(TORCH, dynamic_workers=True)
    assert Role.WORKER in DYNAMIC.world


def test_what_programs_that_restart_do_again_is_known_from_their_checkpoints():
    job, one = Job(), Caller("worker-0", "0", "p")
    job.begin("worker-0", "worker-1")
    shard = job.shard("worker-0")
    job.done("worker-0", shard, 20)
    assert job.master.train_counts.n_sample_kept is None
    kept = job.call(RowsWanted(one)).rows
    job.done("worker-0", shard, 50)

    def told(master):
        return master.train_counts.n_sample_done, master.train_counts.n_sample_kept

    assert told(job.master) == (50, 20)
    other = ExternalMaster(job.master.spec, ROOM)
    other.account.adopt(job.master.account.ledger, ())
    other.resume(job.master.record, 1.0)
    assert told(other) == (50, 20)
    job.call(RowsRestored(replace(one, program="q"), kept, 1))
    assert told(job.master) == (20, 20)
    job.call(RowsRestored(replace(one, program="r"), "", 1))
    assert told(job.master) == (0, 0)


def test_the_words_say_how_many_rows_are_done_again_where_that_is_known(words):
    world = running(TF)
    found = foretold(TF, world.last, plan(3))
    assert sentence_of(found, TF) == words
    assert "(1,234 rows by now)" in sentence_of(found, TF, 1234)
    assert sentence_of(found, TF, 1234) == words
