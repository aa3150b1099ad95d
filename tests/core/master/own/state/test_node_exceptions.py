"""One node that uses more or less than the plan gives its role: in place, undone, given up, and kept."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.any_order import PLANS, check, disturb, play_out
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row
from support.master.mitigation_world import answer, ended, mitigate, unchanged
from test_resizing import BEFORE, notes, order, running, shapes

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.nodes.liveness import RESIZE_LIMIT_S
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.decisions.actions import SetSize
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import NodeSizesSet, PlanApplied

LARGER = SetSize("ps-0", Role.PS, 0.75, 1024)
LARGER_BY_A_LITTLE = SetSize("ps-0", Role.PS, 0.5, 512)


def excepted(**changes: object) -> World:
    """Return a job whose first PS has more than the plan says."""
    world = running(**{"n_row": 8000} | changes)
    mitigate(world, LARGER)
    assert answer(world) == ""
    return world


def told(world: World) -> dict[str, tuple[float, int]]:
    """Return the sizes of single nodes as the controller knows them."""
    sizes = [event.sizes for event in world.told(NodeSizesSet)][-1:]
    return {each.node: (each.cpu, each.memory_mib) for each in (sizes[0] if sizes else ())}


def others_than_planned(world: World) -> dict[str, tuple[float, int]]:
    plan_of = world.master.running
    assert plan_of is not None
    found = {}
    for node in world.master.nodes:
        role, shape = plan_of.role(node.role), (node.cpu, node.memory_mib)
        if shape != (role.cpu, role.memory_mib):
            found[node.id] = shape
    return found


def test_one_node_gets_its_size_in_place_and_the_plan_stays(words) -> None:
    world = running(n_row=8000)
    before, n_start, n_plan = shapes(world), len(world.starts), len(world.told(PlanApplied))
    mitigate(world, LARGER)
    assert answer(world) == ""
    assert shapes(world) == before | {"ps-0": (0.75, 1024)}
    assert world.allotted == told(world) == {"ps-0": (0.75, 1024)}
    world.run_until(lambda: world.master.running == BEFORE)
    assert len(world.starts) == n_start
    assert len(world.told(PlanApplied)) == n_plan
    assert world.said("ps-0") == words
    world.run_to_end()
    trained_every_row(world)


@pytest.mark.parametrize("action", [LARGER, SetSize("worker-1", Role.WORKER, 1.0, 700)])
def test_an_exception_of_the_size_of_the_plan_ends_it(action: SetSize) -> None:
    world = running(n_row=8000)
    mitigate(world, action)
    assert answer(world) == ""
    role = BEFORE.role(action.role)
    mitigate(world, SetSize(action.node, action.role, role.cpu, role.memory_mib), "d2")
    assert answer(world, "d2") == ""
    assert all(node.size is None for node in world.master.record.nodes)
    assert told(world) == {}
    assert shapes(world)[action.node] == (role.cpu, role.memory_mib)


def test_another_count_keeps_the_exception_and_another_size_of_the_role_ends_it() -> None:
    world = excepted(n_row=20_000)
    order(world, plan(3, 2))
    world.run_until(lambda: in_place(world, plan(3, 2)))
    assert shapes(world)["ps-0"] == (0.75, 1024)
    order(world, plan(3, 2, ps_cpu=0.5))
    world.run_until(lambda: in_place(world, plan(3, 2, ps_cpu=0.5)))
    assert set(shapes(world).values()) == {(0.5, 512)}
    assert told(world) == {}


@pytest.mark.parametrize(
    ("action", "names"),
    [
        (LARGER, {"ps-1", "ps-2", "worker-0", "worker-1"}),
        (SetSize("worker-1", Role.WORKER, 1.0, 700), {"ps-0", "ps-1", "worker-0", "worker-2"}),
    ],
)
def test_where_nodes_are_not_resized_in_place_one_of_that_size_takes_its_place(
    action: SetSize, names: set[str]
) -> None:
    world = World(spec(BEFORE), features(8000))
    world.run_until(lambda: in_place(world, BEFORE))
    mitigate(world, action)
    assert answer(world) == ""
    world.run_until(lambda: world.master.running == BEFORE)
    assert shapes(world).keys() == names
    role = BEFORE.role(action.role)
    sizes = sorted(node.cpu for node in world.master.nodes if node.role is action.role)
    assert sizes == [role.cpu, action.cpu]
    assert list(told(world).values()) == [(action.cpu, action.memory_mib)]
    assert told(world) == others_than_planned(world)
    order(world, plan(3, 2))
    world.run_until(lambda: in_place(world, plan(3, 2)))
    assert action.cpu in {node.cpu for node in world.master.nodes if node.role is action.role}
    world.run_to_end()
    trained_every_row(world)


def test_a_plan_that_has_no_room_beside_an_exception_ends_it() -> None:
    world = running(n_row=20_000)
    mitigate(world, SetSize("ps-0", Role.PS, 6.0, 1024))
    assert answer(world) == ""
    order(world, plan(4, 2))
    world.run_until(lambda: in_place(world, plan(4, 2)))
    assert shapes(world)["ps-0"] == (0.25, 512)
    assert told(world) == {}


def test_in_place_it_needs_no_room_for_another_node() -> None:
    world = World(spec(BEFORE), features(8000), cpu=1.75)
    world.resize_in_place()
    world.run_until(lambda: in_place(world, BEFORE))
    unchanged(world, SetSize("worker-0", Role.WORKER, 1.0, 512), StaleDecisionError, "no machine has room")
    mitigate(world, LARGER_BY_A_LITTLE)
    assert answer(world) == ""
    assert shapes(world)["ps-0"] == (0.5, 512)


def test_what_the_cluster_refuses_leaves_the_node_as_it_was_and_trains_on(words) -> None:
    world = running(n_row=8000)
    world.cannot_resize = {"ps-0": "Infeasible: Node didn't have enough capacity"}
    before, n_start = shapes(world), len(world.starts)
    mitigate(world, LARGER)
    assert answer(world) == words
    assert "ps-0 stays: Infeasible" in notes(world)
    world.run_until(lambda: world.master.running == BEFORE)
    assert shapes(world) == before
    assert len(world.starts) == n_start
    world.run_to_end()
    trained_every_row(world)


def test_a_refused_undo_keeps_the_exception() -> None:
    world = excepted()
    world.cannot_resize = {"ps-0": "pods/resize is forbidden"}
    mitigate(world, SetSize("ps-0", Role.PS, 0.25, 512), "d2")
    assert answer(world, "d2") == "pods/resize is forbidden"
    assert shapes(world)["ps-0"] == (0.75, 1024)
    world.run_until(lambda: world.master.running == BEFORE)


def test_a_cluster_that_never_answers_is_given_up_in_time(words) -> None:
    world = running(n_row=1_000_000, heartbeat_timeout_s=1e6)
    mitigate(world, LARGER)
    from_s = world.at_s
    while not ended(world):
        assert world.at_s < from_s + RESIZE_LIMIT_S + 2.0
        for name in world.living(Role.WORKER):
            world.turn(name)
            world.hear(name)
        world.tick(1.0)
    assert ended(world)["d1"] == words


def test_a_restarted_master_finishes_it_and_knows_the_exception() -> None:
    world = running(n_row=8000)
    mitigate(world, LARGER)
    world.crash(n_kept=1)
    assert answer(world) == ""
    world.crash(n_kept=1)
    world.run_until(lambda: in_place(world, BEFORE))
    assert shapes(world)["ps-0"] == (0.75, 1024) == told(world)["ps-0"]
    world.run_to_end()
    trained_every_row(world)


def test_the_node_that_takes_the_place_of_an_exception_has_the_size_of_the_plan() -> None:
    world = excepted(n_row=8000)
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, BEFORE))
    assert set(shapes(world).values()) == {(0.5, 512), (0.25, 512)}
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    world = running(n_row=8000)
    unchanged(world, SetSize("ps-9", Role.PS, 1.0, 512), InvalidValueError, "one of ps-0 and ps-1")
    unchanged(world, SetSize("ps-0", Role.PS, 100.0, 512), StaleDecisionError, "no machine has room for ps-0")
    unchanged(world, SetSize("ps-0", Role.PS, 0.25, 512), InvalidValueError, "has 0.25 cores and 512 MiB alr")
    order(world, plan(3, 2))
    unchanged(world, LARGER, StaleDecisionError, "its plan is not in place")


def interleaved(seed: int, first: object, plans: list[object], *, resizes: bool) -> None:
    """Let anything happen while nodes get sizes of their own; each order is answered once."""
    job = spec(first, n_epoch=2, checkpoint_every_s=3.0, heartbeat_timeout_s=30.0)  # type: ignore[arg-type]
    world = World(job, features(395), cpu=16.0)
    if resizes:
        world.resize_in_place()
    wanted, rng, ordered = [first], random.Random(seed), []
    for _ in range(250):
        disturb(world, rng, wanted, plans)
        nodes = world.master.nodes
        if nodes and rng.random() < 0.05:
            node = rng.choice(nodes)
            action = SetSize(node.id, node.role, rng.choice([0.25, 0.5, 0.75]), rng.choice([512, 700]))
            with contextlib.suppress(InvalidValueError, StaleDecisionError):
                mitigate(world, action, f"d{len(ordered)}")
                ordered.append(f"d{len(ordered)}")
        if rng.random() < 0.01 and world.master.stage is not Stage.ENDED:
            world.crash(n_kept=rng.randrange(3))
        check(world, wanted)
        if world.master.running is not None and not world.master.record.mitigations:
            assert told(world) == others_than_planned(world)
    succeeds = play_out(world, wanted)
    assert sorted(ended(world)) == sorted(ordered)
    assert not succeeds or world.master.train_counts.n_sample_done == len(world.learnt) == 790


@pytest.mark.parametrize("seed", range(4))
def test_a_few_interleavings_answer_each_order_once_and_train_every_row(seed: int) -> None:
    interleaved(seed, plan(2, 1 + seed % 3), [plan(3, 2, ps_cpu=0.5), plan(1, 1)], resizes=seed % 2 == 0)


@pytest.mark.release
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), PLANS, st.lists(PLANS, max_size=2), st.booleans())
def test_any_interleaving_answers_each_order_once_and_trains_every_row(
    seed: int,
    first: object,
    plans: list[object],
    resizes: bool,  # noqa: FBT001
) -> None:
    interleaved(seed, first, plans, resizes=resizes)
