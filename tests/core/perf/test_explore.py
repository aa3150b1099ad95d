from __future__ import annotations

import numpy as np

from dlrover_nb.core.perf.explore import Effort, Options, Present, next_experiment, plausible_worth
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

NOW = np.array([1.0, 1.0, 0.5, 0.5])
TARGETS = np.array([[4.0, 1, 0.5, 0.5], [4, 2, 0.5, 0.5], [1, 2, 0.5, 0.5]])


def fitted(more: list[ProfileSample] | None = None) -> ThroughputModel:
    plan = ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.5, 512))
    samples = [ProfileSample(0, 2, plan, 512, 10_000)] * 5
    return ThroughputModel(dense_bytes=1e5, embedding_dim=16).fit([*samples, *(more or [])])


def options(*rows: list[float]) -> Options:
    axes = np.array(rows, dtype=float).reshape(-1, 4)
    return Options(axes, axes[:, 0] * axes[:, 2] + axes[:, 1] * axes[:, 3])


def batch_of(axes: np.ndarray) -> np.ndarray:
    return np.full(len(axes), 512.0)


HERE = Present(10_000.0, 1.0, 3600.0)


def effort(n: int, pause_s: float = 0.0) -> Effort:
    return Effort(15.0, np.full(n, pause_s))


def choose(trials: Options, targets: Options, now: Present = HERE, pause_s: float = 0.0):
    n = len(trials.axes)
    return next_experiment(fitted(), batch_of, trials, targets=targets, now=now, effort=effort(n, pause_s))


def test_experiment_that_tells_about_better_plans_wins():
    found = choose(options([1, 1, 0.75, 0.5], [2, 1, 0.5, 0.5]), options([4, 1, 0.5, 0.5], [3, 1, 0.5, 0.5]))
    assert found.index == 1
    assert 0 < found.removes <= 1


def test_dearer_of_two_equal_experiments_loses():
    trials = options([2, 1, 0.5, 0.5], [2, 1, 0.5, 0.5])
    dear = Options(trials.axes, np.array([3.0, 1.0]))
    assert choose(dear, options(*TARGETS.tolist())).index == 1


def test_nothing_to_try_or_nothing_at_stake_gives_none():
    assert choose(options(), options(*TARGETS.tolist())) is None
    slow = ResourcePlan(RolePlan(1, 0.25, 512), RolePlan(1, 0.5, 512))
    model = fitted([ProfileSample(0, 2, slow, 512, 5_000)] * 5)
    slow_and_dear = Options(np.array([[1.0, 1, 0.25, 0.5]]), np.array([2.0]))
    found = next_experiment(model, batch_of, slow_and_dear, targets=slow_and_dear, now=HERE, effort=effort(1))
    assert found is None


def test_experiment_that_stops_the_training_for_long_loses():
    trials = Options(np.array([[2.0, 1, 0.5, 0.5]] * 2), np.ones(2))
    found = next_experiment(
        fitted(),
        batch_of,
        trials,
        targets=options(*TARGETS.tolist()),
        now=HERE,
        effort=Effort(15.0, np.array([15.0, 0.0])),
    )
    assert found.index == 1


def test_worth_counts_speed_and_half_of_a_saving():
    worth = plausible_worth(
        fitted(), batch_of, Options(np.array([[2.0, 1, 0.5, 0.5], NOW]), np.array([1.5, 0.5])), HERE
    )
    assert worth[0] > 0.9
    assert worth[1] >= 0.25


def test_an_experiment_must_pay_for_itself_before_the_job_ends():
    trials, targets = options([2, 1, 0.5, 0.5]), options(*TARGETS.tolist())
    assert choose(trials, targets, pause_s=30.0) is not None
    nearly_over = Present(10_000.0, 1.0, 10.0)
    assert choose(trials, targets, nearly_over, pause_s=30.0) is None


def test_of_plans_at_one_price_the_trial_that_may_lead_to_a_better_one_is_chosen():
    axes = np.array([[1, 1, 0.25, 0.5], [2, 1, 0.5, 0.5]])
    assert choose(Options(axes, np.ones(2)), options(*TARGETS.tolist())).index == 1


def test_where_the_model_is_sure_nothing_is_tried():
    plans = [ResourcePlan(RolePlan(w, 0.5, 512), RolePlan(p, 0.5, 512)) for w in (1, 2, 4) for p in (1, 2, 4)]
    flat = [ProfileSample(float(i), 2, plan, 512, 10_000) for i, plan in enumerate(plans) for _ in range(5)]
    trials = options([3, 1, 0.5, 0.5], [3, 2, 0.5, 0.5], [3, 3, 0.5, 0.5])
    found = next_experiment(
        fitted(flat),
        batch_of,
        trials,
        targets=trials,
        now=Present(10_000, 1.0, 600.0),
        effort=effort(3, 15.0),
    )
    assert found is None
