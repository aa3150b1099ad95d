"""Which curves of the history a new job plans with."""

from __future__ import annotations

from dataclasses import replace

from support.history.history_records import TRAITS as UNTOLD
from support.plans.quality_curves import curve

from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.training.quality import CurveOrigin
from dlrover_nb.core.structs.views.past_jobs import JobCurve
from dlrover_nb.core.warmstart.curves_of_job import MOST_SIMILAR, curves_of_job

TRAITS = replace(UNTOLD, data_hash="d1")
SPEC = JobSpec("clicks", model=ModelSpec(optimizer=Optimizer.ADAM, learning_rate=0.01))
OWN = JobCurve("clicks", 100.0, TRAITS, curve())


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
