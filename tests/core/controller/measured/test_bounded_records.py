"""What a controller keeps depends on the living nodes and on fixed numbers, not on the age of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.controller import state_bytes
from dlrover_nb.core.controller.measured.measurement import N_PAUSE, LastReports, Measurement
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.controller.state import record_lists
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import NodeReported
from dlrover_nb.core.structs.views.past_jobs import TransitionKind

PLAN = ResourcePlan(worker=RolePlan(3, 1.0, 1024), ps=RolePlan(2, 1.0, 512))


def report(node: str, role: Role, at_s: float, mib: float = 300.0) -> NodeSample:
    n_sample = 1000 if role is Role.WORKER else 0
    return NodeSample(node, role, at_s, 1.0, 20, n_sample, 0.05, TimeSplit(), 0.5, mib)


def measured(plan: ResourcePlan | None = PLAN) -> Measurement:
    found = Measurement(ControllerSettings(), JobSpec("long", plan=PLAN), 10**9)
    found.restart(plan, 0.0)
    return found


def now_mib(found: Measurement, role: Role) -> float:
    return next(line.now_mib for line in found.forecast_memory(0.0) if line.role is role)


@given(st.lists(st.sampled_from(["lose", "silent"]), max_size=60), st.integers(1, 4))
def test_the_nodes_of_the_last_reports_are_the_living_ones_however_many_were_lost(happens, n_node):
    last, living = LastReports(), [f"w{i}" for i in range(n_node)]
    for at_s, each in enumerate(happens):
        if each == "lose":
            living = [*living[1:], f"w{n_node + at_s}"]
        for i, node in enumerate(living if each == "lose" else living[:1]):
            last.add(node, float(at_s), at_s + i / 10, n_node=n_node)
        assert set(last.figures) <= set(living)
    for node in living:
        last.add(node, 1.0, 1e6, n_node=n_node)
    assert set(last.figures) == set(living)


def test_a_lost_worker_has_no_speed_any_more():
    found = measured()
    for second in range(200):
        for i in range(3):
            found.add(report(f"w{second + i}", Role.WORKER, second + i / 10), second + i / 10)
    assert list(found.worker_samples_per_s) == ["w199", "w200", "w201"]


def test_memory_is_that_of_the_largest_living_node():
    found = measured()
    for second in range(50):
        for name, mib in (("s0", 500.0 if second < 20 else None), ("s1", 200.0), ("s2", 210.0)):
            if mib is not None and (name != "s2" or second >= 20):
                found.add(report(name, Role.PS, float(second), mib), float(second))
    assert now_mib(found, Role.PS) == 210.0


def test_nodes_that_report_while_no_plan_is_in_place_leave_nothing():
    found = measured(None)
    for second in range(100):
        found.add(report(f"w{second}", Role.WORKER, float(second)), float(second))
    assert not found.worker_samples_per_s
    found.restart(PLAN, 100.0)
    found.add(report("w100", Role.WORKER, 101.0), 101.0)
    assert list(found.worker_samples_per_s) == ["w100"]


def test_the_pauses_of_a_rare_kind_of_transition_outlast_many_of_another():
    found = measured()
    found.paused(TransitionKind.MOVES, 9.0)
    for i in range(5 * N_PAUSE):
        found.paused(TransitionKind.WORKERS, float(i))
    kinds = [kind for kind, _ in found.pauses]
    assert len(kinds) == 1 + N_PAUSE
    assert found.pauses[0][1] == 9.0
    assert found.pauses[-1] == (kinds[-1], 5 * N_PAUSE - 1.0)


def lose_nodes(job, n: int) -> None:
    """Let each worker of a second have another name, one second after the other."""
    for second in range(n):
        at_s = job.at_s + 1.0
        job.at_s = at_s
        job.tell(NodeReported(at_s, report(f"worker-of-{second:06}", Role.WORKER, at_s), job.plan))


def test_a_snapshot_does_not_grow_with_lost_nodes(make_job):
    def n_byte(n_lost: int) -> int:
        job = make_job(mode=Mode.MANUAL)
        lose_nodes(job, n_lost)
        measured_part = state_bytes.parts(job.controller)["_measured"]
        return len(str([vars(each) for each in vars(measured_part)["_last_mib"].values()]))

    assert abs(n_byte(50) - n_byte(400)) < 20  # digits of the times


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(record_lists, "N_NEWEST", 5)
    monkeypatch.setattr("dlrover_nb.core.controller.plans.book.N_NEWEST", 5)
    return 5


def test_the_newest_decisions_are_kept_and_their_numbers_go_on(make_job, few, error_words):
    job = make_job(mode=Mode.MANUAL)
    for i in range(23):
        job.decide(Verdict.MODE, mode=Mode.SUGGEST if i % 2 == 0 else Mode.MANUAL)
    view = job.controller.view()
    assert [decision.id for decision in view.decisions] == ["d19", "d20", "d21", "d22", "d23"]
    assert view.undo.undoes == "d23"
    with error_words(NotFoundError) as caught:
        job.decide(Verdict.MODE, mode=Mode.MANUAL, undoes="d3")
    assert "d3 to undo" in str(caught.value)


def test_the_newest_plans_and_outcomes_are_kept(make_job, few):
    job = make_job(mode=Mode.MANUAL, n_sample_total=10**10)
    for i in range(9):
        plan = replace(job.plan, worker=replace(job.plan.worker, count=1 + (i + 1) % 2))
        job.decide(Verdict.SCALE, plan=plan)
        job.apply(plan)
        job.train(60)
    view = job.controller.view()
    assert len(view.markers) == len(view.outcomes) == few
    assert view.outcomes[-1].decision == view.decisions[-1].id == "d9"
    assert view.markers[-1].plan == job.plan


@pytest.mark.more
def test_the_newest_proposals_are_kept_and_their_numbers_go_on(make_job, few):
    job = make_job(mode=Mode.SUGGEST, n_sample_total=10**10)
    for _ in range(60):
        job.train(30)
        opened = job.controller.brief().opened
        proposal = opened and opened.id
        if proposal is not None:
            job.decide(Verdict.REJECT, proposal=proposal)
    ids = [int(each.id[1:]) for each in job.controller.view().proposals]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert len(ids) <= few
    assert ids[-1] > few
