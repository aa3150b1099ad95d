"""Which curves of the history a new job plans with.

A curve counts for another job by how like the two jobs are, and not at all with another model or optimizer.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.history.history_records import TRAITS as UNTOLD
from support.plans.quality_curves import curve

from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.training.quality import CurveOrigin
from dlrover_nb.core.structs.views.past_jobs import JobCurve
from dlrover_nb.core.warmstart.curves_of_job import MOST_SIMILAR, curves_of_job, similar_curves

TRAITS = replace(UNTOLD, data_hash="d1")
SPEC = JobSpec("clicks", model=ModelSpec(optimizer=Optimizer.ADAM, learning_rate=0.01))
OWN = JobCurve("clicks", 100.0, TRAITS, curve())
RATES = st.floats(1e-5, 1.0)


def test_the_newest_rehearsal_of_each_way_is_the_job_s_own():
    newer = replace(OWN, at_s=200.0, curve=curve(-2e-3))
    other_way = replace(OWN, curve=curve(way="gba"))
    assert curves_of_job(SPEC, TRAITS, [OWN, newer, other_way]) == (newer.curve, other_way.curve)


def test_curves_of_other_jobs_count_as_similar():
    other = replace(OWN, job="ads")
    assert curves_of_job(SPEC, TRAITS, [other]) == (replace(OWN.curve, origin=CurveOrigin.SIMILAR),)


def test_a_curve_of_the_same_name_with_other_data_is_not_the_job_s_own():
    changed = replace(OWN, traits=replace(TRAITS, data_hash="d2"))
    assert {each.origin for each in curves_of_job(SPEC, TRAITS, [changed])} <= {CurveOrigin.SIMILAR}


def test_the_most_similar_jobs_alone_count():
    others = [replace(OWN, job=f"job-{i}") for i in range(9)]
    assert len(curves_of_job(SPEC, TRAITS, others)) == MOST_SIMILAR


def test_nothing_counts_of_another_optimizer():
    assert curves_of_job(replace(SPEC, model=ModelSpec(optimizer=Optimizer.SGD)), TRAITS, [OWN]) == ()


def _like(*curves, traits=TRAITS, optimizer="adam", learning_rate=0.01, least=0.0):
    return similar_curves(
        traits, optimizer=optimizer, learning_rate=learning_rate, curves=curves, least=least
    )


def test_the_same_job_is_wholly_similar():
    assert _like(OWN) == ((OWN, 1.0),)


def test_another_model_code_or_optimizer_never_counts():
    others = [
        replace(OWN, traits=replace(TRAITS, **change)) for change in ({"model": "din"}, {"code_hash": "x"})
    ]
    assert _like(*others) == ()
    assert _like(OWN, optimizer="sgd") == ()


@given(st.lists(RATES, min_size=1, max_size=6), RATES)
def test_nearer_learning_rates_come_first(rates, own):
    curves = [replace(OWN, job=f"j{i}", curve=replace(curve(), learning_rate=r)) for i, r in enumerate(rates)]
    ranked = _like(*curves, learning_rate=own)
    ratios = [max(own, c.curve.learning_rate) / min(own, c.curve.learning_rate) for c, _ in ranked]
    assert ratios == sorted(ratios)
    assert all(0 < similarity <= 1 for _, similarity in ranked)


def test_a_job_on_other_data_counts_less_and_one_that_steps_ten_times_as_far_not_at_all():
    beside = replace(OWN, job="beside", traits=replace(TRAITS, batch_size=1024, data_hash="d2"))
    far = replace(OWN, job="far", curve=replace(curve(), learning_rate=0.1))
    ranked = _like(far, beside, OWN, least=0.4)
    assert [each.job for each, _ in ranked] == ["clicks", "beside"]
