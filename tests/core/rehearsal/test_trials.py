"""A rehearsal without delay is plain training to the bit, and with one it trains the same rows, each once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtime.single_process import train_single

from dlrover_nb.core.data import make_features
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.rehearsal.delays import Delay
from dlrover_nb.core.rehearsal.rehearsal import single_threaded
from dlrover_nb.core.rehearsal.runs import Trial
from dlrover_nb.core.rehearsal.sample import read_sample
from dlrover_nb.core.rehearsal.ways import AsTheyCome, WayName, batch_of, own_way, way_of
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Optimizer, StaleSteps, Sync

N_ROW = 3000


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Write rows whose clicks depend on two ids and a number."""
    generator = np.random.default_rng(7)
    user, item = generator.integers(0, 200, N_ROW), generator.integers(0, 50, N_ROW)
    price = generator.lognormal(size=N_ROW)
    chance = 1 / (1 + np.exp(-(np.sin(user) + np.cos(item) - 0.3 * price)))
    clicked = (generator.random(N_ROW) < chance).astype(int)
    path = tmp_path_factory.mktemp("rows") / "clicks.csv"
    lines = [f"{u},{i},{p:.4f},{c}" for u, i, p, c in zip(user, item, price, clicked, strict=True)]
    path.write_text("\n".join(["user,item,price,clicked", *lines]) + "\n")
    return str(path)


def _spec(path, **changes):
    data = DataSpec(
        DataFormat.CSV, path, "clicked", numeric=("price",), categorical=("user", "item"), holdout=0.2
    )
    model = ModelSpec(embedding_dim=4, hidden=(8,), hash_size=512)
    return replace(JobSpec("clicks", data=data, model=model, batch_size=64, shard_batches=5), **changes)


def _sample(spec, n_row=N_ROW):
    return read_sample(spec, make_features(spec.data, spec.model), n_row)


def _trained(sample, delay, way=None, **options):
    trial = Trial(sample, delay, way or AsTheyCome(), **options)
    with single_threaded():
        for _ in trial.steps():
            pass
        scores = np.concatenate([trial.scores(batch) for batch in sample.held_out])
        return trial, trial.result(), scores


@pytest.mark.parametrize("optimizer", [Optimizer.ADAGRAD, Optimizer.ADAM, Optimizer.SGD])
def test_without_delay_it_is_plain_training_to_the_bit(rows, optimizer):
    spec = _spec(rows, n_epoch=2)
    spec = replace(spec, model=replace(spec.model, optimizer=optimizer))
    sample = _sample(spec)
    _, run, scores = _trained(sample, Delay(1), n_epoch=2)
    plain = train_single(spec, sample.features)
    assert np.array_equal(scores, plain.scores)
    assert run.n_update == len(plain.losses)
    assert run.age == 0


