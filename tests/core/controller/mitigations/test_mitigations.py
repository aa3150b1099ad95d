"""What becomes of stragglers under the controller: proposed, decided, carried out, taken back."""

from __future__ import annotations

import pytest
from support.cases import for_each
from support.plans.slow_world import SIZES, WINDOW_S, SlowJob, actions, end_all, plan_of, slow_job

from dlrover_nb.core.errors import InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import (
    ActionChoice,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.batch_cost import BatchCost
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Pace
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    Decided,
    MitigationEnded,
    NodeLeft,
    NodeReported,
    NodeStarted,
    PhaseChanged,
    PlanApplied,
    Remember,
)

RUN = ExternalRole(("run",))
PROGRAMS = ExternalSpec(RUN, 100_000, ps=RUN)

# who is slow, and what is proposed


@pytest.mark.more
@pytest.mark.parametrize("mode", list(Mode))
def test_who_is_slow_is_told_in_every_mode(mode):
    job = slow_job(seconds=30, mode=mode)
    assert [(each.node, each.pace) for each in job.view.stragglers] == [("worker-2", Pace.TRANSIENT)]


@pytest.mark.more
def test_in_manual_mode_nothing_is_proposed_and_a_user_may_order_what_they_like():
    job = slow_job(mode=Mode.MANUAL)
    assert job.view.mitigations == ()
    assert actions(job.order(KillRestart("worker-2", Role.WORKER))) == ["restart worker-2"]
    assert job.statuses == [("restart worker-2", "applying")]
    job.end()
    assert job.statuses == [("restart worker-2", "applied")]


@pytest.mark.release
def test_in_suggest_mode_one_action_waits_with_its_reason_and_cost(words):
    job = slow_job()
    assert actions(job.orders) == []
    assert job.open.id == "m1"
    assert job.open.why.startswith("worker-2 took 203.0 ms")
    assert job.open.cost == words
    job.run(60)
    assert job.statuses == [("restart worker-2", "pending")], "it does not change while it holds"
    job.check_replay()


@pytest.mark.more
def test_times_are_those_of_the_master_though_clocks_of_nodes_are_an_hour_apart():
    job = SlowJob(sync=Sync.ASP)
    job.ahead_s = {"worker-0": 3600.0, "worker-1": -3600.0, "worker-2": 1800.0, "ps-0": 3600.0}
    job.run(40)
    assert job.view.stragglers == ()
    job.slow["worker-2"] = 3.0
    job.run(120)
    assert job.open.words == "restart worker-2"


def test_reports_while_a_plan_is_not_steady_do_not_count():
    job = SlowJob(sync=Sync.ASP)
    job.slow["worker-2"] = 3.0
    for _ in range(120):
        job.at_s += 1.0
        for node, role in job.nodes:
            job.tell(NodeReported(job.at_s, job.report(node, role), None))
    assert job.view.stragglers == ()


@pytest.mark.more
def test_a_job_of_one_worker_has_no_straggler_and_its_worker_is_never_restarted_by_itself():
    job = slow_job("worker-0", n_worker=1, n_ps=1, mode=Mode.AUTO)
    assert (job.view.stragglers, job.view.mitigations) == ((), ())


@pytest.mark.more
def test_where_all_are_slow_nothing_is_done():
    job = SlowJob(sync=Sync.ASP, mode=Mode.AUTO)
    job.run(40)
    job.slow = {node: 3.0 for node, _ in job.nodes}
    job.run(120)
    assert job.view.mitigations == ()


@pytest.mark.more
def test_of_two_stragglers_the_slower_one_comes_first_and_then_the_other(words):
    job = SlowJob(n_worker=8, sync=Sync.ASP, mode=Mode.AUTO)
    job.run(40)
    job.slow = {"worker-2": 3.0, "worker-5": 4.0}
    job.run(100)
    assert actions(job.orders) == ["restart worker-5"]
    job.replace_node("worker-5", "worker-8")
    job.end()
    job.run(10)
    assert actions(job.orders) == ["restart worker-5", "restart worker-2"]
    assert job.told("restart worker-2: not now")[0] == words


