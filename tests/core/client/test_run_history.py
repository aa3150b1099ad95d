"""A client reads the history where there is one, makes none, and is told the nearest name."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each
from support.history.history_records import DECISION, FIT, MITIGATION, OUTCOME, PROPOSAL, ROW, SPEC, TRAITS
from support.waiting import LIMIT_S

from dlrover_nb.api.views.job_views import JobsView
from dlrover_nb.core.client.past import history_queries
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.events import PhaseChanged

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def store(url: str) -> HistoryStore:
    store = HistoryStore(url)
    for at_s in (10.0, 1000.0):
        store.remember("clicks", at_s, SPEC)
        for record in (TRAITS, PROPOSAL, DECISION, MITIGATION, OUTCOME, FIT, ROW):
            store.remember("clicks", at_s, record)
    store.remember("clicks", 1090.0, PhaseChanged(1090.0, JobPhase.SUCCEEDED))
    store.remember("views", 500.0, replace(SPEC, name="views", owner="bob"))
    return store


def test_runs_come_newest_first_with_how_they_ended(store: HistoryStore, url: str) -> None:
    found = history_queries.runs(url)
    assert [run.run for run in found] == ["clicks@1000.000", "views@500.000", "clicks@10.000"]
    assert [run.phase for run in found] == [JobPhase.SUCCEEDED, JobPhase.STARTING, JobPhase.STARTING]
    assert history_queries.runs(url, job="clicks") == (found[0], found[2])


def test_a_run_is_given_back_whole_and_frozen(store: HistoryStore, url: str) -> None:
    kept = history_queries.run_history("clicks", url=url)
    assert kept.run.run == "clicks@1000.000"
    records = (kept.proposals, kept.decisions, kept.outcomes, kept.fits, kept.series)
    assert records == ((PROPOSAL,), (DECISION,), (OUTCOME,), (FIT,), (ROW,))
    assert kept.mitigations == (MITIGATION,)
    assert history_queries.run_history("clicks", "clicks@10.000", url).run.started_at_s == 10.0
    with pytest.raises(FrozenInstanceError):
        kept.series = ()  # type: ignore[misc]


def test_a_job_without_an_end_was_lost_and_no_progress_is_made_up(store, url, monkeypatch, words) -> None:
    store.remember("views", 510.0, PhaseChanged(510.0, JobPhase.TRAINING))
    monkeypatch.setenv("DLROVER_NB_HISTORY", url)
    views, clicks = sorted(history_queries.past_jobs(), key=lambda job: job.name, reverse=True)
    assert (views.phase, views.done) == (JobPhase.FAILED, None)
    assert views.message == words
    assert (clicks.phase, clicks.done, clicks.message) == (JobPhase.SUCCEEDED, 1.0, "")
    text = str(JobsView((views, replace(views, name="more"), clicks)))
    assert "0 %" not in text.replace("100 %", "")
    assert "views, more: lost with its master" in " ".join(text.split())


def test_scores_are_those_of_the_owner_and_the_time(store: HistoryStore, url: str) -> None:
    assert history_queries.scores(url=url).total.n_outcome == 2
    assert history_queries.scores("bob", url=url).total.n_outcome == 0
    assert history_queries.scores("ada", OUTCOME.applied_at_s + 1, url).total.n_outcome == 0


def test_without_a_history_answers_are_empty_and_nothing_is_made(url: str, path: Path, error_words) -> None:
    assert history_queries.runs(url) == ()
    assert history_queries.scores(url=url).total.n_outcome == 0
    with error_words(NotFoundError):
        history_queries.run_history("clicks", url=url)
    with pytest.raises(NotFoundError, match="the history is empty"):
        history_queries.runs(url, job="clicks")
    assert not path.parent.exists()


def test_an_empty_file_is_no_history_yet(url: str, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert history_queries.runs(url) == ()
    assert path.read_bytes() == b""


def test_the_users_own_file_is_where_jobs_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert history_queries.runs() == ()
    assert list(tmp_path.iterdir()) == []
    HistoryStore().remember("clicks", 10.0, SPEC)
    assert [run.job for run in history_queries.runs()] == ["clicks"]


@for_each(
    ("job", "run", "told"),
    [
        ("click", None, "no job 'click' in the history; did you mean clicks?"),
        ("zzz", None, "no job 'zzz' in the history; it has clicks, views"),
        ("clicks", "clicks@10", "did you mean clicks@10.000"),
        ("clicks", "xyz", "no run 'xyz' of job clicks; it has clicks@1000.000, clicks@10.000"),
        ("clicks", "views@500.000", "no run 'views@500.000' of job clicks"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(
    store: HistoryStore, url: str, job: str, run: str | None, told: str
) -> None:
    with pytest.raises(NotFoundError) as caught:
        history_queries.run_history(job, run, url)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    store: HistoryStore, url: str, path: Path, caplog: pytest.LogCaptureFixture, error_words
) -> None:
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update runs set spec = '{}' where job = 'views'")
    connection.close()
    assert {run.job for run in history_queries.runs(url)} == {"clicks"}
    assert "run views@500.000 of the history is not listed" in caplog.text
    with error_words(NotFoundError):
        history_queries.run_history("views", url=url)


@pytest.mark.parametrize("damage", ["replaced", "torn"])
def test_a_damaged_file_is_one_line_and_stays_as_it_is(
    store: HistoryStore, url: str, path: Path, damage: str
) -> None:
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    sound = path.read_bytes()
    broken = (
        b"no database at all " * 300 if damage == "replaced" else sound[:4096] + os.urandom(len(sound) - 4096)
    )
    path.write_bytes(broken)
    for ask in (
        history_queries.runs,
        lambda url: history_queries.run_history("clicks", url=url),
        lambda url: history_queries.scores(url=url),
    ):
        with pytest.raises(BackendError) as caught:
            ask(url)
        assert "damaged; move it away" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == broken


def test_a_file_that_may_not_be_read_is_one_line(path: Path, url: str) -> None:
    path.mkdir(parents=True)  # what even root cannot open as a file
    with pytest.raises(BackendError, match="check the address"):
        history_queries.runs(url)


def test_an_address_of_no_database_is_refused(error_words) -> None:
    with error_words(InvalidValueError):
        history_queries.runs("mysql://host/name")


def test_a_history_of_a_newer_release_is_left_alone(
    store: HistoryStore, url: str, path: Path, error_words
) -> None:
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update dlrover_nb_revision set version_num = '9999'")
    connection.close()
    with error_words(BackendError):
        history_queries.runs(url)


READ = """
import sys
from dlrover_nb.core.client.past import history_queries
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    kept = history_queries.run_history("clicks", url=sys.argv[1])
    known = {p.id for p in kept.proposals}
    assert all(d.proposal in known for d in kept.decisions), kept
    assert {o.decision for o in kept.outcomes} <= {d.id for d in kept.decisions}, kept
    history_queries.runs(sys.argv[1]), history_queries.scores(url=sys.argv[1])
