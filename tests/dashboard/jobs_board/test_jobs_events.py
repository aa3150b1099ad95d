"""The page Jobs and its events at a real server: what is sent, to whom, and when it ends."""

from __future__ import annotations

import http.client
import json
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from support.dashboard.dashboards import OPERATOR, VIEWER, ByName, Client, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.waiting import LIMIT_S, until

from dlrover_nb.core.structs.decisions.people import Person
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.dashboard.jobs_board.deltas import board_of
from dlrover_nb.dashboard.jobs_board.rows import COLUMNS

HOSTILE = "<script>alert(1)</script>"


class Stream:
    """A stream of events, read on a thread of its own as a browser does."""

    def __init__(self, url, who, path="/events/jobs?cluster=a"):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_S)
        self._connection.request("GET", path, headers={"Cookie": f"who={who}"})
        self.answer = self._connection.getresponse()
        self.messages, self.n_byte, self.is_over = [], 0, False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        try:
            for line in self.answer:
                self.n_byte += len(line)
                if line.startswith(b"data: "):
                    self.messages.append(json.loads(line[6:]))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass  # closed, by either side
        self.is_over = True

    def close(self):
        sock = self._connection.sock or self.answer.fp.raw._sock
        sock.shutdown(2)
        self._thread.join(LIMIT_S)
        self._connection.close()


@pytest.fixture
def master():
    return master_of("ads")


@pytest.fixture
def cluster(master):
    cluster = MastersCluster(master)
    cluster.further = (
        replace(summarize(master.snapshot()), name=HOSTILE, owner=HOSTILE, open_proposal=HOSTILE),
    )
    return cluster


@pytest.fixture
def team(cluster, tmp_path):
    with masters_team(tmp_path, cluster) as team:
        yield team


@pytest.fixture
def sign_in():
    return ByName()


@pytest.fixture
def server(team, sign_in):
    with running(team, sign_in) as server:
        yield server


@pytest.fixture
def stream(server):
    stream = Stream(server.url, "vera")
    yield stream
    stream.close()


def cells(stream, name="ads"):
    """Return the cells of a job as a browser has them by now."""
    told = {}
    for message in list(stream.messages):
        told |= message.get("c", {}).get(name, {})
    return told


def test_a_stream_begins_with_everything_and_goes_on_with_what_has_changed(stream, master):
    assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
    assert stream.answer.headers["X-Accel-Buffering"] == "no"
    assert stream.answer.headers["Cache-Control"] == "no-store"
    until(lambda: len(stream.messages) > 1)
    first, *rest = stream.messages
    assert first["a"] == 1
    assert set(first["c"]) == {"ads", HOSTILE}
    assert all("c" not in message for message in rest), "nothing has changed"
    with master.lock:
        master.state = replace(master.state, samples_per_s=4321.0)
    until(lambda: cells(stream)["rate"] == "4,321")


def test_a_job_that_comes_fails_and_goes_is_told(stream, master, cluster):
    until(lambda: stream.messages)
    cluster.masters["new"] = master_of("new")
    until(lambda: "new" in str(stream.messages))
    with master.lock:
        master.state = replace(master.state, phase=JobPhase.FAILED, message="no memory")
    until(lambda: any("Job ads has failed: no memory." in m.get("w", ()) for m in stream.messages))
    with cluster.masters["new"].lock:
        cluster.masters["new"].state = replace(cluster.masters["new"].state, phase=JobPhase.STOPPED)
    until(lambda: cells(stream, "new")["_phase"] == "stopped")
    del cluster.masters["new"]
    until(lambda: any("new" in m.get("g", ()) for m in stream.messages))


def test_a_master_that_is_silent_keeps_its_row_and_is_told(stream, master):
    until(lambda: stream.messages)
    master.reachable = False
    until(lambda: "no answer for" in cells(stream)["state"])
    assert not any("ads" in m.get("g", ()) for m in stream.messages)
    master.reachable = True
    until(lambda: cells(stream)["state"] == "training")


def test_a_cluster_that_does_not_answer_is_told_and_so_is_its_coming_back(stream, cluster):
    until(lambda: stream.messages)
    cluster.away = "the cluster has gone"
    until(lambda: any(m.get("e") == "the cluster has gone" for m in stream.messages))
    cluster.away = ""
    until(lambda: stream.messages[-1].get("e") == "" or any(m.get("e") == "" for m in stream.messages))


def test_a_stream_ends_with_the_sign_in(stream, sign_in):
    until(lambda: stream.messages)
    del sign_in.people["vera"]
    until(lambda: stream.is_over)


def test_a_browser_that_goes_leaves_no_listener_behind(server, team):
    gone = Stream(server.url, "vera")
    until(lambda: gone.messages)
    assert team.clusters["a"].n_listener
    gone.close()
    until(lambda: not team.clusters["a"].n_listener)


def test_who_may_not_view_or_names_another_cluster_gets_no_events(server, sign_in):
    sign_in.people["nina"] = Person("nina")
    assert Client(server.url, "nina").get("events/jobs?cluster=a").status == 403
    assert Client(server.url, "nina").get("jobs?cluster=a").status == 403
    assert Client(server.url, "vera").get("events/jobs?cluster=z").status == 404
    assert Client(server.url, "nobody").get("events/jobs?cluster=a").status == 401


