"""When a job is fitted and advised on: at once, or by a question that is answered beside the job's loop.

A job that does not defer is reviewed while the event that makes it due is handled. One that does
(`JobSubmitted.defers`) freezes all that the review depends on, as a numbered question, and goes on; the
event `Computed` ends it. While a question is open nothing else is asked or published, and nothing is decided
by itself: a job whose questions are answered at once decides exactly as one that does not defer.

An answer counts if what it was asked about has not changed: the newest situation (plan, pins, capacity,
samples), and the constraints on advice. Otherwise it is dropped and, if the review is still due, asked again.
This depends on events alone and not on the answer, so that a replay does the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.plans.questions import Question

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Analyst
    from dlrover_nb.core.controller.plans.advisor import Advised, Advisor
    from dlrover_nb.core.controller.plans.book import ProposalBook
    from dlrover_nb.core.controller.plans.bound_policy import BoundPolicy
    from dlrover_nb.core.controller.plans.questions import Answer
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.planner.policies.policy import PolicyContext
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.events import Computed


class Reviews:
    """Reviews one job by each new fit.

    Parameters
    ----------
    state, story
        The job, and what is told of it.
    analyst, advisor, book
        Its analysis, what to propose by it, and its proposals.
    """

    def __init__(
        self, state: JobState, story: Story, analyst: Analyst, advisor: Advisor, book: ProposalBook
    ) -> None:
        self._state, self._story = state, story
        self._analyst, self._advisor, self._book = analyst, advisor, book
        self._question: Question | None = None
        self._answer: Answer | None = None  # handed over just before its event
        self._is_review = False  # of the open question: else it is for the views alone
        self._next: tuple[ResourcePlan, bool] | None = None  # what became due while a question was open
        self._owes_summary = False
        self._n_asked = 0
        self._told = ""

    @property
    def question(self) -> Question | None:
        """The open question."""
        return self._question

    def hand_over(self, answer: Answer) -> None:
        """Take the answer to the open question, whose `Computed` is the next event."""
        self._answer = answer

    def review(self, plan: ResourcePlan, at_s: float, *, is_scored: bool) -> Advised:
        """Fit and advise anew by new windows of a plan, if that is due.

        It is where they also scored an outcome: then the history gets the fit.
        """
        if not is_scored and not self._analyst.is_due(plan, at_s):
            return ()
        if self._question is not None:
            self._next = (plan, is_scored or (self._next is not None and self._next[1]))
            return ()
        return self._begin(plan, at_s, is_scored=is_scored)

    def _begin(self, plan: ResourcePlan, at_s: float, *, is_scored: bool) -> Advised:
        self._owes_summary |= is_scored
        self._analyst.observe(plan, at_s)
        if self._state.job.defers and self._analyst.has_analysis:
            self._ask_for_review(at_s)
            return ()
        return self._summary(at_s) + self._advisor.reconsider(at_s)

    def computed(self, event: Computed) -> Advised:
        """End the question of a number; nothing happens when it is not the open one."""
        question, answer, self._answer = self._question, self._answer, None
        if question is None or question.number != event.number:
            return ()
        if answer is not None and answer.number != question.number:
            answer = None
        self._tell(event)
        self._question = None
        orders = self._end(question, answer, event.at_s)
        if self._next is None or self._question is not None:
            return orders
        (plan, is_scored), self._next = self._next, None
        return orders + self._begin(plan, event.at_s, is_scored=is_scored)

    def publish(self) -> None:
        """Publish the newest analysis once it is made."""
        if self._question is not None or not self._analyst.is_due_to_be_shown:
            return
        if self._state.job.defers and not self._analyst.is_made:
            self._ask(None, is_review=False)
        else:
            self._analyst.publish()

    def drop(self) -> None:
        """Forget the open question: the job has ended."""
        self._question = self._next = None

    def _end(self, question: Question, answer: Answer | None, at_s: float) -> Advised:
        now = self._advisor.prepare(at_s) if self._is_review else None
        if question.situation is not self._analyst.situation or _frame(now) != _frame(question.decide):
            if self._is_review:
                self._ask_for_review(at_s)
            return ()
        self._analyst.make(None if answer is None else answer.analysis)
        learnt = self._summary(at_s)
        if question.decide is None:
            return learnt
        advice = None if answer is None else answer.known
        return learnt + self._advisor.reconsider(at_s, question.decide, advice)

    def _summary(self, at_s: float) -> Advised:
        is_owed, self._owes_summary = self._owes_summary, False
        return self._analyst.summary(at_s) if is_owed else ()

    def _ask_for_review(self, at_s: float) -> None:
        decide = self._advisor.prepare(at_s)
        if decide is not None or self._owes_summary:
            self._ask(decide, is_review=True)

    def _ask(self, decide: BoundPolicy | None, *, is_review: bool) -> None:
        situation, opened = self._analyst.situation, self._book.open
        assert situation is not None
        self._n_asked += 1
        plan = None if opened is None else opened.candidate.plan
        self._question, self._is_review = Question(self._n_asked, situation, decide, plan), is_review

    def _tell(self, event: Computed) -> None:
        """Tell once why the loop has to compute itself."""
        if event.error and event.error != self._told:
            self._story.add(event.at_s, f"the job master computes fits and advice itself: {event.error}")
        self._told = event.error


def _frame(decide: BoundPolicy | None) -> PolicyContext | None:
    """Return the constraints on advice, without the measurements, which change with every report."""
    return None if decide is None else replace(decide.context, worker_samples_per_s={}, use=None)
