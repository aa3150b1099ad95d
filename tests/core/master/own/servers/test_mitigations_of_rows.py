"""Actions that move rows: buckets of parameter servers, batch sizes and rates of workers, shards that are given back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, plan
from support.master.mitigation_world import (
    PS_0,
    WORKER_0,
    answer,
    ended,
    finished,
    heard,
    instructions,
    mitigate,
    read,
    settled,
    training,
    unchanged,
)
from support.master.moves import load_of, report, to
from test_rebalancing import owner

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.servers.load_placement import within_room
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, AdjustRates, BackupWorkers, MoveBuckets
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.shards import BatchChoice
from dlrover_nb.core.structs.views.events import BatchSizesSet
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.mitigation_messages import Backups, SetRate, ShardReturned

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
    assert not world.master.record.mitigations


# what concerns all workers


@pytest.mark.more
@pytest.mark.parametrize("sync", Sync)
def test_batch_sizes_are_set_for_all_present_workers(sync: Sync) -> None:
    world = training(sync=sync, staleness=1)
    action = AdjustBatches((("worker-0", 4), ("worker-1", 8)), (("worker-1", 2),))
    mitigate(world, action)
    assert ended(world) == {"d1": ""}
    sizes = BatchSizesSet(world.at_s, (("worker-0", 4), ("worker-1", 8)), (("worker-1", 2),))
    assert world.told(BatchSizesSet) == [sizes]
    read(world)
    order = m.Adjust((("worker-0", 4), ("worker-1", 16)), (("worker-1", 2),))
    told = {"worker-0", "worker-1"} if sync in {Sync.ASP, Sync.GBA} else {"ps-0"}
    assert dict(heard(world, m.Adjust)) == dict.fromkeys(told, order)
    for sizes in ((("worker-0", 4),), (("worker-0", 4), ("worker-1", 8), ("worker-2", 1))):
        unchanged(world, AdjustBatches(sizes), InvalidValueError, "each of worker-0 and worker-1")
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
