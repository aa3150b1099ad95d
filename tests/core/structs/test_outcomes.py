"""An outcome compares what was measured with the prediction as it was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Outcome
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

PLAN = ResourcePlan(RolePlan(3, 0.5, 1024), RolePlan(1, 0.25, 512))
FREE = Prediction(2330.0, 2200.0, 2450.0, False, 2300.0, 2360.0)
SHARES = st.floats(0, 0.9)


def outcome(measured: float, predicted: Prediction | None, host_share: float = 0.0) -> Outcome:
    return Outcome("d1", PLAN, predicted, measured, 1000.0, 12, 0.0, 1.0, host_share)


def there(predicted: Prediction, host: float) -> Prediction:
    """Return what would be predicted on a host that gives this part."""
    speeds = (predicted.samples_per_s, predicted.low, predicted.high)
    mean = (predicted.mean_low * host, predicted.mean_high * host)
    return Prediction(*(speed * host for speed in speeds), predicted.extrapolates, *mean, host)


def test_a_host_that_became_busy_is_taken_out_of_what_was_measured_and_not_put_into_the_prediction():
    busy = outcome(0.3 * 2330.0, FREE, host_share=0.7)
    assert busy.predicted.samples_per_s == 2330.0
    assert busy.comparable_samples_per_s == pytest.approx(2330.0)
    assert busy.error == pytest.approx(0.0, abs=1e-9)
    assert busy.inside_band
    assert busy.has_host_changed


@given(measured=st.floats(100, 5000), host=SHARES)
def test_where_the_host_is_as_predicted_the_measurement_itself_is_compared(measured, host):
    same = outcome(measured, there(FREE, 1 - host), host)
    assert not same.has_host_changed
    assert same.comparable_samples_per_s == pytest.approx(measured)
    assert same.error == pytest.approx(same.predicted.samples_per_s / measured - 1)


@given(measured=st.floats(100, 5000), then=SHARES, now=SHARES)
def test_a_score_is_the_same_for_whichever_host_it_was_predicted(measured, then, now):
    free, on_host = (outcome(measured, there(FREE, 1 - each), now) for each in (0.0, then))
    assert on_host.error == pytest.approx(free.error)


def test_without_a_prediction_there_is_no_score():
    none = outcome(700.0, None, 0.5)
    assert (none.error, none.inside_band, none.has_host_changed) == (None, None, False)
    assert none.comparable_samples_per_s == 700.0
    assert replace(none, predicted=FREE).error is not None
