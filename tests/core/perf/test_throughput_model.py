from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.perf.terms import PAPER_TERMS, axes_of, design
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

M, D, BATCH = 1e5, 16, 512
START = (1, 1, 0.5, 0.25)
GRID = np.array(list(product((1, 2, 3, 4), (1, 2), (0.25, 0.5, 1.0), (0.25, 0.5, 1.0))))


def plan(w: float, p: float, worker_cpu: float, ps_cpu: float) -> ResourcePlan:
    return ResourcePlan(RolePlan(int(w), worker_cpu, 1024), RolePlan(int(p), ps_cpu, 512))


def columns(axes: np.ndarray) -> np.ndarray:
    return design(axes, BATCH, dense_bytes=M, embedding_dim=D)


def truth(shares: np.ndarray, iter_s: float = 0.02) -> np.ndarray:
    """Coefficients that give these shares of `iter_s` at the start plan."""
    return iter_s * shares / columns(np.array([START]))[0]


def windows(axes, coefficients, *, rng=None, noise: float = 0.0, n: int = 5) -> list[ProfileSample]:
    found = []
    for row in axes:
        iter_s = float(columns(np.array([row]))[0] @ coefficients)
        for i in range(n):
            factor = np.exp(rng.normal(0, noise)) if rng is not None else 1.0
            found.append(ProfileSample(float(i), 2.0, plan(*row), BATCH, row[0] * BATCH / iter_s * factor))
    return found


def model() -> ThroughputModel:
    return ThroughputModel(dense_bytes=M, embedding_dim=D)


shares = st.lists(st.floats(0.01, 1), min_size=5, max_size=5).map(lambda s: np.array(s) / sum(s))


def test_design_has_the_terms_of_the_paper():
    row = design(np.array([[4.0, 2.0, 0.5, 0.25]]), 100, dense_bytes=1000, embedding_dim=8)[0]
    assert row.tolist() == [100 / 0.5, 4 / (2 * 0.25), 1000 / 2 * 4, 100 * 8 / 2, 1.0]


@settings(deadline=None, max_examples=30)
@given(shares)
def test_enough_plans_without_noise_determine_every_plan(true_shares):
    coefficients = truth(true_shares)
    fitted = model().fit(windows(GRID[::5], coefficients))
    real = GRID[:, 0] * BATCH / (columns(GRID) @ coefficients)
    assert fitted.predict(GRID, BATCH).samples_per_s == pytest.approx(real, rel=0.05)
    assert fitted.report_.rmsle < 0.03


@settings(deadline=None, max_examples=30)
@given(shares)
def test_with_one_plan_bands_reach_from_all_of_the_iteration_scales_to_nothing_does(true_shares):
    fitted = model().fit(windows([START], truth(true_shares)))
    bands = fitted.predict(GRID, BATCH)
    ratio = columns(GRID) / columns(np.array([START]))
    work = GRID[:, 0] * BATCH
    assert (bands.high >= work / (0.02 * ratio.min(axis=1)) * 0.999).all()
    assert (bands.low <= work / (0.02 * ratio.max(axis=1)) * 1.001).all()


@pytest.mark.more
@pytest.mark.parametrize("n_plan", [1, 2, 3, 5])
def test_bands_cover_the_truth(n_plan):
    rng = np.random.default_rng(n_plan)
    inside = []
    for _ in range(60):
        coefficients = truth(rng.dirichlet(np.ones(5)))
        tried = [START, *GRID[rng.choice(len(GRID), n_plan - 1, replace=False)]]
        fitted = model().fit(windows(tried, coefficients, rng=rng, noise=0.02))
        bands = fitted.predict(GRID, BATCH)
        real = GRID[:, 0] * BATCH / (columns(GRID) @ coefficients)
        inside.append(np.mean((bands.low <= real) & (real <= bands.high)))
    assert np.mean(inside) >= 0.85


def test_bands_shrink_as_plans_are_measured():
    coefficients = truth(np.full(5, 0.2))
    tried = [START, (2, 1, 0.5, 0.25), (1, 2, 0.5, 0.25), (1, 1, 1.0, 0.25), (1, 1, 0.5, 1.0)]
    widths = []
    for n in range(1, 6):
        bands = model().fit(windows(tried[:n], coefficients)).predict(GRID, BATCH)
        widths.append(float(np.mean(np.log(bands.high / bands.low))))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] / 2


