"""A rule of the cluster that refuses nodes costs a change of plan, and never a job that trains."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import NodeLimits
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


def test_a_first_plan_that_is_refused_names_the_line_to_change() -> None:
    world = World(spec(plan(2, 1, worker_cpu=2.0)))
    refuse(world, next(n.id for n in world.master.nodes if n.role is Role.WORKER))
    assert world.master.phase is JobPhase.FAILED
    assert WORDS in world.master.message
    assert "change plan.worker.cpu and submit again" in world.master.message


def test_a_rule_younger_than_the_plan_is_waited_for_while_the_others_train() -> None:
    world = World(spec(plan(2, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.kill("worker-1", by_its_work=False)
    for _ in range(300):
        for name in new(world):
            refuse(world, name)
        for each in ("worker-0", "ps-0"):
            world.report(each)
            while world.hear(each):
                pass
        world.tick(1.0)
    assert not world.master.phase.is_final
    said = [e for e in world.told(PhaseChanged) if "the cluster now refuses worker nodes" in e.message]
    assert len(said) == 1, "it is said once"
    assert 15 < len([s for s in world.starts if s.role is Role.WORKER]) < 50, "it is asked for now and then"
    world.run_until(lambda: in_place(world, plan(2, 1)))


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
