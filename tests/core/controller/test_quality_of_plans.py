"""What plans cost in quality, by curves that a job is given: shown, obeyed, and the same after a replay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plans.quality_curves import curve
from support.plans.replayed import replay
from support.plans.restarted_controller import restarted

from dlrover_nb.core.planner.advising.quality_words import quality_words
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode, StaleSteps, Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import CurvesMeasured

TWO = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.25, 512))
BOUND = PlanBounds(max_auc_loss=0.001)


def quality_of(job, plan):
    """Return what a what-if says of a plan's quality."""
    return job.controller.queries().weigh([plan])[0].candidate.quality


def most_workers(job):
    return max(marker.plan.worker.count for marker in job.view.markers)


def test_each_plan_has_its_change_against_the_plan_that_runs(make_job):
    job = make_job(mode=Mode.MANUAL, curves=(curve(),), overlap=False)
    job.train(40)
    two, three = (quality_of(job, replace(TWO, worker=replace(TWO.worker, count=n))) for n in (2, 3))
    assert two.age_now == 0
    assert (two.age, three.age) == (1, 2)
    assert two.auc == pytest.approx(-0.001, abs=3e-4)
    assert three.auc == pytest.approx(-0.002, abs=3e-4)
    assert three.auc_low < three.auc < three.auc_high
    assert two.loss == pytest.approx(0.002, abs=6e-4)
    assert job.view.front.current.quality.is_none


def test_overlap_doubles_the_age(make_job):
    job = make_job(mode=Mode.MANUAL, curves=(curve(),), overlap=True)
    job.train(40)
    assert quality_of(job, TWO).age == 2


def test_without_a_curve_nothing_is_known_but_of_plans_with_as_many_workers(make_job):
    job = make_job(mode=Mode.MANUAL)
    job.train(40)
    assert quality_of(job, TWO) is None
    assert quality_of(job, replace(TWO, worker=replace(TWO.worker, count=1, cpu=1.0))).is_none


def test_curves_of_another_way_tell_nothing_of_this_one(make_job):
    job = make_job(mode=Mode.MANUAL, curves=(curve(way="gba"),))
    job.train(40)
    assert quality_of(job, TWO) is None


def test_workers_in_step_are_not_priced_by_ages(make_job):
    job = make_job(mode=Mode.MANUAL, sync=Sync.BSP, curves=(curve(),))
    job.train(40)
    assert quality_of(job, TWO) is None
    shared = make_job(mode=Mode.MANUAL, sync=Sync.BSP, curves=(curve(),), global_batch=512)
    shared.train(40)
    assert quality_of(shared, TWO).is_none


@pytest.mark.parametrize(
    ("fields", "way"),
    [
        ({"sync": Sync.SSP, "staleness": 2}, "asp"),
        ({"sync": Sync.GBA}, "gba"),
        ({"stale_steps": StaleSteps.NORMALISED}, "normalised"),
    ],
)
def test_a_job_is_priced_by_the_curve_of_its_own_way(make_job, fields, way):
    job = make_job(mode=Mode.MANUAL, curves=(curve(way=way),), overlap=False, **fields)
    job.train(40)
    three = quality_of(job, replace(TWO, worker=replace(TWO.worker, count=3)))
    assert three.auc < 0
    assert three.age == pytest.approx(2 / 3 if way == "gba" else 2)  # of three gradients that are one step
    others = make_job(mode=Mode.MANUAL, curves=(curve(way="another"),), overlap=False, **fields)
    others.train(40)
    assert quality_of(others, TWO) is None


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.SUGGEST])
def test_a_bound_keeps_workers_away_that_cost_too_much(make_job, mode):
    free = make_job(mode=Mode.AUTO, curves=(curve(),))
    free.train(200)
    assert most_workers(free) > 1, "without the bound it grows"
    job = make_job(mode=mode, curves=(curve(),), bounds=BOUND)
    job.train(200)
    assert most_workers(job) == 1
    assert all(p.candidate.plan.worker.count == 1 for p in job.view.proposals)


def test_a_bound_allows_what_costs_little(make_job):
    job = make_job(mode=Mode.AUTO, curves=(curve(-1e-6, error=1e-5),), bounds=BOUND)
    job.train(200)
    assert most_workers(job) > 1


