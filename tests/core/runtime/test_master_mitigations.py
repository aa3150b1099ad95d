"""Actions against stragglers: each takes effect or is given up, is answered once, and no row is lost by it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from full_machine import FullMachines
from hypothesis import given, settings
from hypothesis import strategies as st
from master_world import World, features, in_place, plan, spec, trained_every_row
from test_master_laws import check, disturb, play_out
from test_master_moves import to
from test_rebalancing import load_of, owner, report

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.runtime.liveness import PLAN_LIMIT_S
from dlrover_nb.core.runtime.load_placement import within_room
from dlrover_nb.core.runtime.recovery_record import StateRecord
from dlrover_nb.core.runtime.state import Stage
from dlrover_nb.core.structs import messages as m
from dlrover_nb.core.structs.actions import (
    Action,
    ActionChoice,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MitigationChoice,
    MoveBuckets,
)
from dlrover_nb.core.structs.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.capacity import in_steps
from dlrover_nb.core.structs.events import BatchSizesSet, MitigationEnded, NodeLeft, NodeStarted
from dlrover_nb.core.structs.job import JobPhase, Migration, Sync
from dlrover_nb.core.structs.mitigation_messages import Backups, SetRate, ShardReturned
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.shards import BatchChoice
from dlrover_nb.core.structs.snapshot import NodePhase

WITHOUT_PAUSE = {Stage.SERVING, Stage.PAUSING, Stage.SWITCHING}
WORKER_0, PS_0 = KillRestart("worker-0", Role.WORKER), KillRestart("ps-0", Role.PS)


def training(
    workers: int = 2, ps: int = 2, *, n_row: int = 8000, cpu: float = 8.0, **changes: object
) -> World:
    """Return a job that has trained some rows."""
    world = World(spec(plan(workers, ps), **changes), features(n_row), cpu=cpu)
    world.run_until(lambda: in_place(world, world.master.target) and n_done(world) > 800)
    return world


def n_done(world: World) -> int:
    return world.master.train_counts.n_sample_done


def mitigate(world: World, action: Action, decision: str = "d1") -> None:
    choice = MitigationChoice(decision, ActionChoice.of(action), "ada", "it is slow")
    world.do(world.master.mitigate(choice, world.at_s))


def ended(world: World) -> dict[str, str]:
    """Return why each answered action is not in effect; each is answered once."""
    told = world.told(MitigationEnded)
    assert len({each.decision for each in told}) == len(told)
    return {each.decision: each.why_not for each in told}


def answer(world: World, decision: str = "d1") -> str:
    """Run until an action is answered; return why it is not in effect."""
    world.run_until(lambda: decision in ended(world), 3000)
    return ended(world)[decision]


def settled(world: World) -> None:
    world.run_until(lambda: in_place(world, world.master.target))
    world.check_parameters()


def read(world: World) -> None:
    """Run until all orders were read."""
    world.run_until(lambda: not any(node.inbox for node in world.nodes.values() if node.is_alive))


def finished(world: World, *, exactly_once: bool = True) -> None:
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world, exactly_once=exactly_once)


def unchanged(world: World, action: Action, error: type[Exception], match: str) -> None:
    """Order what is refused; then nothing has changed."""
    before, n_event = world.master.record, len(world.events)
    with pytest.raises(error, match=match):
        mitigate(world, action, "refused")
    assert world.master.record == before
    assert len(world.events) == n_event
    assert not world.master._state.orders


# a worker that is replaced


def test_a_worker_is_replaced_when_its_successor_trains_and_others_train_its_rows() -> None:
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
    assert "worker-0 is replaced, as ada decided: it is slow" in str(world.events)
    finished(world)
    assert world.master.train_counts.refused == 0
    assert "was lost" not in str(world.events)


def heard(world: World, kind: type) -> list[tuple[str, object]]:
    return [(node.id, each) for node in world.nodes.values() for each in node.heard if isinstance(each, kind)]


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
    unchanged(world, WORKER_0, StaleDecisionError, "nothing has room for one beside worker-0")
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
    assert "nothing has room" in ended(world)["d1"]
    world.wait_for(lambda: in_place(world, world.master.target), 60)
    assert world.living(Role.WORKER) == ["worker-0"]
    assert "worker-0 stays: " in str(world.events)


def test_two_workers_are_replaced_at_once_and_one_of_them_always_trains() -> None:
    world = training(2, 1)
    mitigate(world, WORKER_0)
    unchanged(world, WORKER_0, StaleDecisionError, "leaves already")
    mitigate(world, KillRestart("worker-1", Role.WORKER), "d2")
    while len(ended(world)) < 2:
        assert any(n.is_training for n in world.master._state.roster.workers)
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


def test_a_successor_that_is_lost_before_it_trains_leaves_the_worker_where_it_is() -> None:
    world = training()
    mitigate(world, WORKER_0)
    world.kill("worker-2", "no image")
    assert ended(world) == {"d1": "worker-2 was lost: no image"}
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
    unchanged(world, WORKER_0, StaleDecisionError, "it does not train")
    world = training()
    unchanged(
        world, KillRestart("worker-9", Role.WORKER), InvalidValueError, "expected one of worker-0, worker-1"
    )
    unchanged(world, KillRestart("worker-0", Role.PS), InvalidValueError, "expected one of ps-0, ps-1")
    world.do(world.master.set_target(plan(3, 2), world.at_s))
    unchanged(world, WORKER_0, StaleDecisionError, "its plan is not in place")
    settled(world)
    world.do(world.master.stop("ada", "enough", world.at_s))
    unchanged(world, WORKER_0, StaleDecisionError, "about to end")


def test_a_job_that_ends_meanwhile_answers_what_is_open() -> None:
    world = training()
    mitigate(world, WORKER_0)
    world.do(world.master.stop("ada", "enough", world.at_s))
    assert ended(world) == {"d1": "the job is about to end"}
    world = training()
    mitigate(world, PS_0)
    world.do(world.master.fail("no disk", world.at_s))
    assert ended(world) == {"d1": "the job ended before"}


# a PS that is replaced


@pytest.mark.more
@pytest.mark.parametrize("n_ps", [1, 2, 3])
@pytest.mark.parametrize("sync", [Sync.ASP, Sync.BSP])
def test_a_ps_is_replaced_by_one_that_takes_its_parameters_while_workers_train(n_ps: int, sync: Sync) -> None:
    world = training(2, n_ps, sync=sync)
    mitigate(world, PS_0)
    stages = set()
    while not ended(world):
        world.round()
        world.check_parameters()
        stages.add(world.master.stage)
    assert ended(world) == {"d1": ""}
    assert stages <= WITHOUT_PAUSE
    group = world.master._state.group
    assert group is not None
    assert group.nodes == (f"ps-{n_ps}", *[f"ps-{at}" for at in range(1, n_ps)])
    assert "ps-0 is replaced, as ada decided: it is slow" in str(world.events)
    assert f"ps-0 is replaced; its parameters move to ps-{n_ps}" in str(world.events)
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


def instructions(world: World, ps: str) -> list[object]:
    return [each for each in world.nodes[ps].heard if isinstance(each, m.Adjust | Backups)]


def test_only_one_ps_at_a_time() -> None:
    world = training()
    mitigate(world, PS_0)
    for action in (KillRestart("ps-1", Role.PS), MoveBuckets("ps-1"), WORKER_0):
        unchanged(world, action, StaleDecisionError, "anew")
    assert answer(world) == ""


def test_a_ps_stays_where_nothing_has_room_beside_it() -> None:
    world = training(2, 1, cpu=1.25)
    unchanged(world, PS_0, StaleDecisionError, "nothing has room for another parameter server beside ps-0")
    world = FullMachines(spec(plan(1, 1)), features(200_000), ((1.0, 8192),))
    world.wait_for(lambda: in_place(world, world.master.target), 60)
    world.n_step_held = [in_steps(0.25)]
    mitigate(world, PS_0)
    world.wait_for(lambda: bool(ended(world)), 60)
    assert "nothing has room" in ended(world)["d1"]
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
    world.run_until(lambda: world.master._state.move is not None)
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
    world.run_until(lambda: world.master._state.move is not None)
    to(world, stage)
    world.crash()
    assert answer(world) == ""
    settled(world)
    assert "ps-0" not in world.living(Role.PS)
    finished(world)


@pytest.mark.more
def test_a_successor_that_does_not_come_up_in_time_is_not_waited_for_without_end() -> None:
    world = training(n_row=60_000)
    mitigate(world, PS_0)
    world.nodes["ps-2"].is_alive = False  # which its cluster does not say
    world.run_until(lambda: bool(ended(world)), int(PLAN_LIMIT_S * 11))
    assert ended(world)["d1"].startswith("ps-2 was lost: it did not start")
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


# buckets


def measured(world: World, busy_s: float = 8.0, **sample: float) -> None:
    """Report that ps-0 takes four times as long as ps-1 for the same rows."""
    for ps, (name, busy) in enumerate((("ps-0", busy_s), ("ps-1", 2.0))):
        told = load_of(world, ps, {}, busy)
        report(world, name, replace(told, sample=replace(told.sample, **sample)))


def test_buckets_of_a_slow_ps_move_by_what_was_measured() -> None:
    world = training()
    unchanged(world, MoveBuckets("ps-0"), StaleDecisionError, "not measured yet")
    measured(world)
    unchanged(world, MoveBuckets("ps-1"), StaleDecisionError, "do not ask for fewer buckets")
    mitigate(world, MoveBuckets("ps-0"))
    unchanged(world, PS_0, StaleDecisionError, "parameters move")
    unchanged(world, WORKER_0, StaleDecisionError, "parameters move")
    assert answer(world) == ""
    assert owner(world).count(0) in range(50, 54)
    finished(world)


def test_ps_that_are_alike_keep_their_buckets() -> None:
    world = training()
    measured(world, busy_s=2.1)
    unchanged(world, MoveBuckets("ps-0"), StaleDecisionError, "balanced")


@pytest.mark.parametrize(("parameter_mib", "n_moved"), [(0.5, 77), (160.0, 48), (160.0 * 1e3, 0)])
def test_no_ps_gets_more_rows_than_its_memory_holds(parameter_mib: float, n_moved: int) -> None:
    """Each has 512 MiB, of which 350 are in use: 59.6 may come, or 47 of 128 buckets of 160 MiB."""
    world = training()
    measured(world, parameter_mib=parameter_mib, memory_mib=350.0)
    if not n_moved:
        unchanged(world, MoveBuckets("ps-0"), StaleDecisionError, "no memory")
        return
    mitigate(world, MoveBuckets("ps-0"))
    assert answer(world) == ""
    assert abs(128 - owner(world).count(0) - n_moved) <= 2


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 5))
def test_what_moves_fits_and_what_does_not_stays(data: st.DataObject, n_ps: int) -> None:
    buckets = st.lists(st.integers(0, n_ps - 1), min_size=12, max_size=12)
    before, wanted = data.draw(buckets), data.draw(buckets)
    size = data.draw(st.lists(st.floats(0, 10), min_size=12, max_size=12))
    room = data.draw(st.lists(st.floats(-5, 40), min_size=n_ps, max_size=n_ps))
    found = within_room(before, wanted, size, room)
    assert all(was in both for was, both in zip(found, zip(before, wanted, strict=True), strict=True))
    for ps in range(n_ps):
        gained = sum(size[b] for b in range(12) if found[b] == ps != before[b])
        assert gained <= max(room[ps], 0) + 1e-9
    if all(each >= sum(size) for each in room):
        assert found == tuple(wanted)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_move_of_buckets_is_answered_by_a_master_that_restarts(stage: Stage) -> None:
    world = training()
    measured(world)
    world.n_step = 0
    mitigate(world, MoveBuckets("ps-0"))
    to(world, stage)
    world.crash()
    world.n_step = 6
    assert answer(world) == ("" if stage is Stage.SWITCHING else "the master restarted")
    settled(world)
    finished(world)


@pytest.mark.parametrize("comes", ["kill", "evict", "plan", "stop"])
def test_a_move_of_buckets_that_is_given_up_is_answered(comes: str) -> None:
    world = training(n_row=60_000)
    measured(world)
    world.n_step = 0
    mitigate(world, MoveBuckets("ps-0"))
    world.round()
    if comes == "kill":
        world.kill("ps-1")
    elif comes == "evict":
        world.evict("ps-1")
    elif comes == "plan":
        world.do(world.master.set_target(plan(2, 3), world.at_s))
    else:
        world.do(world.master.stop("ada", "enough", world.at_s))
    assert answer(world)
    assert not world.master._state.mitigations


# what concerns all workers


@pytest.mark.more
@pytest.mark.parametrize("sync", Sync)
def test_batch_sizes_are_set_for_all_present_workers(sync: Sync) -> None:
    world = training(sync=sync, staleness=1)
    action = AdjustBatches((("worker-0", 4), ("worker-1", 8)), (("worker-1", 2),))
    mitigate(world, action)
    assert ended(world) == {"d1": ""}
    assert world.told(BatchSizesSet) == [BatchSizesSet(world.at_s, (("worker-0", 4), ("worker-1", 16)))]
    read(world)
    order = m.Adjust((("worker-0", 4), ("worker-1", 16)))
    told = {"worker-0", "worker-1"} if sync is Sync.ASP else {"ps-0"}
    assert dict(heard(world, m.Adjust)) == dict.fromkeys(told, order)
    for sizes in ((("worker-0", 4),), (("worker-0", 4), ("worker-1", 8), ("worker-2", 1))):
        unchanged(world, AdjustBatches(sizes), InvalidValueError, "each of worker-0, worker-1")
    finished(world)


def test_sizes_are_told_by_whoever_they_are_set_and_when_they_are_forgotten() -> None:
    world = training(sync=Sync.BSP)
    world.do(world.master.choose(BatchChoice((("worker-0", 4),), "ada"), world.at_s))
    assert [each.sizes for each in world.told(BatchSizesSet)] == [(("worker-0", 4),)]
    world.crash()
    settled(world)
    world.kill("worker-0")
    assert [each.sizes for each in world.told(BatchSizesSet)] == [(("worker-0", 4),), ()]


def test_a_worker_that_dies_under_other_sizes_leaves_its_share_to_all() -> None:
    world = training(3, 1, sync=Sync.BSP, global_batch=30)
    shares = tuple((f"worker-{at}", 10) for at in range(3))
    assert world.told(BatchSizesSet)[-1].sizes == shares
    mitigate(world, AdjustBatches((("worker-0", 2), ("worker-1", 14), ("worker-2", 14))))
    world.kill("worker-1")
    assert world.told(BatchSizesSet)[-1].sizes == (("worker-0", 15), ("worker-2", 15))
    settled(world)
    sizes = world.told(BatchSizesSet)[-1].sizes
    assert [name for name, _ in sizes] == ["worker-0", "worker-2", "worker-3"]
    assert sum(size for _, size in sizes) == 30
    finished(world, exactly_once=False)


def test_backup_workers_are_for_bsp_and_fewer_than_workers() -> None:
    world = training(sync=Sync.BSP)
    unchanged(world, BackupWorkers(2), InvalidValueError, "fewer backup workers than the 2 workers")
    mitigate(world, BackupWorkers(1))
    assert ended(world) == {"d1": ""}
    read(world)
    assert heard(world, Backups) == [("ps-0", Backups(1))]
    mitigate(world, BackupWorkers(0), "d2")
    finished(world)
    unchanged(training(), BackupWorkers(1), InvalidValueError, "got a job with asp")


@pytest.mark.more
@pytest.mark.parametrize("sync", [Sync.ASP, Sync.BSP])
def test_what_nodes_were_told_is_repeated_by_a_master_that_restarts(sync: Sync) -> None:
    world = training(sync=sync)
    mitigate(world, AdjustBatches((("worker-0", 4), ("worker-1", 16))))
    if sync is Sync.BSP:
        mitigate(world, BackupWorkers(1), "d2")
    world.crash()
    settled(world)
    read(world)
    if sync is Sync.BSP:
        told = [m.Adjust((("worker-0", 4), ("worker-1", 16))), Backups(1)]
        assert instructions(world, "ps-0") == told * 2
    else:
        assert dict(heard(world, m.Adjust)) == {
            "worker-0": m.Adjust((("worker-0", 4),)),
            "worker-1": m.Adjust((("worker-1", 16),)),
        }
    finished(world)


def test_rates_are_for_asp_and_new_workers_have_the_jobs_own() -> None:
    world = training()
    unchanged(world, AdjustRates((("worker-7", 0.5),)), InvalidValueError, "expected factors of worker-0")
    mitigate(world, AdjustRates((("worker-0", 0.5), ("worker-1", 1.0))))
    read(world)
    assert heard(world, SetRate) == [("worker-0", SetRate(0.5)), ("worker-1", SetRate(1.0))]
    world.crash()
    settled(world)
    read(world)
    assert heard(world, SetRate)[1] == ("worker-0", SetRate(0.5))
    world.kill("worker-0")
    settled(world)
    read(world)
    assert len(heard(world, SetRate)) == 3
    finished(world, exactly_once=False)
    unchanged(training(sync=Sync.BSP), AdjustRates((("worker-0", 0.5),)), InvalidValueError, "with bsp")


# shards that are given back


def give_back(world: World, name: str) -> int:
    node = world.nodes[name]
    assert node.shard is not None
    shard, node.shard = node.shard, None
    node.say(ShardReturned(name, shard.lease, node.n_done))
    node.say(m.ShardAsked(name))
    node.n_done = 0
    return shard.lease.shard


def test_a_shard_that_is_given_back_goes_to_others_at_the_row_where_it_was() -> None:
    world = training()
    world.run_until(lambda: 0 < world.nodes["worker-0"].n_done < 40)
    number, n_before = give_back(world, "worker-0"), len(world.granted)
    world.run_until(lambda: any(s.lease.shard == number for _, s in world.granted[n_before:]))
    taker, shard = next((n, s) for n, s in world.granted[n_before:] if s.lease.shard == number)
    assert (taker, shard.offset > 0) == ("worker-1", True)
    finished(world)
    assert world.master.train_counts.refused == 0


def test_a_shard_that_is_given_back_without_anybody_else_is_granted_again() -> None:
    world = training(1, 1)
    world.run_until(lambda: 0 < world.nodes["worker-0"].n_done < 40)
    give_back(world, "worker-0")
    finished(world)


def test_a_shard_that_all_have_given_back_is_granted_again() -> None:
    world = training(2, 1, n_row=2000)
    for _ in range(3):
        for name in ("worker-0", "worker-1"):
            world.run_until(lambda name=name: world.nodes[name].shard is not None)
            give_back(world, name)
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
    workers = sorted(n.id for n in world.master._state.roster.workers)
    servers = sorted(n.id for n in world.master._state.roster.ps)
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
                assert not world.master._state.orders
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
    group = world.master._state.group
    for ps, name in enumerate(group.nodes if group is not None else ()):
        if world.master.knows(name):
            served = {bucket: rng.randrange(2000) for bucket in range(N_BUCKET)}
            report(world, name, load_of(world, ps, served, rng.uniform(0.5, 9.0)))
