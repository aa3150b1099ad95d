from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.plans.known_jobs import BATCH, CROWDED, GRID, PAPER, coefficients, iter_s, model, noisy, speed

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.views.past_jobs import FitSummary, TermKnowledge

FULL = noisy(GRID, PAPER)
PAST = model().fit(FULL).summary(at_s=100.0)
WRONG = model().fit(noisy(GRID, coefficients(sync=0.9, constant=0.1))).summary(at_s=100.0)


def width(fitted) -> float:
    bands = fitted.predict(GRID, BATCH)
    return float(np.mean(np.log(bands.high / bands.low)))


def off(fitted, true=PAPER) -> float:
    return float(np.sqrt(np.mean(np.log(fitted.predict(GRID, BATCH).samples_per_s / speed(GRID, true)) ** 2)))


def test_without_samples_the_prior_is_the_centre_and_the_bands_are_wide(words):
    fitted = model(prior=PAST).fit(())
    bands = fitted.predict(GRID, BATCH)
    assert bands.samples_per_s == pytest.approx(speed(GRID, PAPER), rel=0.03)
    assert (bands.high / bands.low).min() > 3
    assert bands.extrapolates.all()
    assert fitted.report_.note == words
    assert not any(c.identified for c in fitted.report_.coefficients)
    assert fitted.report_.n_plan == 0


def test_without_samples_and_prior_there_is_nothing():
    with pytest.raises(InvalidValueError, match="got 0"):
        model().fit(())


def test_prior_makes_the_first_plan_tell_more():
    one = noisy(GRID[:1], PAPER)
    assert off(model(prior=PAST).fit(one)) < 0.75 * off(model().fit(one))
    assert width(model(prior=PAST).fit(one)) < width(model().fit(one))


def test_speed_of_the_machine_is_learnt_from_one_sample():
    slower = noisy(GRID[:1], PAPER * 3)
    fitted = model(prior=PAST).fit(slower)
    assert np.median(fitted.predict(GRID, BATCH).samples_per_s / speed(GRID, PAPER * 3)) == pytest.approx(
        1, rel=0.15
    )


def test_prior_fades_as_configurations_arrive():
    order = np.random.default_rng(1).permutation(len(GRID))
    apart = []
    for n in (2, 8, 40):
        samples = noisy(GRID[order[:n]], PAPER)
        with_prior, without = (m.fit(samples).predict(GRID, BATCH) for m in (model(prior=WRONG), model()))
        apart.append(float(np.mean(np.abs(np.log(with_prior.samples_per_s / without.samples_per_s)))))
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 0.02


def test_wrong_prior_is_overcome():
    order = np.random.default_rng(2).permutation(len(GRID))
    assert off(model(prior=WRONG).fit(noisy(GRID[:1], PAPER))) > 0.2
    assert off(model(prior=WRONG).fit(noisy(GRID[order[:20]], PAPER))) < 0.05


def test_bands_under_a_wrong_prior_still_cover_the_truth():
    fitted = model(prior=WRONG).fit(noisy(GRID[:1], PAPER))
    bands, true = fitted.predict(GRID, BATCH), speed(GRID, PAPER)
    assert np.mean((bands.low <= true) & (true <= bands.high)) > 0.85


def test_prior_that_counts_for_more_lasts_longer():
    samples = noisy(GRID[[0, 40, 80]], PAPER)
    light, heavy = (off(model(prior=WRONG, prior_weight=w).fit(samples)) for w in (0.1, 30.0))
    assert light < heavy


def test_summary_is_a_prior_that_says_the_same():
    past = model().fit(noisy(GRID, CROWDED)).summary(at_s=7.0)
    assert past.at_s == 7
    assert past.n_plan == len(GRID)
    assert "contention" in [t.term for t in past.terms]
    young = model(prior=past).fit(())
    assert young.predict(GRID, BATCH).samples_per_s == pytest.approx(
        GRID[:, 0] * BATCH / iter_s(GRID, CROWDED), rel=0.05
    )
    assert young.summary(at_s=8.0) == past  # nothing was learnt


def summary(*terms: tuple[str, float]) -> FitSummary:
    return replace(PAST, terms=tuple(TermKnowledge(name, value, 0.1, True) for name, value in terms))


def test_prior_that_cannot_be_is_refused():
    for bad, words in (
        (summary(("gradients", float("nan"))), "finite number"),
        (summary(("gradients", -1.0)), "finite number"),
        (summary(("luck", 1.0)), "got 'luck'"),
        (summary(("gradients", 0.0)), "coefficient > 0"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            model(prior=bad).fit(FULL)
    with pytest.raises(InvalidValueError, match="prior_weight"):
        model(prior=PAST, prior_weight=0).fit(FULL)
