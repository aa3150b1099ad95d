"""The server: what every address answers, and with which headers."""

import asyncio
import contextlib
import http.client
import time

import pytest
from support.cases import for_each
from support.dashboard.dashboards import Visitor, people, running
from support.waiting import LIMIT_S, until

from dlrover_nb.dashboard.common.clusters import Jobs
from dlrover_nb.dashboard.frame.base_handler import PersonHandler
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in_pages.ways import way_of

PAGES = (
    "/jobs",
    "/healthz",
    "/readyz",
    "/static/dashboard.css",
    "/no-such-page",
    "/static/none.css",
    "/live",
)


def test_the_first_page_is_the_list_of_jobs(dashboard):
    answer = dashboard.ask("/")
    assert (answer.status, answer.headers["Location"]) == (302, "/jobs")
    page = dashboard.ask("/jobs")
    assert page.status == 200
    assert "<h1>Jobs</h1>" in page.text


@for_each("path", PAGES)
def test_no_answer_lacks_the_strict_headers(dashboard, path):
    answer = dashboard.ask(path)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]
    assert ("unsafe-inline' 'unsafe-eval" in answer.headers["Content-Security-Policy"]) == (path == "/live")
    assert (answer.headers["Cache-Control"] == "no-store") == (
        not (path.startswith("/static") and answer.status == 200)
    )
    assert "Server" not in answer.headers
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.more
@for_each(
    ("path", "method", "status"),
    [
        ("/no-such-page", "GET", 404),
        ("/jobs", "PATCH", 403),
        ("/static/none.css", "GET", 404),
        ("/live/static/js/none.js", "GET", 404),
        ("/live/autoload.js", "GET", 404),
        ("/live/metadata", "GET", 404),
        ("/healthz", "DELETE", 405),
    ],
)
def test_an_error_is_a_page_of_ours_without_a_traceback(dashboard, path, method, status):
    answer = dashboard.ask(path, method=method)
    assert answer.status == status
    assert f"<h1>{status} " in answer.text
    assert "dashboard.css" in answer.text
    assert "Traceback" not in answer.text


def test_the_process_lives_and_is_ready_once_its_clusters_were_heard(dashboard):
    assert (dashboard.ask("/healthz").status, dashboard.ask("/healthz").text) == (200, "ok\n")
    until(lambda: dashboard.ask("/readyz").status == 200, what="a cluster that is heard")
    until(lambda: dashboard.ask("/readyz").text == "ok\n", what="a cluster that is heard")


def test_a_cluster_that_is_not_heard_or_a_database_that_is_gone_makes_it_unready(
    team, dashboard, tmp_path, words
):
    jobs = team.clusters["sim"].jobs
    team.clusters["sim"].jobs = lambda: Jobs(heard_s=time.monotonic() - 60.0)
    answer = dashboard.ask("/readyz")
    assert (answer.status, answer.text) == (503, "cluster 1 was not heard for 60 s\n")
    team.clusters["sim"].jobs = Jobs
    assert dashboard.ask("/readyz").text == words
    team.clusters["sim"].jobs = jobs
    (tmp_path / "history.db").write_bytes(b"no database" * 100)
    for part in ("history.db-wal", "history.db-shm"):
        (tmp_path / part).unlink(missing_ok=True)
    answer = dashboard.ask("/readyz")
    assert (answer.status, answer.text) == (503, "the database does not answer\n")
    assert dashboard.ask("/healthz").status == 200


@pytest.mark.more
@for_each(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/static/dashboard.css%00.js",
        "/static/",
        "/static",
        "/live/static/../../../../../../etc/passwd",
        "/live/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/live/static//etc/passwd",
        "/components/dlrover_nb.dashboard.server/X/x/server.py",
        "/components/os/path/%2e%2e/os.py",
    ],
)
def test_no_path_leads_out_of_the_static_files(dashboard, path):
    answer = dashboard.ask(path)
    assert answer.status in {400, 403, 404}
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_a_body_that_is_too_large_is_refused_and_the_server_goes_on(dashboard):
    with contextlib.suppress(ConnectionError):  # it may close before all is sent
        assert dashboard.ask("/jobs", method="POST", body="x" * 3_000_000).status in {400, 413}
    with contextlib.suppress(ConnectionError):
        assert dashboard.ask("/jobs", headers={"X-Large": "x" * 40_000}).status in {400, 431}
    assert dashboard.ask("/jobs").status == 200


class Stream(PersonHandler):
    """A stream of events that never ends by itself."""

    async def get(self):
        self.write("data: first\n\n")
        await self.flush()
        await asyncio.Event().wait()


@pytest.mark.more
def test_an_open_stream_ends_when_its_person_signs_out(team, tmp_path):
    settings = ServeSettings(users=str(people(tmp_path / "users.yaml", ada="operator")))
    way = way_of(settings, team)
    stream = (r"/stream", Stream, {"team": team, "sign_in": way.sign_in})
    with running(team, way.sign_in, settings, (*way.patterns, stream)) as dashboard:
        ada = Visitor(dashboard)
        assert ada.ask("/stream").status == 401
        ada.sign_in()
        connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=LIMIT_S)
        cookies = "; ".join(f"{name}={value}" for name, value in ada.cookies.items())
        connection.request("GET", "/stream", headers={"Cookie": cookies})
        response = connection.getresponse()
        assert response.readline() == b"data: first\n"
        ada.sign_out()
        with contextlib.suppress(http.client.IncompleteRead):
            assert response.read() == b"\n"
        connection.close()
        until(lambda: dashboard.on_loop(lambda: len(dashboard.server.door.open)) == 0, what="the end")
    way.close()
