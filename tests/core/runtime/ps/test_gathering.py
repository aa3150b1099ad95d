"""PS that gather gradients into global batches, and workers that exchange with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.slab_world import N_DENSE, N_ID, World

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import Exchange
from dlrover_nb.core.runtime.ps.gathering import Gathering
from dlrover_nb.core.runtime.ps.global_batch import Gathered, GlobalBatch
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync

STEPS = st.lists(st.tuples(st.sampled_from(["w0", "w1", "w2"]), st.integers(1, 60)), min_size=1, max_size=20)


def push_of(world, rng, n, **fields):
    return replace(world.push(rng, n), rate=1.0, **fields)


def train(world, steps, seed=0):
    """Let workers push batches of so many rows, in this order; return the pushes."""
    rng, pushes = np.random.default_rng(seed), []
    for worker, n in steps:
        if worker not in world.clients:
            world.exchange(worker, None, world.batch(rng, 3))
        pushes.append(push_of(world, rng, n))
        world.exchange(worker, pushes[-1], world.batch(rng, 3))
    return pushes


@pytest.mark.more
@settings(deadline=None, max_examples=15)
@given(steps=STEPS, size=st.integers(1, 150), overlap=st.booleans(), n_ps=st.integers(1, 2))
def test_every_ps_makes_the_steps_of_the_batches_that_come_and_ages_count_in_steps(
    tmp_path_factory, steps, size, overlap, n_ps
):
    fields = {"global_batch": size, "overlap": overlap, "staleness": 1}
    with World(tmp_path_factory.mktemp("w"), n_ps, Sync.GBA, **fields) as world:
        pushes = train(world, steps)
        batch, store = GlobalBatch(tolerance=1), ParameterStore(world.model, N_ID, N_DENSE)
        store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
        made, read_at = [], {}  # the workers of each step, and how many steps there were at each read
        now = set()
        for (worker, n), push in zip(steps, pushes, strict=True):
            reads = read_at.setdefault(worker, [len(made)] * 2)
            age = sum(by != {worker} for by in made[reads[-1 - overlap] :])
            now.add(worker)
            step = batch.add(Gathered(age, n, (push.batch.rows, push.rows, push.dense)), size)
            if step is not None:
                made.append(now)
                now = set()
                store.push(*step.gradients[:2])
                store.push_dense(step.gradients[2])
            read_at[worker].append(len(made))
        for serving in world.servings:
            serving.settle()
        last = batch.flush()
        if last is not None:
            store.push(*last.gradients[:2])
            store.push_dense(last.gradients[2])
        part = store.export()
        order = np.argsort(part.ids)
        ids, table, dense = world.parameters()
        np.testing.assert_array_equal(ids, part.ids[order])
        np.testing.assert_allclose(table, part.table[order], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(dense, part.dense, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("overlap", [False, True])
def test_one_worker_whose_batches_are_global_ones_trains_as_without_gathering_bit_for_bit(tmp_path, overlap):
    parameters = []
    for sync in (Sync.ASP, Sync.GBA):
        with World(tmp_path / sync, 2, sync, global_batch=30, overlap=overlap, staleness=1) as world:
            train(world, [("w0", 30), ("w0", 40), ("w0", 35), ("w0", 31)])
            parameters.append(world.parameters())
    for mine, theirs in zip(*parameters, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_was_gathered_shows_when_the_batch_is_full_or_settled(tmp_path):
    with World(tmp_path / "w", 1, Sync.GBA, global_batch=50) as world:
        rng = np.random.default_rng(1)
        first, second = push_of(world, rng, 20), push_of(world, rng, 20)
        before = world.exchange("w0", None, first.batch)
        np.testing.assert_array_equal(world.exchange("w0", first, first.batch), before)
        assert not np.array_equal(world.exchange("w1", push_of(world, rng, 30), first.batch), before)
        full = world.exchange("w0", second, second.batch)
        world.servings[0].settle()
        settled = world.exchange("w0", None, second.batch)
        assert not np.array_equal(settled, full)
        world.servings[0].settle()
        np.testing.assert_array_equal(world.exchange("w0", None, second.batch), settled)


def test_a_repeated_request_is_gathered_once(tmp_path):
    parameters = []
    for repeats in (0, 3):
        with World(tmp_path / f"{repeats}", 2, Sync.GBA, global_batch=70) as world:
            rng = np.random.default_rng(2)
            for _ in range(5):
                world.exchange("w0", push_of(world, rng, 20), world.batch(rng, 5), repeats)
            world.servings[0].settle()
            parameters.append(world.parameters())
    for mine, theirs in zip(*parameters, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_global_batch_is_one_batch_of_each_worker_unless_the_job_says_otherwise(tmp_path):
    with World(tmp_path / "w", 1, Sync.GBA, batch_size=20) as world:
        serving, store = world.servings[0], world.stores[0]
        rng, seen = np.random.default_rng(3), []
        for worker, n in [("w0", 20), ("w1", 20), ("w0", 20), ("w2", 20), ("w1", 20), ("w0", 20)]:
            before = store.dense
            world.exchange(worker, push_of(world, rng, n), world.batch(rng, 2))
            seen.append(not np.array_equal(store.dense, before))
        assert seen == [True, False, True, False, False, True]
        assert serving.members == ("w0", "w1", "w2")
        serving.forget("w1")
        assert serving.members == ("w0", "w2")
        world.exchange("w0", push_of(world, rng, 20), world.batch(rng, 2))
        before = store.dense
        world.exchange("w2", push_of(world, rng, 20), world.batch(rng, 2))
        assert not np.array_equal(store.dense, before)


def test_gradients_of_a_worker_that_was_given_up_stay(tmp_path):
    with World(tmp_path / "w", 1, Sync.GBA, global_batch=50) as world:
        rng = np.random.default_rng(4)
        push = push_of(world, rng, 20)
        before = world.exchange("w0", push, push.batch)
        world.servings[0].forget("w0")
        world.servings[0].settle()
        after = world.exchange("w1", None, push.batch)
        moved = (after != before)[: push.rows.size]
        assert moved.all()


def test_gradients_that_cannot_be_applied_are_refused_and_nothing_is_gathered(tmp_path):
    with World(tmp_path / "w", 1, Sync.GBA, global_batch=20) as world:
        rng = np.random.default_rng(5)
        before = world.exchange("w0", None, world.batch(rng, 4))
        wrong = push_of(world, rng, 20)
        wrong.dense[3] = np.nan
        with pytest.raises(WireError, match="refused"):
            world.exchange("w0", wrong, world.batch(rng, 4))
        world.disconnect()
        dense = world.stores[0].dense
        world.exchange("w0", push_of(world, rng, 19), world.batch(rng, 4))
        np.testing.assert_array_equal(world.stores[0].dense, dense)
        assert len(before)


def test_a_skipped_batch_is_in_no_step(tmp_path):
    with World(tmp_path / "w", 1, Sync.GBA, global_batch=40) as world:
        rng = np.random.default_rng(6)
        for is_skipped in (False, True, True):
            world.exchange("w0", world.push(rng, 20, skipped=is_skipped), world.batch(rng, 4))
        dense = world.stores[0].dense
        (ages,) = world.servings[0].ages.take()
        assert (ages.worker, ages.counts) == ("w0", (1,))
        world.exchange("w0", push_of(world, rng, 20), world.batch(rng, 4))
        assert not np.array_equal(world.stores[0].dense, dense)


def test_gradients_without_the_number_of_their_rows_are_refused():
    spec = JobSpec("law", sync=Sync.GBA)
    store = ParameterStore(spec.model, N_ID, 2)
    gathering = Gathering(spec, UpdateAges(spec), store)
    ids, rows = np.array([1]), np.ones((1, spec.model.row_width), np.float32)
    with pytest.raises(WireError, match="number of their rows"):
        gathering.take(b"w0/1/1", "w0", Exchange(1, 1), (ids, rows, np.zeros(2, np.float32)))


def test_a_move_loses_nothing_that_was_gathered(tmp_path):
    parameters = []
    for moves in (False, True):
        with World(tmp_path / f"{moves}", 2, Sync.GBA, global_batch=90) as world:
            train(world, [("w0", 40), ("w1", 30), ("w0", 50), ("w1", 20)])
            untouched = world.parameters()
            if moves:
                world.move(np.random.default_rng(7), 3, restarted=True)
            else:
                for serving in world.servings:
                    serving.settle()
            parameters.append(world.parameters())
            assert not np.array_equal(untouched[2], parameters[-1][2])
    for mine, theirs in zip(*parameters, strict=True):
        np.testing.assert_array_equal(mine, theirs)
