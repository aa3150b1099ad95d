"""A rule of the cluster that refuses nodes costs a change of plan, and never a job that trains."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeLimits, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged, PlanFailed

WORDS = "maximum cpu usage per Container is 1, but limit is 2"
LIMITS = NodeLimits(most_cpu=1.0, why=WORDS)


def refuse(world: World, name: str, **how: object) -> None:
    """Let the cluster not make a node that was ordered."""
    world.nodes[name].is_alive = False
    world.do(world.master.on_exit(name, WORDS, world.at_s, **({"retryable": False, "refused": LIMITS} | how)))


def new(world: World) -> list[str]:
    """Return the nodes that were ordered and have not come up."""
    return [n.id for n in world.master.nodes if not world.nodes[n.id].has_come_up]


def pass_refused(world: World, n_second: int, *, waits: bool = False) -> None:
    """Let time pass in which the cluster makes no node: it refuses them, or lets them wait for its quota."""
    for _ in range(n_second):
        if waits:
            world.do(world.master.set_waiting(dict.fromkeys(new(world), "exceeded quota: team"), world.at_s))
        for name in [] if waits else new(world):
            refuse(world, name)
        for each in [name for name, node in world.nodes.items() if node.is_alive and node.has_come_up]:
            world.report(each)
            while world.hear(each):
                pass
        world.tick(1.0)


@pytest.mark.parametrize("how", [{}, {"refused": None}], ids=["a rule", "an image that is gone"])
@pytest.mark.parametrize(
    "target", [plan(3, 1), plan(2, 2), plan(2, 1, worker_cpu=2.0), plan(2, 1, ps_cpu=2.0)]
)
def test_a_change_that_cannot_begin_is_given_up_and_the_job_ends_well(how, target) -> None:
    world = World(spec(plan(2, 1)), features())
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.set_target(target, world.at_s))
    refused = new(world)
    assert refused
    refuse(world, refused[0], **how)
    (failed,) = world.told(PlanFailed)
    assert (failed.plan, WORDS in failed.why) == (target, True)
    assert world.master.phase is not JobPhase.FAILED
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world)


def test_a_first_plan_that_is_refused_names_the_line_to_change(words) -> None:
    world = World(spec(plan(2, 1, worker_cpu=2.0)))
    refuse(world, next(n.id for n in world.master.nodes if n.role is Role.WORKER))
    assert world.master.phase is JobPhase.FAILED
    assert WORDS in world.master.message
    assert world.master.message == words


def test_a_rule_younger_than_the_plan_is_waited_for_while_the_others_train() -> None:
    world = World(spec(plan(2, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.kill("worker-1", by_its_work=False)
    pass_refused(world, 300)
    assert not world.master.phase.is_final
    said = [e for e in world.told(PhaseChanged) if "the cluster now refuses worker nodes" in e.message]
    assert len(said) == 1, "it is said once"
    assert 15 < len([s for s in world.starts if s.role is Role.WORKER]) < 50, "it is asked for now and then"
    world.run_until(lambda: in_place(world, plan(2, 1)))


def test_after_a_rule_one_accident_more_does_not_end_the_job() -> None:
    world = World(spec(plan(2, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.kill("worker-1", by_its_work=False)
    pass_refused(world, 280)
    world.run_until(lambda: new(world))
    world.kill(new(world)[0], by_its_work=False)  # evicted before it worked
    assert not world.master.phase.is_final
    world.run_until(lambda: in_place(world, plan(2, 1)))


@pytest.mark.parametrize("waits", [False, True], ids=["refused", "over the quota"])
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["it failed", "it was cancelled"])
def test_a_job_waits_on_the_way_back_from_a_change_for_as_long_as_a_rule_lasts(is_cancelled, waits) -> None:
    before, after = plan(2, 1), plan(2, 1, worker_cpu=0.25)
    world = World(spec(before), features(50_000), cpu=1.5)
    world.run_until(lambda: in_place(world, before))
    world.do(world.master.set_target(after, world.at_s))
    world.run_until(lambda: sum(n.role is Role.WORKER and n.cpu == 0.5 for n in world.master.nodes) == 1)
    if is_cancelled:
        world.do(world.master.set_target(before, world.at_s))
    else:
        world.run_until(lambda: new(world))
        refuse(world, new(world)[0])
    pass_refused(world, 300, waits=waits)
    assert not world.master.phase.is_final, world.master.message
    world.do(world.master.set_waiting({}, world.at_s))
    world.run_until(lambda: in_place(world, before))


def test_a_job_says_what_it_misses_where_its_capacity_has_become_too_small_for_it(words) -> None:
    world = World(spec(plan(2, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(
        world.master.set_capacity(Capacity((NodeShape(1.1, 65536),)), world.at_s)
    )  # a quota that was cut
    world.kill("ps-0", by_its_work=False)
    for _ in range(400):
        world.do(world.master.set_waiting({}, world.at_s))
        pass_refused(world, 1)
    assert not world.master.phase.is_final, world.master.message
    assert world.master.message == words
    said = [e for e in world.told(PhaseChanged) if "waiting for room" in e.message]
    assert len(said) == 1, "it is said once"
    world.do(world.master.set_capacity(Capacity((NodeShape(8.0, 65536),)), world.at_s))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.set_waiting({}, world.at_s))
    assert "waiting for room" not in world.master.message


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.5, 2.0])), max_size=4),
    st.randoms(use_true_random=False),
)
def test_whatever_is_refused_of_changes_all_rows_are_trained(changes, chance) -> None:
    world = World(spec(plan(1, 1)), features())
    world.run_until(lambda: in_place(world, plan(1, 1)))
    for n_worker, n_ps, cpu in changes:
        target = plan(n_worker, n_ps, worker_cpu=cpu)
        if world.master.phase.is_final or target == world.master.target:
            continue
        world.do(world.master.set_target(target, world.at_s))
        for name in new(world):
            if chance.random() < 0.5 and name in new(world):
                refuse(world, name)
        world.tick(1.0)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world)
