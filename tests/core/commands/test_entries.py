"""Every entry goes through the command service: who asked, and through which entry, stands in the audit."""

from __future__ import annotations

import pytest
from builders import plan
from masters import Master

from dlrover_nb import api
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.commands.memory_audit import MemoryAudit
from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.errors import BackendError, NotAllowedError
from dlrover_nb.core.history.audit import AuditStore
from dlrover_nb.core.structs.commands import Asker, Entry, Stage
from dlrover_nb.core.structs.people import AccessRole, Grant, Person
from dlrover_nb.widgets.poller import Poller

VIEWER = Asker(Person("eve", grants=(Grant(AccessRole.VIEWER),)), Entry.DASHBOARD)


@pytest.fixture
def audit():
    return MemoryAudit()


@pytest.fixture
def job(audit):
    handle = JobHandle("quick-start", Master(), user="ada")
    return handle.through(Entry.NOTEBOOK, CommandService(lambda: audit, lambda: 5.0))


COMMANDS = {
    "accept": lambda job: job.accept(),
    "reject": lambda job: job.reject(),
    "override": lambda job: job.override(plan(workers=3)),
    "scale": lambda job: job.scale(plan(workers=3)),
    "set_mode": lambda job: job.set_mode("auto"),
    "retry_shard": lambda job: job.retry_shard(3),
    "skip_shard": lambda job: job.skip_shard(3),
    "adjust_batches": lambda job: job.adjust_batches({"worker-0": 8}),
    "finish": lambda job: job.finish(),
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
    decision = job.accept(why="worth it")
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
        job.accept()
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