@pytest.mark.more
def test_new_sizes_are_proposed_where_workers_keep_in_step_and_a_restart_supersedes_them(words):
    job = slow_job(sync=Sync.BSP, seconds=20)
    first = job.open
    assert first.words == words
    assert first.action.adjust.total == 4 * 512
    job.run(WINDOW_S / 2)
    assert job.open == first, "sizes are not replaced while the means of speeds still change"
    job.run(60)
    assert job.statuses[0] == (first.words, "superseded")
    assert job.open.words == "restart worker-2"


@pytest.mark.more
def test_sizes_that_differ_materially_supersede_the_open_ones():
    job = slow_job(sync=Sync.BSP, seconds=16)
    first = job.open
    job.run(2 * WINDOW_S / 3)
    assert job.open == first
    job.tell(NodeLeft(job.at_s, "worker-3", Role.WORKER))
    job.workers.remove("worker-3")
    job.run(5)
    assert job.statuses[0] == (first.words, "expired")
    assert "worker-3" not in job.open.words


@pytest.mark.more
@pytest.mark.parametrize("mode", [Mode.SUGGEST, Mode.AUTO])
def test_of_other_programs_a_slow_worker_is_restarted(mode, error_words):
    job = slow_job(mode=mode, foreign=PROGRAMS)
    assert [words for words, _ in job.statuses] == ["restart worker-2"]
    assert actions(job.orders) == (["restart worker-2"] if mode is Mode.AUTO else [])
    with error_words(InvalidValueError):
        job.order(KillRestart("ps-0", Role.PS))


@pytest.mark.more
def test_of_other_programs_nothing_is_done_about_a_slow_ps():
    job = slow_job("ps-0", mode=Mode.AUTO, foreign=PROGRAMS)
    assert job.view.stragglers
    assert job.view.mitigations == ()


@pytest.mark.more
def test_sizes_that_programs_do_not_ask_for_are_tried_once_and_the_worker_is_restarted_then():
    job = slow_job(mode=Mode.AUTO, sync=Sync.BSP, seconds=20, foreign=PROGRAMS)
    assert actions(job.orders)[0].startswith("adjust batch sizes")
    job.end("they never asked for it")
    job.run(150)
    assert [each.split()[0] for each in actions(job.orders)] == ["adjust", "restart"]


@pytest.mark.more
@pytest.mark.parametrize("pause_s", [2, 5])
def test_a_slowdown_that_lasts_with_short_pauses_is_one_finding_and_one_proposal(pause_s):
    job = SlowJob(sync=Sync.ASP)
    job.run(40)
    found = []
    for second in range(240):
        job.slow["worker-2"] = 1.0 if second % 20 < pause_s else 3.0
        job.run(1)
        found.append(bool(job.view.stragglers))
    first = found.index(True)
    assert all(found[first:]), "recovered in between"
    assert job.statuses == [("restart worker-2", "pending")]


@pytest.mark.more
def test_what_fits_into_memory_and_what_uses_a_device_are_bounds_of_its_mini_batches(words):
    job = SlowJob(n_worker=2, stragglers=SolutionName.ANTDT_DD, mode=Mode.AUTO)
    job.costs = dict.fromkeys(job.workers, BatchCost(0.0, 0.0002, 520))
    job.slow["worker-1"] = 2.0
    job.run(100)
    action = job.controller.acting.action.action
    assert action.accumulate == (("worker-0", 2),)
    assert action.total == 2 * 512
    assert dict(action.samples)["worker-0"] == pytest.approx(2 * dict(action.samples)["worker-1"], rel=0.02)
    job.end()
    job.run(60)
    assert job.controller.acting is None
    assert actions(job.undo())[0] == words
    job.check_replay()


@pytest.mark.more
def test_a_job_that_asks_for_nothing_gets_nothing():
    job = slow_job(stragglers=SolutionName.NONE, mode=Mode.AUTO)
    assert job.view.stragglers
    assert job.view.mitigations == ()