"""


@pytest.mark.more
def test_two_processes_read_while_one_writes(store: HistoryStore, url: str) -> None:
    command = [sys.executable, "-c", READ, url]
    pipe = subprocess.PIPE
    readers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for reader in readers:
        reader.stdout.readline()
        reader.stdin.write("go\n")
        reader.stdin.flush()
    for i in range(2, 42):
        at_s = 2000.0 + i
        store.remember("clicks", at_s, replace(PROPOSAL, id=f"p{i}", created_at_s=at_s))
        store.remember("clicks", at_s, replace(DECISION, id=f"d{i}", proposal=f"p{i}", at_s=at_s))
        store.remember("clicks", at_s, replace(OUTCOME, decision=f"d{i}", applied_at_s=at_s))
    told = [reader.communicate(timeout=LIMIT_S)[1] for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0], "\n".join(told)
    assert len(history_queries.run_history("clicks", url=url).decisions) == 41


def test_where_no_job_has_written_a_history_its_database_is_not_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from dlrover_nb.core.client.past.history_queries import past_jobs;"
        "sys.exit(bool(past_jobs()) or 'sqlalchemy' in sys.modules)"
    )
    env = {name: value for name, value in os.environ.items() if name != HISTORY_VAR}
    here = env | {"XDG_DATA_HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], env=here, check=False).returncode == 0
