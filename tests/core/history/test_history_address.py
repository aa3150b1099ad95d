"""Where a history may lie, and what is said when it cannot."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url
from support.cases import for_each
from support.history.history_records import DECISION, SPEC
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.history import database as database_module


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'deep' / 'history.db'}"


@pytest.fixture
def store(url):
    found = HistoryStore(url)
    found.remember("clicks", 10.0, SPEC)
    yield found
    found.close()


def test_folder_is_readable_by_its_owner_alone(store, tmp_path):
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700


def test_default_is_a_file_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    HistoryStore().remember("clicks", 1.0, SPEC)
    assert (tmp_path / "dlrover-nb" / "history.db").exists()


def test_a_team_names_its_history_in_the_environment(url, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("DLROVER_NB_HISTORY", url)
    HistoryStore().remember("clicks", 1.0, SPEC)
    assert [run.job for run in HistoryStore(url).jobs()] == ["clicks"]
    assert not (tmp_path / "dlrover-nb" / "history.db").exists()


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


def test_the_lock_of_another_writer_is_waited_for_fifteen_seconds(url):
    """SQLite itself waits, by a clock of its own: it is asked for how long."""
    database = as_shipped("dlrover_nb.core.history.database", VirtualTime()).Database(url)
    with database.reading() as connection:
        assert connection.exec_driver_sql("pragma busy_timeout").scalar() == 15_000
    assert "locked for over 15 s" in database._cause(sqlite3.OperationalError("database is locked"))
    database.close()


def test_damaged_file_says_what_to_do(tmp_path):
    path = tmp_path / "history.db"
    path.write_bytes(b"this is not a database, it only looks like a file" * 50)
    with pytest.raises(BackendError, match="damaged; move it away"):
        HistoryStore(f"sqlite:///{path}")


@for_each("bad", ["nonsense", "mysql://host/name", "sqlite://", "sqlite:///file:h?mode=memory&uri=true"])
def test_bad_address_is_refused(bad):
    with pytest.raises(InvalidValueError, match="history"):
        HistoryStore(bad)


def test_password_is_never_shown():
    with pytest.raises((BackendError, InvalidValueError)) as caught:
        HistoryStore("postgresql://ada:secret@127.0.0.1:1/history")
    assert "secret" not in str(caught.value)


def test_password_is_not_shown_for_an_address_that_cannot_be_read():
    with pytest.raises(InvalidValueError) as caught:
        HistoryStore("postgresql//ada:secret@host/history")
    assert "secret" not in str(caught.value)


@pytest.mark.more
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_means_the_driver_that_we_install(postgresql_url, scheme):
    store = HistoryStore(postgresql_url.replace("postgresql:", f"{scheme}:"))
    store.remember("clicks", 10.0, SPEC)
    assert [run.job for run in store.jobs()] == ["clicks"]


def test_driver_that_is_not_installed_is_named():
    with pytest.raises(InvalidValueError, match=r"asyncpg.*pip install"):
        HistoryStore("postgresql+asyncpg://host/history")


def test_server_that_is_not_there_is_one_clear_error(postgresql_url):
    gone = make_url(postgresql_url).update_query_dict({"host": "/nowhere"})
    with pytest.raises(BackendError, match=r"cannot open the history: .*check the address"):
        HistoryStore(gone.render_as_string(hide_password=False))


def test_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="check the address"):
        HistoryStore(f"sqlite:///{tmp_path / 'file' / 'history.db'}")


def test_file_that_may_only_be_read_is_read_but_not_written(store, url):
    reader = HistoryStore(f"{url.replace('sqlite:///', 'sqlite:///file:')}?mode=ro&uri=true")
    assert [run.job for run in reader.jobs()] == ["clicks"]
    with pytest.raises(BackendError, match="it is not writable"):
        reader.remember("clicks", 21.0, DECISION)
    assert not Path("file:").exists()


FILL = """
import resource, signal, sys
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = HistoryStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for i in range(10_000):
    try:
        store.remember("clicks", 30.0, Decision(Verdict.SCALE, "ada", 30.0, why="x" * 5000, id=f"d{i}"))
    except BackendError as error:
        print(error)
        break
"""


def test_full_disk_is_one_clear_error_and_what_was_written_stays(store, url):
    store.remember("clicks", 21.0, DECISION)
    done = subprocess.run([sys.executable, "-c", FILL, url], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cannot write the history: ")
    assert DECISION in store.decisions("clicks")
    store.remember("clicks", 99.0, replace(DECISION, id="d99999", at_s=99.0))
    assert store.decisions("clicks")[-1].id == "d99999"