@pytest.mark.more
def test_a_solution_that_finds_no_answer_is_told_once_and_ends_nothing(words):
    job = SlowJob(stragglers=SolutionName.ANTDT_DD)
    job.run(40)
    job.order(AdjustBatches((("worker-0", 513), ("worker-1", 512), ("worker-2", 512), ("worker-3", 512))))
    job.end()
    job.run(100)
    [line] = job.told("antdt-dd has no solution")
    assert "4 and a multiple" in line
    assert line == words
    assert job.open is None


@pytest.mark.more
def test_no_node_is_restarted_while_the_cluster_is_busy():
    job = SlowJob(sync=Sync.ASP, mode=Mode.AUTO)
    job.run(40)
    for n in range(9):
        job.tell(NodeStarted(job.at_s, "worker-9", Role.WORKER, 300.0 + n))
        job.tell(NodeLeft(job.at_s, "worker-9", Role.WORKER))
    job.slow["worker-2"] = 3.0
    job.run(50)
    assert job.view.mitigations == (), "the queue of a minute ago still counts"
    job.run(60)
    assert actions(job.orders) == ["restart worker-2"]


# accept, reject, recover


@pytest.mark.more
def test_an_accepted_action_is_ordered_and_applied_when_it_is_in_effect():
    job = slow_job()
    orders = job.decide(Verdict.ACCEPT, proposal="m1")
    choice = job.controller.acting
    assert actions(orders) == ["restart worker-2"]
    assert (choice.decision, choice.by, choice.why) == ("d1", "ada", job.view.mitigations[0].why)
    assert isinstance(orders[0], Remember)
    assert orders[0].record.words == "accept m1"
    told = [order.record for order in orders[1:] if isinstance(order, Remember)]
    assert told == [job.view.mitigations[0]], "once, as it is after the decision"
    job.run(30)
    assert job.statuses == [("restart worker-2", "applying")]
    job.replace_node("worker-2", "worker-4")
    job.end()
    job.run(100)
    assert job.statuses == [("restart worker-2", "applied")]
    assert job.view.mitigations[0].decision == "d1"
    job.check_replay()


@pytest.mark.more
def test_an_action_that_fails_says_why_and_is_not_repeated_at_once():
    job = slow_job(mode=Mode.AUTO, seconds=50)
    job.end("no room was found")
    assert job.view.mitigations[0].note == "no room was found"
    job.run(30)
    assert job.statuses == [("restart worker-2", "failed")]
    assert len(job.told("restart worker-2: not now, because the last action on worker-2 was")) == 1
    job.run(60)
    assert len(job.statuses) == 2, "once the cool-down is over"


@pytest.mark.more
def test_an_end_of_an_unknown_decision_changes_nothing():
    job = slow_job()
    before = job.view
    job.tell(MitigationEnded(job.at_s, "d9"))
    assert job.view == before


@pytest.mark.release
def test_a_rejected_action_comes_again_only_after_its_node_has_recovered():
    job = slow_job()
    job.decide(Verdict.REJECT, proposal="m1", why="it warms up")
    assert job.view.mitigations[0].note == "ada: it warms up"
    job.run(200)
    assert job.statuses == [("restart worker-2", "rejected")]
    job.slow = {}
    job.run(80)
    job.slow["worker-2"] = 3.0
    job.run(120)
    assert job.statuses == [("restart worker-2", "rejected"), ("restart worker-2", "pending")]


@pytest.mark.more
def test_rejected_sizes_come_again_only_after_the_slow_worker_has_recovered():
    job = slow_job(sync=Sync.BSP, seconds=20)
    job.decide(Verdict.REJECT, proposal=job.open.id)
    job.run(25)
    assert [status for _, status in job.statuses] == ["rejected"]
    job.slow = {}
    job.run(80)
    job.slow["worker-2"] = 3.0
    assert job.open is None
    job.run(20)
    assert job.open is not None


