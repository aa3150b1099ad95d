from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.known_jobs import BATCH, CROWDED, GRID, PAPER, coefficients, model, noisy, speed, table

from dlrover_nb.core.perf.forms import FAMILIES, FORMS
from dlrover_nb.core.perf.terms import FURTHER_TERMS, PAPER_TERMS, TERMS

SOME = GRID[::3]


def off(fitted, true) -> float:
    return float(np.sqrt(np.mean(np.log(fitted.predict(GRID, BATCH).samples_per_s / speed(GRID, true)) ** 2)))


def test_every_form_but_rivals_holds_all_terms_of_the_paper():
    assert FORMS[0].terms == PAPER_TERMS
    supersets = [form for form in FORMS if set(PAPER_TERMS) <= set(form.terms)]
    assert len(supersets) >= 4
    used = {t for family in FAMILIES.values() for form in family.forms for t in form.terms}
    assert used == set(TERMS)


def test_data_of_the_paper_ask_for_nothing_more():
    report = model().fit(noisy(SOME, PAPER)).report_
    assert [c.term for c in report.coefficients] == list(PAPER_TERMS)
    assert "The speeds also show" not in report.note


@pytest.mark.parametrize("term", ["contention", "barrier", "connections"])
def test_a_cost_that_the_paper_lacks_is_found_and_named(term):
    shares = {"gradients": 0.3, "updates": 0.2, "constant": 0.2, term: 0.3}
    true = coefficients(**shares)
    if term == "barrier":
        true[TERMS.index("barrier")] = 0.006
    fitted = model().fit(noisy(SOME, true))
    assert off(fitted, true) < 0.06
    assert fitted.report_.forms[0].name != "Eqs. 1-6"
    assert set(fitted.terms_) & set(FURTHER_TERMS)
    assert "The speeds also show that " in fitted.report_.note


def test_crowded_job_is_predicted_where_the_paper_alone_is_far_off():
    fitted = model().fit(noisy(SOME, CROWDED))
    weights = {form.name: form.weight for form in fitted.report_.forms}
    assert weights.get("Eqs. 1-6", 0) < 0.02
    assert off(fitted, CROWDED) < 0.03


@settings(deadline=None, max_examples=15)
@given(st.integers(4, 60), st.integers(0, 100))
def test_weights_sum_to_one_and_the_best_form_by_left_out_plans_is_first(n, seed):
    axes = GRID[np.random.default_rng(seed).permutation(len(GRID))[:n]]
    found = model().fit(noisy(axes, CROWDED, seed=seed)).report_.forms
    assert sum(f.weight for f in found) == pytest.approx(1)
    assert [f.weight for f in found] == sorted((f.weight for f in found), reverse=True)
    assert found[0].cv_error == min(f.cv_error for f in found)


def test_few_plans_leave_the_choice_open():
    report = model().fit(noisy(GRID[:3], CROWDED)).report_
    assert [(f.weight, f.cv_error) for f in report.forms] == [(0.5, None), (0.5, None)]
    assert report.rmsle_cv is None


def test_terms_that_always_changed_together_are_said_to_be_known_in_sum_only(words):
    fixed_ps_cpu = GRID[GRID[:, 3] == 0.5]
    note = model().fit(noisy(fixed_ps_cpu, PAPER)).report_.note
    assert note == words
    assert "Only the sum" not in model().fit(noisy(GRID, PAPER)).report_.note


def test_latest_plan_is_predicted_without_it_and_compared():
    at = np.arange(len(SOME), dtype=float)
    samples = noisy(SOME, CROWDED).assign(at_s=at)
    honest = model().fit(samples)
    without = model().fit(samples[:-1]).predict(SOME[-1:], BATCH).samples_per_s[0]
    expected = without / samples["samples_per_s"].iloc[-1] - 1
    assert honest.report_.latest_error == pytest.approx(expected, abs=0.02)
    samples.loc[5, "samples_per_s"] /= 2
    samples.loc[5, "at_s"] = 1000.0  # the odd plan came last, wherever its row stands
    assert model().fit(samples).report_.latest_error == pytest.approx(1, abs=0.3)


def test_one_plan_has_no_latest_unseen_one():
    assert model().fit(noisy(GRID[:1], PAPER)).report_.latest_error is None


def test_batch_size_may_differ_from_plan_to_plan():
    """The global batch is fixed at 4,096: m = 4096/w, as in synchronous jobs of one B."""
    rng = np.random.default_rng(0)
    axes = GRID[rng.permutation(len(GRID))[:40]]
    batch = 4096 / axes[:, 0]

    def seconds(axes, batch):
        return 2e-5 * batch / axes[:, 2] + 0.004 * axes[:, 0] / axes[:, 1] / axes[:, 3] + 0.01 / axes[:, 1]

    samples = table(axes, 4096 / seconds(axes, batch)).assign(batch_size=batch)
    fitted = model().fit(samples)
    found = fitted.predict(GRID, 4096 / GRID[:, 0]).samples_per_s
    assert found == pytest.approx(4096 / seconds(GRID, 4096 / GRID[:, 0]), rel=0.1)
    alone = fitted.predict(GRID[5:6], 4096 / GRID[5, 0])
    assert alone.samples_per_s[0] == pytest.approx(found[5])
