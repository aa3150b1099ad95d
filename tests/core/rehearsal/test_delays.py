"""Virtual workers read and push each batch once, and gradients have the age that their number says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.rehearsal.delays import Delay, exchanges
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.training.gradient_ages import class_of, without_end_zeros

DELAYS = st.builds(Delay, st.integers(1, 40), st.integers(0, 1), st.sampled_from([0.0, 0.3, 1.5]))
N_BATCH = st.integers(0, 300)


def _order(delay, n_batch, seed=0):
    return [*exchanges(delay, n_batch, np.random.default_rng(seed))]


def _ages(delay, n_batch):
    """Return the ages in the order of arrival, by the definition: updates of others since the reading."""
    pushed_by, read_at, ages = [], {}, []
    for each in _order(delay, n_batch):
        if each.push is not None:
            since = pushed_by[read_at[each.push] :]
            ages.append(sum(worker != each.worker for worker in since))
            pushed_by.append(each.worker)
        if each.pull is not None:
            read_at[each.pull] = len(pushed_by)
    return ages


@given(DELAYS, N_BATCH)
def test_each_batch_is_read_once_in_order_and_pushed_once_afterwards_by_who_read_it(delay, n_batch):
    read, pushed = {}, []
    for each in _order(delay, n_batch):
        assert 0 <= each.worker < delay.n_worker
        if each.push is not None:
            assert read[each.push] == each.worker
            pushed.append(each.push)
        if each.pull is not None:
            assert each.pull == len(read)
            read[each.pull] = each.worker
    assert sorted(pushed) == [*read] == [*range(n_batch)]


@given(DELAYS, st.integers(1, 200))
def test_the_ages_are_those_that_a_parameter_server_counts(delay, n_batch):
    server, names = UpdateAges(replace(JobSpec("j"), overlap=bool(delay.lag))), set()
    for each in _order(delay, n_batch):
        worker = f"worker-{each.worker}"
        server.count(worker.encode(), worker, has_pushed=each.push is not None)
        names.add(worker)
    counted = Counter()
    for of_worker in server.take():
        counted.update(dict(enumerate(of_worker.counts)))
    expected = Counter(map(class_of, _ages(delay, n_batch)))
    n_class = max(expected) + 1
    assert without_end_zeros(counted[i] for i in range(n_class)) == tuple(expected[i] for i in range(n_class))


@given(st.integers(1, 40), st.integers(0, 1))
def test_equal_workers_age_gradients_by_their_number_once_all_have_begun(n_worker, lag):
    delay = Delay(n_worker, lag)
    n_first = (1 + lag) * n_worker  # gradients of the parameters at the start
    ages = _ages(delay, n_first + 200)
    middle = ages[n_first : len(ages) - n_first]
    assert {*middle} == {delay.age}
    assert max(ages) == delay.age


@given(st.integers(2, 20), st.integers(0, 1), st.sampled_from([0.2, 0.6]))
def test_workers_of_varying_speed_have_the_same_mean_age(n_worker, lag, variation):
    delay = Delay(n_worker, lag, variation)
    ages = _ages(delay, 600)[4 * n_worker : -4 * n_worker]
    assert np.mean(ages) == pytest.approx(delay.age, abs=0.1 * delay.age + 0.5)
    assert np.std(ages) > 0


@given(DELAYS, N_BATCH, st.integers(0, 5))
def test_the_order_follows_from_the_seed(delay, n_batch, seed):
    assert _order(delay, n_batch, seed) == _order(delay, n_batch, seed)


def test_a_delay_of_no_worker_is_refused(error_words):
    with error_words(InvalidValueError):
        Delay(0)