def test_with_a_bound_more_workers_wait_until_their_cost_is_known(make_job):
    job = make_job(mode=Mode.AUTO, bounds=BOUND)
    job.train(150)
    assert most_workers(job) == 1
    job.obey(job.tell(CurvesMeasured(job.at_s, (curve(-1e-6, error=1e-5),))))
    job.train(150)
    assert most_workers(job) > 1


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(1e-5, 2e-3), st.floats(0, 5e-3), st.booleans())
def test_whatever_the_curve_auto_mode_never_applies_a_plan_beyond_the_bound(make_job, slope, most, overlap):
    job = make_job(
        mode=Mode.AUTO, curves=(curve(-slope),), bounds=PlanBounds(max_auc_loss=most), overlap=overlap
    )
    job.train(150)
    for proposal in job.view.proposals:
        change = proposal.candidate.quality
        more = proposal.candidate.plan.worker.count > proposal.baseline.plan.worker.count
        assert not more or -change.first_low <= most


def test_small_steps_do_not_add_up_to_more_than_the_bound(make_job):
    job = make_job(
        mode=Mode.MANUAL, curves=(curve(-1e-3, error=1e-5),), bounds=PlanBounds(max_auc_loss=0.003)
    )
    job.train(40)
    job.obey(job.decide(Verdict.SCALE, plan=TWO))
    job.train(40)
    first, now = quality_of(job, replace(TWO, worker=replace(TWO.worker, count=3))), job.view.front.current
    assert now.plan.worker.count == 2
    assert first.first_low < -0.003 < first.auc


def test_an_open_proposal_that_costs_too_much_by_new_curves_is_withdrawn(make_job, words):
    job = make_job(
        mode=Mode.SUGGEST, bounds=PlanBounds(max_auc_loss=0.01), curves=(curve(-1e-6, error=1e-5),)
    )
    job.train(120)
    if job.open is None or job.open.candidate.plan.worker.count == 1:
        job.train(200)
    opened = job.open
    assert opened is not None
    assert opened.candidate.plan.worker.count > 1
    job.tell(CurvesMeasured(job.at_s, (curve(-0.05),)))
    closed = next(p for p in job.view.proposals if p.id == opened.id)
    assert "0.010" in closed.note
    assert closed.note == words
    assert job.open is None or job.open.candidate.plan.worker.count == 1


def test_a_person_may_still_take_a_plan_beyond_the_bound(make_job, words):
    job = make_job(mode=Mode.SUGGEST, curves=(curve(),), bounds=BOUND)
    job.train(40)
    (weighed,) = job.controller.queries().weigh([TWO])
    assert not weighed.refusal
    assert weighed.caution == words
    job.obey(job.decide(Verdict.SCALE, plan=TWO))
    assert job.plan == TWO
    assert any("it may cost up to" in line and "of AUC" in line for line in job.view.story)


def test_the_proposal_says_what_it_costs_and_what_another_way_would(make_job):
    curves = (curve(-1e-4), curve(-1e-6, way="gba", base_auc=0.7801))
    job = make_job(mode=Mode.AUTO, curves=curves)
    job.train(100)
    more = [p for p in job.view.proposals if p.candidate.plan.worker.count > p.baseline.plan.worker.count]
    assert more
    for proposal in more:
        assert "of AUC" in proposal.why
        assert "measured by a rehearsal of 40,000 rows" in proposal.why
        assert "another way, about as fast (with gba: +0.000" in proposal.why
    nine = replace(TWO, worker=replace(TWO.worker, count=9))
    candidate = job.controller.queries().weigh([nine])[0].candidate
    (way,) = candidate.quality.ways
    assert way.auc > candidate.quality.auc
    of_other_batches = quality_words(candidate, replace(job.spec, global_batch=4096))
    assert "another way (with gba: " in of_other_batches


def test_a_replay_and_a_restart_know_the_same(make_job):
    job = make_job(mode=Mode.AUTO, bounds=BOUND)
    job.train(80)
    job.obey(job.tell(CurvesMeasured(job.at_s, (curve(-1e-4),))))
    job.train(40)
    assert replay(job.journal).view() == job.view
    assert restarted(job.controller).view() == job.view
