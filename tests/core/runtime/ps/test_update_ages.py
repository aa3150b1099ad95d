"""How old gradients are when a PS applies them: as a list of all updates says, by messages and by bells."""

from __future__ import annotations

from ctypes import c_int64, pointer
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c
from support.runtime.slab_world import World

from dlrover_nb.core.runtime.kernels import compiled, numpy_kernel
from dlrover_nb.core.runtime.kernels.bell_requests import MOST_WATCHED, PERIOD, WINDOW, Reader, Watched
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.gradient_ages import N_SECOND_CLASS, GradientAges, class_of

STEPS = st.lists(st.tuples(st.sampled_from(["w0", "w1", "w2"]), st.booleans()), max_size=60)
ROWS = st.lists(st.integers(0, 9), max_size=5, unique=True)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s


def counts_of(ages: list[int], n_class: int = 24) -> tuple[int, ...]:
    """Return how many ages are of each class."""
    classes = [class_of(age, n_class) for age in ages]
    return tuple(classes.count(number) for number in range(max(classes, default=-1) + 1))


def untimed(ages: tuple[GradientAges, ...]) -> list[GradientAges]:
    """Return ages without those in seconds, which differ from run to run."""
    return [replace(each, milliseconds=()) for each in ages]


@given(steps=STEPS, overlap=st.booleans())
def test_an_age_is_the_number_of_updates_by_others_since_the_rows_were_read(steps, overlap):
    """Each step is an exchange of a worker, with gradients or without."""
    ages, updates = UpdateAges(JobSpec("j", overlap=overlap)), []
    read_at: dict[str, list[int]] = {}
    expected: dict[str, list[int]] = {}
    for worker, pushes in steps:
        has_pushed = pushes and len(read_at.get(worker, ())) > overlap  # else it has computed nothing yet
        if has_pushed:
            since = read_at[worker][-1 - overlap]
            expected.setdefault(worker, []).append(sum(by != worker for by in updates[since:]))
        ages.count(worker.encode(), worker, has_pushed=has_pushed)
        updates += [worker] * has_pushed
        read_at.setdefault(worker, []).append(len(updates))
    assert untimed(ages.take()) == [GradientAges(w, counts_of(expected[w])) for w in sorted(expected)]
    assert ages.take() == ()


@given(
    steps=st.lists(st.tuples(st.sampled_from(["w0", "w1"]), st.integers(0, 90_000)), max_size=40),
    overlap=st.booleans(),
)
def test_a_gradient_is_as_old_as_the_time_since_its_parameters_were_read(steps, overlap):
    clock, read_ms, at_ms = Clock(), dict[str, list[int]](), 0
    ages = UpdateAges(JobSpec("j", overlap=overlap), now_s=clock.now_s)
    expected: dict[str, list[int]] = {}
    for worker, later_ms in steps:
        at_ms += later_ms
        clock.at_s = at_ms / 1024  # a binary fraction, of which differences are exact
        reads = read_ms.setdefault(worker, [])
        if has_pushed := len(reads) > overlap:
            expected.setdefault(worker, []).append(int((at_ms - reads[-1 - overlap]) / 1024 * 1000))
        ages.count(worker.encode(), worker, has_pushed=has_pushed)
        reads.append(at_ms)
    got = {each.worker: each.milliseconds for each in ages.take()}
    assert got == {worker: counts_of(of, N_SECOND_CLASS) for worker, of in expected.items()}


@given(
    steps=st.lists(st.tuples(st.sampled_from(["w0", "w1", "w2"]), ROWS), max_size=WINDOW),
    overlap=st.booleans(),
)
def test_a_gradient_of_a_row_is_as_old_as_the_updates_of_that_row_alone(steps, overlap):
    """Each worker pulls the rows of a step, and pushes gradients of those of an earlier one."""
    ages, updates = UpdateAges(JobSpec("j", overlap=overlap)), list[tuple[str, int]]()
    pulled: dict[str, list[tuple[int, list[int]]]] = {}
    expected: dict[str, list[int]] = {}
    for worker, rows in steps:
        before = pulled.setdefault(worker, [])
        since, pushed = before[-1 - overlap] if (has_pushed := len(before) > overlap) else (0, [])
        expected.setdefault(worker, []).extend(
            sum(by != worker and row == each for by, each in updates[since:]) for row in pushed
        )
        pushes, pulls = (np.array(each, np.int64) for each in (pushed, rows))
        ages.count(worker.encode(), worker, has_pushed=has_pushed, pushed=pushes, pulled=pulls)
        updates += [(worker, row) for row in pushed]
        before.append((len(updates), rows))
    assert {each.worker: each.rows for each in ages.take()} == {
        worker: counts_of(of) for worker, of in expected.items() if len(pulled[worker]) > 1 + overlap
    }


