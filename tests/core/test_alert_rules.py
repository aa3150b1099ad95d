"""When alerts begin and end: laws of each rule, over made-up states of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import START_S, mitigation, node, proposal, snapshot
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.alerts import (
    JobMemory,
    changes,
    findings,
    lost_finding,
    remembered,
    request_finding,
    slowness,
    spent_per_hour,
)
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pricing import cost_per_hour
from dlrover_nb.core.structs.alerts import AboutJob, Alert, AlertKind, AlertRules
from dlrover_nb.core.structs.commands import Action, Command, Entry, SecondRequest
from dlrover_nb.core.structs.deadline import DeadlineOutlook
from dlrover_nb.core.structs.job import JobPhase, JobSpec
from dlrover_nb.core.structs.prices import PriceTable
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.snapshot import NodePhase

RULES = AlertRules()
ABOUT = AboutJob("ray", "quick-start")
NOW_S = START_S + 300


def found(kind, told, rules=RULES, memory=None):
    memory = remembered(JobMemory(), told, rules) if memory is None else memory
    (finding,) = [each for each in findings(told, memory, rules) if each.kind is kind]
    return finding


def worker(name, iter_s, *, at_s=NOW_S, n_iter=100, **fields):
    made = node(name, Role.WORKER, memory=400.0)
    last = replace(made.last, at_s=at_s, iter_s=iter_s, n_iter=n_iter)
    return replace(made, last=last, **fields)


def full_in(seconds):
    told = snapshot()
    return replace(told, memory=tuple(replace(line, full_in_s=seconds) for line in told.memory))


@given(st.floats(0, 1e6))
def test_no_measure_is_bad_and_good_at_once_and_between_them_nothing_changes(full_in_s):
    finding = found(AlertKind.OOM, full_in(full_in_s))
    assert not (finding.is_bad and finding.is_good)
    if RULES.oom_within_s <= full_in_s <= RULES.oom_within_s * (1 + RULES.hysteresis):
        open_one = Alert(ABOUT, AlertKind.OOM, NOW_S, "full")
        assert changes(ABOUT, [open_one], [finding], NOW_S) == ((), ())
        assert changes(ABOUT, [], [finding], NOW_S) == ((), ())


def test_memory_that_fills_up_within_the_hour_is_an_alert_with_its_numbers():
    finding = found(AlertKind.OOM, full_in(1800.0))
    assert finding.is_bad
    assert "30 min" in finding.text
    assert found(AlertKind.OOM, full_in(None)).is_good


def test_a_worker_is_a_straggler_once_it_has_been_slow_for_long_enough():
    memory = JobMemory()
    for after_s, is_bad in ((0, False), (60, False), (120, True)):
        at_s = NOW_S + after_s
        told = snapshot(at_s=at_s, nodes=(worker("w-0", 0.1, at_s=at_s), worker("w-1", 0.2, at_s=at_s)))
        memory = remembered(memory, told, RULES)
        assert found(AlertKind.STRAGGLER, told, memory=memory).is_bad is is_bad
    quick = snapshot(at_s=at_s + 1, nodes=(worker("w-0", 0.1), worker("w-1", 0.1)))
    memory = remembered(memory, quick, RULES)
    assert found(AlertKind.STRAGGLER, quick, memory=memory).is_good
    assert not memory.slow_since_s


def test_the_wait_for_peers_makes_no_straggler_and_one_worker_has_none():
    slow, waits = worker("w-0", 0.2), worker("w-1", 0.2)
    waits = replace(waits, last=replace(waits.last, split=replace(waits.last.split, peers_s=0.1)))
    ratios = slowness(snapshot(nodes=(slow, waits)))
    assert ratios["w-0"] == pytest.approx(2.0)
    assert slowness(snapshot(nodes=(slow,))) == {}


def stalled(after_s, **changed):
    """Return a job whose last iteration ended so long ago, and its memory."""
    first = snapshot(nodes=(worker("w-0", 0.5),))
    memory = remembered(JobMemory(), first, RULES)
    told = replace(
        first, at_s=NOW_S + after_s, nodes=(worker("w-0", 0.5, at_s=NOW_S + after_s, n_iter=0),), **changed
    )
    return told, remembered(memory, told, RULES)


def test_no_iteration_for_many_times_the_usual_one_is_a_stall():
    told, memory = stalled(RULES.stall_least_s - 1)
    assert not found(AlertKind.STALL, told, memory=memory).is_bad
    told, memory = stalled(RULES.stall_least_s)
    finding = found(AlertKind.STALL, told, memory=memory)
    assert finding.is_bad
    assert "0.5 s" in finding.text
    on = replace(told, nodes=(worker("w-0", 0.5, at_s=told.at_s),))
    assert found(AlertKind.STALL, on, memory=remembered(memory, on, RULES)).is_good


def test_slow_iterations_are_given_their_time():
    told, memory = stalled(200.0)
    slow = replace(told, nodes=(worker("w-0", 10.0, at_s=told.at_s, n_iter=0),))
    assert not found(AlertKind.STALL, slow, memory=memory).is_bad


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": JobPhase.RESCALING},
        {"running": None},
        {"under_way": "d3"},
        {"phase": JobPhase.EVALUATING},
    ],
)
def test_a_job_that_waits_or_pauses_does_not_stall(changed):
    told, memory = stalled(10_000.0, **changed)
    assert found(AlertKind.STALL, told, memory=memory).is_good


@pytest.mark.parametrize(
    "state", [{"phase": NodePhase.PAUSED}, {"phase": NodePhase.PENDING}, {"waits_for": "room"}]
)
def test_a_job_with_a_waiting_worker_does_not_stall(state):
    told, memory = stalled(10_000.0)
    told = replace(told, nodes=(worker("w-0", 0.5, n_iter=0, **state),))
    assert found(AlertKind.STALL, told, memory=remembered(memory, told, RULES)).is_good


def test_a_budget_is_exceeded_by_the_plan_or_by_the_run_so_far():
    prices = PriceTable(cpu_hour=1.0, gib_hour=0.0)
    told = snapshot()
    costs = cost_per_hour(told.ran, prices)
    over = replace(told, spec=JobSpec("quick-start", prices=prices, budget_per_hour=costs * 0.9))
    assert "the plan costs" in found(AlertKind.BUDGET, over).text
    assert found(AlertKind.BUDGET, over).is_bad
    exact = replace(over, spec=replace(over.spec, budget_per_hour=costs))
    assert not found(AlertKind.BUDGET, exact).is_bad
    assert not found(AlertKind.BUDGET, exact).is_good
    assert found(AlertKind.BUDGET, replace(over, spec=replace(over.spec, budget_per_hour=2 * costs))).is_good
    large = replace(told.markers[0], plan=replace(told.ran, worker=replace(told.ran.worker, count=8)))
    was_large = replace(exact, markers=(large, told.markers[1]))
    assert spent_per_hour(was_large) > costs
    assert "the run so far" in found(AlertKind.BUDGET, was_large).text


def test_without_a_price_or_a_budget_no_budget_is_exceeded():
    assert found(AlertKind.BUDGET, snapshot()).is_good


@given(st.floats(0, 1), st.floats(0, 0.99))
def test_a_deadline_is_at_risk_below_its_probability(in_time, least):
    told = snapshot()
    outlook = DeadlineOutlook(3600.0, 0.9, in_time, 3000.0, told.target, in_time, 3000.0, 2000.0)
    finding = found(AlertKind.DEADLINE, replace(told, deadline=outlook), AlertRules(deadline_least=least))
    assert finding.is_bad == (in_time < least)
    assert not (finding.is_bad and finding.is_good)


def test_a_proposal_that_waits_is_told_of_and_another_one_anew():
    late = snapshot(at_s=NOW_S + 10_000)
    finding = found(AlertKind.PROPOSAL, late)
    assert (finding.is_bad, finding.subject) == (True, "p2")
    alert = Alert(ABOUT, AlertKind.PROPOSAL, NOW_S, finding.text, "p2")
    assert changes(ABOUT, [alert], [finding], NOW_S) == ((), ())
    other = found(AlertKind.PROPOSAL, replace(late, proposals=(*late.proposals[:1], proposal("p3"))))
    ends, (begins,) = changes(ABOUT, [alert], [other], NOW_S)
    assert ends == (alert,)
    assert begins.subject == "p3"
    answered = found(AlertKind.PROPOSAL, replace(late, proposals=()))
    assert changes(ABOUT, [alert], [answered], NOW_S) == ((alert,), ())


def test_an_action_against_a_straggler_that_waits_is_told_of_as_a_proposal_is():
    late = snapshot(at_s=NOW_S + 10_000, proposals=(), mitigations=(mitigation(),))
    finding = found(AlertKind.PROPOSAL, late)
    assert (finding.is_bad, finding.subject) == (True, "m1")
    assert finding.text.startswith("m1 (restart worker-1) has waited for 2.8 h: worker-1 takes 24.0 ms")
    assert found(AlertKind.PROPOSAL, replace(late, mitigations=())).is_good
    both = replace(late, proposals=(proposal("p2"),))
    assert found(AlertKind.PROPOSAL, both).subject == "p2", "it has waited longer"


def test_a_request_that_waits_for_a_second_person_is_told_of_by_its_oldest():
    asked = SecondRequest("r1", Command(Action.STOP, "a"), "ada", Entry.API, 10.0, 99.0, "stop needs one")
    rules = AlertRules(second_person_waits_s=5.0)
    assert request_finding([], 0.0, rules).is_good
    assert not request_finding([asked], 14.0, rules).is_bad
    finding = request_finding([asked, replace(asked, id="r2")], 15.0, rules)
    assert (finding.is_bad, finding.subject) == (True, "r1")


def test_a_silent_master_is_lost_after_its_time_and_back_when_it_answers():
    assert not lost_finding(59.0, RULES).is_bad
    assert lost_finding(60.0, RULES).is_bad
    assert lost_finding(0.0, RULES).is_good


def test_a_job_that_has_ended_ends_all_its_alerts_and_a_failed_one_begins_its_own():
    done = snapshot(phase=JobPhase.SUCCEEDED)
    alerts = [
        Alert(ABOUT, kind, NOW_S, "")
        for kind in AlertKind
        if kind not in {AlertKind.MASTER_LOST, AlertKind.SECOND_PERSON}
    ]
    ends, begins = changes(ABOUT, alerts, findings(done, JobMemory(), RULES), NOW_S)
    assert {alert.kind for alert in ends} == {alert.kind for alert in alerts}
    assert not begins
    failed = snapshot(phase=JobPhase.FAILED, message="worker-0: KeyError")
    _, (begun,) = changes(ABOUT, [], findings(failed, JobMemory(), RULES), NOW_S)
    assert (begun.kind, begun.text) == (AlertKind.FAILED, "worker-0: KeyError")


@pytest.mark.parametrize(
    "wrong",
    [{"oom_within_s": -1}, {"straggler_ratio": 0.5}, {"hysteresis": 1.0}, {"cool_down_s": float("nan")}],
)
def test_thresholds_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidValueError):
        AlertRules(**wrong)