@settings(deadline=None, max_examples=20)
@given(shares, st.integers(0, 1000))
def test_measured_plan_keeps_its_own_scatter_and_nothing_unmeasured_is_surer(true_shares, seed):
    rng = np.random.default_rng(seed)
    tried = [START, (2, 1, 0.5, 0.25)]
    samples = windows(tried, truth(true_shares), rng=rng, noise=0.03)
    bands = model().fit(samples).predict(GRID, BATCH)
    width = np.log(bands.high / bands.low)
    measured = np.array([(row == GRID).all(axis=1) for row in tried]).any(axis=0)
    assert width[~measured].min() >= width[measured].max() - 1e-9
    seen = np.exp(np.mean(np.log([s.samples_per_s for s in samples[:5]])))
    assert bands.samples_per_s[(GRID == START).all(axis=1)][0] == pytest.approx(seen, rel=0.02)
    assert (bands.low <= bands.samples_per_s).all()
    assert (bands.samples_per_s <= bands.high).all()


def test_update_and_sync_are_not_told_apart_while_ps_cpu_never_varied(words):
    axes = GRID[GRID[:, 3] == 0.25]
    report = model().fit(windows(axes, truth(np.full(5, 0.2)))).report_
    known = {c.term: c.identified for c in report.coefficients}
    assert known == {"gradients": True, "updates": False, "sync": False, "embeddings": True, "constant": True}
    assert report.note == words


def test_all_terms_are_identified_when_every_axis_varied(words):
    report = model().fit(windows(GRID, truth(np.full(5, 0.2)))).report_
    assert all(c.identified for c in report.coefficients)
    assert report.note == words


def test_one_plan_identifies_nothing_but_its_own_time(words):
    fitted = model().fit(windows([START], truth(np.full(5, 0.2))))
    assert not any(c.identified for c in fitted.report_.coefficients)
    assert fitted.report_.note == words


def test_one_sample_and_many_constant_samples_are_enough():
    for n in (1, 200):
        fitted = model().fit(windows([START], truth(np.full(5, 0.2)), n=n))
        assert fitted.predict_plan(plan(*START), BATCH).samples_per_s == pytest.approx(25_600)
        assert np.isfinite(fitted.predict(GRID, BATCH).high).all()


def test_more_windows_of_one_plan_are_no_evidence_on_others():
    few, many = (
        model().fit(windows([START, (2, 1, 0.5, 0.25)], truth(np.full(5, 0.2)), n=n)) for n in (5, 200)
    )
    other = plan(4, 2, 1.0, 1.0)
    widths = [m.predict_plan(other, BATCH).relative_width for m in (few, many)]
    assert widths[1] > 0.7 * widths[0]


def test_straggling_window_does_not_bend_the_fit():
    samples = windows([START], truth(np.full(5, 0.2)), n=9)
    odd = ProfileSample(0.0, 2.0, plan(*START), BATCH, samples[0].samples_per_s / 10)
    fitted = model().fit([*samples, odd])
    assert fitted.predict_plan(plan(*START), BATCH).samples_per_s == pytest.approx(25_600, rel=0.01)


def test_terms_sum_to_the_iteration_where_the_equations_hold():
    fitted = model().fit(windows(GRID, truth(np.array([0.5, 0.1, 0.1, 0.2, 0.1]))))
    (seconds,) = fitted.term_seconds(axes_of([plan(*START)]), BATCH)
    assert fitted.terms_ == PAPER_TERMS  # the data are the paper's own: no further term is felt
    assert seconds.sum() == pytest.approx(0.02, rel=1e-3)
    assert seconds[0] / seconds.sum() == pytest.approx(0.5, abs=0.05)


def test_only_plans_outside_what_was_tried_extrapolate():
    fitted = model().fit(windows([START, (3, 1, 0.5, 0.25)], truth(np.full(5, 0.2))))
    flags = [
        fitted.predict_plan(plan(*row), BATCH).extrapolates
        for row in (START, (2, 1, 0.5, 0.25), (4, 1, 0.5, 0.25))
    ]
    assert flags == [False, False, True]


def test_same_samples_give_the_same_bands():
    samples = windows([START], truth(np.full(5, 0.2)))
    assert (
        model().fit(samples).predict(GRID, BATCH).low == model().fit(samples).predict(GRID, BATCH).low
    ).all()


def test_nothing_to_fit_or_not_fitted_is_said():
    with pytest.raises(InvalidValueError, match="got 0"):
        model().fit([])
    with pytest.raises(InvalidValueError, match="call fit first"):
        model().predict(axes_of([plan(*START)]), BATCH)
    with pytest.raises(InvalidValueError, match="nan"):
        ProfileSample(0.0, 2.0, plan(*START), BATCH, float("nan"))
    with pytest.raises(InvalidValueError, match="dense_bytes"):
        ThroughputModel(dense_bytes=float("nan"), embedding_dim=1).fit(
            windows([START], truth(np.full(5, 0.2)))
        )
