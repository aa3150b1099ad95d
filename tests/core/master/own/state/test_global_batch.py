"""A global batch is shared by the workers that train, however many they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.master.master_world import World, features, in_place, plan, spec

from dlrover_nb.core.master.own.state.batch_sizes import shares
from dlrover_nb.core.planner.predictions.batch import batch_sizes
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import BatchChoice
from dlrover_nb.core.structs.wire import messages as m


@pytest.mark.parametrize("sync", [each for each in Sync if each is not Sync.GBA])
def test_workers_share_a_global_batch_however_many_they_are(sync: Sync) -> None:
    world = World(spec(plan(2, 1), sync=sync, global_batch=25), features(8000))
    for n_worker in (2, 4, 1):
        wanted = plan(n_worker, 1)
        world.do(world.master.set_target(wanted, world.at_s))
        world.run_until(lambda wanted=wanted: in_place(world, wanted))
        told = dict(world.master.record.batch_sizes)
        assert sum(told.values()) == 25
        assert max(told.values()) - min(told.values()) <= 1
        workers = {node.id for node in world.master.nodes if node.role is Role.WORKER}
        assert told.keys() == workers
        listeners = workers if sync is Sync.ASP else {"ps-0"}
        order = m.Adjust(tuple(sorted(told.items())))
        heard = [world.nodes[name].heard for name in listeners]
        world.run_until(lambda heard=heard, order=order: all(order in each for each in heard))


def test_workers_keep_their_batches_where_ps_gather_the_global_one() -> None:
    job = spec(plan(2, 1), sync=Sync.GBA, global_batch=25)
    world = World(job, features(8000))
    for n_worker in (2, 4, 1):
        wanted = plan(n_worker, 1)
        world.do(world.master.set_target(wanted, world.at_s))
        world.run_until(lambda wanted=wanted: in_place(world, wanted))
        assert not world.master.record.batch_sizes
        assert job.batch_of(n_worker) == job.batch_size
    axes = np.array([[n_worker, 1, 1.0, 1.0] for n_worker in (1, 2, 40)])
    assert batch_sizes(job, axes).tolist() == [job.batch_size] * 3
    assert spec(sync=Sync.GBA, global_batch=3).batch_of(1) == 3, "a step has no more rows than it may have"
    world.do(world.master.choose(BatchChoice((("worker-0", 5),), "ada"), world.at_s))
    order = m.Adjust((("worker-0", 5),))
    world.run_until(lambda: order in world.nodes["worker-0"].heard)


def test_a_size_that_a_user_chose_holds_until_other_workers_share_the_batch() -> None:
    world = World(spec(plan(2, 1), global_batch=20), features(8000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.choose(BatchChoice((("worker-0", 5),), "ada"), world.at_s))
    for _ in range(10):
        world.round()
    assert world.master.record.batch_sizes == {"worker-0": 5, "worker-1": 10}
    world.kill("worker-0")
    world.run_until(lambda: in_place(world, plan(2, 1)))
    assert world.master.record.batch_sizes == {"worker-1": 10, "worker-2": 10}


@given(st.integers(1, 10_000), st.integers(1, 200))
def test_shares_of_a_batch_sum_to_it_and_differ_by_one_at_most(total: int, n_worker: int) -> None:
    sizes = shares(total, [f"worker-{i}" for i in range(n_worker)]).values()
    assert sum(sizes) == max(total, n_worker)
    assert max(sizes) - min(sizes) <= 1


def test_the_shares_of_a_batch_are_the_sizes_that_the_model_counts_with() -> None:
    job = spec(global_batch=4096)
    axes = np.array([[n_worker, 1, 1.0, 1.0] for n_worker in range(1, 40)])
    assert batch_sizes(job, axes).tolist() == [job.batch_of(n_worker) for n_worker in range(1, 40)]
    for n_worker in range(1, 40):
        sizes = shares(4096, [str(i) for i in range(n_worker)])
        assert abs(job.batch_of(n_worker) - 4096 / n_worker) <= 0.5
        assert set(sizes.values()) <= {job.batch_of(n_worker) + off for off in (-1, 0, 1)}
