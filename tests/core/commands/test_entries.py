"""Every entry goes through the command service: who asked, and through which entry, stands in the audit."""

from __future__ import annotations

import pytest
from support.jobs import builders as b
from support.jobs.builders import mitigation, plan, snapshot
from support.jobs.masters import Master
from support.jobs.orders import ordered

from dlrover_nb import api
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.commands.memory_audit import MemoryAudit
from dlrover_nb.core.commands.requests import (
    Accept,
    Finish,
    Override,
    Reject,
    RetryShard,
    Scale,
    SetBatches,
    SetBudget,
    SetMode,
    SkipShard,
    Undo,
)
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.errors import (
    BackendError,
    InvalidValueError,
    NotAllowedError,
    NotFoundError,
    SecondPersonError,
    StaleDecisionError,
)
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.stores.request_store import RequestStore
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, BackupWorkers, KillRestart
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry, Stage
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets.live.browser.poller import Poller

VIEWER = Asker(Person("eve", grants=(Grant(AccessRole.VIEWER),)), Entry.DASHBOARD)


@pytest.fixture
def audit():
    return MemoryAudit()


@pytest.fixture
def job(audit):
    handle = JobHandle("quick-start", Master(), user="ada")
    return handle.through(Entry.NOTEBOOK, CommandService(lambda: audit, lambda: 5.0))


