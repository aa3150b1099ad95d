"""Orders of every kind of job are carried out in the order in which they were decided."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.driver.loop.executor import OrderExecutor
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.operator_managed_master import OperatorManagedJob, OperatorManagedMaster
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.shared.orders import Emit, StartNode, StopNode
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart, MitigationChoice
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.shards import BatchChoice
from dlrover_nb.core.structs.views.events import Mitigate, MitigationEnded, PhaseChanged, Scale, Ticked
from dlrover_nb.core.structs.views.snapshot import Evaluation, NodePhase, NodeView

ROOM = Capacity((NodeShape(16, 65536),))
RUN = ExternalRole(("run",))
FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, 8),), 400, 40)


def plan(n_worker: int, n_ps: int = 1) -> ResourcePlan:
    return ResourcePlan(RolePlan(n_worker, 0.5, 512), RolePlan(n_ps, 0.25, 512))


def spec(n_worker: int, *, is_external: bool) -> JobSpec:
    foreign = ExternalSpec(RUN, 100_000, ps=RUN) if is_external else None
    return JobSpec("a", plan=plan(n_worker), foreign=foreign)


class Run:
    """A real master under an executor, with a controller that orders plans on any fact.

    `decided` are the master's orders as it returned them, `carried_out` what the executor did.
    """

    def __init__(self, master, *, plans=(), failing=()) -> None:
        self.master, self.plans, self.failing = master, list(plans), list(failing)
        self.decided: list[object] = []
        self.carried_out: list[object] = []
        self.at_s = 100.0
        self.is_cut_off = False  # from its cluster
        self.executor = OrderExecutor(
            write_ahead=self.decided.extend,
            perform=self.perform,
            record=self.record,
            set_target=lambda target: master.set_target(target, self.at_s),
            choose=lambda choice: master.choose(choice, self.at_s),
            mitigate=master.mitigate,
            stop=lambda why: master.stop("budget_total", why, self.at_s),
            now_s=lambda: self.at_s,
        )
        self.executor.carry_out(master.start(self.at_s))

    def perform(self, action):
        if self.is_cut_off:
            raise BackendError("the cluster cannot be reached")
        self.carried_out.append(action)
        if isinstance(action, StartNode) and self.failing and self.failing.pop():
            return self.master.on_exit(action.node, "no room", self.at_s)
        return ()

    def record(self, event):
        self.carried_out.append(Emit(event))
        target = self.plans.pop() if self.plans else None
        if isinstance(target, BatchChoice | MitigationChoice):
            return (Mitigate(target),)
        return () if target is None else (Scale("d1", target),)

    def take(self, orders) -> None:
        self.executor.carry_out(orders)

    def exit(self, n: int) -> None:
        nodes = self.master.nodes
        if nodes:
            self.take(self.master.on_exit(nodes[n % len(nodes)].id, "killed", self.at_s))

    def time(self, s: int) -> None:
        self.at_s += s
        self.take(self.master.tick(self.at_s))

    def scale(self, n: int) -> None:
        self.take(self.master.set_target(plan(1 + n % 4), self.at_s))

    def addresses(self, n: int) -> None:
        if isinstance(self.master, JobMaster):
            self.take(self.master.set_capacity(ROOM, self.at_s))
        elif isinstance(self.master, OperatorManagedMaster):
            self.take(self.master.observe(shown(1 + n % 4), self.at_s))
        else:
            found = {node.id: f"10.0.0.{i}" for i, node in enumerate(self.master.nodes)}
            self.take(self.master.update_addresses(found, self.at_s))

    def stop(self, _n: int) -> None:
        self.take(self.master.stop("ada", "", self.at_s))


def shown(n_worker: int) -> OperatorManagedJob:
    names = ["ps-0", *(f"worker-{i}" for i in range(n_worker))]
    nodes = tuple(
        NodeView(
            each, Role(each.partition("-")[0]), NodePhase.READY, 0.5, 512, cpu_enforced=True, since_s=1.0
        )
        for each in names
    )
    return OperatorManagedJob(JobPhase.TRAINING, "", nodes, plan(n_worker))


def own() -> JobMaster:
    return JobMaster(
        spec(2, is_external=False),
        FEATURES,
        ROOM,
        folder="/tmp/a",
        evaluate=lambda *_: Evaluation(0, 0, 0, 0),
    )


MASTERS = {
    "own": own,
    "external": lambda: ExternalMaster(spec(2, is_external=True), ROOM),
    "operator-managed": lambda: OperatorManagedMaster(spec(2, is_external=True), ROOM),
}
FACTS = st.tuples(
    st.sampled_from(["exit", "time", "scale", "addresses", "addresses", "stop"]), st.integers(0, 9)
)
PLANS = st.lists(st.none() | st.integers(1, 4).map(plan), max_size=12)


@pytest.mark.parametrize("kind", MASTERS)
@settings(deadline=None)  # a busy machine is no failure
@given(facts=st.lists(FACTS, max_size=12), plans=PLANS, failing=st.lists(st.booleans(), max_size=6))
def test_orders_are_carried_out_as_they_were_decided_and_nothing_starts_after_its_stop(
    kind: str, facts, plans, failing
) -> None:
    run = Run(MASTERS[kind](), plans=plans, failing=failing)
    for name, n in facts:
        getattr(run, name)(n)
    assert run.carried_out == run.decided
    stopped: set[str] = set()
    for order in run.carried_out:
        assert not (isinstance(order, StartNode) and order.node in stopped), order
        if isinstance(order, StopNode):
            stopped.add(order.node)


def test_a_node_that_a_plan_on_its_cause_makes_needless_is_started_before_it_is_stopped() -> None:
    """Worker 2 exits, and on that fact a smaller plan is ordered, while the start of worker 3 waits."""
    run = Run(ExternalMaster(spec(3, is_external=True), ROOM))
    run.addresses(0)
    before = len(run.carried_out)
    run.plans = [plan(2)]
    run.take(run.master.on_exit("worker-2", "killed", run.at_s))
    after = run.carried_out[before:]
    assert isinstance(after[0], StopNode)
    assert any(isinstance(order, Emit) and isinstance(order.event, PhaseChanged) for order in after)
    started = next(i for i, order in enumerate(after) if isinstance(order, StartNode))
    assert after[started].node == "worker-3"
    assert StopNode("worker-3") in after[started:], "else it would run without a master that knows it"


def test_an_order_that_fails_is_not_the_answer_to_a_users_command(error_words) -> None:
    run = Run(own())
    run.is_cut_off = True
    with error_words(RuntimeError):
        run.exit(0)
    run.is_cut_off = False
    n_before = len(run.carried_out)
    run.stop(0)
    assert len(run.carried_out) > n_before, "nothing of the failed order blocks the last ones"


def test_batch_sizes_that_the_controller_orders_reach_the_master_and_a_refusal_ends_nothing(
    caplog, words
) -> None:
    run = Run(own())
    run.plans = [BatchChoice((("worker-1", 256),), "auto"), BatchChoice((("worker-9", 256),), "auto")]
    run.take((Emit(Ticked(run.at_s)),))
    assert caplog.messages == words
    assert not any("batch sizes" in str(each) for each in run.carried_out)
    run.take((Emit(Ticked(run.at_s)),))
    assert any("auto sets batch sizes: worker-1 256" in str(each) for each in run.carried_out)


@pytest.mark.parametrize("kind", MASTERS)
def test_an_action_that_the_master_refuses_has_ended_with_its_reason_and_the_job_goes_on(kind: str) -> None:
    run = Run(MASTERS[kind]())
    action = ActionChoice.of(KillRestart("worker-9", Role.WORKER))
    run.plans = [MitigationChoice("d1", action, "auto", "it is slow")]
    run.take((Emit(Ticked(run.at_s)),))
    ended = [each.event for each in run.carried_out if isinstance(each, Emit)]
    last = ended[-1]
    assert isinstance(last, MitigationEnded)
    assert (last.decision, last.at_s) == ("d1", run.at_s)
    assert last.why_not
    assert run.carried_out == run.decided
    run.time(1)
    assert not run.master.phase.is_final