def test_the_page_is_whole_without_scripts_and_escapes_every_name(server):
    page = Client(server.url, "vera").get("jobs?cluster=a").text
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "within the band" in page or "below the band" in page
    assert 'href="job?cluster=a&amp;name=ads"' in page
    assert 'href="history?cluster=a&amp;q=ads" aria-label="Past runs of ads"' in page
    assert page.count("<tbody data-job") == 2
    narrowed = Client(server.url, "vera").get("jobs?cluster=a&q=ads&sort=rate&dir=down").text
    assert narrowed.count("<tbody data-job") == 1, "the others come by an event"
    assert 'aria-sort="descending"' in narrowed


class Cells(HTMLParser):
    """The cells of the table of jobs, by job and column: the text, and the number that it is sorted by."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.classes, self._cell = {}, {}, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        fields = dict(attrs)
        if "data-job" in fields:
            self._row = self.rows.setdefault(fields["data-job"], {})
        self._cell = fields.get("data-c") if tag == "td" else self._cell
        if self._cell and tag == "td":
            self.classes[self._cell] = fields.get("class", "")
            value = [float(fields["data-s"])] if "data-s" in fields else []
            self._row[self._cell] = ["", *value, *([fields["title"]] if "title" in fields else [])]

    def handle_data(self, data):
        if self._cell:
            self._row[self._cell][0] += data

    def handle_endtag(self, tag):
        self._cell = None if tag == "td" else self._cell


def test_each_cell_of_the_page_is_that_of_its_column(server, cluster):
    cells = Cells(Client(server.url, "vera").get("jobs?cluster=a").text)
    shown = board_of(cluster.live_jobs(), None).rows
    assert cells.rows.keys() == shown.keys()
    for name, row in shown.items():
        wire = {key: told if isinstance(told, list) else [told] for key, told in row.wire.items()}
        del wire["job"], wire["_phase"], wire["_needs"]
        assert list(cells.rows[name]) == list(wire)
        assert {key: told[:2] for key, told in cells.rows[name].items() if key != "started"} == {
            key: [told[0], *(float(f"{number:g}") for number in told[1:2])]
            for key, told in wire.items()
            if key != "started"
        }
        assert cells.rows[name]["started"][0].endswith(("ago", "now"))
        assert cells.rows[name]["started"][2] == row.cell("started").text, (
            "the exact time, for who points at it"
        )
    assert cells.classes == {each.key: "n" if each.is_number else "" for each in COLUMNS[1:]}


def test_the_columns_that_the_address_names_are_shown_also_where_no_script_joins_them(server):
    client = Client(server.url, "vera")
    for cols in ("cols=rate%2Cmode", "cols=mode&cols=rate"):
        page = client.get(f"jobs?cluster=a&{cols}").text
        heads = dict(re.findall(r'<th scope="col" data-c="(\w+)"([^>]*)>', page))
        assert [key for key, rest in heads.items() if "hidden" not in rest] == ["job", "mode", "rate"]
        assert 'colspan="3"' in page
        assert re.search(r'name="cols" value="mode"[^>]* checked', page)
        assert not re.search(r'name="cols" value="owner"[^>]* checked', page)


def test_a_job_that_was_deleted_while_it_ran_goes_from_the_list(stream, cluster):
    until(lambda: stream.messages)
    cluster.masters["late"] = master_of("late")
    until(lambda: any("late" in m.get("c", {}) for m in stream.messages))
    del cluster.masters["late"]
    until(lambda: any("late" in m.get("g", []) for m in stream.messages))


def test_a_view_is_saved_for_its_person_alone_and_removed_again(server):
    vera, otto = Client(server.url, "vera"), Client(server.url, "otto")
    csrf = vera.csrf("jobs?cluster=a")
    form = {"csrf": csrf, "cluster": "a", "name": HOSTILE, "view": "owner=ada&sort=rate&evil=1"}
    answer = vera.post_form("views", form)
    assert answer.status == 303
    page = vera.get(answer.headers["Location"]).text
    assert HOSTILE not in page
    assert "owner=ada&amp;sort=rate" in page
    assert "evil" not in page
    assert "owner=ada&amp;sort=rate" not in otto.get("jobs?cluster=a").text
    assert otto.post_form("views", form).status == 403, "a token of somebody else"
    vera.post_form("views", form | {"do": "drop"})
    assert "alert(1)</a><form" not in vera.get("jobs?cluster=a").text
    assert "Not saved" in vera.get(vera.post_form("views", form | {"name": " "}).headers["Location"]).text


@pytest.mark.more
def test_fifty_jobs_at_one_state_a_second_stay_below_five_kilobytes(tmp_path):
    masters = [master_of(f"job-{i}") for i in range(50)]
    with masters_team(tmp_path, MastersCluster(*masters)) as team, running(team, ByName()) as server:
        stream = Stream(server.url, "otto")
        until(lambda: len(stream.messages) > 1)
        before, n_message = stream.n_byte, len(stream.messages)
        for master in masters:
            with master.lock:
                master.state = replace(master.state, samples_per_s=master.state.samples_per_s * 0.97)
        until(lambda: all(f"job-{i}" in str(stream.messages[n_message:]) for i in range(50)))
        changed = [len(json.dumps(m)) for m in stream.messages[n_message:] if m.get("c")]
        assert sum(changed) < 5000
        assert stream.n_byte > before
        stream.close()


def test_an_operator_and_a_viewer_see_the_same_list(server):
    rows = [
        Client(server.url, p.name).get("jobs?cluster=a").text.count("<tbody data-job")
        for p in (VIEWER, OPERATOR)
    ]
    assert rows == [2, 2]
