"""Laws of what a master makes of statuses in the form of Kubeflow Trainer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.master.external_world import TF, World, plan, running

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.master.external.job.reported_state import counted
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.shared.orders import Emit, StartNode
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, FixedRole, Framework, StepsDone
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.reported import MOST_S, TrainerReport, TrainerStatus
from dlrover_nb.core.structs.views.events import NodeReported

N_SAMPLE = 30_000
TORCH = ExternalSpec(ExternalRole(("run",)), N_SAMPLE, framework=Framework.TORCH)
ROOM = Capacity((NodeShape(16, 65536),))
percentages = st.integers(0, 100)


@given(st.integers(0, 10**9), percentages, st.integers(1, 10**9))
def test_a_count_agrees_with_the_percentage_and_is_kept_where_it_does(n_done, percentage, n_sample):
    told = counted(min(n_done, n_sample), percentage, n_sample)
    assert 0 <= told <= n_sample
    assert counted(told, percentage, n_sample) == told
    if n_sample >= 100:  # of fewer, no count has every percentage
        assert told * 100 // n_sample == percentage
    assert counted(n_done, None, n_sample) == n_done


@pytest.fixture
def master():
    spec = JobSpec(
        "a", plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.25, 512)), foreign=TORCH, batch_size=10
    )
    made = ExternalMaster(spec, ROOM)
    started = [order.node for order in made.start(0.0) if isinstance(order, StartNode)]
    made.update_addresses({node: f"10.0.0.{i}" for i, node in enumerate(started)}, 1.0)
    return made


def tell(master, at_s, percentage=None, remaining_s=None, node="worker-0", **metrics):
    """Report as a program does; return the samples of nodes that follow."""
    texts = tuple((name, str(value)) for name, value in metrics.items())
    steps = master.hear(TrainerReport(node, TrainerStatus(at_s, percentage, remaining_s, texts)))
    orders = () if steps is None else master.on_steps(steps, at_s)
    return [
        order.event.sample
        for order in orders
        if isinstance(order, Emit) and isinstance(order.event, NodeReported)
    ]


@given(st.lists(percentages, min_size=1, max_size=5))
def test_a_percentage_is_the_jobs_progress(told):
    spec = JobSpec("a", plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.25, 512)), foreign=TORCH)
    master = ExternalMaster(spec, ROOM)
    master.start(0.0)
    for i, percentage in enumerate(told):
        tell(master, float(i), percentage)
    assert master.train_counts.n_sample_done * 100 // N_SAMPLE == told[-1]


def test_steps_among_the_metrics_are_measured_as_steps(master):
    assert tell(master, 10.0, 1, current_step=40, loss=0.7) == [], "the first one begins the count"
    (sample,) = tell(master, 14.0, 2, 300, current_step=80, loss=0.5)
    assert (sample.n_iter, sample.n_sample, sample.window_s, sample.loss) == (40, 400, 4.0, 0.5)
    assert master.train_counts.n_sample_done == 600, "2 %, not 80 steps of 10 samples of one worker"
    assert master.reported == TrainerStatus(14.0, 2, 300, (("current_step", "80"), ("loss", "0.5")))


def test_steps_that_the_program_reports_to_us_too_count_once(master):
    for i in range(2):
        master.on_steps(StepsDone("worker-0", "1-p", at_s=10.0 + i, n_iter=i + 1, n_sample=10), 10.0 + i)
    assert tell(master, 20.0, current_step=5) == []
    assert tell(master, 21.0, current_step=9) == []
    assert master.reported.at_s == 21.0


def test_steps_of_a_program_that_another_plan_does_not_restart_count_once():
    world = running(replace(TF, chief=False, dynamic_workers=True))
    world.do(world.master.set_target(plan(3), world.at_s))
    world.come_up()
    world.at_s += 1.0
    tell(world.master, world.at_s, node="worker-2", current_step=100)
    told = world.told["worker-2"]
    before = world.master.train_counts.n_sample_done
    world.do(world.master.set_target(plan(4), world.at_s))
    world.come_up()
    assert world.told["worker-2"] == told
    (sample,) = tell(world.master, world.at_s + 1.0, node="worker-2", current_step=101)
    assert sample.n_iter == 1
    assert world.master.train_counts.n_sample_done - before == world.spec.batch_size


def test_who_does_not_train_does_not_report_for_the_job():
    world = World(replace(TF, roles=(FixedRole("evaluator", ("e",)),)))
    world.come_up()
    tell(world.master, world.at_s + 1.0, 50, node="evaluator-0", current_step=9)
    assert world.master.reported is None
    world.later()
    assert world.master.phase is JobPhase.STARTING


@pytest.mark.parametrize(
    "metrics",
    [{}, {"current_step": "soon"}, {"current_step": "nan"}, {"current_step": -1}, {"current_step": 1e300}],
)
def test_without_a_step_nothing_is_measured(master, metrics):
    for at_s in (10.0, 11.0):
        assert tell(master, at_s, 50, **metrics) == []
    assert master.train_counts.n_sample_done == N_SAMPLE // 2


def test_a_job_trains_once_a_program_reports_since_the_rendezvous(master):
    tell(master, 0.5, 1)
    master.tick(2.0)
    assert master.phase is JobPhase.STARTING, "that was before it"
    tell(master, 3.0, 1)
    master.tick(4.0)
    assert master.phase is JobPhase.TRAINING
    assert master.running == master.target


def test_what_is_late_or_of_a_stranger_is_ignored(master):
    tell(master, 10.0, 50)
    tell(master, 9.0, 40)
    tell(master, 11.0, 60, node="worker-9")
    assert (master.reported.at_s, master.reported.percentage) == (10.0, 50)
    master.stop("ada", "", 12.0)
    tell(master, 13.0, 70)
    assert master.reported.percentage == 50, "the job has ended"


def test_the_next_master_knows_what_was_told(master):
    tell(master, 10.0, 40, 60, auc=0.7)
    record = from_json(to_json(master.record), ExternalRecord)
    after = ExternalMaster(master.spec, ROOM)
    after.resume(record, 20.0)
    assert after.reported == master.reported
    assert after.train_counts == master.train_counts


def test_state_of_before_holds_no_status(master):
    services = replace(master.record.services, reported=None)
    text = to_json(replace(master.record, services=services)).replace(b',"reported":null', b"")
    assert b"reported" not in text
    assert from_json(text, ExternalRecord).services.reported is None


@for_each(
    ("field", "words"),
    [
        ({"percentage": 101}, "progressPercentage must be 0 to 100, got 101"),
        ({"percentage": -1}, "progressPercentage"),
        ({"remaining_s": -1}, "estimatedRemainingSeconds"),
        ({"remaining_s": MOST_S + 1}, "estimatedRemainingSeconds"),
        ({"metrics": (("a", "1"),) * 257}, "metrics must be 256 at most, got 257"),
        ({"metrics": (("", "1"),)}, "the name of a metric must have 1 to 64 characters, got 0"),
        ({"metrics": (("loss", "1" * 65),)}, "the value of metric 'loss' must have"),
        ({"at_s": float("nan")}, "lastUpdatedTime"),
    ],
)
def test_what_a_trainjob_cannot_hold_is_refused(field, words):
    with pytest.raises(InvalidValueError, match=words):
        TrainerStatus(**({"at_s": 0.0} | field))
