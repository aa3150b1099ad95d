"""The configurator meets deadlines with the fewest nodes, and refuses what it cannot know or reach."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.synthetic_jobs import jobs

from dlrover_nb.core.deadline.configurator import DeadlineGoal, RatioRange, learn_configurator, learn_ratio
from dlrover_nb.core.deadline.model_features import ModelFeatures
from dlrover_nb.core.deadline.training_rows import Measurements, Setting, TrainingRow
from dlrover_nb.core.errors import CapacityError, InvalidValueError

FEATURES = ModelFeatures(256, 10_000_000, 2 * 256 * 10_000_000)
AT = Setting(cpu_share=1.0)
RATIO = RatioRange(0.25, 0.5)


@pytest.fixture(scope="module")
def configurator():
    return learn_configurator(jobs(40, seed=1))


@pytest.mark.more
def test_what_was_never_measured_is_missing_with_its_reason(configurator):
    assert set(configurator.learnt) == {"worker_cpu", "worker_memory_mib", "iter_s"}
    assert "got 0" in configurator.missing["ps_cpu"]
    assert set(configurator.peaks(FEATURES, AT)) == {"worker_cpu", "worker_memory_mib"}


@pytest.mark.more
@settings(max_examples=40, deadline=None)
@given(deadline_s=st.floats(1e3, 1e5), n_iteration=st.integers(1, 2000), is_cautious=st.booleans())
def test_chosen_count_meets_the_deadline_and_one_worker_less_does_not(
    configurator, deadline_s, n_iteration, is_cautious
):
    goal = DeadlineGoal(deadline_s, n_iteration, max_worker=200)
    one = configurator.learnt["iter_s"].predict(FEATURES, AT)
    iter_s = one.high if is_cautious else one.value
    try:
        found = configurator.configure(FEATURES, goal, setting=AT, ratio=RATIO, cautious=is_cautious)
    except CapacityError:
        assert math.ceil(n_iteration / 200) * iter_s > deadline_s
        return
    ends_s = found.finish_s.high if is_cautious else found.finish_s.value
    assert ends_s <= deadline_s
    assert ends_s == pytest.approx(math.ceil(n_iteration / found.n_worker) * iter_s)
    if found.n_worker > 1:
        assert math.ceil(n_iteration / (found.n_worker - 1)) * iter_s > deadline_s
    assert found.n_ps == max(1, math.ceil(found.n_worker / 4))
    assert not found.outside


@pytest.mark.more
def test_caution_and_tighter_deadlines_never_take_fewer_workers(configurator):
    def n_worker(deadline_s, cautious):
        goal = DeadlineGoal(deadline_s, 1000, max_worker=1000)
        return configurator.configure(FEATURES, goal, setting=AT, ratio=RATIO, cautious=cautious).n_worker

    for deadline_s in (300.0, 1000.0, 3000.0):
        assert n_worker(deadline_s, True) >= n_worker(deadline_s, False)
    assert n_worker(300.0, False) > n_worker(3000.0, False)


def test_deadline_that_no_allowed_count_meets_is_refused_with_the_best(configurator, error_words):
    with error_words(CapacityError):
        configurator.configure(FEATURES, DeadlineGoal(1.0, 10**6, max_worker=2), setting=AT, ratio=RATIO)


def test_job_unlike_all_that_was_learnt_is_told(configurator):
    large = ModelFeatures(256, 10**11, 2 * 256 * 10**11)
    found = configurator.configure(large, DeadlineGoal(1e9, 10), setting=AT, ratio=RATIO)
    assert any(text.startswith("n_param") for text in found.outside)


def test_range_of_ratios_must_be_learnt_or_given(configurator):
    assert configurator.ratio is None
    with pytest.raises(InvalidValueError, match="give ratio"):
        configurator.configure(FEATURES, DeadlineGoal(1e6, 10), setting=AT)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(InvalidValueError, match="iter_s needs rows of at least 12 jobs"):
        learn_configurator(jobs(3, seed=1))


def tried(job, n_worker, times):
    return [
        TrainingRow(job, FEATURES, Setting(n_worker, n_ps), Measurements(iter_s=iter_s))
        for n_ps, iter_s in times.items()
    ]


def test_ratios_near_the_best_of_a_job_make_the_range():
    rows = [row for job in "abc" for row in tried(job, 8, {1: 2.0, 2: 1.05, 4: 1.0, 8: 1.3})]
    assert learn_ratio(rows) == RatioRange(0.25, 0.5)
    assert learn_ratio(rows[:-4]) is None
    assert learn_ratio([*rows[:-4], *tried("c", 8, {4: 1.0})]) is None


@given(st.floats(0.01, 3), st.integers(1, 500))
def test_ps_lie_at_the_low_end_of_the_range(low, n_worker):
    n_ps = RatioRange(low, low).n_ps(n_worker)
    assert n_ps >= 1
    assert n_ps >= low * n_worker - 1e-6
    assert n_ps == 1 or n_ps - 1 < low * n_worker


def test_goals_and_ranges_that_cannot_be_are_refused():
    for wrong in ({"deadline_s": 0, "n_iteration": 1}, {"deadline_s": 1, "n_iteration": 0}):
        with pytest.raises(InvalidValueError):
            DeadlineGoal(**wrong)
    with pytest.raises(InvalidValueError, match="swap them"):
        RatioRange(0.5, 0.25)
