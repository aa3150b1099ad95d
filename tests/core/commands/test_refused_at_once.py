"""What a job would refuse is known when it is asked for: each kind of command, from the job's snapshot alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.commands.facts import facts_of
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.commands import Action, Command, choose, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.budget import BudgetOutlook
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import (
    BatchChoice,
    FinishChoice,
    Purpose,
    QuarantinedShard,
    ShardAction,
    ShardChoice,
    UserChoice,
)

BOUNDS = PlanBounds(max_workers=4, max_ps=2, worker_cpus=(0.5, 1.0), ps_cpus=(0.25,))
JOB = b.snapshot(
    spec=JobSpec(
        "ads", bounds=BOUNDS, prices=PriceTable(cpu_hour=1.0, gib_hour=1.0, currency="EUR", assumed=False)
    ),
    mode=Mode.SUGGEST,
    pins=Pins(workers=2),
    mitigations=(b.mitigation(),),
    budget=BudgetOutlook("ads", 50.0, 20.0, "EUR", 1.0),
    quarantined=(QuarantinedShard(Purpose.TRAIN, 7, 0, 0, 10, 0, ("worker-0",)),),
    undo=Decision(Verdict.MODE, "", 0.0, mode=Mode.MANUAL, undoes="d4"),
)
OPEN = JOB.open_proposal.id if JOB.open_proposal is not None else ""


def _decide(verdict: Verdict, **fields: object) -> Command:
    return decide(replace(Decision(verdict, "ada", 0.0), **fields), "ads")  # type: ignore[arg-type]


def _choose(choice: UserChoice) -> Command:
    return choose(choice, "ads")


RESTART, GONE = (ActionChoice.of(KillRestart(node, Role.WORKER)) for node in ("worker-0", "worker-9"))
REFUSED = [
    (_decide(Verdict.MODE, mode=Mode.SUGGEST), "is already in suggest mode"),
    (_decide(Verdict.PIN, pins=Pins(workers=2)), "already has workers = 2 pinned"),
    (_decide(Verdict.PIN, pins=Pins(workers=900)), "fit"),
    (_decide(Verdict.BUDGET, budget_total=50.0), "already has the total budget 50 EUR"),
    (_decide(Verdict.BUDGET, budget_total=10.0), "must be more than job ads has spent, 20 EUR, got 10"),
    (_decide(Verdict.ACCEPT, proposal="p99"), "p99 of job ads must be open"),
    (_decide(Verdict.REJECT, proposal="p99"), "p99 of job ads must be open"),
    (_decide(Verdict.OVERRIDE, proposal="p99", plan=b.NOW_PLAN), "p99 of job ads must be open"),
    (
        _decide(Verdict.MODE, mode=Mode.AUTO, undoes="d1"),
        "only the latest change of job ads can be undone, not d1",
    ),
    (_decide(Verdict.MITIGATE, action=GONE), "worker-9 must be among the nodes of job ads"),
    (_choose(ShardChoice(3, ShardAction.RETRY, "ada")), "shard 3 of job ads must be in quarantine"),
    (_choose(ShardChoice(3, ShardAction.SKIP, "ada")), "shard 3 of job ads must be in quarantine"),
    (_choose(BatchChoice((("worker-9", 5),), "ada")), "worker-9 must be among the nodes"),
]
POSSIBLE = [
    _decide(Verdict.MODE, mode=Mode.AUTO),
    _decide(Verdict.PIN, pins=Pins(workers=1)),
    _decide(Verdict.BUDGET, budget_total=60.0),
    _decide(Verdict.BUDGET),
    _decide(Verdict.ACCEPT, proposal=OPEN),
    _decide(Verdict.REJECT, proposal=OPEN),
    _decide(Verdict.OVERRIDE, proposal=OPEN, plan=b.NOW_PLAN),
    _decide(Verdict.SCALE, plan=b.NOW_PLAN),  # its master weighs it
    _decide(Verdict.MODE, mode=Mode.MANUAL, undoes="d4"),
    _decide(Verdict.MITIGATE, action=RESTART),
    _choose(ShardChoice(7, ShardAction.RETRY, "ada")),
    _choose(ShardChoice(7, ShardAction.SKIP, "ada")),
    _choose(BatchChoice((("worker-0", 5),), "ada")),
    _choose(FinishChoice("ada")),
    Command(Action.STOP, "ads"),
    Command(Action.DELETE, "ads"),
]


@for_each(("command", "why"), REFUSED)
def test_what_cannot_be_is_refused_when_it_is_asked_for(command: Command, why: str) -> None:
    assert why in facts_of(command, JOB).refusal


@for_each("command", POSSIBLE)
def test_what_can_be_is_not_refused(command: Command) -> None:
    assert facts_of(command, JOB).refusal == ""


def test_each_kind_of_command_about_a_running_job_has_its_refusal() -> None:
    kinds = {command.action for command in POSSIBLE}
    weighed, never = {Action.SCALE}, {Action.STOP, Action.DELETE}
    only_ended = {Action.FINISH}
    assert {command.action for command, _ in REFUSED} == kinds - weighed - never - only_ended
    of_clusters = {Action.VIEW, Action.PROPOSE, Action.SUBMIT}
    assert kinds | of_clusters >= set(Action)


@for_each("command", POSSIBLE)
def test_an_ended_job_takes_nothing_but_its_end(command: Command) -> None:
    ended = replace(JOB, phase=JobPhase.SUCCEEDED)
    refusal = facts_of(command, ended).refusal
    assert ("has succeeded" in refusal) == (command.action not in {Action.STOP, Action.DELETE})


def test_bounds_that_follow_from_the_cluster_refuse_no_pins() -> None:
    snapshot = replace(JOB, spec=replace(JOB.spec, bounds=PlanBounds()))
    assert facts_of(_decide(Verdict.PIN, pins=Pins(workers=900)), snapshot).refusal == ""


def test_the_refusal_of_a_plan_by_its_master_comes_first() -> None:
    told = facts_of(_decide(Verdict.SCALE, plan=b.NOW_PLAN), JOB, refusal="it does not fit")
    assert told.refusal == "it does not fit"
    with pytest.raises(AttributeError):
        told.refusal = ""  # type: ignore[misc]