@pytest.mark.more
def test_a_node_that_recovers_takes_the_open_action_with_it():
    job = slow_job()
    job.slow = {}
    job.run(60)
    assert job.statuses == [("restart worker-2", "expired")]
    assert job.view.mitigations[0].note == "worker-2 has recovered"
    assert actions(job.orders) == []


@pytest.mark.more
def test_a_node_that_recovers_while_its_action_is_under_way_changes_nothing_until_it_ends():
    job = slow_job(mode=Mode.AUTO)
    job.slow = {}
    job.run(60)
    assert job.statuses == [("restart worker-2", "applying")]
    job.end("worker-2 has recovered")
    assert job.statuses == [("restart worker-2", "failed")]
    job.run(100)
    assert len(job.statuses) == 1


@pytest.mark.more
def test_sizes_are_set_back_when_the_slow_worker_has_recovered(words):
    job = slow_job(sync=Sync.BSP, seconds=20, mode=Mode.AUTO)
    job.end()
    job.slow = {}
    done = end_all(job, 150)
    assert done[-1] == words
    assert job.sizes == dict.fromkeys(job.workers, 512)


@pytest.mark.more
def test_the_global_batch_stays_when_a_worker_with_a_small_one_is_replaced():
    job = SlowJob()
    job.run(40)
    job.order(SIZES)
    job.end()
    job.replace_node("worker-2", "worker-4")
    job.sizes = {node: 600 for node in job.workers if node != "worker-4"}
    job.tell(BatchSizesSet(job.at_s, tuple(job.sizes.items())))
    job.run(60)
    assert sum(job.sizes.get(node, 512) for node in job.workers) == 2312
    assert dict(job.open.action.adjust.sizes) == dict.fromkeys(job.workers, 512)


@pytest.mark.more
def test_sizes_that_a_user_sets_are_the_new_global_batch():
    job = SlowJob()
    job.run(40)
    job.sizes = dict.fromkeys(job.workers, 256)
    job.tell(BatchSizesSet(job.at_s, tuple(job.sizes.items())))
    job.slow["worker-2"] = 3.0
    job.run(20)
    assert job.open.action.adjust.total == 4 * 256


@pytest.mark.more
def test_a_node_that_is_killed_takes_its_proposed_restart_with_it():
    job = slow_job()
    job.tell(NodeLeft(job.at_s, "worker-2", Role.WORKER, "killed by the machine"))
    assert job.view.mitigations[0].note == "worker-2 has left"
    assert job.view.stragglers == ()
    job.workers[2] = "worker-4"
    job.run(100)
    assert job.statuses == [("restart worker-2", "expired")]


@pytest.mark.more
def test_the_view_has_the_errors_of_nodes_of_the_long_window_and_none_of_ended_ones():
    job = SlowJob()
    job.run(10)
    job.tell(NodeLeft(job.at_s, "worker-2", Role.WORKER, "killed by the machine"))
    job.tell(NodeLeft(job.at_s, "worker-3", Role.WORKER, "no such file", is_retryable=False))
    job.tell(NodeLeft(job.at_s, "ps-1", Role.PS))
    job.workers[2:], job.ps[1:] = ["worker-4", "worker-5"], ["ps-2"]
    assert job.view.node_errors == (
        NodeErrors("worker-2", Role.WORKER, 1, 0, 2 * WINDOW_S),
        NodeErrors("worker-3", Role.WORKER, 0, 1, 2 * WINDOW_S),
    )
    job.check_replay()
    job.run(2 * WINDOW_S - 1)
    assert len(job.view.node_errors) == 2
    job.run(WINDOW_S / 10 + 1)
    assert job.view.node_errors == ()


@pytest.mark.more
def test_a_refusal_is_told_once_per_node_and_spell():
    job = slow_job(mode=Mode.AUTO, seconds=50)
    for n_spell in (1, 2):
        job.end()
        job.run(30)
        assert len(job.told("not now, because the last action on worker-2")) == n_spell
        job.slow = {}
        job.run(70)
        job.slow = {"worker-2": 3.0}
        job.run(50)


