"""What a job leaves behind while it runs, and what changes of room do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.plans.replayed import replay

from dlrover_nb.core.controller.measured.rollup import Rollup
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.decisions.decisions import Outcome, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeLimits, NodeShape, change_needs, fits
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged, Remember, RoomChanged, Scale, Ticked
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, SeriesRow, TermKnowledge

TRAITS = JobTraits("wide_deep", 8, 136, 1 << 16, 100_000, 512, 50_000_000, "ada", "clicks")


def test_one_row_a_minute_with_mean_speed_and_largest_memory(make_job, kinds):
    job = make_job(mode=Mode.MANUAL, memory=lambda role, at_s: 100.0 + at_s if role == "ps" else 300.0)
    rows = kinds(job.train(185), SeriesRow)
    assert [(r.at_s, r.span_s, r.workers, r.ps) for r in rows] == [
        (60.0, 60.0, 1, 1),
        (120.0, 60.0, 1, 1),
        (180.0, 60.0, 1, 1),
    ]
    assert rows[0].samples_per_s == pytest.approx(job.speed(job.plan), rel=0.02)
    assert [r.worker_memory_mib for r in rows] == [300.0] * 3
    assert rows[1].ps_memory_mib == pytest.approx(220, abs=1)
    assert [(r.worker_cpu, r.ps_cpu) for r in rows] == [(0.5, 0.5)] * 3


def test_last_part_of_a_minute_is_kept_at_the_end(job, kinds):
    job.train(70)
    rows = kinds(job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED)), SeriesRow)
    assert [r.span_s for r in rows] == [10.0]


def test_silence_makes_one_long_row():
    rollup = Rollup(60.0, 0.0)
    assert rollup.close(JobSpec("x").plan, 59.0) == ()
    (order,) = rollup.close(JobSpec("x").plan, 3600.0)
    assert (order.record.span_s, order.record.samples_per_s) == (3600.0, 0.0)


def test_traits_follow_the_start_of_the_run(make_job):
    job = make_job(traits=TRAITS)
    assert [o.record for o in job.orders[:2]] == [job.spec, TRAITS]


def prior(term: str = "gradients") -> FitSummary:
    terms = (TermKnowledge(term, 8e-6, 1e-6, identified=True),)
    return FitSummary(0.0, terms, 0.05, 4, 40, 100_000, 16, 512)


def test_prior_gives_a_front_before_anything_is_measured_and_proposes_nothing(make_job, words):
    job = make_job(prior=prior())
    job.tell(Ticked(1.0))
    assert len(job.view.front.candidates) > 3
    assert job.view.front.current.prediction.relative_width > 0.2
    assert job.view.proposals == ()
    assert next(line for line in job.view.story if "4 plans of" in line) == words
    job.train(30)
    assert job.open is not None


def test_prior_that_cannot_be_read_is_left_out_and_told(make_job):
    job = make_job(prior=prior("phlogiston"))
    assert job.view.front is None
    assert any("not used" in line and "phlogiston" in line for line in job.view.story)
    job.train(30)
    assert job.open is not None
    assert replay(job.journal).view() == job.view


def test_what_the_fit_knows_is_remembered_after_each_score_and_at_the_end(job, kinds):
    assert kinds(job.train(30), FitSummary) == []
    job.obey(job.decide(Verdict.ACCEPT, proposal=job.open.id))
    orders = job.train(30)
    assert len(kinds(orders, Outcome)) == len(kinds(orders, FitSummary)) == 1
    summary = kinds(job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED)), FitSummary)[0]
    assert (summary.n_plan, summary.batch_size, summary.dense_bytes) == (2, 512, 100_000)
    assert summary.terms
    assert all(math.isfinite(t.value) and t.value >= 0 for t in summary.terms)


def test_job_that_ends_unmeasured_has_nothing_to_remember_of_a_fit(job, kinds):
    assert kinds(job.tell(PhaseChanged(job.at_s, JobPhase.FAILED, "lost")), FitSummary) == []


def test_proposal_without_room_expires_when_the_room_shrinks(job, words):
    job.train(30)
    assert job.tell(RoomChanged(job.at_s, Capacity((NodeShape(2.0, 8000),)))) == []
    assert job.open is not None
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(0.75, 8000),))))
    assert job.view.proposals[0].status is ProposalStatus.EXPIRED
    assert job.view.proposals[0].note == words


def test_search_goes_on_in_the_new_room(make_job):
    job = make_job(mode=Mode.AUTO)
    job.train(14)
    room = Capacity((NodeShape(1.5, 8000),))
    job.tell(RoomChanged(job.at_s, room))
    orders = job.train(200)
    targets = [o.target for o in orders if isinstance(o, Scale)]
    assert targets
    assert all(plan.total_cpu <= 1.5 for plan in targets)


def test_no_plan_exceeds_the_size_that_the_cluster_lets_a_node_have(make_job, error_words):
    job = make_job(mode=Mode.AUTO)
    job.train(14)
    words = "maximum cpu usage per Container is 500m"
    room = Capacity((NodeShape(4.0, 8000),), node_limits=NodeLimits(most_cpu=0.5, why=words))
    job.tell(RoomChanged(job.at_s, room))
    orders = job.train(200)
    targets = [o.target for o in orders if isinstance(o, Scale)]
    assert targets
    assert all(max(plan.worker.cpu, plan.ps.cpu) <= 0.5 for plan in targets)
    larger = replace(targets[-1], worker=replace(targets[-1].worker, cpu=1.0))
    with error_words(CapacityError):
        job.decide(Verdict.SCALE, plan=larger)


def test_room_lost_under_the_running_plan_is_told(job, words):
    job.train(5)
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(0.5, 8000),))))
    assert next(line for line in job.view.story if "no room any more" in line) == words


@pytest.mark.more
def test_refits_are_bounded_by_the_settings(make_job):
    settings = ControllerSettings(n_kept=5)
    job = make_job(settings=settings, n_sample_total=10**10)
    job.train(30)
    job.decide(Verdict.REJECT, proposal=job.open.id)
    seconds = 900
    job.train(seconds)
    g = math.log(1 + settings.refit_growth)
    n_window = seconds / settings.window_s
    bound = math.log(n_window) / g + 1 / settings.refit_growth + math.log(seconds / settings.refit_s) / g
    assert 3 < job.n_fit <= bound


@pytest.mark.parametrize("mode", Mode)
def test_views_fit_nothing_and_lay_out_an_analysis_once(mode, make_job):
    calls = []

    class CountingModel(ThroughputModel):
        """Notes when it is asked for anything; all that an analysis shows comes from these calls."""

        def fit(self, samples):
            calls.append("fit")
            return super().fit(samples)

        def predict(self, axes, batch_size):
            calls.append("predict")
            return super().predict(axes, batch_size)

    def fit(situation):
        return CountingModel(dense_bytes=situation.dense_bytes, embedding_dim=16).fit(situation.samples)

    job = make_job(mode=mode, fit=fit)
    seen = []
    for _ in range(60):
        job.train(1)
        n_fit = calls.count("fit")
        view, queries = job.view, job.controller.queries()
        n_call = len(calls)
        again = job.view
        assert calls.count("fit") == n_fit, "reading fits nothing"
        assert len(calls) == n_call, "what was laid out is kept"
        assert (again.front, again.curves) == (view.front, view.curves)
        seen.append((view.fit, queries.analysis is not None))
    assert calls.count("fit") >= 2
    assert (seen[0], seen[-1][1]) == ((None, False), True)
    assert view.fit.n_plan >= 1
    assert view.front.candidates
    assert {curve.axis for curve in view.curves} == {"workers", "ps", "worker_cpu", "ps_cpu"}
    assert view.memory


@pytest.mark.more
def test_what_a_view_shows_does_not_depend_on_earlier_views(make_job):
    watched, unwatched = make_job(), make_job()
    for _ in range(60):
        for job in (watched, unwatched):
            job.train(1)
        watched.view  # noqa: B018 - asking is the point
    assert watched.view == unwatched.view
    assert watched.n_fit == unwatched.n_fit


def test_views_follow_memory_within_half_the_time_between_forecasts(job):
    job.memory = lambda _, at_s: 300.0 + at_s
    job.train(200)
    for _ in range(20):
        job.train(1)
        now_mib = {line.role: line.now_mib for line in job.view.memory}
        assert now_mib[Role.WORKER] >= 300.0 + job.at_s - job.settings.memory_check_s / 2


def test_end_of_the_job_is_remembered_in_order(job):
    job.train(30)
    kinds = [
        type(o.record).__name__
        for o in job.tell(PhaseChanged(job.at_s, JobPhase.STOPPED))
        if isinstance(o, Remember)
    ]
    assert kinds == ["PhaseChanged", "Proposal", "FitSummary", "SeriesRow"]


@pytest.mark.more
def test_proposal_says_what_would_change_its_mind(job):
    """A user is told at once; auto mode is not asked (see the next test)."""
    first = job.plan
    for _ in range(8):
        job.train(30)
        if job.open is None:
            break
        job.obey(job.decide(Verdict.ACCEPT, proposal=job.open.id))
    job.obey(job.decide(Verdict.SCALE, plan=first))  # a worse one, so that better ones are known
    job.train(60)
    told = [p for p in job.view.proposals if p.flip is not None]
    assert told
    assert all(p.flip.plan != p.candidate.plan for p in told)
    assert all(any(p.flip.words in line for line in job.view.story) for p in told)


def test_auto_mode_asks_what_would_change_its_mind_only_where_a_person_has_to_decide(make_job):
    alone = make_job(mode=Mode.AUTO)
    alone.train(200)
    assert len(alone.view.proposals) > 2
    assert all(p.flip is None for p in alone.view.proposals)


def test_a_job_that_must_move_its_parameters_is_offered_only_what_it_can_reach(make_job):
    job = make_job(must_move=True)
    job.train(60)
    front = job.view.front
    capacity = job.controller.queries().context.job.capacity
    assert front.candidates
    assert all(fits(capacity, change_needs(job.plan, each.plan)) for each in front.candidates)
    free = make_job()
    free.train(60)
    assert len(free.view.front.candidates) >= len(front.candidates)


@pytest.mark.more
def test_bounds_that_follow_from_the_cluster_grow_with_it_and_never_shrink(make_job):
    job = make_job()
    job.train(20)
    small = job.controller.queries().analysis.situation.spec.bounds
    assert small.counts == (7, 3)  # of two cores
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(32.0, 131_072, 8),))))
    job.train(20)
    large = job.controller.queries().analysis.situation.spec.bounds
    assert large.counts == (256, 64)
    assert large.worker_cpus[-1] == 32.0
    assert job.view.front.n_plan > 10_000
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(2.0, 8000),))))
    job.train(20)
    found = job.controller.queries().analysis
    assert found.situation.spec.bounds == large
    assert all(c.plan.total_cpu <= 2 for c in found.front.candidates)


def test_bounds_that_the_user_named_do_not_follow_the_cluster(make_job):
    job = make_job(bounds=PlanBounds(3, 1, (0.5,), (0.25,)))
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(32.0, 131_072, 8),))))
    job.train(20)
    assert job.controller.queries().analysis.situation.spec.bounds == job.spec.bounds
    assert job.view.front.n_plan == 3


def test_an_infeasible_deadline_is_told_at_the_submission_where_similar_jobs_are_known(make_job):
    job = make_job(prior=prior(), deadline_s=1.0)
    told = job.view.deadline
    assert not told.is_feasible
    assert told.left_s == 1.0
    assert told.earliest_s > 1.0
    assert any("90 %" in line and "earliest end" in line for line in job.view.story)


def test_without_any_knowledge_the_deadline_is_told_by_the_first_fit(make_job):
    job = make_job(deadline_s=60.0)
    assert job.view.deadline is None
    job.train(30)
    assert not job.view.deadline.is_feasible
    assert sum("the deadline: " in line for line in job.view.story) == 1
    assert job.view.front.current.in_time < 0.9
    assert job.view.front.current.margin_s < 0


def test_a_deadline_that_is_met_needs_no_line_in_the_story(make_job):
    job = make_job(deadline_s=1e7)
    job.train(30)
    assert job.view.deadline.is_met
    assert not any("deadline" in line for line in job.view.story)


def test_a_job_without_a_deadline_has_no_outlook(job):
    job.train(30)
    assert job.view.deadline is None
    assert job.view.front.current.in_time is None


def test_a_deterministic_job_has_at_most_a_worker_for_each_batch_of_a_step(make_job):
    fields = {"sync": Sync.BSP, "batch_size": 64, "global_batch": 128}
    job, free = make_job(deterministic=True, **fields), make_job(**fields)
    job.train(20)
    free.train(20)
    bounds, other = (each.controller.queries().analysis.situation.spec.bounds for each in (job, free))
    assert bounds.max_workers == 2
    assert other.max_workers > 2
