"""What goes wrong at night: a database that takes nothing, a cluster that hangs, a job that has gone, long texts."""

from __future__ import annotations

import contextlib
import csv
import io
import sqlite3
import threading
from dataclasses import replace

import pytest
from sqlalchemy import event
from support.conformance.audit import ROW
from support.dashboard.dashboards import (
    OPERATOR,
    SECOND,
    ByName,
    Client,
    Visitor,
    by,
    csrf_of,
    running,
    with_people,
)
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.waiting import LIMIT_S, until

from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history import database
from dlrover_nb.core.history.audit.trail import _append
from dlrover_nb.core.structs.decisions.commands import Action, Stage
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.forms.act import MOST_REASON
from dlrover_nb.dashboard.jobs_board import boards
from dlrover_nb.dashboard.pages.decisions import N_LINE
from dlrover_nb.dashboard.settings import ServeSettings

ADDRESS = "job?cluster=a&name=ads"
LONG = "x" * 900_000


@pytest.fixture
def master():
    return master_of("ads")


@pytest.fixture
def cluster(master):
    return MastersCluster(master)


@pytest.fixture
def team(cluster, tmp_path):
    with masters_team(tmp_path, cluster) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


def send(server, person=OPERATOR, path="do", **fields):
    form = {"csrf": csrf_of(person.name), "cluster": "a", "job": "ads", "proposal": "p2", "action": "accept"}
    return Client(server.url, person.name).post_form(path, form | fields)


def told(server, answer, person=OPERATOR):
    return Client(server.url, person.name).get(answer.headers["Location"])


def stores(team):
    return (team.history, team.audit, team.requests, team.notes, team.alerts)


@contextlib.contextmanager
def locked(team):
    """Hold the write lock, as a backup or a stuck process does."""
    with contextlib.closing(sqlite3.connect(team.url.removeprefix("sqlite:///"))) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield from _with(team, "PRAGMA busy_timeout = 50")  # ms; what is not locked may wait longer
        holder.rollback()


def _with(team, pragma, before=lambda: None):
    """Give each new connection a setting, so that SQLite itself refuses to write, or soon."""

    def set_up(connection, _record):
        connection.execute(pragma)

    engines = [store._database._engine for store in stores(team)]
    for engine in engines:
        event.listen(engine, "connect", set_up)
    before()
    try:
        yield
    finally:
        for engine in engines:
            event.remove(engine, "connect", set_up)


@contextlib.contextmanager
def read_only(team):
    yield from _with(team, "PRAGMA query_only = ON")


@contextlib.contextmanager
def full(team):
    """Let the file grow no more, and fill what is left of it."""

    def fill():
        for _ in range(10_000):
            team.audit.append(replace(ROW, why="y" * 200))

    def filled():
        with pytest.raises(BackendError, match="full"):
            fill()

    yield from _with(team, "PRAGMA max_page_count = 1", filled)


@pytest.mark.parametrize("trouble", [locked, read_only, full])
def test_nothing_is_done_that_cannot_be_written_down_and_the_person_is_told(team, server, master, trouble):
    with trouble(team):
        answer = send(server, reason="because " * 100, key="k1")
        page = answer if answer.status == 200 else told(server, answer)  # a short line may find room
        assert "Accept p2 of job ads was not done" in page.text
        assert "We do not know whether" not in page.text
        assert not master.asked
        for path in ("jobs", ADDRESS, "proposals", "decisions", "alerts"):
            assert Client(server.url, "otto").get(path).status == 200
    assert "is done as" in told(server, send(server, key="k1")).text
    assert len(master.asked) == 1


def test_the_api_says_that_nothing_was_done_and_to_come_back(team, server, master):
    otto = by(Client(server.url), "otto")
    path, body = "api/v1/jobs/a/ads/decisions", {"verdict": "accept", "proposal": "p2"}
    with locked(team):
        answer = otto.post(path, body)
        assert answer.status == 503
        assert "nothing was done, because the audit could not be written" in answer.json["detail"]
    assert not master.asked
    assert otto.post(path, body).status == 200


def test_a_request_stays_open_that_could_not_be_approved_on_record(cluster, master, tmp_path):
    rules = Rules(actions=frozenset({Action.ACCEPT}))
    with masters_team(tmp_path, cluster, rules=rules) as team, running(team, ByName()) as server:
        with read_only(team):
            assert "was not done" in send(server).text
        assert "waits as r1" in told(server, send(server)).text
        with locked(team):
            answer = send(server, SECOND, "second", action="approve", request="r1")
            assert "was not done" in answer.text
        assert not master.asked
        answer = send(server, SECOND, "second", action="approve", request="r1")
        assert "r1 is approved" in told(server, answer, SECOND).text
        assert [each.by for each in master.asked] == ["olga for otto"]


class Hanging(MastersCluster):
    """A cluster that answers nothing while its gate is closed."""

    def __init__(self, *masters):
        super().__init__(*masters)
        self.gate = threading.Event()
        self.gate.set()

    def live_jobs(self):
        assert self.gate.wait(LIMIT_S)
        return super().live_jobs()

    def capacity(self):
        assert self.gate.wait(LIMIT_S)
        return super().capacity()

    def job(self, name):
        assert self.gate.wait(LIMIT_S)
        return super().job(name)


