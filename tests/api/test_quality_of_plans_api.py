"""Curves of quality that a person hands to a running job, in everything that shows plans."""

from __future__ import annotations

import pytest
from support.jobs.rehearsals import rehearsal
from support.plans.quality_curves import curve
from support.waiting import LIMIT_S

import dlrover_nb
from dlrover_nb.api.rehearsals import hand_over
from dlrover_nb.core.client.job_to_rehearse import JobToRehearse
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import JobSpec

JOB = "{name: priced, mode: suggest, overlap: false, bounds: {max_workers: 8, max_auc_loss: 0.5}}"


@pytest.fixture(scope="module")
def job():
    """Return a simulated job that is measured, with curves of two ways."""
    cluster = dlrover_nb.connect("sim", speed=600)
    try:
        priced = cluster.submit(JOB, epochs=4000)
        priced.learn_curves(curve(), curve(-1e-5, way="gba"))
        priced.wait(until="proposal", timeout_s=LIMIT_S)
        yield priced
    finally:
        cluster.shutdown(force=True)


def test_a_what_if_has_the_change_of_auc_as_data_and_words(job):
    asked = job.whatif(workers=7)
    quality = asked.weighed[0].candidate.quality
    assert quality.auc_low < quality.auc < 0
    assert f"{quality.words}, measured by a rehearsal of 40,000 rows" in " ".join(str(asked).split())
    (row,) = asked.to_frame().to_dict("records")
    assert (row["auc_change"], row["auc_change_low"]) == (quality.auc, quality.auc_low)
    assert row["age"] == 6


def test_the_front_has_a_column_of_auc_in_text_html_and_data(job):
    plans = job.plans()
    front = plans.to_frame("front")
    now = plans.snapshot.target.worker.count
    more = front[front["workers"] > now]
    assert len(more)
    assert (more["auc_change"] < 0).all()
    assert "AUC" in str(plans)
    assert "<th>AUC" in plans.view().html() or ">AUC<" in plans.view().html()


def test_a_front_with_auc_as_a_third_axis_has_plans_that_age_less(job):
    plans = job.plans()
    three = plans.to_frame("front_with_auc")
    assert three["workers"].nunique() > 1
    for _, row in three.iterrows():
        better = three[
            (three["cost_per_hour"] <= row["cost_per_hour"])
            & (three["predicted_samples_per_s"] >= row["predicted_samples_per_s"])
            & (three["auc_change"] >= row["auc_change"])
        ]
        assert (better["workers"] == row["workers"]).all()
    assert "Plans that nothing beats in cost, throughput and AUC" in str(plans)


def test_why_has_the_same_numbers(job):
    plans, why = job.plans(), job.why()
    opened = plans.snapshot.open_proposal
    assert opened.candidate.plan.worker.count > opened.baseline.plan.worker.count
    assert "of AUC" in opened.why
    assert "with gba" in opened.why
    answer = next(each for each in why.answers if each.question == "why")
    numbers = {value.name: value.amount for value in answer.values}
    (weighed,) = job.whatif(opened.candidate.plan).weighed
    quality = weighed.candidate.quality
    assert numbers["n_worker"] == opened.candidate.plan.worker.count
    assert (numbers["auc_low"], numbers["auc"], numbers["auc_high"]) == pytest.approx(
        (quality.auc_low, quality.auc, quality.auc_high)
    )
    assert numbers["gba_auc"] == pytest.approx(quality.ways[0].auc)
    assert "40,000 rows" in answer.words


def test_a_rehearsal_of_a_running_job_prices_its_plans(job):
    """The rehearsal's curve replaces that of its way; what it costs is planted in it."""
    result = rehearsal(auc_per_update=-0.004)
    validated = validate_job(JobSpec("priced"))
    before = job.whatif(workers=7).weighed[0].candidate.quality
    hand_over(job.handle, JobToRehearse(validated.spec, validated.features), result.curves)
    after = job.whatif(workers=7).weighed[0].candidate.quality
    assert after.auc < before.auc
    assert after.n_row == 50_000


def test_a_person_is_told_that_a_plan_may_break_the_bound_and_may_still_take_it(job):
    job.learn_curves(curve(-0.2))
    asked = job.whatif(workers=8)
    assert not asked.weighed[0].refusal
    assert "against the first plan, the bound is 0.500" in asked.weighed[0].caution
    assert "Mind its AUC" in str(asked)
    scaled = job.scale(workers=8)
    assert scaled.decision.plan.worker.count == 8
    assert "it may cost up to" in " ".join(str(scaled).split())
