"""Whatever happens to a job, and in whatever order: what must always hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.plans.replayed import replay

from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.pricing import cost_per_hour
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import (
    NodeOutOfMemory,
    PhaseChanged,
    PlanFailed,
    Remember,
    RoomChanged,
    Scale,
    Ticked,
)

REFUSED = (StaleDecisionError, InvalidValueError, NotFoundError, CapacityError)
BUDGET = 0.06
PINS = st.builds(
    Pins,
    workers=st.none() | st.integers(1, 5),
    ps=st.none() | st.integers(1, 2),
    worker_cpu=st.none() | st.sampled_from([0.25, 0.5, 1.0]),
    ps_memory_mib=st.none() | st.sampled_from([512, 640, 4096, 9000]),
)


class JobLife(RuleBasedStateMachine):
    """A job whose users, nodes and machines do anything at any time."""

    make_job = None  # given by the test: rules know no fixtures

    @initialize(mode=st.sampled_from(Mode), has_budget=st.booleans())
    def submit(self, mode, has_budget):
        self.bounds = PlanBounds(
            max_workers=3, max_ps=2, worker_cpus=(0.5, 1.0), ps_cpus=(0.25, 0.5), quota_cpu=2.5
        )
        self.job = JobLife.make_job(
            mode=mode, bounds=self.bounds, budget_per_hour=BUDGET if has_budget else None
        )
        self.capacity = Capacity((NodeShape(2.0, 8000),))
        self.asked: list = []  # what the cluster was told to bring about and has not yet
        self.is_over = False

    # what happens

    @rule(seconds=st.integers(1, 20))
    def train(self, seconds):
        for _ in range(seconds):
            mode, pins = self.job.view.mode, self.job.view.pins
            self._see(self._one_second(), mode, pins)

    @rule(verdict=st.sampled_from([Verdict.ACCEPT, Verdict.REJECT]), latest=st.booleans())
    def answer(self, verdict, latest):
        shown = self.job.view.proposals
        name = (shown[-1 if latest else 0].id) if shown else "p1"
        self._decide(verdict, proposal=name)

    @rule(more=st.integers(-1, 3), mib=st.sampled_from([256, 512, 4096]), answers=st.booleans())
    def set_plan(self, more, mib, answers):
        now = self.job.view.front.current.plan if self.job.view.front else self.job.spec.plan
        count = max(now.worker.count + more, 1)
        plan = replace(now, worker=replace(now.worker, count=count), ps=replace(now.ps, memory_mib=mib))
        if answers and self.job.open:
            self._decide(Verdict.OVERRIDE, plan=plan, proposal=self.job.open.id)
        else:
            self._decide(Verdict.SCALE, plan=plan)

    @rule(mode=st.sampled_from(Mode))
    def change_mode(self, mode):
        self._decide(Verdict.MODE, mode=mode)

    @rule(pins=PINS)
    def pin(self, pins):
        self._decide(Verdict.PIN, pins=pins)

    @precondition(lambda self: self.job.view.undo is not None)
    @rule()
    def undo(self):
        back, was = self.job.view.undo, self.job.controller.queries().context
        fields = {"plan": back.plan, "mode": back.mode, "pins": back.pins, "undoes": back.undoes}
        self._decide(back.verdict, **fields)
        now, is_cancel = self.job.view.undo, back.plan is not None and was.under_way
        if now is not None and now.undoes != back.undoes and not is_cancel:  # the way back is where we were
            assert now.plan in (None, was.target)
            assert now.mode in (None, was.mode)
            assert now.pins in (None, was.pins)

    @precondition(lambda self: self.asked)
    @rule(works=st.booleans())
    def bring_about(self, works):
        plan = self.asked.pop()
        mode, pins = self.job.view.mode, self.job.view.pins
        failed = PlanFailed(self.job.at_s, plan, "no room")
        self._see(self.job.apply(plan) if works else self.job.tell(failed), mode, pins)

    @rule(role=st.sampled_from(Role), mib=st.floats(100, 3000))
    def kill(self, role, mib):
        self._tell(NodeOutOfMemory(self.job.at_s, "n0", role, mib))

    @rule(cpu=st.sampled_from([0.5, 1.0, 2.0, 4.0]), mib=st.sampled_from([2000, 8000, 16_000]))
    def change_room(self, cpu, mib):
        self.capacity = Capacity((NodeShape(cpu, mib),))
        self._tell(RoomChanged(self.job.at_s, self.capacity))

    @rule(seconds=st.floats(0, 4000))
    def wait(self, seconds):
        self.job.at_s += seconds
        self._tell(Ticked(self.job.at_s))

    @rule(
        phase=st.sampled_from([JobPhase.EVALUATING, JobPhase.TRAINING, JobPhase.TRAINING, JobPhase.SUCCEEDED])
    )
    def enter(self, phase):
        if not self.is_over:
            self.is_over = phase.is_final
            self._tell(PhaseChanged(self.job.at_s, phase))

    # what must hold

    @invariant()
    def at_most_one_proposal_is_open_and_none_after_the_end(self):
        n_open = sum(p.status is ProposalStatus.PENDING for p in self.job.view.proposals)
        assert n_open <= (0 if self.is_over else 1)

    @invariant()
    def open_proposal_keeps_pins_room_and_quota(self):
        if self.job.open is not None:
            plan = self.job.open.candidate.plan
            assert self.job.view.pins.allows(plan)
            assert has_room(plan, self.capacity, self.bounds)

    @invariant()
    def manual_mode_has_nothing_open(self):
        if self.job.view.mode is Mode.MANUAL:
            assert self.job.open is None

    @invariant()
    def one_change_at_a_time(self):
        assert len(self.asked) <= 1
        applying = [p for p in self.job.view.proposals if p.status is ProposalStatus.APPLYING]
        assert len(applying) <= 1

    @invariant()
    def ids_count_up(self):
        view = self.job.view
        assert [d.id for d in view.decisions] == [f"d{i + 1}" for i in range(len(view.decisions))]
        assert [p.id for p in view.proposals] == [f"p{i + 1}" for i in range(len(view.proposals))]

    def teardown(self):
        if hasattr(self, "job"):
            self._ask_everything()
            again = replay(self.job.journal, self.job.settings)
            assert again.view() == self.job.view
            assert again.story() == self.job.controller.story()

    # the rest

    def _ask_everything(self):
        """Ask about each proposal and about none: there is an answer in words, and nothing changes."""
        before, queries = self.job.view, self.job.controller.queries()
        for name in (None, *(p.id for p in before.proposals[-2:])):
            told = queries.explain(name)
            assert told.why
            assert told.proposal == (name or (self.job.open and self.job.open.id))
        assert self.job.view == before

    def _one_second(self):
        waiting, self.job.obey = self.job.obey, list
        try:
            return self.job.train(1)
        finally:
            self.job.obey = waiting

    def _tell(self, event):
        mode, pins = self.job.view.mode, self.job.view.pins
        self._see(self.job.tell(event), mode, pins)

    def _decide(self, verdict, **fields):
        before, told = self.job.view, self.job.controller.story()
        plan, refused = fields.get("plan"), ""
        foretold = self.job.controller.queries().refusal(plan) if plan else ""
        try:
            orders = self.job.decide(verdict, **fields)
        except REFUSED as error:
            refused = str(error)
            assert self.job.view == before
            assert self.job.controller.story() == told
        else:
            self._see(orders, self.job.view.mode, self.job.view.pins)
        assert foretold == refused or verdict is not Verdict.SCALE or not plan

    def _see(self, orders, mode, pins):
        """Check what was ordered under this mode and these pins, and keep what is to be brought about."""
        decisions = {
            o.record.id: o.record
            for o in orders
            if isinstance(o, Remember) and isinstance(o.record, Decision)
        }
        for order in orders:
            if isinstance(order, Scale):
                by = decisions[order.decision].by
                assert by == "ada" or mode is Mode.AUTO
                is_cancel = self.asked and order.target == self.job.plan
                assert is_cancel or pins.allows(order.target)
                assert is_cancel or has_room(order.target, self.capacity, self.bounds)
                if by == "auto":
                    assert not self.asked
                    self._check_price(order.target)
                self._order(order.target)

    def _order(self, plan):
        """Hand a plan to the cluster, which gives up the one before; it goes on with the same one."""
        replaced, self.asked = [other for other in self.asked if other != plan], [plan]
        for other in replaced:
            self._tell(PlanFailed(self.job.at_s, other, "a newer decision replaced it"))

    def _check_price(self, plan):
        budget, price = self.job.spec.budget_per_hour, cost_per_hour(plan, self.job.spec.prices)
        assert budget is None or price <= budget


def test_whatever_happens_the_rules_hold(make_job):
    JobLife.make_job = staticmethod(make_job)
    run_state_machine_as_test(
        JobLife,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