COMMANDS = {
    "accept": lambda job: job.decide(Accept("")),
    "reject": lambda job: job.decide(Reject("")),
    "override": lambda job: job.decide(Override.to(plan(workers=3), "")),
    "scale": lambda job: job.decide(Scale.to(plan(workers=3))),
    "mitigate": lambda job: job.decide(ordered(BackupWorkers(1))),
    "set_mode": lambda job: job.decide(SetMode("auto")),
    "limit_budget": lambda job: job.decide(SetBudget(40.0)),
    "retry_shard": lambda job: job.ask(RetryShard(3)),
    "skip_shard": lambda job: job.ask(SkipShard(3)),
    "adjust_batches": lambda job: job.ask(SetBatches({"worker-0": 8})),
    "finish": lambda job: job.ask(Finish()),
    "stop": lambda job: job.stop(),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_of_a_handle_gets_past_the_service(job, audit, name):
    with pytest.raises(NotAllowedError):
        COMMANDS[name](job.asked_by(VIEWER))
    (row,) = audit.rows()
    assert (row.row.person, row.row.entry, row.row.stage) == ("eve", Entry.DASHBOARD, Stage.REFUSED)
    assert job.link.asked == []


def test_the_audit_has_the_plans_and_the_prediction_of_a_proposal(job, audit):
    proposal = job.snapshot().open_proposal
    decision = job.decide(Accept("", why="worth it"))
    done = [*audit.rows()][-1].row
    chosen = proposal.candidate
    assert (done.plan_before, done.plan_after) == (str(job.snapshot().target), str(chosen.plan))
    assert (done.predicted_samples_per_s, done.low, done.high) == (
        chosen.prediction.samples_per_s, chosen.prediction.low, chosen.prediction.high,
    )  # fmt: skip
    assert (done.person, done.entry, done.why, done.answer) == (
        "ada",
        Entry.NOTEBOOK,
        "worth it",
        decision.id,
    )


def test_a_job_whose_master_does_not_answer_is_refused_by_it_and_not_by_the_audit(job, audit):
    job.link.reachable = False
    with pytest.raises(BackendError, match="does not answer"):
        job.decide(Accept(""))
    with pytest.raises(BackendError, match="ada may not stop"):
        job.stop()
    assert [row.row.stage for row in audit.rows()] == [Stage.ASKED, Stage.FAILED]


def test_decisions_of_a_client_of_this_account_stand_in_the_history_that_it_names(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    monkeypatch.setenv("DLROVER_NB_HISTORY", url)
    api.Job(JobHandle("quick-start", Master(), user="ada"), Poller()).accept("p2")
    rows = [row.row for row in AuditStore(url).rows()]
    assert [(row.person, row.entry, row.stage) for row in rows] == [
        ("ada", Entry.PYTHON, Stage.ASKED),
        ("ada", Entry.PYTHON, Stage.DONE),
    ]


RESTART = KillRestart("worker-1", Role.WORKER)


def rows_of(audit):
    return [each.row for each in audit.rows()]


def with_two_workers(job):
    nodes = tuple(b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    job.link.state = snapshot(nodes=nodes)
    return job


def with_mitigation(job, *, proposals=()):
    job.link.state = snapshot(proposals=proposals, mitigations=(mitigation("m1", RESTART),))
    return job


def test_an_ordered_action_stands_in_the_audit_by_its_words_and_changes_no_plan(job, audit):
    decision = with_two_workers(job).decide(ordered(RESTART, why="it is slow"), version="d0")
    done = rows_of(audit)[-1]
    assert (done.action, done.mitigation, done.answer, done.why) == (
        Action.MITIGATE, "restart worker-1", decision.id, "it is slow",
    )  # fmt: skip
    assert done.plan_before == done.plan_after
    assert done.cost_per_hour is None
    asked = job.link.asked[-1]
    assert (asked.verdict, asked.action.action, asked.seen) == (Verdict.MITIGATE, RESTART, "d0")


@pytest.mark.parametrize(("verb", "action"), [(Accept, Action.ACCEPT), (Reject, Action.REJECT)])
@pytest.mark.parametrize("name", ["m1", None])
def test_an_open_action_is_answered_by_its_id_or_as_the_only_one_that_waits(job, audit, verb, action, name):
    made = with_mitigation(job).decide(verb(name or "", why="so be it"))
    assert made.proposal == "m1"
    done = rows_of(audit)[-1]
    assert (done.action, done.subject, done.mitigation) == (action, "m1", "restart worker-1")
    assert done.predicted_samples_per_s is None


def test_where_a_proposal_and_an_action_wait_an_answer_must_name_one(job, error_words):
    proposals = job.snapshot().proposals
    with error_words(InvalidValueError):
        with_mitigation(job, proposals=proposals).decide(Accept(""))
    assert job.link.asked == []
    assert job.decide(Accept("m1")).proposal == "m1"
    assert job.decide(Accept("")).proposal == "p2", "the only one that waits now"


def test_an_answer_without_an_id_is_refused_where_nothing_waits(job):
    job.link.state = snapshot(proposals=(), mitigations=(mitigation(status=ProposalStatus.APPLIED),))
    with pytest.raises(NotFoundError, match="no open proposal"):
        job.decide(Accept(""))


def test_an_action_that_is_no_longer_open_is_stale(job, audit, error_words):
    job.link.state = snapshot(mitigations=(mitigation(status=ProposalStatus.EXPIRED),))
    with error_words(StaleDecisionError):
        job.decide(Accept("m1"))
    assert rows_of(audit)[-1].stage is Stage.REFUSED


def test_an_action_is_undone_as_any_change_is(job, audit):
    sizes = AdjustBatches((("worker-0", 96), ("worker-1", 32)))
    made = with_two_workers(job).decide(ordered(sizes))
    job.decide(Undo(made.id))
    done = rows_of(audit)[-1]
    assert (done.action, done.subject, done.stage) == (Action.UNDO, made.id, Stage.DONE)
    assert done.mitigation == sizes.words


def test_a_rule_by_cost_asks_nothing_of_an_action_and_a_rule_by_action_does(audit, tmp_path, error_words):
    nodes = tuple(b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    handle = JobHandle("quick-start", Master(b.snapshot(nodes=nodes)), user="ada")
    by_cost = CommandService(lambda: audit, lambda: 5.0, rules=Rules(over_cost_per_hour=0.0))
    assert handle.through(Entry.DASHBOARD, by_cost).decide(ordered(RESTART)).id == "d2"
    requests = RequestStore(f"sqlite:///{tmp_path / 'team.db'}")
    rules = Rules(actions=frozenset({Action.MITIGATE}))
    by_action = CommandService(lambda: audit, lambda: 5.0, requests=requests, rules=rules)
    first = handle.through(Entry.DASHBOARD, by_action)
    with error_words(SecondPersonError):
        first.decide(ordered(RESTART, why="it is slow"))
    (request,) = requests.open(5.0)
    bob = Person("bob", grants=(Grant(AccessRole.OPERATOR),))
    made = first.asked_by(Asker(bob, Entry.APPROVE)).approve(request)
    assert (made.verdict, made.action.action) == (Verdict.MITIGATE, RESTART)
    assert rows_of(audit)[-1].mitigation == "restart worker-1"
    requests.close()
