from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.cases import for_each
from support.plans.known_jobs import BATCH, GRID, PAPER, model, noisy, table

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

if TYPE_CHECKING:
    import pandas as pd

SAMPLES = noisy(GRID[::7], PAPER)


def records(frame: pd.DataFrame) -> list[ProfileSample]:
    return [
        ProfileSample(
            float(at),
            2.0,
            ResourcePlan(RolePlan(int(r.workers), r.worker_cpu, 64), RolePlan(int(r.ps), r.ps_cpu, 64)),
            int(r.batch_size),
            r.samples_per_s,
        )
        for at, r in enumerate(frame.itertuples())
    ]


def test_table_and_records_are_the_same_samples():
    by_table, by_record = model().fit(SAMPLES), model().fit(records(SAMPLES))
    assert by_table.report_ == by_record.report_
    assert (by_table.predict(GRID, BATCH).low == by_record.predict(GRID, BATCH).low).all()


def test_columns_may_come_in_any_order_and_further_ones_are_ignored():
    mixed = SAMPLES[SAMPLES.columns[::-1]].assign(window_s=2.0, note="x")
    assert model().fit(mixed).report_ == model().fit(SAMPLES).report_


def test_missing_columns_are_named():
    with pytest.raises(InvalidValueError, match="missing: ps_cpu and samples_per_s"):
        model().fit(SAMPLES.drop(columns=["ps_cpu", "samples_per_s"]))


@for_each("bad", [float("nan"), float("inf"), 0.0, -5.0])
@for_each("column", ["samples_per_s", "batch_size", "ps", "worker_cpu"])
def test_a_value_that_cannot_be_is_refused_and_its_row_named(column, bad, error_words):
    samples = SAMPLES.copy()
    samples[column] = samples[column].astype(float)
    samples.loc[3, column] = bad
    with error_words(InvalidValueError):
        model().fit(samples)


def test_words_in_place_of_numbers_are_refused():
    with pytest.raises(InvalidValueError, match="must be numbers"):
        model().fit(SAMPLES.assign(ps="two"))


def test_no_sample_is_refused_as_table_and_as_list(error_words):
    for nothing in ([], SAMPLES[:0]):
        with error_words(InvalidValueError):
            model().fit(nothing)


def test_order_of_the_samples_does_not_matter_to_the_centre():
    shuffled = SAMPLES.sample(frac=1, random_state=1)
    fits = [model().fit(s).predict(GRID, BATCH).samples_per_s for s in (SAMPLES, shuffled)]
    assert fits[0] == pytest.approx(fits[1], rel=0.03)  # other folds, other draws


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_unit_of_speed_changes_nothing_but_the_unit(unit):
    scaled = SAMPLES.assign(samples_per_s=SAMPLES["samples_per_s"] * unit)
    bands, expected = (model().fit(s).predict(GRID, BATCH) for s in (scaled, SAMPLES))
    assert bands.samples_per_s == pytest.approx(expected.samples_per_s * unit, rel=1e-4)
    assert bands.high / bands.low == pytest.approx(expected.high / expected.low, rel=1e-3)


def test_speeds_eighteen_decades_apart_give_wide_bands_and_no_error():
    rng = np.random.default_rng(0)
    wild = table(GRID[::5], 10 ** rng.uniform(-9, 9, len(GRID[::5])))
    bands = model().fit(wild).predict(GRID, BATCH)
    unmeasured = np.ones(len(GRID), dtype=bool)
    unmeasured[::5] = False
    assert np.isfinite(bands.low).all()
    assert np.isfinite(bands.high).all()
    assert (bands.high / bands.low)[unmeasured].min() > 1e3


def test_same_speed_whatever_the_plan_is_fitted_and_predicted():
    bands = model().fit(table(GRID[::3], np.full(len(GRID[::3]), 1000.0))).predict(GRID, BATCH)
    inside = (bands.low <= 1000) & (bands.high >= 1000)
    assert inside.mean() > 0.9
