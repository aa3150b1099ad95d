"""Remaining iterations: laws of the decline rate and the stop rule, and the choice between two curves."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.deadline import remaining
from dlrover_nb.core.deadline.remaining import (
    INVERSE,
    LSTM,
    Forecast,
    Inverse,
    StopRule,
    converged_at,
    decline_rates,
    forecast,
    iterations_left,
)
from dlrover_nb.core.errors import InvalidValueError

LOSSES = st.lists(st.floats(0.01, 10), min_size=2, max_size=40).map(lambda ls: list(enumerate(ls)))
RULE = StopRule(1e-6, 200)
K = np.linspace(0, 6000, 80)


def inverse(k, *, b0=0.004, b1=0.4, b2=0.3):
    return 1 / (b0 * np.asarray(k) + b1) + b2


def stairs(k):
    """A loss that falls to a plateau, faster than any inverse curve."""
    return 0.2 + 2.0 * np.exp(-np.asarray(k) / 900)


def noisy(curve, noise: float = 0.0, seed: int = 1) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    return list(zip(K.tolist(), (curve(K) + rng.normal(0, noise, len(K))).tolist(), strict=True))


@given(LOSSES, st.floats(0.1, 100), st.floats(-5, 5))
def test_the_decline_rate_depends_on_neither_scale_nor_level_of_the_loss(losses, scale, level):
    other = [(k, scale * loss + level) for k, loss in losses]
    gaps = np.abs(np.diff([loss for _, loss in losses]))
    if (gaps[gaps > 0] > 1e-6).all():
        np.testing.assert_allclose(decline_rates(other), decline_rates(losses), atol=1e-6)


@given(LOSSES)
def test_a_decline_is_at_most_the_whole_range_and_negative_where_the_loss_rises(losses):
    rates, steps = decline_rates(losses), np.diff([loss for _, loss in losses])
    assert (np.abs(rates) <= 1 + 1e-9).all()
    assert (np.sign(rates) == -np.sign(steps)).all()


@given(st.floats(1e-7, 1e-3), st.floats(1, 10))
def test_a_stricter_rule_never_stops_earlier(decline, factor):
    losses = noisy(inverse)
    strict, lax = (converged_at(losses, StopRule(d, 200)) for d in (decline, decline * factor))
    assert strict is None or (lax is not None and lax <= strict)


def test_a_loss_must_be_level_for_the_whole_window():
    losses = [(0, 2.0), (100, 1.0), (200, 1.0), (300, 0.5), (400, 0.5), (500, 0.5), (600, 0.5)]
    assert converged_at(losses, StopRule(1e-5, 250)) == 550
    assert converged_at(losses, StopRule(1e-5, 100)) == 200
    assert converged_at(losses, StopRule(1e-5, 301)) is None


@given(st.integers(6001, 100_000))
def test_a_job_never_needs_more_than_it_is_allowed_and_all_of_it_where_nothing_is_known(most):
    losses = noisy(inverse)
    fitted = Forecast(INVERSE, Inverse(remaining.fit_loss_curve(losses)), (), "")
    assert 0 <= iterations_left(fitted, losses, most, RULE) <= most - 6000
    assert iterations_left(None, losses, most, RULE) == most - 6000
    assert iterations_left(None, losses, 6000, RULE) == 0


@pytest.mark.parametrize("curve", [inverse, stairs])
def test_the_curve_with_the_smaller_error_on_the_held_out_losses_is_chosen(curve):
    pytest.importorskip("torch")
    found = forecast(noisy(curve, 0.002))
    errors = dict(found.errors)
    assert set(errors) == {INVERSE, LSTM}
    assert found.name == min(errors, key=errors.get)
    assert found.words.startswith(f"The {found.name} was off by {errors[found.name]:.1%}")


def test_each_curve_wins_where_it_should_and_predicts_the_losses_ahead():
    pytest.importorskip("torch")
    ahead = np.linspace(6000, 9000, 30)
    for curve, name in ((inverse, INVERSE), (stairs, LSTM)):
        found = forecast(noisy(curve, 0.002))
        assert found.name == name, found.errors
        off = np.abs(found.curve.losses(ahead) - curve(ahead)).max()
        assert off < 0.05 * (curve(0) - curve(9000))


def test_remaining_iterations_are_near_those_of_the_true_curve():
    losses, grid = noisy(inverse), np.linspace(0, 40_000, 4000)
    true = converged_at(list(zip(grid.tolist(), inverse(grid).tolist(), strict=True)), RULE)
    assert 6000 < true < 40_000
    found = forecast(losses)
    assert iterations_left(found, losses, 40_000, RULE) == pytest.approx(true - 6000, rel=0.15)


def test_the_same_seed_gives_the_same_curve_and_torch_keeps_its_own():
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    first, again = forecast(noisy(stairs, 0.01), seed=3), forecast(noisy(stairs, 0.01), seed=3)
    assert first == again
    assert torch.equal(before, torch.random.get_rng_state())


def test_without_torch_the_inverse_curve_is_used_and_the_words_say_so(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(remaining, "find_spec", lambda name: None if name == "torch" else find(name))
    found = forecast(noisy(stairs, 0.002))
    assert found.name == INVERSE
    assert "the LSTM was not tried, as torch is not installed" in found.words


def test_the_package_loads_no_torch():
    run = "import sys, dlrover_nb.core.deadline.remaining; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"


def test_too_few_losses_and_losses_that_never_fall_give_no_curve():
    assert forecast(noisy(inverse)[:9]) is None
    assert forecast([(float(k), 1.0) for k in range(20)]) is None
    with pytest.raises(InvalidValueError, match="rising iterations"):
        decline_rates([(1, 1.0), (1, 2.0)])
    with pytest.raises(InvalidValueError, match="decline must be > 0"):
        StopRule(0.0)
