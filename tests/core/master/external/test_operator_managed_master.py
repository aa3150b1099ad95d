"""What the master of a job under an operator makes of what the operator shows."""

from dataclasses import replace

import pytest

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.master.external.master import START_LIMIT_S
from dlrover_nb.core.master.external.operator_managed_master import OperatorManagedJob, OperatorManagedMaster
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, StepsDone
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import NodeReported, PlanApplied, PlanFailed
from dlrover_nb.core.structs.views.snapshot import NodePhase, NodeView

RUN = ExternalRole(("run",))
FIRST = ResourcePlan(RolePlan(2, 0.5, 512), RolePlan(1, 0.25, 512))
MORE = replace(FIRST, worker=RolePlan(3, 0.5, 512))
SPEC = JobSpec("a", plan=FIRST, foreign=ExternalSpec(RUN, 100_000, ps=RUN))
ROOM = Capacity((NodeShape(16, 65536),))


def node(name, phase=NodePhase.READY):
    return NodeView(name, Role(name.partition("-")[0]), phase, 0.5, 512, cpu_enforced=True, since_s=1.0)


def shown(*names, phase=JobPhase.TRAINING, in_place=None, refused=None):
    return OperatorManagedJob(phase, "words", tuple(map(node, names)), in_place, refused)


def told(orders):
    assert all(isinstance(order, Emit) for order in orders), "nothing is started, told or ended"
    return [order.event for order in orders]


@pytest.fixture
def master():
    master = OperatorManagedMaster(SPEC, ROOM)
    told(master.start(100.0))
    told(master.observe(shown("ps-0", "worker-0", "worker-1", in_place=FIRST), 101.0))
    assert (master.phase, master.running) == (JobPhase.TRAINING, FIRST)
    return master


def test_a_plan_is_applied_once_its_pods_are_there_and_not_before(master):
    assert told(master.set_target(MORE, 110.0))
    assert (master.phase, master.running) == (JobPhase.RESCALING, None)
    before = told(master.observe(shown("ps-0", "worker-0", "worker-1", in_place=FIRST), 111.0))
    there = shown("ps-0", "worker-0", "worker-1", "worker-2", in_place=MORE)
    after = told(master.observe(there, 120.0)) + told(master.observe(there, 121.0))
    assert not any(isinstance(event, PlanApplied) for event in before)
    assert [event.plan for event in after if isinstance(event, PlanApplied)] == [MORE]
    assert master.running == MORE


def test_a_pod_that_the_operator_replaced_is_another_node_and_costs_nothing(master):
    for n in (1, 2):
        master.on_steps(StepsDone("worker-1", "p", at_s=float(n), n_iter=n, n_sample=8 * n), 101.0 + n)
    told(master.observe(shown("ps-0", "worker-0", in_place=None), 110.0))
    assert (master.running, master.phase) == (None, JobPhase.TRAINING)
    told(master.observe(shown("ps-0", "worker-0", "worker-2", in_place=FIRST), 111.0))
    assert [each.id for each in master.nodes] == ["ps-0", "worker-0", "worker-2"]
    reports = []
    for n in (1, 2):
        word = StepsDone("worker-2", "q", at_s=float(n), n_iter=n, n_sample=8 * n)
        reports += [e for e in told(master.on_steps(word, 112.0 + n)) if isinstance(e, NodeReported)]
    assert [report.sample.node for report in reports] == ["worker-2"]
    assert master.train_counts.n_sample_done == 32


@pytest.mark.parametrize("why", ["refused", "late"])
def test_a_plan_that_the_operator_does_not_carry_out_is_given_up_for_the_one_before(master, why):
    told(master.set_target(MORE, 110.0))
    if why == "refused":
        events = told(master.observe(shown("ps-0", refused=(MORE, "no")), 111.0))
    else:
        assert not any(isinstance(e, PlanFailed) for e in told(master.tick(110.0 + START_LIMIT_S)))
        events = told(master.tick(111.0 + START_LIMIT_S))
    assert [event.plan for event in events if isinstance(event, PlanFailed)] == [MORE]
    assert master.target == FIRST


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED])
def test_the_job_ends_as_the_operator_says(master, phase):
    master.observe(shown(phase=phase), 130.0)
    assert (master.phase, master.message) == (phase, "words")
    assert master.observe(shown("worker-7"), 131.0) == ()


def test_a_master_that_comes_back_goes_on_and_begins_nothing_anew(master):
    told(master.set_target(MORE, 110.0))
    record = from_json(to_json(master.record), ExternalRecord)
    after = OperatorManagedMaster(SPEC, ROOM)
    told(after.resume(record, 140.0))
    assert (after.target, after.phase) == (MORE, JobPhase.RESCALING)
    there = shown("ps-0", "worker-0", "worker-1", "worker-2", in_place=MORE)
    events = told(after.observe(there, 141.0))
    assert [event.plan for event in events if isinstance(event, PlanApplied)] == [MORE]
