"""When alerts begin and end: laws of each rule, over made-up states of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs.builders import START_S, mitigation, node, proposal, snapshot
from support.plans.slow_world import SlowJob

from dlrover_nb.core.alerts import (
    JobMemory,
    changes,
    findings,
    lost_finding,
    remembered,
    request_finding,
    spent_per_hour,
)
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pricing import cost_per_hour
from dlrover_nb.core.structs.decisions.actions import BackupWorkers, KillRestart, MoveBuckets
from dlrover_nb.core.structs.decisions.commands import Action, Command, Entry, SecondRequest
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, FixedRole
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.budget import BudgetOutlook
from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind, AlertRules
from dlrover_nb.core.structs.views.snapshot import NodePhase

RULES = AlertRules()
ABOUT = AboutJob("ray", "quick-start")
NOW_S = START_S + 300


def found(kind, told, rules=RULES, memory=None):
    memory = remembered(JobMemory(), told) if memory is None else memory
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


def slow(node="worker-1", *, role=Role.WORKER, pace=Pace.PERSISTENT, ratio=2.0, for_s=600.0):
    window_s = 600.0 if pace is Pace.PERSISTENT else 300.0
    return Straggler(node, role, pace, 0.1 * ratio, 0.1, window_s, NOW_S - for_s, "own work")


def straggling(*stragglers, **changes):
    return found(AlertKind.STRAGGLER, snapshot(at_s=NOW_S, stragglers=stragglers, **changes))


def test_a_persistent_straggler_is_an_alert_with_its_numbers_until_nobody_is_slow(words):
    finding = straggling(slow(), mitigations=())
    assert finding.is_bad
    assert finding.text == words
    alert = Alert(ABOUT, AlertKind.STRAGGLER, NOW_S, finding.text)
    still = straggling(slow(pace=Pace.TRANSIENT, for_s=1.0))
    assert changes(ABOUT, [alert], [still], NOW_S) == ((), ()), "it is slow still"
    assert changes(ABOUT, [alert], [straggling()], NOW_S) == ((alert,), ())


@for_each(("for_s", "is_bad"), [(0.0, False), (119.0, False), (120.0, True), (5000.0, True)])
def test_a_transient_straggler_is_an_alert_once_it_has_been_slow_for_long_enough(for_s, is_bad, words):
    finding = straggling(slow("ps-0", role=Role.PS, pace=Pace.TRANSIENT, ratio=1.3, for_s=for_s))
    assert (finding.is_bad, finding.is_good) == (is_bad, False)
    if is_bad:
        assert finding.text == words


def test_of_several_stragglers_the_one_of_the_longest_window_is_named_and_each_node_counts_once(words):
    told = (
        slow("worker-2", pace=Pace.TRANSIENT, ratio=9.0),
        slow("worker-1", pace=Pace.TRANSIENT, ratio=3.0),
        slow("worker-1", ratio=1.5),
        slow("worker-3", ratio=1.2),
        slow("worker-4", pace=Pace.TRANSIENT, for_s=1.0),
    )
    assert straggling(*told, mitigations=()).text == words


@for_each(
    ("action", "status", "words"),
    [
        (
            KillRestart("worker-1", Role.WORKER),
            ProposalStatus.PENDING,
            "(restart worker-1) waits for an answer",
        ),
        (KillRestart("worker-1", Role.WORKER), ProposalStatus.APPLYING, "(restart worker-1) is under way"),
        (BackupWorkers(1), ProposalStatus.PENDING, "waits for an answer"),
        (KillRestart("worker-2", Role.WORKER), ProposalStatus.PENDING, ""),
        (MoveBuckets("ps-0"), ProposalStatus.APPLYING, ""),
        (KillRestart("worker-1", Role.WORKER), ProposalStatus.APPLIED, ""),
    ],
)
def test_the_alert_says_what_is_proposed_or_done_about_its_straggler(action, status, words):
    text = straggling(slow(), mitigations=(mitigation("m1", action, status=status),)).text
    assert ("; m1 (" in text) == bool(words)
    assert text.endswith(words)


def test_sizes_of_workers_are_no_answer_to_a_slow_ps():
    text = straggling(slow("ps-0", role=Role.PS), mitigations=(mitigation("m1", BackupWorkers(1)),)).text
    assert "m1" not in text


@pytest.mark.more
@pytest.mark.parametrize(
    "foreign", [None, ExternalSpec(ExternalRole(("run",)), 100_000, ps=ExternalRole(("run",)))]
)
def test_the_alert_follows_what_the_controller_of_a_job_finds(foreign, words):
    """Also that of a job of other programs, whose slow workers its master replaces."""
    job = SlowJob(foreign=foreign)

    def now():
        told = job.view
        return snapshot(at_s=job.at_s, stragglers=told.stragglers, mitigations=told.mitigations)

    job.run(70)
    assert found(AlertKind.STRAGGLER, now()).is_good
    job.slow = {"worker-2": 3.0}
    job.run(70)
    finding = found(AlertKind.STRAGGLER, now())
    assert finding.is_bad
    assert finding.text.startswith("worker-2 (worker) takes ")
    assert finding.text == words
    job.slow = {}
    job.run(70)
    assert found(AlertKind.STRAGGLER, now()).is_good


def test_a_slow_report_alone_is_no_alert_as_of_a_master_without_findings():
    told = snapshot(nodes=(worker("w-0", 0.1), worker("w-1", 0.9)))
    assert told.stragglers == ()
    assert found(AlertKind.STRAGGLER, told).is_good


def stalled(after_s, **changed):
    """Return a job whose last iteration ended so long ago, and its memory."""
    first = snapshot(nodes=(worker("w-0", 0.5),))
    memory = remembered(JobMemory(), first)
    told = replace(
        first, at_s=NOW_S + after_s, nodes=(worker("w-0", 0.5, at_s=NOW_S + after_s, n_iter=0),), **changed
    )
    return told, remembered(memory, told)


def test_no_iteration_for_many_times_the_usual_one_is_a_stall():
    told, memory = stalled(RULES.stall_least_s - 1)
    assert not found(AlertKind.STALL, told, memory=memory).is_bad
    told, memory = stalled(RULES.stall_least_s)
    finding = found(AlertKind.STALL, told, memory=memory)
    assert finding.is_bad
    assert "0.5 s" in finding.text
    on = replace(told, nodes=(worker("w-0", 0.5, at_s=told.at_s),))
    assert found(AlertKind.STALL, on, memory=remembered(memory, on)).is_good


def test_slow_iterations_are_given_their_time():
    told, memory = stalled(200.0)
    slow = replace(told, nodes=(worker("w-0", 10.0, at_s=told.at_s, n_iter=0),))
    assert not found(AlertKind.STALL, slow, memory=memory).is_bad


@for_each(
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
    assert found(AlertKind.STALL, told, memory=remembered(memory, told)).is_good


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


def test_the_nodes_of_fixed_roles_count_in_what_a_job_costs():
    prices, run, told = PriceTable(cpu_hour=1.0, gib_hour=0.0), ExternalRole(("run",)), snapshot()
    costs = cost_per_hour(told.ran, prices)
    external = ExternalSpec(run, 1000, run, roles=(FixedRole("reader", ("read",), count=4, cpu=2.0),))
    spec = JobSpec("quick-start", prices=prices, budget_per_hour=costs * 1.5)
    assert found(AlertKind.BUDGET, replace(told, spec=spec)).is_good
    assert found(AlertKind.BUDGET, replace(told, spec=replace(spec, foreign=external))).is_bad


def test_a_total_budget_alerts_from_four_fifths_on_with_what_the_rest_buys(words):
    def at(spent, limit=10.0):
        return replace(snapshot(), budget=BudgetOutlook("quick-start", limit, spent, "USD", 1.0))

    assert found(AlertKind.BUDGET_TOTAL, snapshot()).is_good
    bad = found(AlertKind.BUDGET_TOTAL, at(8.0))
    assert bad.is_bad
    assert bad.text == words
    between = found(AlertKind.BUDGET_TOTAL, at(7.5))
    assert not between.is_bad
    assert not between.is_good
    assert found(AlertKind.BUDGET_TOTAL, at(8.0, limit=20.0)).is_good, "a limit that was raised ends it"


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


def test_a_job_that_waits_for_a_person_alone_says_so_until_somebody_decides():
    waits = replace(snapshot(), phase=JobPhase.BLOCKED, message="1 of 9 shards are all that is left: skip it")
    finding = found(AlertKind.BLOCKED, waits)
    assert (finding.is_bad, finding.text) == (True, waits.message)
    assert found(AlertKind.BLOCKED, replace(waits, phase=JobPhase.TRAINING)).is_good
    assert found(AlertKind.BLOCKED, replace(waits, phase=JobPhase.STOPPED)).is_good


def test_an_action_against_a_straggler_that_waits_is_told_of_as_a_proposal_is(words):
    late = snapshot(at_s=NOW_S + 10_000, proposals=(), mitigations=(mitigation(),))
    finding = found(AlertKind.PROPOSAL, late)
    assert (finding.is_bad, finding.subject) == (True, "m1")
    assert finding.text == words
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


@for_each(
    "wrong",
    [{"oom_within_s": -1}, {"straggler_for_s": -1}, {"hysteresis": 1.0}, {"cool_down_s": float("nan")}],
)
def test_thresholds_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidValueError):
        AlertRules(**wrong)