@pytest.mark.parametrize("delay", [Delay(1), Delay(5), Delay(3, 1), Delay(4, 0, 0.5)])
def test_the_same_seed_gives_the_same_bits_and_another_one_others(rows, delay):
    sample = _sample(_spec(rows))
    (_, first, scores), (_, again, same), (_, _, other) = (
        _trained(sample, delay, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert np.array_equal(scores, same)
    assert not np.array_equal(scores, other)


class _Noting(AsTheyCome):
    """Counts the labels and rows of batches as they arrive."""

    def __init__(self):
        super().__init__()
        self.n_row, self.numbers, self.ages = 0, Counter(), []

    def take(self, arrival, store):
        self.n_row += arrival.n_row
        self.numbers[arrival.number] += 1
        self.ages.append(arrival.age)
        return super().take(arrival, store)


@pytest.mark.parametrize("delay", [Delay(1), Delay(6), Delay(3, 1), Delay(5, 1, 0.7)])
def test_each_row_is_trained_once_in_each_pass(rows, delay):
    sample, way = _sample(_spec(rows)), _Noting()
    trial = Trial(sample, delay, way, n_epoch=2)
    with single_threaded():
        for _ in trial.steps():
            pass
    assert way.n_row == 2 * sample.features.n_train
    assert {*way.numbers.values()} == {1}
    assert len(way.numbers) == sample.n_batch(2, 64)
    assert trial.ages == way.ages


@given(st.integers(0, 50), st.integers(1, 3), st.integers(1, 200))
def test_the_batches_of_a_pass_hold_each_row_of_the_sample_once_whatever_the_seed(rows, seed, n_epoch, size):
    sample = _sample(_spec(rows), 700)
    own = Counter(_keys(np.concatenate([rows.ids for rows in sample.shards.values()])))
    trained = Counter()
    for batch in sample.batches(seed, n_epoch, size):
        trained.update(_keys(batch.rows[batch.inverse].reshape(len(batch.labels), -1)))
    assert trained == Counter({row: n_epoch * n for row, n in own.items()})


def _keys(ids):
    return map(tuple, ids.tolist())


def test_a_delay_makes_other_parameters_of_the_same_start(rows):
    sample = _sample(_spec(rows))
    starts = [Trial(sample, delay, AsTheyCome()).store.dense for delay in (Delay(1), Delay(8))]
    assert np.array_equal(*starts)
    (_, plain, scores), (_, delayed, others) = (_trained(sample, delay) for delay in (Delay(1), Delay(8)))
    assert not np.array_equal(scores, others)
    assert (plain.age, plain.n_update) == (0, delayed.n_update)
    assert 0 < delayed.age <= 7


def test_a_part_of_the_rows_is_spread_over_them(rows):
    spec = _spec(rows)
    sample = _sample(spec, 800)
    assert 0.8 * 800 <= sample.n_row <= 800
    firsts = [sample.split.rows(number)[0] for number in sample.shards]
    n_train = sample.features.n_train
    assert min(firsts) < n_train / 4
    assert max(firsts) > n_train / 2
    assert sample.n_held_out == sample.features.n_eval


def test_a_job_that_holds_out_no_rows_scores_the_last_ones_that_it_does_not_train_here(rows):
    spec = _spec(rows)
    spec = replace(spec, data=replace(spec.data, holdout=0.0))
    sample = _sample(spec)
    assert not sample.holds_out_own
    assert sample.n_row + sample.n_held_out == sample.features.n_train == N_ROW
    assert sample.n_held_out == N_ROW / 10


def test_a_stream_is_refused(rows):
    spec = _spec(rows)
    features = replace(make_features(spec.data, spec.model), is_stream=True)
    with pytest.raises(InvalidValueError, match="stream"):
        read_sample(spec, features, 100)


def test_gathering_from_one_worker_is_plain_training_with_the_global_batch(rows):
    """Up to rounding: a mean of means of batches is not summed in the order of one batch."""
    spec = _spec(rows, sync=Sync.ASP, overlap=False)
    sample, size = _sample(spec), 4 * spec.batch_size
    way = way_of(WayName.GBA, replace(spec, global_batch=size), 1)
    _, gathered, scores = _trained(sample, Delay(1), way=way)
    _, plain, wanted = _trained(sample, Delay(1), batch_size=size)
    assert gathered.age == 0
    assert gathered.n_update < 1.2 * plain.n_update  # a shard's last batch is smaller
    assert np.corrcoef(scores, wanted)[0, 1] > 0.97


def test_gathered_gradients_age_by_global_steps(rows):
    spec = replace(_spec(rows), global_batch=8 * 64)
    sample = _sample(spec)
    trial, run, _ = _trained(sample, Delay(16), way=way_of(WayName.GBA, spec, 16))
    assert run.n_update < len(trial.ages) / 7
    assert max(trial.ages) <= 2  # fifteen gradients of others are less than two steps
    assert 0 < run.age < 15 / 8


def test_normalised_steps_of_young_gradients_are_plain_ones_and_of_old_ones_shorter(rows):
    sample = _sample(_spec(rows))
    runs = {
        (name, n_worker): _trained(sample, Delay(n_worker), way=way_of(name, sample.spec, n_worker))[2]
        for name in (WayName.ASP, WayName.NORMALISED)
        for n_worker in (1, 8)
    }
    assert np.array_equal(runs[WayName.ASP, 1], runs[WayName.NORMALISED, 1])
    assert not np.array_equal(runs[WayName.ASP, 8], runs[WayName.NORMALISED, 8])


@given(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 4096))
def test_workers_share_a_global_batch_out_or_gather_it_as_the_job_would(n_worker, size, batch_size):
    shared = replace(JobSpec("j"), batch_size=batch_size, global_batch=size)
    assert batch_of(WayName.ASP, shared, n_worker) == shared.batch_of(n_worker)
    assert batch_of(WayName.GBA, shared, n_worker) == min(batch_size, size)
    alone = replace(shared, global_batch=None)
    assert {batch_of(name, alone, n_worker) for name in WayName} == {batch_size}


def test_a_job_is_rehearsed_in_its_own_way():
    spec = JobSpec("j")
    assert own_way(spec) is own_way(replace(spec, sync=Sync.BSP)) is WayName.ASP
    assert own_way(replace(spec, sync=Sync.GBA)) is WayName.GBA
    assert own_way(replace(spec, stale_steps=StaleSteps.NORMALISED)) is WayName.NORMALISED
