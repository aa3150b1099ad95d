"""A job whose fits and advice are computed elsewhere decides as one that computes them itself."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from support.plans.replayed import replay
from support.plans.restarted_controller import outcome, restarted
from test_state_machine import JobLife

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.driver.loop.compute_process import answer
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.views.events import Computed, PhaseChanged, Ticked
from dlrover_nb.core.structs.views.past_jobs import FitSummary

LIFE = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def sent(value):
    """Return what arrives of something that is sent to another process."""
    return pickle.loads(pickle.dumps(value))


def answered(controller, at_s):
    """Answer the open questions as another process does; return the orders, and how many there were."""
    orders, n = (), 0
    while (question := controller.reviews.question) is not None:
        controller.reviews.hand_over(sent(answer(sent(question))))
        orders += controller.handle(Computed(at_s, question.number))
        n += 1
    return orders, n


class Pair:
    """A controller that computes inline, beside one whose questions are answered at once."""

    def __init__(self, first) -> None:
        self.first, dependencies, self.n_answer = first, first.dependencies, 0
        job = replace(first.job, defers=True)
        self.second = Controller(job, dependencies.settings, policy=dependencies.policy, fit=dependencies.fit)

    def handle(self, event):
        (orders, refused), other = outcome(self.first, event), outcome(self.second, event)
        assert str(refused) == str(other[1])
        if refused:
            raise refused
        late, n_answer = answered(self.second, event.at_s)
        for _ in range(n_answer):
            orders += self.first.handle(Ticked(event.at_s))  # as each event lets time pass
        self.n_answer += n_answer
        assert sorted(map(repr, other[0] + late)) == sorted(map(repr, orders))
        return orders

    def __getattr__(self, name):
        return getattr(self.first, name)


class DeferredLife(JobLife):
    """A job beside its twin, whose questions are answered at once."""

    n_answer = 0

    def teardown(self):
        if hasattr(self, "job"):
            pair = self.job.controller
            assert pair.second.view() == pair.first.view()
            context = pair.second.queries().context
            context = replace(context, job=replace(context.job, defers=False))
            assert context == pair.first.queries().context
            DeferredLife.n_answer += pair.n_answer


class LateLife(JobLife):
    """A job whose questions are answered at any time, in any way; and whose master may be lost."""

    n_computed = 0

    @property
    def question(self):
        return self.job.controller.reviews.question

    @precondition(lambda self: self.question is not None)
    @rule(how=st.sampled_from(["known", "killed", "of another"]))
    def answer_question(self, how):
        if how == "known":
            self.job.controller.reviews.hand_over(sent(answer(sent(self.question))))
        elif how == "of another":
            other = replace(self.question.situation, n_sample_left=1)
            old = replace(self.question, number=self.question.number - 1, situation=other)
            self.job.controller.reviews.hand_over(answer(old))
        LateLife.n_computed += 1
        self._tell(Computed(self.job.at_s, self.question.number, "killed" if how == "killed" else ""))

    @rule()
    def restart(self):
        asked = self.question
        self.job.controller = restarted(self.job.controller)
        assert self.question == asked

    def teardown(self):
        if hasattr(self, "job"):
            again = replay(self.job.journal, self.job.settings)
            assert again.story() == self.job.controller.story()
            assert again.view() == self.job.view


@pytest.mark.more
def test_a_job_whose_questions_are_answered_at_once_decides_as_one_that_asks_none(make_job):
    def make(**fields):
        job = make_job(**fields)
        job.controller = Pair(Controller(job.journal[0], job.settings))
        for event in job.journal[1:]:
            job.controller.handle(event)
        job.train(30)
        return job

    JobLife.make_job = staticmethod(make)
    run_state_machine_as_test(DeferredLife, settings=LIFE)
    assert DeferredLife.n_answer > 0


@pytest.mark.release
def test_the_journal_says_all_whenever_and_however_questions_were_answered(make_job):
    def make(**fields):
        job = make_job(defers=True, **fields)
        while job.controller.reviews.question is None:
            job.train(1)
        return job

    JobLife.make_job = staticmethod(make)
    run_state_machine_as_test(LateLife, settings=LIFE)
    assert LateLife.n_computed > 0


@pytest.fixture
def waiting(make_job):
    """Return a job whose open question asks for advice."""
    job = make_job(mode=Mode.SUGGEST, defers=True)
    for _ in range(60):
        job.train(1)
        question = job.controller.reviews.question
        if question is not None and question.decide is not None:
            return job
        answered(job.controller, job.at_s)
    raise AssertionError("no question was asked")


def test_nothing_is_fitted_or_proposed_until_the_answer_comes(waiting):
    job = waiting
    n_fit = job.n_fit
    job.train(60)
    assert (job.n_fit, job.view.proposals) == (n_fit, ())
    answered(job.controller, job.at_s)
    assert job.n_fit == n_fit
    assert job.open is not None
    assert job.view.front is not None


@pytest.mark.parametrize("number", [-1, 1])
def test_an_answer_to_another_question_changes_nothing(waiting, number):
    job = waiting
    question, view = job.controller.reviews.question, job.view
    orders = job.tell(Computed(job.at_s, question.number + number))
    assert not orders
    assert job.controller.reviews.question is question
    assert job.view == view


def test_an_answer_is_dropped_when_what_it_was_asked_about_has_changed(waiting):
    job = waiting
    old = job.controller.reviews.question
    result = answer(old)
    job.decide(Verdict.PIN, pins=Pins(workers=1))
    job.controller.reviews.hand_over(result)
    job.tell(Computed(job.at_s, old.number))
    assert all(each.candidate.plan.worker.count == 1 for each in job.view.proposals)
    assert job.view.pins == Pins(workers=1)


def test_a_process_that_was_killed_is_told_once_and_costs_no_proposal(waiting):
    job = waiting
    job.tell(Computed(job.at_s, job.controller.reviews.question.number, "it was killed"))
    assert job.open is not None
    job.train(60)
    job.tell(Computed(job.at_s, job.controller.reviews.question.number, "it was killed"))
    assert sum("it was killed" in line for line in job.controller.story()) == 1


def test_the_end_of_a_job_waits_for_no_answer(waiting, kinds):
    job = waiting
    orders = job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED))
    assert kinds(orders, FitSummary)
    assert job.controller.reviews.question is None
