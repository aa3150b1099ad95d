"""Whatever happens to nodes and actions: rules that hold, and a controller from a snapshot goes on the same."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.plans.restarted_controller import Twins, difference, restarted
from support.plans.slow_world import SlowJob, plan_of

from dlrover_nb.core.controller.plans.proposal_states import is_closed
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import Mitigate, NodeLeft, PhaseChanged, PlanApplied, Scale

pytestmark = pytest.mark.more

NODES = st.sampled_from([*(f"worker-{i}" for i in range(5)), "ps-0", "ps-1"])


class SlowLife(RuleBasedStateMachine):
    """A job whose nodes are slow, leave and come at any time, and whose users decide what they like."""

    @initialize(
        mode=st.sampled_from(Mode), sync=st.sampled_from(Sync), solution=st.sampled_from(SolutionName)
    )
    def submit(self, mode, sync, solution):
        self.job = SlowJob(mode=mode, sync=sync, stragglers=solution)
        self.n_spare = 4
        self.is_over = False

    @rule(seconds=st.integers(1, 40))
    def train(self, seconds):
        if not self.is_over:
            self.see(self.job.run(seconds))

    @rule(node=NODES, times=st.sampled_from([1.0, 1.2, 2.0, 4.0]))
    def change_speed(self, node, times):
        self.job.slow[node] = times

    @rule(n=st.integers(0, 3), is_error=st.booleans())
    def lose(self, n, is_error):
        if self.job.workers[n:] and not self.is_over:
            self.n_spare += 1
            node = self.job.workers[n]
            self.job.tell(NodeLeft(self.job.at_s, node, Role.WORKER, "it failed" if is_error else ""))
            self.job.workers[n] = f"worker-{self.n_spare}"

    @rule(verdict=st.sampled_from([Verdict.ACCEPT, Verdict.REJECT]), name=st.sampled_from(["", "m1", "m9"]))
    def answer(self, verdict, name):
        opened = self.job.open
        self.decide(verdict, proposal=name or (opened.id if opened else "m1"))

    @rule(which=st.integers(0, 4), node=NODES)
    def order(self, which, node):
        job = self.job
        sizes = [(each, 512 + 64 * (1 if i % 2 else -1)) for i, each in enumerate(job.workers)]
        action = (
            KillRestart(node, Role.PS if node in job.ps else Role.WORKER),
            MoveBuckets(node),
            BackupWorkers(1),
            AdjustRates(tuple((each, 0.5) for each in job.workers)),
            AdjustBatches(tuple(sizes)),
        )[which]
        try:
            self.see(job.order(action))
        except DlroverError:
            return

    @rule(mode=st.sampled_from(Mode))
    def change_mode(self, mode):
        self.decide(Verdict.MODE, mode=mode)

    @rule(fails=st.booleans())
    def end(self, fails):
        if self.job.controller.acting is not None:
            self.job.end("it cannot be done" if fails else "")

    @rule(n_worker=st.integers(3, 5), is_asked=st.booleans())
    def scale(self, n_worker, is_asked):
        job, plan = self.job, plan_of(n_worker)
        if self.is_over or plan == job.plan:
            return
        if is_asked:
            self.decide(Verdict.SCALE, plan=plan)
        while len(job.workers) < n_worker:
            self.n_spare += 1
            job.workers.append(f"worker-{self.n_spare}")
        for node in job.workers[n_worker:]:
            job.tell(NodeLeft(job.at_s, node, Role.WORKER))
        job.workers, job.plan = job.workers[:n_worker], plan
        self.see(job.tell(PlanApplied(job.at_s, plan, 1.0)))

    @rule()
    def undo(self):
        if self.job.view.undo is not None:
            try:
                self.see(self.job.undo())
            except DlroverError:
                return

    @rule(is_end=st.booleans())
    def evaluate(self, is_end):
        if not self.is_over:
            self.is_over = is_end
            self.job.tell(PhaseChanged(self.job.at_s, JobPhase.EVALUATING))
            last = JobPhase.SUCCEEDED if is_end else JobPhase.TRAINING
            self.job.tell(PhaseChanged(self.job.at_s, last))

    @rule()
    def restart(self):
        if not isinstance(self.job.controller, Twins):
            self.job.controller = Twins(self.job.controller)
        self.job.controller.restart()

    @invariant()
    def at_most_one_is_open_and_one_under_way_and_the_history_has_all(self):
        if hasattr(self, "job"):
            view = self.job.view
            living = [each for each in view.mitigations if not is_closed(each.status)]
            assert len([each for each in living if each.is_open]) <= 1
            assert len([each for each in living if not each.is_open]) <= 1
            assert not (living and self.is_over)
            assert self.job.remembered == view.mitigations
            assert self.job.open is None or view.mode is not Mode.MANUAL
            assert [each.id for each in view.mitigations] == [
                f"m{i + 1}" for i in range(len(view.mitigations))
            ]

    def decide(self, verdict, **fields):
        before, told = self.job.view, self.job.controller.story()
        try:
            self.see(self.job.decide(verdict, **fields))
        except DlroverError:
            assert self.job.view == before
            assert self.job.controller.story() == told

    def see(self, orders):
        """Check that auto mode orders one thing at a time, and never for a node that it does not have."""
        ordered = [order for order in orders if isinstance(order, Mitigate | Scale)]
        for order in ordered:
            if isinstance(order, Mitigate):
                assert order.choice.by in ("ada", "auto")
                assert order.choice.by == "ada" or self.job.view.mode is Mode.AUTO

    def teardown(self):
        if hasattr(self, "job"):
            self.restart()
            twins = self.job.controller
            assert not difference(twins.first, twins.second)
            assert twins.second.view() == twins.first.view()
            assert twins.second.queries().context == twins.first.queries().context
            self.job.controller = twins.first
            self.job.check_replay()


def test_whatever_nodes_and_users_do_the_rules_hold_and_a_snapshot_goes_on_the_same():
    run_state_machine_as_test(
        SlowLife,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_snapshot_of_a_release_without_actions_is_read_and_nodes_are_watched_from_then_on():
    job = SlowJob(sync=Sync.ASP)
    job.run(40)
    old = vars(job.controller)
    for name in ("_nodes", "_actions", "_mitigations"):
        del old[name]
        vars(old["_decisions"]).pop(name, None)
    job.controller = restarted(job.controller)
    job.slow["worker-2"] = 3.0
    job.run(120)
    assert job.open.words == "restart worker-2"
    job.decide(Verdict.ACCEPT, proposal="m1")
    assert job.controller.acting is not None
