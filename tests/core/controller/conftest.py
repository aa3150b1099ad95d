"""A job in virtual time that obeys Eqs. 1-6, so that a test of the controller reads like a conversation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.planner.analysis import fitted
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY, JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import (
    Decided,
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    ProgressMade,
    Remember,
    Scale,
)

START = ResourcePlan(worker=RolePlan(1, 0.5, 1024), ps=RolePlan(1, 0.25, 512))


def true_speed(plan: ResourcePlan, m: int = 512) -> float:
    """Throughput of the job in this test, unknown to the controller."""
    iter_s = (
        0.004 * 0.5 / plan.worker.cpu
        + 0.003 * plan.worker.count / (plan.ps.count * plan.ps.cpu * 4)
        + 0.004 / plan.ps.count
        + 0.001
    )
    return plan.worker.count * m / iter_s


def steady_memory(role: Role, at_s: float) -> float:
    return 300.0


def no_parameters(at_s: float) -> float:
    return 0.0


class FakeJob:
    """Feeds a controller with the events of one job and obeys its orders at once, keeping a journal."""

    def __init__(
        self,
        spec: JobSpec,
        *,
        n_sample_total: int = 50_000_000,
        speed=true_speed,
        memory=steady_memory,
        parameters=no_parameters,  # MiB of each PS
        settings: ControllerSettings | None = None,
        fit=fitted,
        policy=POLICIES[DEFAULT_POLICY],
        **submitted,
    ) -> None:
        self.settings = settings or ControllerSettings()
        self.spec, self.at_s, self.plan, self.speed = spec, 0.0, spec.plan, speed
        self.memory, self.parameters = memory, parameters
        self.journal: list = []
        self.orders: list = []
        self.n_done = 0
        capacity = Capacity((NodeShape(2.0, 8000),))
        first = JobSubmitted(0.0, spec, capacity, n_sample_total, 100_000, 16, **submitted)
        self.n_fit, self._fit = 0, fit
        self.controller = Controller(first, self.settings, policy=policy, fit=self._counted_fit)
        self.journal.append(first)
        self.orders += self.controller.first_orders
        self.tell(PhaseChanged(0.0, JobPhase.TRAINING))
        self.tell(PlanApplied(0.0, spec.plan, 0.0))

    def _counted_fit(self, situation):
        self.n_fit += 1
        return self._fit(situation)

    def tell(self, event) -> list:
        new = list(self.controller.handle(event))
        is_auto = isinstance(event, Decided) and event.decision.by == "auto"
        if not is_auto:
            self.journal.append(event)
        self.orders += new
        return new

    def decide(self, verdict: Verdict, **fields) -> list:
        return self.tell(Decided(self.at_s, Decision(verdict, "ada", self.at_s, **fields)))

    def apply(self, plan: ResourcePlan, pause_s: float = 1.0) -> list:
        self.at_s += pause_s
        self.plan = plan
        return self.tell(PlanApplied(self.at_s, plan, pause_s))

    def kill(self, role: Role = Role.PS, memory_mib: float = 512.0) -> list:
        """Let the first node of a role run out of memory; return the orders, `Scale` obeyed."""
        node = "w0" if role is Role.WORKER else "s0"
        return self.obey(self.tell(NodeOutOfMemory(self.at_s, node, role, memory_mib)))

    def obey(self, orders: list) -> list:
        """Apply what was ordered; return the orders with all that followed from them."""
        queue, done = list(orders), []
        while queue:
            order = queue.pop(0)
            done.append(order)
            if isinstance(order, Scale):
                queue += self.apply(order.target)
        return done

    def train(self, seconds: int) -> list:
        """Report once a second and node; obey `Scale` orders. Return the orders of this stretch."""
        orders = []
        for second in range(seconds):
            self.at_s += 1.0
            rate = self.speed(self.plan) * (1 + 0.01 * ((second * 7) % 5 - 2))
            self.n_done += int(rate)
            new = self.tell(ProgressMade(self.at_s, self.n_done))
            plan = self.plan
            n = int(rate / plan.worker.count)
            nodes = [(f"w{i}", Role.WORKER, n) for i in range(plan.worker.count)]
            nodes += [(f"s{i}", Role.PS, 0) for i in range(plan.ps.count)]
            for node, role, n_sample in nodes:
                report = _report(node, role, self.at_s, n_sample, self.memory(role, self.at_s))
                if role is Role.PS:
                    report = replace(report, parameter_mib=self.parameters(self.at_s))
                new += self.tell(NodeReported(self.at_s, report, plan))
            orders += self.obey(new)
        return orders

    @property
    def view(self):
        return self.controller.view()

    @property
    def open(self):
        return next((p for p in self.view.proposals if p.status == "pending"), None)


def _report(node: str, role: Role, at_s: float, n_sample: int, memory_mib: float) -> NodeSample:
    return NodeSample(
        node=node,
        role=role,
        at_s=at_s,
        window_s=1.0,
        n_iter=max(n_sample // 512, 20),
        n_sample=n_sample,
        iter_s=0.01,
        split=TimeSplit(),  # not known: the speed is any function of a plan
        cpu_cores=0.5,
        memory_mib=memory_mib,
    )


@pytest.fixture
def spec() -> JobSpec:
    return JobSpec("clicks", owner="ada", plan=START)


@pytest.fixture
def job(spec) -> FakeJob:
    return FakeJob(spec)


@pytest.fixture
def make_job(spec):
    of_job = {
        "speed",
        "n_sample_total",
        "memory",
        "parameters",
        "settings",
        "traits",
        "prior",
        "fit",
        "policy",
        "must_move",
        "pauses",
        "defers",
        "curves",
    }

    def make(**fields) -> FakeJob:
        given = {name: fields.pop(name) for name in of_job & fields.keys()}
        return FakeJob(replace(spec, **fields), **given)

    return make


@pytest.fixture
def kinds():
    """Return the records of one type among orders."""

    def of(orders, kind):
        return [o.record for o in orders if isinstance(o, Remember) and isinstance(o.record, kind)]

    return of