@pytest.mark.more
def test_a_ps_is_relieved_first(words):
    job = slow_job("ps-1", n_ps=3, mode=Mode.AUTO)
    assert actions(job.orders)[0] == words
    job.end()
    assert job.view.mitigations[0].status == "applied"


# decisions and their errors


@pytest.mark.more
def test_answers_go_by_the_id_that_was_seen(error_words):
    job = slow_job()
    before = job.view
    with error_words(NotFoundError):
        job.decide(Verdict.ACCEPT, proposal="m7")
    with error_words(InvalidValueError):
        job.decide(Verdict.OVERRIDE, proposal="m1", plan=plan_of(3))
    with pytest.raises(InvalidValueError, match="mitigate needs an action"):
        job.decide(Verdict.MITIGATE)
    assert job.view == before
    job.decide(Verdict.ACCEPT, proposal="m1")
    with pytest.raises(StaleDecisionError, match="action m1 is already") as caught:
        job.decide(Verdict.REJECT, proposal="m1")
    assert any("m1 proposed" in line for line in caught.value.story)


@for_each(
    ("action", "error", "words"),
    [
        (KillRestart("worker-9", Role.WORKER), NotFoundError, "has no worker worker-9 .*: worker-0, w"),
        (KillRestart("worker-1", Role.PS), NotFoundError, "has no ps worker-1 .*: ps-0"),
        (MoveBuckets("ps-0"), InvalidValueError, "is the only parameter server"),
        (AdjustRates((("worker-0", 0.5),)), InvalidValueError, "sync must be asp, ssp or gba"),
        (BackupWorkers(4), InvalidValueError, "less than the number of workers, 4, got 4"),
        (AdjustBatches((("worker-0", 5), ("w", 9))), NotFoundError, "has no worker w "),
    ],
)
def test_an_impossible_action_is_refused_and_changes_nothing(action, error, words):
    job = SlowJob(n_ps=1)
    job.run(5)
    before = job.view
    with pytest.raises(error, match=words):
        job.order(action)
    assert job.view == before


@for_each("action", [BackupWorkers(1), AdjustBatches(tuple((f"worker-{i}", 5) for i in range(4)))])
def test_where_a_job_is_deterministic_batches_stay_as_they_are(action, error_words):
    job = SlowJob(deterministic=True, global_batch=2048)
    job.run(5)
    with error_words(InvalidValueError):
        job.order(action)
    job.order(KillRestart("worker-0", Role.WORKER))


@pytest.mark.more
def test_an_action_waits_for_training_and_for_whatever_is_under_way(error_words):
    job = slow_job()
    job.decide(Verdict.SCALE, plan=plan_of(5))
    with pytest.raises(StaleDecisionError, match="still changing its plan"):
        job.order(KillRestart("worker-0", Role.WORKER))
    job.plan = plan_of(5)
    job.tell(PlanApplied(job.at_s, job.plan, 1.0))
    job.order(KillRestart("worker-0", Role.WORKER))
    with error_words(StaleDecisionError):
        job.order(KillRestart("worker-1", Role.WORKER))
    job.end()
    job.tell(PhaseChanged(job.at_s, JobPhase.EVALUATING))
    with error_words(StaleDecisionError):
        job.order(KillRestart("worker-1", Role.WORKER))


def test_before_training_begins_nothing_can_be_ordered():
    job = SlowJob()
    first = type(job.controller)(job.journal[0], policy=job.controller.dependencies.policy)
    first.handle(NodeStarted(0.0, "worker-0", Role.WORKER, 1.0))
    wanted = Decision(
        Verdict.MITIGATE, "ada", 1.0, action=ActionChoice.of(KillRestart("worker-0", Role.WORKER))
    )
    with pytest.raises(StaleDecisionError, match="still starting"):
        first.handle(Decided(1.0, wanted))


