"""Points of a curve are means of paired differences, and a rehearsal that is interrupted keeps what it has."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.data import make_features
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.rehearsal.curves import curve_of
from dlrover_nb.core.rehearsal.delays import Delay
from dlrover_nb.core.rehearsal.rehearsal import Settings, estimated_cpu_s, rehearse
from dlrover_nb.core.rehearsal.runs import Run
from dlrover_nb.core.rehearsal.sample import read_sample
from dlrover_nb.core.rehearsal.ways import WayName
from dlrover_nb.core.structs.job.job import JobSpec

SPEC = JobSpec("clicks")
QUALITY = st.floats(0.1, 0.9)


def _run(seed, n_worker, loss, auc):
    return Run("asp", Delay(n_worker), seed, loss, auc, float(n_worker - 1), 40)


def _curve(runs):
    return curve_of(runs, WayName.ASP, SPEC, n_row=1000, n_epoch=1)


@given(st.lists(st.tuples(QUALITY, QUALITY), min_size=2, max_size=8), QUALITY, QUALITY)
def test_what_seeds_have_in_common_is_no_error(bases, loss, auc):
    runs = [_run(seed, 1, *base) for seed, base in enumerate(bases)]
    runs += [_run(seed, 4, base[0] + loss, base[1] + auc) for seed, base in enumerate(bases)]
    (point,) = _curve(runs).points
    assert (point.age, point.n_seed) == (3, len(bases))
    assert point.loss == pytest.approx(loss)
    assert point.auc == pytest.approx(auc)
    assert point.loss_error == pytest.approx(0, abs=1e-12)
    assert point.auc_error == pytest.approx(0, abs=1e-12)


@given(st.lists(st.tuples(QUALITY, QUALITY), min_size=2, max_size=8))
def test_the_error_is_that_of_the_mean_of_differences(pairs):
    runs = [_run(seed, 1, 0.5, base) for seed, (base, _) in enumerate(pairs)]
    runs += [_run(seed, 2, 0.5, delayed) for seed, (_, delayed) in enumerate(pairs)]
    differences = [delayed - base for base, delayed in pairs]
    (point,) = _curve(runs).points
    assert point.auc == pytest.approx(np.mean(differences))
    assert point.auc_error == pytest.approx(np.std(differences, ddof=1) / math.sqrt(len(pairs)))


def test_points_come_by_age_and_one_of_a_single_seed_is_left_out():
    runs = [_run(seed, n, 0.4, 0.7) for seed in range(2) for n in (8, 1, 2)] + [_run(0, 16, 0.4, 0.7)]
    assert [point.age for point in _curve(runs).points] == [1, 7]


def test_runs_that_diverged_are_left_out():
    runs = [_run(seed, n, 0.4, 0.7) for seed in range(3) for n in (1, 2, 8)] + [_run(3, 1, 0.4, 0.7)]
    broken = [_run(3, 2, math.nan, 0.5), *(_run(seed, 16, math.inf, 0.5) for seed in range(3))]
    assert _curve([*runs, *broken]) == _curve(runs)


def test_one_seed_makes_no_curve():
    with pytest.raises(InvalidValueError, match="2 seeds"):
        _curve([_run(0, 1, 0.4, 0.7), _run(0, 2, 0.4, 0.7)])


def test_settings_refuse_what_compares_nothing(error_words):
    with error_words(InvalidValueError):
        Settings(n_seed=1)
    with pytest.raises(InvalidValueError, match="name one above 1"):
        Settings(workers=(1,))


@pytest.fixture(scope="module")
def sample():
    return read_sample(SPEC, make_features(SPEC.data, SPEC.model), 4096)


SMALL = Settings(n_seed=3, workers=(1, 4))


def test_a_rehearsal_has_a_run_of_each_seed_and_delay_and_says_how_far_it_is(sample):
    shares = []
    rehearsal = rehearse(sample, SMALL, progress=shares.append)
    assert [(run.seed, run.delay.n_worker) for run in rehearsal.runs] == [
        (seed, n_worker) for seed in range(3) for n_worker in (1, 4)
    ]
    (curve,) = rehearsal.curves
    assert (curve.n_row, curve.batch_size, len(curve.points)) == (4096, SPEC.batch_size, 1)
    assert rehearsal.runs[0].delay.lag == rehearsal.runs[-1].delay.lag == 1  # jobs overlap unless they say no
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1


def test_an_interrupted_rehearsal_keeps_the_seeds_that_are_complete(sample):
    rehearsal = rehearse(sample, SMALL, progress=_interrupting_after(0.8))
    assert rehearsal.n_seed == 2
    assert [run.seed for run in rehearsal.runs] == [0, 0, 1, 1]
    assert rehearsal.curves[0].points[0].n_seed == 2


def test_one_that_is_interrupted_before_two_seeds_are_complete_is_none(sample):
    with pytest.raises(KeyboardInterrupt):
        rehearse(sample, SMALL, progress=_interrupting_after(0.5))


def _interrupting_after(share):
    def progress(done):
        if done >= share:
            raise KeyboardInterrupt

    return progress


def test_what_it_costs_grows_with_what_is_asked_for(sample):
    once = estimated_cpu_s(sample, SMALL)
    assert once > 0
    assert SMALL.n_run == 6
