"""Errors are of jobs not seen, intervals cover what they promise, too few jobs and far queries are told."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.plans.synthetic_jobs import jobs

from dlrover_nb.core.deadline.model_features import ModelFeatures
from dlrover_nb.core.deadline.regression import conformal_margin, folds_by_job, learn, least_jobs, r2_of
from dlrover_nb.core.deadline.training_rows import Measurements, Setting, TrainingRow
from dlrover_nb.core.errors import InvalidValueError

NAMES = st.lists(st.integers(0, 30), min_size=5, max_size=80)


@given(NAMES, st.integers(0, 5))
def test_no_job_stands_on_both_sides_of_a_split(names, seed):
    found = folds_by_job(np.array(names), seed=seed)
    folds_of = {name: {f for n, f in zip(names, found.tolist(), strict=True) if n == name} for name in names}
    assert all(len(each) == 1 for each in folds_of.values())
    sizes = [sum(fold in each for each in folds_of.values()) for fold in range(5)]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60), st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_margin_grows_with_its_level_and_leaves_a_place_for_the_job_asked_about(residuals, one, other):
    values, names = np.array(residuals), np.arange(len(residuals))
    assume(abs(one * (len(values) + 1) - round(one * (len(values) + 1))) > 1e-6)  # else rounding decides
    rank = math.ceil(one * (len(values) + 1))  # of split conformal prediction, where each job has one row
    wanted = sorted(residuals)[rank - 1] if rank <= len(values) else math.inf
    assert conformal_margin(values, names, one) == wanted
    low, high = (conformal_margin(values, names, level) for level in sorted((one, other)))
    assert low <= high


def test_job_with_many_rows_weighs_as_much_as_one_with_few():
    residuals = np.array([9.0] * 1000 + [1.0] * 19)
    names = np.array([0] * 1000 + list(range(1, 20)))
    assert conformal_margin(residuals, names, 0.9) == 1.0


@pytest.mark.release
def test_intervals_cover_jobs_that_were_not_seen():
    inside, claimed = [], []
    for seed in range(4):
        learnt = learn("iter_s", jobs(60, seed=seed))
        claimed.append(learnt.accuracy.coverage)
        for row in jobs(200, seed=seed + 1000, n_row=2, prefix="new"):
            found = learnt.predict(row.features, row.setting)
            if not found.outside:
                inside.append(found.low <= row.measured.iter_s <= found.high)
    assert len(inside) > 1000
    assert 0.85 <= np.mean(inside) < 1
    assert abs(np.mean(claimed) - np.mean(inside)) <= 0.06


def test_error_is_that_of_jobs_not_seen():
    """A deviation of each job cannot be known in advance: the error must show it, noise of rows being small."""
    near = learn("worker_cpu", jobs(60, seed=1, sd_job=0.02)).accuracy
    far = learn("worker_cpu", jobs(60, seed=1, sd_job=0.4)).accuracy
    assert near.relative_error < 0.1 < far.relative_error
    assert near.r2 > 0.9 > far.r2
    assert (near.n_job, near.n_row) == (60, 360)


@pytest.mark.more
def test_more_work_asks_for_more_and_the_interval_holds_its_middle():
    rows = jobs(60, seed=2)
    learnt = learn("iter_s", rows)
    at = [
        learnt.predict(ModelFeatures(512, n, 2 * 512 * n), Setting(cpu_share=1.0))
        for n in (2_000_000, 50_000_000)
    ]
    assert at[0].value < at[1].value
    assert all(0 < each.low < each.value < each.high and not each.outside for each in at)


def test_the_same_rows_teach_the_same():
    rows = jobs(20, seed=3)
    one, other = (learn("worker_memory_mib", rows) for _ in range(2))
    assert (one.accuracy, one.margin) == (other.accuracy, other.margin)


def test_query_outside_of_what_was_learnt_names_the_input():
    learnt = learn("iter_s", jobs(20, seed=4))
    found = learnt.predict(ModelFeatures(512, 10**12, 2 * 512 * 10**12), Setting(cpu_share=9.0))
    assert [text.split()[0] for text in found.outside] == ["flops", "n_param", "cpu_share"]


def test_input_that_the_rows_had_must_be_given():
    learnt = learn("iter_s", jobs(20, seed=4))
    with pytest.raises(InvalidValueError, match="got no flops, cpu_share"):
        learnt.predict(ModelFeatures(512, 10**7, None), Setting())


@pytest.mark.more
@pytest.mark.parametrize(("level", "least"), [(0.5, 10), (0.9, 12), (0.95, 24)])
def test_too_few_jobs_are_refused_with_both_numbers(level, least, error_words):
    assert least_jobs(level) == least
    with error_words(InvalidValueError):
        learn("iter_s", jobs(least - 1, seed=5), level=level)
    learnt = learn("iter_s", jobs(least, seed=5, n_row=2), level=level)
    assert math.isfinite(learnt.margin)


def test_input_that_some_rows_lack_is_not_used_and_rows_that_never_vary_are_refused():
    rows = jobs(20, seed=6, n_row=2)
    bare = TrainingRow("bare", ModelFeatures(64, 10**7, None), Setting(), Measurements(iter_s=1.0))
    assert learn("iter_s", [*rows, bare]).columns == ("batch_size", "n_param")
    same = [TrainingRow(str(i), bare.features, Setting(), Measurements(iter_s=1.0 + i)) for i in range(20)]
    with pytest.raises(InvalidValueError, match="inputs that vary"):
        learn("iter_s", same)


def test_r2_of_the_mean_is_zero_and_of_the_truth_one():
    measured = np.array([1.0, 2.0, 4.0])
    assert r2_of(measured, measured) == 1
    assert r2_of(measured, np.full(3, measured.mean())) == pytest.approx(0)


def test_without_scikit_learn_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from support.plans.synthetic_jobs import jobs\n"
        "from dlrover_nb.core.deadline.regression import learn\n"
        "from dlrover_nb.core.errors import InvalidValueError\n"
        "try:\n    learn('iter_s', jobs(20, seed=1))\nexcept InvalidValueError as e:\n    print(e)\n"
    )
    path = ":".join(sys.path)
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONPATH": path}
    ).stdout
    assert 'pip install "dlrover-nb[qore]"' in told
