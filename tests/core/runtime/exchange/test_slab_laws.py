"""Exchanges give the same bits through a slab and through frames, and a slab never makes one fail."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.slab_world import MODEL, N_DENSE, N_ID, World, both

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.structs.job.spec_choices import Sync

WORKERS = st.sampled_from(["w0", "w1"])
SIZES = st.integers(0, 40) | st.integers(0, 3000)
SEEDS = st.integers(0, 2**32)
EXCHANGES = st.tuples(st.just("exchange"), SEEDS, WORKERS, SIZES, SIZES)
ACTIONS = st.one_of(
    EXCHANGES,
    EXCHANGES,
    EXCHANGES,
    st.tuples(st.sampled_from(["repeated", "skipped", "poisoned", "first"]), SEEDS, WORKERS, SIZES, SIZES),
    st.tuples(st.sampled_from(["moved", "restarted"]), SEEDS, WORKERS, SIZES, SIZES),
)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="ds") as name:  # paths of sockets are short
        yield Path(name)


def act(world: World, action: tuple[str, int, str, int, int]) -> np.ndarray | str:
    """Let a world do something; return what its worker gets."""
    kind, seed, worker, n_push, n_pull = action
    rng = np.random.default_rng(seed)
    if kind in {"moved", "restarted"}:
        world.move(rng, len(world.endpoints), restarted=kind == "restarted")
    poison = {"poisoned": float(rng.choice([np.nan, np.inf, 1e30]))}.get(kind, 0.0)
    push = None if kind == "first" else world.push(rng, n_push, skipped=kind == "skipped", poison=poison)
    try:
        return world.exchange(worker, push, world.batch(rng, n_pull), repeats=2 * (kind == "repeated"))
    except WireError as error:
        world.disconnect()  # the worker ends, and another one takes its place
        return str(error)


def assert_same(shared: World, frames: World, actions: list[tuple[str, int, str, int, int]]) -> None:
    for action in actions:
        found, expected = act(shared, action), act(frames, action)
        np.testing.assert_array_equal(found, expected)
    for mine, theirs in zip(shared.parameters(), frames.parameters(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.more
@settings(deadline=None, max_examples=40)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=12), n_ps=st.integers(1, 3))
def test_slab_and_frames_give_the_same_bits(actions, n_ps):
    with tempfile.TemporaryDirectory(prefix="ds") as name, both(Path(name), n_ps) as (shared, frames):
        assert_same(shared, frames, actions)


@pytest.mark.more
@pytest.mark.parametrize("sync", [Sync.BSP, Sync.SSP])
@settings(deadline=None, max_examples=15)
@given(
    actions=st.lists(
        st.tuples(st.sampled_from(["exchange", "exchange", "repeated", "skipped", "first"]), SEEDS, st.just("w0"), SIZES, SIZES),
        min_size=3,
        max_size=8,
    ),
    n_ps=st.integers(1, 2),
)  # fmt: skip
def test_the_same_holds_where_workers_keep_in_step(sync, actions, n_ps):
    with tempfile.TemporaryDirectory(prefix="ds") as name, both(Path(name), n_ps, sync) as (shared, frames):
        assert_same(shared, frames, actions)


@pytest.mark.more
@settings(deadline=None, max_examples=25)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=12), n_ps=st.integers(1, 3))
def test_the_same_holds_where_gradients_are_gathered(actions, n_ps):
    """What lies in a slab is overwritten by the next batch, long before its gradients are applied."""
    with (
        tempfile.TemporaryDirectory(prefix="ds") as name,
        both(Path(name), n_ps, Sync.GBA) as (shared, frames),
    ):
        assert_same(shared, frames, actions)


def exchanges(world: World, n: int, size: int = 100, worker: str = "w0") -> np.ndarray:
    rng = np.random.default_rng(n)
    return [world.exchange(worker, world.push(rng, size), world.batch(rng, size)) for _ in range(n)][-1]


def test_the_slab_is_used_from_the_third_exchange_on_and_messages_are_short(folder):
    with both(folder, 2) as (shared, frames):
        for world in (shared, frames):
            exchanges(world, 2)
        assert (shared.client("w0").carrier, frames.client("w0").carrier) == ("shared memory", "unix socket")
        rng = np.random.default_rng(0)
        for world in (shared, frames):
            world.client("w0").start(world.push(rng, 100), world.batch(rng, 100))
        sent = [
            sum(
                len(f)
                for asked in w.client("w0")._pending.values()
                for f in ([asked] if isinstance(asked, bytes) else asked)
            )
            for w in (shared, frames)
        ]
        assert sent[0] < 500
        assert sent[1] > 4 * N_DENSE


def test_the_bytes_of_a_slab_count_as_those_of_frames(folder):
    with both(folder, 1) as (shared, frames):
        for world in (shared, frames):
            exchanges(world, 4)
        mine, theirs = shared.client("w0").last, frames.client("w0").last
        assert mine.n_byte_received == theirs.n_byte_received
        assert abs(mine.n_byte_sent - theirs.n_byte_sent) < 100


def test_a_larger_batch_makes_a_larger_slab(folder):
    with both(folder, 1) as (shared, frames):
        for size in (10, N_ID, 10):
            np.testing.assert_array_equal(exchanges(shared, 3, size), exchanges(frames, 3, size))
            assert shared.client("w0").carrier == "shared memory"
        large = shared.slabs[0].n_byte
        assert large > 3 * 4 * N_ID * MODEL.row_width
        exchanges(shared, 3, 10)
        assert shared.slabs[0].n_byte == large


def test_rows_stay_while_those_of_the_next_batch_arrive(folder):
    with World(folder / "s", 1) as world:
        exchanges(world, 3)
        rng, client, dense = np.random.default_rng(1), world.client("w0"), np.empty(N_DENSE, np.float32)
        client.start(None, world.batch(rng, 80))
        rows = client.finish(dense)
        before = rows.copy()
        for _ in range(2):
            np.testing.assert_array_equal(rows, before)
            client.start(world.push(rng, 90), world.batch(rng, 90))
            following = client.finish(dense)
            np.testing.assert_array_equal(rows, before)
            rows, before = following, following.copy()


def test_a_host_without_room_for_a_slab_exchanges_by_frames(folder, monkeypatch, caplog):
    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with both(folder, 1) as (shared, frames):
        np.testing.assert_array_equal(exchanges(shared, 4), exchanges(frames, 4))
        assert shared.client("w0").carrier == "unix socket"
    assert "No space left" in caplog.text


def test_workers_of_a_system_without_sealed_memory_exchange_by_frames(folder, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with both(folder, 1) as (shared, frames):
        np.testing.assert_array_equal(exchanges(shared, 4), exchanges(frames, 4))
        assert shared.client("w0").carrier == "unix socket"


def test_a_ps_that_does_not_see_the_process_declines_and_frames_are_used(folder, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with both(folder, 1) as (shared, frames):
        np.testing.assert_array_equal(exchanges(shared, 4), exchanges(frames, 4))
        assert shared.client("w0").carrier == "unix socket"
