"""Curves of quality against age: laws, and how often their bands hold points that they did not see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.staleness.curves import Changes, FittedCurve, combined
from dlrover_nb.core.structs.training.quality import CurveOrigin, QualityCurve, QualityPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

measured = st.lists(
    st.tuples(st.floats(-0.02, 0.005), st.floats(1e-5, 2e-3)), min_size=len(AGES), max_size=len(AGES)
)


def curve_of(
    auc: Sequence[float], errors: Sequence[float], ages: Sequence[float] = AGES, n_row: int = 40_000
) -> QualityCurve:
    """Return a curve whose losses rise as its AUC falls."""
    rows = zip(ages, auc, errors, strict=True)
    points = tuple(QualityPoint(age, -2 * change, change, 2 * e, e, 5) for age, change, e in rows)
    return QualityCurve("asp", CurveOrigin.REHEARSAL, 256, n_row, 1, 0.01, "adam", 0.45, 0.78, points)


@settings(max_examples=30)
@given(measured, st.floats(0, 100))
def test_nothing_changes_at_the_age_of_now(points: list[tuple[float, float]], now: float):
    changes = FittedCurve(curve_of(*zip(*points, strict=True))).auc([now], since=now)
    assert changes.mean[0] == changes.deviation[0] == 0


@settings(max_examples=30)
@given(measured, st.floats(0, 60), st.floats(0, 60))
def test_going_back_undoes_going_there(points: list[tuple[float, float]], one: float, other: float):
    fitted = FittedCurve(curve_of(*zip(*points, strict=True)))
    there, back = fitted.auc([other], since=one), fitted.auc([one], since=other)
    assert there.mean[0] == pytest.approx(-back.mean[0], abs=1e-9)
    assert there.deviation[0] == pytest.approx(back.deviation[0], abs=1e-7)


@settings(max_examples=30)
@given(measured, st.floats(0.1, 10))
def test_unit_of_the_measure_does_not_matter(points: list[tuple[float, float]], unit: float):
    auc, errors = (np.array(each) for each in zip(*points, strict=True))
    whole = FittedCurve(curve_of(list(auc), list(errors))).auc([3, 20])
    part = FittedCurve(curve_of(list(auc * unit), list(np.maximum(errors * unit, 1e-5)))).auc([3, 20])
    if (errors * unit > 1e-5).all():
        assert part.mean == pytest.approx(whole.mean * unit, abs=1e-6)


@settings(max_examples=20)
@given(measured)
def test_loss_and_auc_of_one_shape_have_one_curve(points: list[tuple[float, float]]):
    fitted = FittedCurve(curve_of(*zip(*points, strict=True)))
    auc, loss = fitted.auc([3, 20]), fitted.loss([3, 20])
    assert loss.mean == pytest.approx(-2 * auc.mean, abs=1e-4)


def test_flat_points_stay_flat_within_their_errors():
    changes = FittedCurve(curve_of([0.0] * 6, [2e-4] * 6)).auc([1, 7, 31])
    assert (np.abs(changes.mean) < 2e-4).all()
    assert (changes.low < 0).all()
    assert (changes.high >= 0).all()


def test_gain_that_is_clear_is_not_taken_away():
    changes = FittedCurve(curve_of([1e-3] * 6, [1e-4] * 6)).auc([4, 8])
    assert changes.mean == pytest.approx(1e-3, abs=3e-4)


def test_band_widens_beyond_the_last_point():
    fitted = FittedCurve(curve_of([-1e-4 * age for age in AGES], [1e-4] * 6))
    near, far = fitted.auc([16]).deviation[0], fitted.auc([200]).deviation[0]
    assert far > 5 * near


def fall(a: float, shape: float) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return curves of AUC of several shapes, only the first of which is a power law."""
    return {
        "power": lambda x: -a * (x / 8) ** shape,
        "saturating": lambda x: -a * (1 - np.exp(-x / (4 * shape))),
        "none at first": lambda x: -a * np.maximum(x - 4 * shape, 0) / 8,
        "logarithm": lambda x: -a * np.log1p(x) / np.log(9),
        "flat": lambda x: 0 * x,
    }


def means(truth: np.ndarray, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard errors over five seeds, whose differences have their base run in common."""
    own, base = rng.normal(0, noise, (5, len(truth))), rng.normal(0, noise, (5, 1))
    runs = truth + own + base
    return runs.mean(axis=0), runs.std(axis=0, ddof=1) / np.sqrt(5)


def test_bands_hold_runs_of_other_seeds_at_points_that_are_left_out():
    rng = np.random.default_rng(3)
    held, errors = [], []
    for _ in range(30):
        a, shape, noise = 10 ** rng.uniform(-3.5, -2), rng.uniform(0.5, 1.5), 10 ** rng.uniform(-4, -3)
        for truth in fall(a, shape).values():
            (auc, error), (other, other_error) = (means(truth(np.array(AGES)), noise, rng) for _ in range(2))
            out = int(rng.integers(1, 5))
            rest = [i for i in range(len(AGES)) if i != out]
            curve = curve_of(auc[rest].tolist(), error[rest].tolist(), [AGES[i] for i in rest])
            changes = FittedCurve(curve).auc([AGES[out]], error=other_error[out])
            held.append(changes.low[0] <= other[out] <= changes.high[0])
            errors.append(abs(changes.mean[0] - other[out]))
    assert np.mean(held) >= 0.85
    assert np.median(errors) <= 7e-4


def test_few_seeds_make_wide_bands():
    few, many = (
        FittedCurve(replace(curve, points=tuple(replace(p, n_seed=n) for p in curve.points)))
        for curve in [curve_of([-1e-4 * age for age in AGES], [1e-4] * 6)]
        for n in (2, 20)
    )
    assert few.auc([8]).deviation[0] > 1.5 * many.auc([8]).deviation[0]


@given(st.floats(-0.02, 0.02), st.floats(1e-5, 0.01), st.floats(-0.02, 0.02), st.floats(1e-5, 0.01))
def test_several_curves_are_surer_than_each_unless_they_disagree(m: float, s: float, n: float, t: float):
    one, other = Changes(np.array([m]), np.array([s])), Changes(np.array([n]), np.array([t]))
    both = combined([one, other])
    assert both is not None
    assert min(m, n) - 1e-12 <= both.mean[0] <= max(m, n) + 1e-12
    if abs(m - n) <= min(s, t):
        assert both.deviation[0] <= min(s, t) + 1e-12
    assert combined([one]) == one or combined([one]).mean == pytest.approx([m])  # type: ignore[union-attr]
    assert combined([]) is None


def test_curves_of_the_own_job_carry_over_more_surely_than_those_of_others():
    curve = curve_of([-1e-3] * 6, [1e-4] * 6)
    own, rehearsed, similar = (
        FittedCurve(replace(curve, origin=origin)).transfer(1_000_000)
        for origin in (CurveOrigin.RUNS, CurveOrigin.REHEARSAL, CurveOrigin.SIMILAR)
    )
    assert own < rehearsed < similar
    assert FittedCurve(curve).transfer(40_000) < FittedCurve(curve).transfer(1_000_000)
