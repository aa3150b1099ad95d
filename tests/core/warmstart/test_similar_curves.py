"""A curve counts for another job by how like the two jobs are, and not at all with another model or optimizer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.history.history_records import TRAITS as UNTOLD

from dlrover_nb.core.structs.training.quality import CurveOrigin, QualityCurve, QualityPoint
from dlrover_nb.core.structs.views.past_jobs import JobCurve
from dlrover_nb.core.warmstart.similar_curves import similar_curves

TRAITS = replace(UNTOLD, data_hash="d1")
CURVE = QualityCurve(
    "asp",
    CurveOrigin.REHEARSAL,
    512,
    50_000,
    1,
    0.02,
    "adagrad",
    0.21,
    0.76,
    (QualityPoint(1, 0, 0, 0, 0, 2),),
)
OWN = JobCurve("clicks", 100.0, TRAITS, CURVE)
RATES = st.floats(1e-5, 1.0)


def _like(*curves, traits=TRAITS, optimizer="adagrad", learning_rate=0.02, least=0.0):
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
    assert _like(OWN, optimizer="adam") == ()


@given(st.lists(RATES, min_size=1, max_size=6), RATES)
def test_nearer_learning_rates_come_first(rates, own):
    curves = [replace(OWN, job=f"j{i}", curve=replace(CURVE, learning_rate=r)) for i, r in enumerate(rates)]
    ranked = _like(*curves, learning_rate=own)
    ratios = [max(own, c.curve.learning_rate) / min(own, c.curve.learning_rate) for c, _ in ranked]
    assert ratios == sorted(ratios)
    assert all(0 < similarity <= 1 for _, similarity in ranked)


def test_a_job_on_other_data_counts_less_and_one_that_steps_ten_times_as_far_not_at_all():
    beside = replace(OWN, job="beside", traits=replace(TRAITS, batch_size=1024, data_hash="d2"))
    far = replace(OWN, job="far", curve=replace(CURVE, learning_rate=0.2))
    ranked = _like(far, beside, OWN, least=0.4)
    assert [each.job for each, _ in ranked] == ["clicks", "beside"]