@needs_c
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 999), lag=st.integers(0, 1), n_id=st.sampled_from([20, 3000, 1 << 40]))
@example(seed=0, lag=1, n_id=1 << 40)
def test_both_kernels_count_the_same_and_never_watch_too_many_rows(seed, lag, n_id):
    rng, at_s = np.random.default_rng(seed), 0.0
    worlds = [_readers(lag) for _ in range(2)]
    for turn in range(PERIOD + 2 * WINDOW):
        who, at_s = rng.integers(3), at_s + rng.exponential()
        pushed, pulled = (np.unique(rng.integers(0, n_id, 150)) for _ in range(2))
        for kernel, (_, _, readers) in zip((numpy_kernel, compiled.Compiled()), worlds, strict=True):
            kernel.count_exchange(readers[who], pushed, pulled, at_s, has_pushed=turn > 5)
    (_, watched, readers), (_, watched_in_c, readers_in_c) = worlds
    assert watched.n_row <= MOST_WATCHED
    assert bytes(watched) == bytes(watched_in_c)
    after = Reader.lag.offset
    assert [bytes(each)[after:] for each in readers] == [bytes(each)[after:] for each in readers_in_c]


def _readers(lag):
    n_update, watched = c_int64(0), Watched(limit=1 << 32)
    readers = [Reader(lag=lag, n_exchange=1) for _ in range(3)]
    for reader in readers:
        reader.n_update, reader.watched = pointer(n_update), pointer(watched)
    return n_update, watched, readers


def test_rows_are_watched_whatever_their_place_among_many():
    """Of many rows that each worker pulls and pushes in turn, the sample says what all would."""
    ages, rng = UpdateAges(JobSpec("j", overlap=False)), np.random.default_rng(0)
    rows = rng.choice(1 << 40, 30_000, replace=False)
    for turn in range(32):
        worker = f"w{turn % 2}"
        ages.count(worker.encode(), worker, has_pushed=turn > 1, pushed=rows, pulled=rows)
    first, second = ages.take()
    n_watched = first.rows[0]  # by the first push, none of whose rows had changed
    assert (first.rows, second.rows) == ((n_watched, 14 * n_watched), (0, 15 * n_watched))
    assert len(rows) / 32 < n_watched <= MOST_WATCHED


def test_gradients_of_a_round_have_no_age_and_are_as_old_as_the_round():
    clock = Clock()
    ages = UpdateAges(JobSpec("j", sync=Sync.BSP), now_s=clock.now_s)
    ages.count_round(["w0", "w1"])
    clock.at_s = 0.0035
    ages.count_round(["w1"])
    assert ages.take() == (
        GradientAges("w0", (1,), (1,)),
        GradientAges("w1", (2,), (1, 0, 0, 1)),
    )


def test_what_was_counted_before_another_epoch_is_not_lost_and_its_readings_are():
    ages = UpdateAges(JobSpec("j", overlap=False))
    for worker, has_pushed in (("w0", False), ("w1", False), ("w0", True), ("w1", True)):
        ages.count(worker.encode(), worker, has_pushed=has_pushed)
    ages.begin(())
    ages.count(b"w1", "w1", has_pushed=False)
    ages.count(b"w1", "w1", has_pushed=True)
    assert untimed(ages.take()) == [GradientAges("w0", (1,)), GradientAges("w1", (1, 1))]


@needs_c
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("kernel", ["c", "numpy"])
@settings(deadline=None, max_examples=5)
@given(order=st.lists(st.sampled_from(["w0", "w1"]), min_size=4, max_size=12), seed=st.integers(0, 99))
def test_bells_and_messages_count_the_same_ages(tmp_path_factory, kernel, shares, order, seed):
    rng, expected = np.random.default_rng(seed), UpdateAges(JobSpec("law"))
    with World(tmp_path_factory.mktemp("w"), 1, shares=shares, kernel=kernel) as world:
        for i, worker in enumerate([*order, "w0", "w1", "w0"]):
            is_first = worker not in [*order, "w0", "w1", "w0"][:i]
            push, pull = None if is_first else world.push(rng, 5), world.batch(rng, 4)
            world.exchange(worker, push, pull)
            pushed = np.empty(0, np.int64) if push is None else push.batch.rows
            expected.count(worker.encode(), worker, has_pushed=not is_first, pushed=pushed, pulled=pull.rows)
        assert untimed(world.servings[0].ages.take()) == untimed(expected.take())
