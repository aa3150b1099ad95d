"""How old gradients are when a PS applies them: as a list of all updates says, by messages and by bells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c
from support.runtime.slab_world import World

from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.gradient_ages import GradientAges, class_of

STEPS = st.lists(st.tuples(st.sampled_from(["w0", "w1", "w2"]), st.booleans()), max_size=60)


def counts_of(ages: list[int]) -> tuple[int, ...]:
    """Return how many ages are of each class."""
    classes = [class_of(age) for age in ages]
    return tuple(classes.count(number) for number in range(max(classes) + 1))


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
    assert ages.take() == tuple(GradientAges(w, counts_of(expected[w])) for w in sorted(expected))
    assert ages.take() == ()


def test_gradients_of_a_round_have_no_age():
    ages = UpdateAges(JobSpec("j", sync=Sync.BSP))
    ages.count_round(["w0", "w1"])
    ages.count_round(["w1"])
    assert ages.take() == (GradientAges("w0", (1,)), GradientAges("w1", (2,)))


def test_what_was_counted_before_another_epoch_is_not_lost_and_its_readings_are():
    ages = UpdateAges(JobSpec("j", overlap=False))
    for worker, has_pushed in (("w0", False), ("w1", False), ("w0", True), ("w1", True)):
        ages.count(worker.encode(), worker, has_pushed=has_pushed)
    ages.begin(())
    ages.count(b"w1", "w1", has_pushed=False)
    ages.count(b"w1", "w1", has_pushed=True)
    assert ages.take() == (GradientAges("w0", (1,)), GradientAges("w1", (1, 1)))


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
            push = None if is_first else world.push(rng, 5)
            world.exchange(worker, push, world.batch(rng, 4))
            expected.count(worker.encode(), worker, has_pushed=not is_first)
        assert world.servings[0].ages.take() == expected.take()