def test_pages_answer_while_a_cluster_hangs_and_say_that_their_list_is_old(master, tmp_path, monkeypatch):
    monkeypatch.setattr(boards, "ASKED_S", 0.05)
    hanging = Hanging(master)
    with (
        masters_team(tmp_path, hanging) as team,
        running(team, ByName(), ServeSettings(heard_s=0.2)) as server,
    ):
        team.cluster("a").close()
        watched = team.clusters["a"] = WatchedCluster(hanging, period_s=0.05, silent_s=0.2)
        until(lambda: watched.jobs().heard_s is not None)
        otto = Client(server.url, "otto")
        until(lambda: "does not answer" not in otto.get("jobs").text)
        hanging.gate.clear()
        askers = [threading.Thread(target=otto.get, args=(ADDRESS,)) for _ in range(40)]
        for each in askers:
            each.start()
        try:
            until(lambda: server.on_loop(lambda: len(server.server.door.open)) == len(askers))
            until(lambda: "does not answer: it was asked" in otto.get("jobs").text)
            assert otto.get("decisions").status == 200
            assert otto.get("healthz").status == 200
            until(lambda: otto.get("readyz").status == 503)
            assert "was not heard for" in otto.get("readyz").text
        finally:
            hanging.gate.set()
            for each in askers:
                each.join(LIMIT_S)
        until(lambda: otto.get("readyz").status == 200)
        until(lambda: "does not answer" not in otto.get("jobs").text)


def test_who_decides_on_a_job_that_has_gone_is_told_on_a_page_without_it(server, cluster):
    cluster.masters.clear()
    page = told(server, send(server))
    assert page.status == 404
    assert "was refused: no job" in page.text


def test_a_reason_of_megabytes_is_refused_in_words_or_at_the_door(team, server, master):
    assert f"at most {MOST_REASON:,} letters" in told(server, send(server, reason=LONG)).text
    with contextlib.suppress(ConnectionError):  # it may close before all is sent
        assert send(server, reason=LONG * 11).status in {400, 413}
    assert not master.asked
    assert Client(server.url, "otto").get("jobs").status == 200


def test_a_long_reason_against_a_request_does_not_fill_the_audit(cluster, tmp_path):
    rules = Rules(actions=frozenset({Action.ACCEPT}))
    with masters_team(tmp_path, cluster, rules=rules) as team, running(team, ByName()) as server:
        send(server)
        answer = send(server, SECOND, "second", action="refuse", request="r1", reason=LONG)
        assert "r1 is refused" in told(server, answer, SECOND).text
        assert len(team.audit.newest(1)[0].row.answer) < MOST_REASON + 100


@pytest.mark.more
def test_ten_thousand_rows_of_audit_are_read_page_by_page(team, server):
    with team.audit._database.writing() as connection:
        for i in range(10_000):
            _append(connection, replace(ROW, key="", stage=Stage.REFUSED, job=f"job-{i}"))
    page = Client(server.url, "otto").get("decisions").text
    assert page.count("job-") >= N_LINE
    assert "job-9999" in page
    assert "job-1234" not in page
    assert len(page) < 1_000_000
    assert Client(server.url, "otto").get("decisions.jsonl").text.count("\n") >= 10_000


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "../../etc/passwd", "a\r\nSet-Cookie: x=y"])
def test_a_name_of_a_strangers_choice_is_text_wherever_it_stands(team, server, cluster, master, name):
    line = summarize(master.snapshot())
    cluster.further = (replace(line, name=name, owner="=cmd()"),)
    otto = Client(server.url, "otto")
    until(lambda: len(team.cluster("a").jobs().jobs) == 2)
    team.audit.append(replace(ROW, person="=cmd()", job=name, key="", stage=Stage.REFUSED))
    for path in ("jobs", "proposals", "decisions", "waiting", "cluster", "alerts"):
        page = otto.get(path)
        assert page.status == 200
        assert "<script>alert(1)" not in page.text
    answer = send(server, job=name)
    assert answer.status == 303
    assert "Set-Cookie" not in answer.headers
    page = told(server, answer)
    assert page.status == 404
    assert "<script>alert(1)" not in page.text
    cells = [cell for row in csv.reader(io.StringIO(otto.get("decisions.csv").text)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]
    assert any("=cmd()" in cell for cell in cells)


@pytest.mark.more
def test_who_cannot_sign_in_since_the_database_takes_nothing_is_told_so(team, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.05)  # of the store of sessions, in which nobody else writes
    with with_people(team, tmp_path) as dashboard:
        ada, late = Visitor(dashboard), Visitor(dashboard)
        assert ada.sign_in().status == 303
        with locked(team):
            answer = late.sign_in()
            assert answer.status == 503
            assert "Traceback" not in answer.text
            assert "locked" in answer.text
            assert ada.ask("/jobs").status == 200
        assert late.sign_in().status == 303
