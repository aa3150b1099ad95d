"""The total budget of a job: what is said and proposed at 80 % of it, and the end at its limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.plans.restarted_controller import restarted

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.driver.loop.compute_process import answer
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.budget import NEAR_SHARE
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.views.events import Computed, CostChanged, Decided, EndJob, PhaseChanged, Scale

PER_SECOND = PriceTable(cpu_hour=3600.0, gib_hour=0.0, assumed=False)  # a core costs 1 a second
START_CORES = 0.75


def spending(make_job, **fields):
    """Return a job whose nodes cost what they do: 1 a second for each core."""
    job = make_job(prices=PER_SECOND, **fields)
    job.tell(CostChanged(job.at_s, 3600 * job.plan.total_cpu))
    return job


def train(job, seconds):
    """Train on; what the nodes cost follows the plan. Return the orders."""
    orders = []
    for _ in range(seconds):
        before = job.plan
        orders += job.train(1)
        if job.plan != before:
            job.tell(CostChanged(job.at_s, 3600 * job.plan.total_cpu))
        if any(isinstance(order, EndJob) for order in orders):
            break
    return orders


def ends(orders):
    return [order for order in orders if isinstance(order, EndJob)]


def test_a_job_whose_budget_is_spent_is_stopped_once_and_at_that_moment(make_job, words):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=30.0)
    assert not ends(train(job, 39))  # 40 s of .75 cores are 30
    (order,) = ends(train(job, 1))
    assert "30 USD are spent" in order.why
    assert order.why == words
    assert not ends(job.train(5)), "an order is given once"
    assert job.controller.ending == order.why
    assert any("the budget is spent" in line for line in job.view.story)


def test_without_a_limit_nothing_stops_it(make_job):
    job = spending(make_job, mode=Mode.MANUAL)
    assert not ends(job.train(60))
    assert job.view.budget is None
    assert job.controller.spent == pytest.approx(60 * START_CORES)


def test_an_ended_job_spends_no_more(make_job):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=1000.0)
    job.train(10)
    job.tell(PhaseChanged(job.at_s, JobPhase.STOPPED))
    spent = job.controller.spent
    job.tell(CostChanged(job.at_s + 3600.0, 36.0))
    assert job.controller.spent == spent


def test_at_four_fifths_the_story_says_once_what_the_rest_buys_and_what_can_be_done(make_job, words):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=60.0)
    train(job, 62)
    assert not [line for line in job.view.story if "the budget:" in line]
    train(job, 10)
    (line,) = [line for line in job.view.story if "the budget:" in line]
    assert "60 USD spent (80" in line
    assert line.split(";")[0] == words
    assert "rows" in line
    assert "%dlrover end clicks --now" in line or "would finish for" in line
    assert job.view.budget.share >= NEAR_SHARE


def test_in_auto_mode_too_it_is_said_once_that_most_is_spent_and_the_job_is_stopped_at_its_limit(
    make_job, words
):
    job = spending(make_job, mode=Mode.AUTO, budget_total=40.0)
    (order,) = ends(train(job, 90))
    near, spent = (line for line in job.view.story if "the budget" in line)
    assert "40 USD spent (8" in near
    assert near.split(";")[0] == words
    assert order.why in spent


def test_the_outlook_counts_every_second_between_two_analyses(make_job):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=1e6)
    train(job, 40)
    first = job.view.budget
    train(job, 1)
    second = job.view.budget
    assert second.spent == pytest.approx(first.spent + START_CORES)
    assert second.left_s == pytest.approx(first.left_s - 1)
    assert second.now.end_cost < first.now.end_cost
    assert second.is_enough == (second.now.enough >= second.wanted)


def test_a_stream_says_for_how_long_the_rest_lasts_and_compares_it_with_no_end(make_job, words):
    job = make_job(prices=PER_SECOND, mode=Mode.MANUAL, budget_total=60.0)
    endless = Controller(replace(job.journal[0], is_endless=True), job.settings)
    for event in job.journal[1:]:
        endless.handle(event)
    job.controller = endless
    job.tell(CostChanged(0.0, 3600 * START_CORES))
    train(job, 66)
    outlook = job.view.budget
    assert (outlook.n_sample_left, outlook.now, outlook.best) == (None, None, None)
    assert outlook.left_s == pytest.approx((60 - 66 * START_CORES) / START_CORES)
    assert "14 s, for about" in outlook.words
    assert outlook.words.split(", for")[0] == words
    assert "until the end" not in outlook.words


def test_what_was_spent_is_in_the_journal_and_in_a_snapshot(make_job):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=60.0, plan=make_job().plan)
    train(job, 66)
    replayed = Controller(job.journal[0], job.settings)
    for event in job.journal[1:]:
        replayed.handle(event)
    assert replayed.view().budget == job.view.budget
    restored = restarted(job.controller)
    assert restored.spent == job.controller.spent
    further = CostChanged(job.at_s + 20.0, 0.0)
    assert ends(restored.handle(further)) == ends(job.tell(further)) != []


def test_another_limit_lets_the_job_go_on_and_can_be_taken_back(make_job, error_words):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=30.0)
    train(job, 36)
    job.decide(Verdict.BUDGET, budget_total=100.0)
    assert not ends(train(job, 60))
    assert job.view.budget.limit == job.view.budget_total == 100.0
    with error_words(InvalidValueError):
        job.decide(Verdict.BUDGET, budget_total=30.0, undoes="d1")
    job.decide(Verdict.BUDGET, budget_total=None)
    assert job.view.budget is None
    assert job.view.undo.budget_total == 100.0
    job.tell(Decided(job.at_s, replace(job.view.undo, by="ada")))
    assert job.view.budget.limit == 100.0


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1.0, 0.0, 10.0])
def test_a_limit_that_is_spent_already_or_no_number_is_refused(make_job, limit, error_words):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=100.0)
    train(job, 20)
    with error_words(InvalidValueError) as caught:
        job.decide(Verdict.BUDGET, budget_total=limit)
    assert "15 USD" in str(caught.value)
    with error_words(InvalidValueError):
        job.decide(Verdict.BUDGET, budget_total=100.0)


def test_a_limit_needs_both_prices(make_job, error_words):
    with error_words(InvalidValueError):
        JobSpec("x", budget_total=1.0, prices=PriceTable(cpu_hour=None))
    job = make_job(prices=PriceTable(gib_hour=None))
    with pytest.raises(InvalidValueError, match="one is unknown"):
        job.decide(Verdict.BUDGET, budget_total=5.0)


def test_once_it_is_being_stopped_no_limit_is_taken(make_job, error_words):
    job = spending(make_job, mode=Mode.MANUAL, budget_total=3.0)
    train(job, 10)
    with error_words(StaleDecisionError):
        job.decide(Verdict.BUDGET, budget_total=30.0)


@pytest.mark.parametrize(
    ("limit", "words"), [(25.0, "budget 25"), (None, "budget off"), (1234.5, "budget 1,234.5")]
)
def test_a_decision_says_its_limit(limit, words):
    assert Decision(Verdict.BUDGET, "ada", 0.0, budget_total=limit).words == words


def test_money_that_runs_out_voids_no_answer_to_a_question(make_job):
    job = spending(make_job, mode=Mode.AUTO, budget_total=1e6, defers=True)
    n_answer = 0
    for _ in range(60):
        orders = train(job, 1)
        for _ in range(3):
            if (question := job.controller.reviews.question) is None:
                break
            job.at_s += 0.01
            job.controller.reviews.hand_over(answer(question))
            orders += job.obey(job.tell(Computed(job.at_s, question.number)))
            n_answer += 1
        assert job.controller.reviews.question is None, "an answer is asked for once more, and not for ever"
    assert n_answer > 2


def costs_to_end(job):
    """Return what the present plan costs from now to the end."""
    return job.view.front.current.plan.total_cpu * job.view.front.current.finish_s


@pytest.mark.more
def test_auto_mode_applies_no_plan_that_costs_more_until_the_end_than_is_left_or_than_the_one_before(
    make_job,
):
    free = spending(make_job, mode=Mode.AUTO)
    orders = train(free, 240)
    assert any(isinstance(order, Scale) for order in orders), "it would change, were there no limit"
    limit = 0.8 * free.controller.spent + 0.8 * costs_to_end(free)
    job = spending(make_job, mode=Mode.AUTO, budget_total=limit)
    for _ in range(240):
        before = job.view
        if any(isinstance(order, Scale) for order in train(job, 1)):
            chosen = next(p for p in reversed(job.view.proposals) if p.status in {"applied", "applying"})
            most = max(before.budget.left, chosen.baseline.end_cost)
            assert chosen.candidate.end_cost <= most + 1e-6
