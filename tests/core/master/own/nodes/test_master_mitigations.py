"""Actions against stragglers: each takes effect or is given up, is answered once, and no row is lost by it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.any_order import check, disturb, play_out
from support.master.full_machine import FullMachines
from support.master.master_world import World, features, in_place, plan, spec
from support.master.mitigation_world import (
    PS_0,
    WITHOUT_PAUSE,
    WORKER_0,
    answer,
    ended,
    finished,
    heard,
    instructions,
    mitigate,
    n_done,
    read,
    settled,
    training,
    unchanged,
)
from support.master.moves import load_of, report, to

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.nodes.liveness import PLAN_LIMIT_S
from dlrover_nb.core.master.own.recovery_record import StateRecord
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.decisions.actions import (
    Action,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.job.spec_choices import Migration, Sync
from dlrover_nb.core.structs.plan.capacity import in_steps
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.views.events import NodeLeft, NodeStarted
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.mitigation_messages import Backups

# a worker that is replaced


def test_a_worker_is_replaced_when_its_successor_trains_and_others_train_its_rows(words) -> None:
    world = training()
    mitigate(world, WORKER_0)
    assert (world.starts[-1].node, world.starts[-1].avoid) == ("worker-2", ("worker-0",))
    assert not any(start.avoid for start in world.starts[:-1])
    assert {n.id: n.phase for n in world.master.nodes}["worker-0"] is NodePhase.DRAINING
    while "worker-0" in world.living(Role.WORKER):
        assert not ended(world)
        assert world.master.running is None
        world.round()
    left = [each for node, each in heard(world, m.Drain) if node == "worker-0"]
    assert left == [m.Drain(at_once=True)]
    assert world.nodes["worker-2"].train is not None
    assert answer(world) == ""
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    assert world.said("worker-0") == words
    finished(world)
    assert world.master.train_counts.refused == 0
    assert "was lost" not in str(world.events)


def test_a_worker_alone_trains_until_its_successor_does() -> None:
    world = training(1, 1)
    mitigate(world, WORKER_0)
    while "worker-0" in world.living(Role.WORKER):
        assert not heard(world, m.Drain) or world.nodes["worker-1"].train is not None
        world.round()
    assert answer(world) == ""
    finished(world)


def test_the_last_worker_is_not_replaced_where_nothing_has_room_beside_it() -> None:
    world = training(1, 1, cpu=1.0)
    unchanged(world, WORKER_0, StaleDecisionError, "there is no room for one beside worker-0")
    finished(world)


def test_of_several_workers_one_leaves_first_where_nothing_has_room_beside_them() -> None:
    world = training(2, 1, cpu=1.25)
    mitigate(world, WORKER_0)
    assert answer(world) == ""
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    finished(world)


def test_room_that_the_cluster_does_not_have_after_all_leaves_the_last_worker_where_it_is() -> None:
    world = FullMachines(spec(plan(1, 1)), features(200_000), ((1.5, 8192),))
    world.wait_for(lambda: in_place(world, world.master.target), 60)
    world.n_step_held = [in_steps(0.75)]
    mitigate(world, WORKER_0)
    world.wait_for(lambda: bool(ended(world)), 60)
    assert "there is no room" in ended(world)["d1"]
    world.wait_for(lambda: in_place(world, world.master.target), 60)
    assert world.living(Role.WORKER) == ["worker-0"]
    assert "worker-0 stays: " in str(world.events)


def test_two_workers_are_replaced_at_once_and_one_of_them_always_trains() -> None:
    world = training(2, 1)
    mitigate(world, WORKER_0)
    unchanged(world, WORKER_0, StaleDecisionError, "is already leaving")
    mitigate(world, KillRestart("worker-1", Role.WORKER), "d2")
    while len(ended(world)) < 2:
        assert world.n_training
        world.round()
    assert set(ended(world).values()) == {""}
    assert world.living(Role.WORKER) == ["worker-2", "worker-3"]
    finished(world)


def test_a_worker_that_ends_by_itself_is_replaced_all_the_same() -> None:
    world = training()
    mitigate(world, WORKER_0)
    world.kill("worker-0")
    assert answer(world) == ""
    assert len(world.living(Role.WORKER)) == 2
    finished(world, exactly_once=False)


def test_a_successor_that_is_lost_before_it_trains_leaves_the_worker_where_it_is(words) -> None:
    world = training()
    mitigate(world, WORKER_0)
    world.kill("worker-2", "no image")
    assert ended(world) == {"d1": words}
    settled(world)
    assert world.living(Role.WORKER) == ["worker-0", "worker-1"]
    finished(world)


def test_another_worker_that_is_lost_meanwhile_changes_nothing() -> None:
    world = training(3)
    mitigate(world, WORKER_0)
    world.kill("worker-1")
    assert answer(world) == ""
    assert "worker-0" not in world.living(Role.WORKER)
    finished(world, exactly_once=False)


@pytest.mark.more
@pytest.mark.parametrize("n_round", range(6))
def test_a_master_that_restarts_goes_on_to_replace_a_worker(n_round: int) -> None:
    world = training()
    mitigate(world, WORKER_0)
    for _ in range(n_round):
        world.round()
    world.crash(n_kept=2)
    assert answer(world) == ""
    settled(world)
    assert "worker-0" not in world.living(Role.WORKER)
    finished(world, exactly_once=False)


def test_a_worker_is_not_replaced_twice_nor_before_the_plan_is_in_place() -> None:
    world = World(spec(plan(2, 1)), features(8000))
    unchanged(world, WORKER_0, StaleDecisionError, "it is not training")
    world = training()
    unchanged(world, KillRestart("worker-9", Role.WORKER), InvalidValueError, "one of worker-0 and worker-1")
    unchanged(world, KillRestart("worker-0", Role.PS), InvalidValueError, "one of ps-0 and ps-1")
    world.do(world.master.set_target(plan(3, 2), world.at_s))
    unchanged(world, WORKER_0, StaleDecisionError, "its plan is not in place")
    settled(world)
    world.do(world.master.stop("ada", "enough", world.at_s))
    unchanged(world, WORKER_0, StaleDecisionError, "about to end")


def test_a_job_that_ends_meanwhile_answers_what_is_open(words) -> None:
    world = training()
    mitigate(world, WORKER_0)
    world.do(world.master.stop("ada", "enough", world.at_s))
    assert ended(world) == {"d1": words}
    world = training()
    mitigate(world, PS_0)
    world.do(world.master.fail("no disk", world.at_s))
    assert ended(world) == {"d1": "the job ended before"}


# a PS that is replaced


@pytest.mark.more
@pytest.mark.parametrize("n_ps", [1, 2, 3])
@pytest.mark.parametrize("sync", [Sync.ASP, Sync.BSP])
def test_a_ps_is_replaced_by_one_that_takes_its_parameters_while_workers_train(
    n_ps: int, sync: Sync, words
) -> None:
    world = training(2, n_ps, sync=sync)
    mitigate(world, PS_0)
    stages = set()
    while not ended(world):
        world.round()
        world.check_parameters()
        stages.add(world.master.stage)
    assert ended(world) == {"d1": ""}
    assert stages <= WITHOUT_PAUSE
    group = world.master.record.group
    assert group is not None
    assert group.nodes == (f"ps-{n_ps}", *[f"ps-{at}" for at in range(1, n_ps)])
    assert world.said("ps-0") == words
    assert "evicted" not in str(world.events)
    finished(world)
    assert world.master.train_counts.returned == 0


def test_the_next_coordinator_learns_batch_sizes_and_backup_workers_too() -> None:
    world = training(3, 2, sync=Sync.BSP)
    mitigate(world, AdjustBatches((("worker-0", 4), ("worker-1", 13), ("worker-2", 13))), "sizes")
    mitigate(world, BackupWorkers(1), "backups")
    mitigate(world, PS_0)
    assert answer(world) == ""
    read(world)
    sizes = m.Adjust((("worker-0", 4), ("worker-1", 13), ("worker-2", 13)))
    assert instructions(world, "ps-0") == instructions(world, "ps-2") == [sizes, Backups(1)]
    assert not instructions(world, "ps-1")


def test_only_one_ps_at_a_time() -> None:
    world = training()
    mitigate(world, PS_0)
    for action in (KillRestart("ps-1", Role.PS), MoveBuckets("ps-1"), WORKER_0):
        unchanged(world, action, StaleDecisionError, "measure again")
    assert answer(world) == ""


def test_a_ps_stays_where_nothing_has_room_beside_it() -> None:
    world = training(2, 1, cpu=1.25)
    unchanged(world, PS_0, StaleDecisionError, "there is no room for another parameter server beside ps-0")
    world = FullMachines(spec(plan(1, 1)), features(200_000), ((1.0, 8192),))
    world.wait_for(lambda: in_place(world, world.master.target), 60)
    world.n_step_held = [in_steps(0.25)]
    mitigate(world, PS_0)
    world.wait_for(lambda: bool(ended(world)), 60)
    assert "there is no room" in ended(world)["d1"]
    assert world.master.stage is Stage.SERVING
    world.wait_for(lambda: in_place(world, world.master.target), 60)
    assert world.living(Role.PS) == ["ps-0"]
    assert not world.copies


def test_a_job_that_wants_restarts_gets_one() -> None:
    world = training(2, 2, migration=Migration.RESTART)
    mitigate(world, PS_0)
    assert answer(world) == ""
    assert world.copies
    assert "ps-0" not in world.living(Role.PS)
    finished(world)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
@pytest.mark.parametrize("name", ["ps-0", "ps-2"])
def test_a_ps_that_dies_on_the_way_is_answered(stage: Stage, name: str) -> None:
    world = training()
    mitigate(world, PS_0)
    world.run_until(lambda: world.master.record.move is not None)
    to(world, stage)
    world.kill(name)
    why = answer(world)
    assert why == f"{name} was lost: exit code -9"
    settled(world)
    assert len(world.living(Role.PS)) == 2
    assert ("ps-0" in world.living(Role.PS)) is (name == "ps-2")
    finished(world)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_master_that_restarts_goes_on_to_replace_a_ps(stage: Stage) -> None:
    world = training()
    mitigate(world, PS_0)
    world.run_until(lambda: world.master.record.move is not None)
    to(world, stage)
    world.crash()
    assert answer(world) == ""
    settled(world)
    assert "ps-0" not in world.living(Role.PS)
    finished(world)


@pytest.mark.more
def test_a_successor_that_does_not_come_up_in_time_is_not_waited_for_without_end(words) -> None:
    world = training(n_row=60_000)
    mitigate(world, PS_0)
    world.nodes["ps-2"].is_alive = False  # which its cluster does not say
    world.run_until(lambda: bool(ended(world)), int(PLAN_LIMIT_S * 11))
    assert ended(world)["d1"] == words
    settled(world)
    assert world.living(Role.PS)[:2] == ["ps-0", "ps-1"]


def test_a_plan_that_comes_between_is_applied_and_the_node_is_gone() -> None:
    for action, name in ((WORKER_0, "worker-0"), (PS_0, "ps-0")):
        world = training(3, 3)
        mitigate(world, action)
        world.round()
        world.do(world.master.set_target(plan(2, 2), world.at_s))
        assert answer(world) == ""
        assert world.master.running == plan(2, 2)
        assert name not in [*world.living(Role.WORKER), *world.living(Role.PS)]
        finished(world)


# events


def test_starts_and_ends_of_nodes_are_told() -> None:
    world = World(spec(plan(2, 1)), features(8000))
    world.do(
        world.master.set_waiting({"worker-1": ""}, world.at_s + 4.0)
    )  # for room, and not for its own start
    world.tick(3.0)
    world.run_until(lambda: in_place(world, world.master.target))
    started = {each.node: each for each in world.told(NodeStarted)}
    assert {name: each.pending_s for name, each in started.items()} == {
        "ps-0": 0.0,
        "worker-0": 0.0,
        "worker-1": pytest.approx(4.0),
    }
    assert all(each.at_s >= 3.0 for each in started.values())
    world.kill("worker-0", "exit code 3")
    world.run_until(lambda: in_place(world, world.master.target))
    world.do(world.master.set_target(plan(1, 1), world.at_s))
    settled(world)
    left = [(each.node, each.error, each.is_retryable) for each in world.told(NodeLeft)]
    assert left == [("worker-0", "exit code 3", True), ("worker-2", "", True)]
    n_started = len(world.told(NodeStarted))
    world.crash()
    settled(world)
    assert len(world.told(NodeStarted)) == n_started
    world.do(world.master.on_exit("worker-1", "no such file", world.at_s, retryable=False))
    assert world.told(NodeLeft)[2] == NodeLeft(world.at_s, "worker-1", Role.WORKER, "no such file", False)
    assert {each.node for each in world.told(NodeLeft)} == {"worker-0", "worker-1", "worker-2", "ps-0"}


# laws


def test_a_record_of_an_earlier_release_is_of_a_job_without_actions() -> None:
    world = training()
    mitigate(world, WORKER_0)
    text = to_json(world.master.record).decode()
    record = from_json(text.encode(), StateRecord)
    assert record == world.master.record
    old = without(text, "backups", "rates", "mitigations", "is_replaced")
    assert old != text
    before = from_json(old.encode(), StateRecord)
    assert (before.backups, before.rates, before.mitigations) == (0, {}, ())
    assert not any(node.is_replaced for node in before.nodes)


def without(text: str, *names: str) -> str:
    """Return JSON without the fields of these names."""
    import json  # noqa: PLC0415 - here alone

    def stripped(value: object) -> object:
        if isinstance(value, dict):
            return {key: stripped(each) for key, each in value.items() if key not in names}
        return [stripped(each) for each in value] if isinstance(value, list) else value

    return json.dumps(stripped(json.loads(text)))


def some_action(world: World, rng: random.Random) -> Action:
    workers = sorted(n.id for n in world.master.nodes if n.role is Role.WORKER)
    servers = sorted(n.id for n in world.master.nodes if n.role is Role.PS)
    sizes = tuple((name, rng.randint(1, 20)) for name in workers)
    found: list[Action] = [MoveBuckets(name) for name in servers]
    found += [KillRestart(name, Role.WORKER) for name in workers]
    found += [KillRestart(name, Role.PS) for name in servers]
    found += [AdjustBatches(sizes)] if sizes else []
    found += [AdjustRates(tuple((name, 0.5) for name in workers))] if sizes else []
    return rng.choice(found or [BackupWorkers(1)])


def interleaved(seed: int, n_worker: int, n_ps: int, cpu: float) -> None:
    """Let anything happen while actions are ordered; each is answered once, and every row is trained."""
    first = plan(n_worker, n_ps)
    job = spec(first, n_epoch=2, checkpoint_every_s=3.0, heartbeat_timeout_s=30.0)
    world, rng = World(job, features(395), cpu=max(cpu, 0.5 * n_worker + 0.25 * n_ps)), random.Random(seed)
    wanted, plans, ordered = [first], [plan(2, 1), plan(1, 2)], []
    if cpu < 4:
        plans = []
    for n in range(400):
        disturb(world, rng, wanted, plans)
        if rng.random() < 0.1 and world.master.stage is not Stage.ENDED:
            measure(world, rng)
            try:
                mitigate(world, some_action(world, rng), f"d{n}")
            except (StaleDecisionError, InvalidValueError):
                assert not world.master.set_capacity(world.capacity, world.at_s)
            else:
                ordered.append(f"d{n}")
        if rng.random() < 0.005 and world.master.stage is not Stage.ENDED:
            world.crash(n_kept=rng.randrange(3))
        check(world, wanted)
    succeeds = play_out(world, wanted)
    assert set(ended(world)) == set(ordered)
    if not succeeds:
        return
    assert n_done(world) == len(world.learnt) == 790


@pytest.mark.more
@pytest.mark.parametrize(
    ("seed", "n_worker", "n_ps", "cpu"), [(0, 2, 2, 4.6), (1, 3, 1, 16.0), (2, 1, 3, 2.0), (3, 2, 1, 2.0)]
)
def test_under_a_few_interleavings_every_action_is_answered_once_and_every_row_trained(
    seed: int, n_worker: int, n_ps: int, cpu: float
) -> None:
    interleaved(seed, n_worker, n_ps, cpu)


@pytest.mark.release
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), st.integers(1, 3), st.integers(1, 3), st.sampled_from([2.0, 4.6, 16.0]))
def test_under_any_interleaving_every_action_is_answered_once_and_every_row_trained(
    seed: int, n_worker: int, n_ps: int, cpu: float
) -> None:
    interleaved(seed, n_worker, n_ps, cpu)


def measure(world: World, rng: random.Random) -> None:
    group = world.master.record.group
    for ps, name in enumerate(group.nodes if group is not None else ()):
        if world.master.knows(name):
            served = {bucket: rng.randrange(2000) for bucket in range(N_BUCKET)}
            report(world, name, load_of(world, ps, served, rng.uniform(0.5, 9.0)))
