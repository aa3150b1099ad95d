"""The law of restarts: what is said before a change of plan is what the master then does."""

import json
from dataclasses import replace

import pytest
from external_world import TF, TORCH, World, plan, running
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.external.restarts import foretold, words
from dlrover_nb.core.structs.external import FixedRole, Framework
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.resources import Role

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
    return st.builds(plan, st.integers(1, 4), n_ps, st.sampled_from([512, 1024]))


def done(world, target):
    """Let the master carry out a plan; return what began, ended, restarted and went on."""
    before = dict(world.told)
    world.do(world.master.set_target(target, world.at_s))
    world.come_up()
    started = sorted(node.partition("-")[0] for node in world.pods.keys() - before.keys())
    both = before.keys() & world.pods.keys()
    restarted = {node for node in both if world.told[node] != before[node]}
    return started, before.keys() - world.pods.keys(), restarted, both - restarted


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(JOBS))
def test_what_is_foretold_is_what_the_master_does(data, foreign):
    world = running(foreign, data.draw(plans(foreign)))
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
        told = foretold(foreign, world.master.nodes, target)
        started, stopped, restarted, kept = done(world, target)
        assert sorted(str(role) for role, n in told.started for _ in range(n)) == started
        assert set(told.stopped) - ended == stopped
        assert set(told.restarted) == restarted
        assert set(told.kept) - ended == kept
        world.train()
        world.later()
        if world.master.phase.is_final:  # those that are left had all ended well
            return


def test_the_same_plan_changes_nothing():
    for foreign in JOBS:
        world = running(foreign)
        found = foretold(foreign, world.master.nodes, plan())
        assert not found
        assert set(found.kept) == world.pods.keys()


@pytest.mark.parametrize(
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


def test_the_change_is_told_in_one_sentence():
    world = World(TF)
    world.come_up()
    told = words(foretold(TF, world.master.nodes, plan(3)), TF)
    assert told == (
        "starts 1 worker; restarts worker-0, worker-1, ps-0; programs that restart go on from their own last "
        "checkpoint, and do again what came after it"
    )
    torch = running(replace(TORCH, roles=(EVAL,)))
    told = words(foretold(replace(TORCH, roles=(EVAL,)), torch.master.nodes, plan(1)), TORCH)
    assert told.startswith("ends worker-1; restarts worker-0; does not disturb ps-0, evaluator-0; ")


def test_dynamic_workers_are_tensorflows():
    with pytest.raises(InvalidValueError, match="dynamic_workers is for tensorflow, got framework torch"):
        replace(TORCH, dynamic_workers=True)
    assert Role.WORKER in DYNAMIC.world