@pytest.mark.more
def test_a_users_order_takes_the_place_of_the_open_action():
    job = slow_job()
    job.order(AdjustRates(tuple((node, 1.0 if node != "worker-2" else 0.4) for node in job.workers)))
    assert job.statuses[0] == ("restart worker-2", "superseded")
    assert job.statuses[1][1] == "applying"


# changes of plan, and the end


@pytest.mark.more
def test_a_change_of_plan_by_a_user_ends_the_open_action_and_the_one_under_way():
    job = slow_job()
    job.decide(Verdict.SCALE, plan=plan_of(5))
    assert (job.view.mitigations[0].status, job.view.mitigations[0].note) == (
        "expired",
        "ada set another plan",
    )
    job.plan = plan_of(5)
    job.workers.append("worker-4")
    job.tell(PlanApplied(job.at_s, job.plan, 1.0))
    job.run(10)
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.decide(Verdict.SCALE, plan=plan_of(4))
    assert (job.view.mitigations[-1].status, job.view.mitigations[-1].note) == (
        "failed",
        "ada set another plan",
    )
    job.tell(MitigationEnded(job.at_s, job.view.mitigations[-1].decision))
    assert job.view.mitigations[-1].status == "failed"


@pytest.mark.more
def test_a_plan_that_nobody_ordered_ends_the_action_under_way(words):
    job = slow_job(mode=Mode.AUTO)
    job.tell(PlanApplied(job.at_s, plan_of(3), 1.0))
    assert job.view.mitigations[-1].note == words
    assert job.controller.acting is None


@pytest.mark.more
def test_nothing_is_proposed_during_a_change_of_plan():
    job = SlowJob(sync=Sync.ASP)
    job.run(40)
    job.decide(Verdict.SCALE, plan=plan_of(5))
    job.slow["worker-2"] = 3.0
    job.run(120)
    assert job.view.stragglers
    assert job.view.mitigations == ()


@pytest.mark.more
@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.STOPPED, JobPhase.FAILED])
def test_the_end_of_the_job_ends_all_actions(phase):
    job = slow_job()
    job.tell(PhaseChanged(job.at_s, phase))
    assert job.view.mitigations[0].note == f"the job has {phase}"
    other = slow_job(mode=Mode.AUTO)
    other.tell(PhaseChanged(other.at_s, phase))
    assert other.statuses == [("restart worker-2", "failed")]
    assert other.view.stragglers, "who was slow at the end is kept"


@pytest.mark.more
def test_manual_mode_withdraws_the_open_action(words):
    job = slow_job()
    job.decide(Verdict.MODE, mode=Mode.MANUAL)
    assert job.view.mitigations[0].note == words


@pytest.mark.more
def test_auto_mode_orders_what_waited_for_a_user():
    job = slow_job()
    job.decide(Verdict.MODE, mode=Mode.AUTO)
    job.run(5)
    assert job.statuses == [("restart worker-2", "applying")]
    assert job.view.decisions[-1].by == "auto"


@pytest.mark.more
def test_auto_mode_does_not_order_what_waited_for_a_user_and_may_not_be_done_now():
    job = slow_job()
    for _ in range(9):
        job.tell(NodeStarted(job.at_s, "worker-9", Role.WORKER, 300.0))
        job.tell(NodeLeft(job.at_s, "worker-9", Role.WORKER))
    job.run(5)
    assert job.open is not None, "a user may do it nevertheless"
    job.decide(Verdict.MODE, mode=Mode.AUTO)
    job.run(5)
    assert [status for _, status in job.statuses] == ["expired"]
    assert actions(job.orders) == []


@pytest.mark.more
def test_a_first_iteration_whose_time_is_not_told_makes_no_worker_look_fast():
    job = SlowJob(n_worker=2, stragglers=SolutionName.LB_BSP, mode=Mode.AUTO)
    job.slow["worker-0"] = 0.001  # as a first report has it, without the time of computing
    job.run(1)
    job.slow = {}
    job.run(60)
    assert job.view.mitigations == ()
