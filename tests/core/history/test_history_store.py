from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.history import database as database_module
from dlrover_nb.core.structs.decisions import (
    Candidate,
    Decision,
    Outcome,
    Prediction,
    Proposal,
    ProposalKind,
    ProposalStatus,
    TermShare,
    Verdict,
)
from dlrover_nb.core.structs.events import PhaseChanged
from dlrover_nb.core.structs.job import JobPhase, JobSpec
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan, diff

PLAN = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.25, 512))
TARGET = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.25, 512))
BAND = Prediction(100.0, 80.0, 120.0, extrapolates=True)
CANDIDATE = Candidate(
    TARGET, BAND, 0.1, 0.2, 30.0, diff(PLAN, TARGET), 0.5, 40.0, (TermShare("sync", 0.1, 1.0),), "because"
)
SPEC = JobSpec("clicks", owner="ada", plan=PLAN)
PROPOSAL = Proposal("p1", "clicks", ProposalKind.EXPLORE, CANDIDATE, CANDIDATE, "to learn", 20.0)
DECISION = Decision(Verdict.ACCEPT, "ada", 21.0, proposal="p1", why="sounds good", id="d1")
OUTCOME = Outcome("d1", TARGET, BAND, 110.0, 70.0, 5, 22.0, 0.5)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'deep' / 'history.db'}"


@pytest.fixture
def store(url):
    found = HistoryStore(url)
    found.remember("clicks", 10.0, SPEC)
    yield found
    found.close()


def test_what_is_remembered_comes_back_equal(store):
    store.remember("clicks", 20.0, PROPOSAL)
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 30.0, OUTCOME)
    assert store.proposals("clicks") == (PROPOSAL,)
    assert store.decisions("clicks") == (DECISION,)
    assert store.outcomes("clicks") == (OUTCOME,)
    assert store.jobs()[0].spec == SPEC


def test_it_survives_the_process(store, url):
    store.remember("clicks", 21.0, DECISION)
    assert HistoryStore(url).decisions("clicks") == (DECISION,)


def test_remembering_twice_changes_nothing_but_a_proposal_is_updated(store):
    for record in (PROPOSAL, DECISION, OUTCOME, PhaseChanged(11.0, JobPhase.TRAINING)):
        store.remember("clicks", 20.0, record)
        store.remember("clicks", 20.0, record)
    store.remember("clicks", 10.0, SPEC)
    store.remember("clicks", 22.0, replace(PROPOSAL, status=ProposalStatus.APPLYING))
    assert len(store.jobs()) == len(store.decisions("clicks")) == len(store.outcomes("clicks")) == 1
    assert [p.status for p in store.proposals("clicks")] == [ProposalStatus.APPLYING]


def test_each_run_of_a_name_is_kept_apart_and_the_newest_is_shown(store):
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 50.0, SPEC)
    assert store.decisions("clicks") == ()
    runs = store.jobs()
    assert [r.started_at_s for r in runs] == [50.0, 10.0]
    assert store.decisions("clicks", run=runs[1].run) == (DECISION,)


def test_master_that_comes_back_writes_to_its_run(store, url):
    again = HistoryStore(url)
    again.remember("clicks", 21.0, DECISION)
    assert store.decisions("clicks") == (DECISION,)


def test_phase_and_end_follow_what_was_heard_last(store):
    assert (store.jobs()[0].phase, store.jobs()[0].ended_at_s) == (JobPhase.STARTING, None)
    store.remember("clicks", 12.0, PhaseChanged(12.0, JobPhase.TRAINING))
    store.remember("clicks", 90.0, PhaseChanged(90.0, JobPhase.SUCCEEDED, "AUC 0.9"))
    run = store.jobs()[0]
    assert (run.phase, run.ended_at_s, run.message, run.owner) == ("succeeded", 90.0, "AUC 0.9", "ada")


def test_tenth_decision_follows_the_ninth(store):
    for i in range(1, 12):
        store.remember("clicks", 21.0, replace(DECISION, id=f"d{i}"))
    assert [d.id for d in store.decisions("clicks")] == [f"d{i}" for i in range(1, 12)]


def test_columns_answer_questions_in_sql(store, tmp_path):
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 30.0, OUTCOME)
    with sqlite3.connect(tmp_path / "deep" / "history.db") as connection:
        row = connection.execute(
            'select d."by", d.why, o.predicted_samples_per_s, o.measured_samples_per_s '
            "from decisions d join outcomes o on o.run = d.run and o.decision = d.id"
        ).fetchone()
    connection.close()
    assert row == ("ada", "sounds good", 100.0, 110.0)


def test_unknown_job_is_named(store):
    with pytest.raises(NotFoundError, match="nobody"):
        store.decisions("nobody")
    with pytest.raises(NotFoundError, match="nobody"):
        store.remember("nobody", 1.0, DECISION)


def test_folder_is_readable_by_its_owner_alone(store, tmp_path):
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700


def test_default_is_a_file_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    HistoryStore().remember("clicks", 1.0, SPEC)
    assert (tmp_path / "dlrover-nb" / "history.db").exists()


WRITER = """
import sys
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.decisions import Decision, Verdict
from dlrover_nb.core.structs.job import JobSpec
store, name = HistoryStore(sys.argv[1]), sys.argv[2]
store.remember(name, 1.0, JobSpec(name))
for i in range(60):
    store.remember(name, 2.0 + i, Decision(Verdict.SCALE, "ada", 2.0 + i, id=f"d{i}"))
"""


def test_two_processes_may_make_the_file_and_write_at_once(url):
    command = [sys.executable, "-c", WRITER, url]
    writers = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in ("one", "two")]
    for writer in writers:
        _, told = writer.communicate(timeout=60)
        assert writer.returncode == 0, told.decode()
    store = HistoryStore(url)
    assert [len(store.decisions(name)) for name in ("one", "two")] == [60, 60]


def test_locked_file_says_so(store, url, tmp_path, monkeypatch):
    monkeypatch.setattr(database_module, "BUSY_S", 0.05)
    impatient = HistoryStore(url)
    holder = sqlite3.connect(tmp_path / "deep" / "history.db", isolation_level=None)
    holder.execute("begin immediate")
    try:
        with pytest.raises(BackendError, match="another process keeps it locked"):
            impatient.remember("clicks", 21.0, DECISION)
    finally:
        holder.close()
    impatient.remember("clicks", 21.0, DECISION)
    assert impatient.decisions("clicks") == (DECISION,)


def test_damaged_file_says_what_to_do(tmp_path):
    path = tmp_path / "history.db"
    path.write_bytes(b"this is not a database, it only looks like a file" * 50)
    with pytest.raises(BackendError, match="damaged; move it away"):
        HistoryStore(f"sqlite:///{path}")


def test_file_of_another_version_is_left_alone(store, url, tmp_path):
    with sqlite3.connect(tmp_path / "deep" / "history.db") as connection:
        connection.execute("update schema_version set version = 99")
    connection.close()
    with pytest.raises(BackendError, match="got 99"):
        HistoryStore(url)


@pytest.mark.parametrize("bad", ["nonsense", "mysql://host/name", "sqlite://"])
def test_bad_address_is_refused(bad):
    with pytest.raises(InvalidValueError, match="history"):
        HistoryStore(bad)


def test_password_is_never_shown():
    with pytest.raises((BackendError, InvalidValueError)) as caught:
        HistoryStore("postgresql://ada:secret@127.0.0.1:1/history")
    assert "secret" not in str(caught.value)
