"""Ray jobs of others, from a server that plays the REST API of Ray's jobs by its models; over real HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.ray.ray_jobs import ADDRESS_VAR, SeesRayJobs, read_jobs
from dlrover_nb.core.client.unmanaged import refused_where_unmanaged, unmanaged_job
from dlrover_nb.core.errors import BackendError, NotFoundError, UnmanagedJobError

RUNNING = {
    "type": "SUBMISSION",
    "job_id": "02000000",
    "submission_id": "theirs-1",
    "driver_info": {"id": "02000000", "node_ip_address": "10.0.0.7", "pid": "1"},
    "status": "RUNNING",
    "entrypoint": "python train.py",
    "message": "Job is currently running.",
    "error_type": None,
    "start_time": 1767225600500,
    "end_time": None,
    "metadata": {"team": "ads"},
    "runtime_env": {"env_vars": {"KEY": "a secret"}},
    "driver_exit_code": None,
}
FAILED = RUNNING | {
    "submission_id": "raysubmit_Xy",
    "status": "FAILED",
    "message": "it failed",
    "start_time": 1767225700000,
    "end_time": 1767225760000,
    "driver_exit_code": 1,
    "metadata": None,
}
DRIVER = RUNNING | {"type": "DRIVER", "submission_id": None, "entrypoint": "a notebook"}


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs, self.logs, self.asked, self.broken = [DRIVER, RUNNING, FAILED], {}, [], b""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        name = self.path.removeprefix("/api/jobs/").removesuffix("/logs")
        if self.server.broken:
            self._answer(200, self.server.broken)
        elif self.path == "/api/jobs/":
            self._answer(200, json.dumps(self.server.jobs).encode())
        elif name in self.server.logs:
            self._answer(200, json.dumps({"logs": self.server.logs[name]}).encode())
        else:
            self._answer(404, b"Job does not exist")

    def _answer(self, code, body):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Cluster(SeesRayJobs):
    def job(self, name):
        raise NotFoundError(f"no job {name!r}")


@pytest.fixture
def server(monkeypatch):
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv(ADDRESS_VAR, f"http://127.0.0.1:{made.server_port}/")
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_what_others_submitted_is_listed_newest_first_and_bare_drivers_are_not(server):
    failed, running = Cluster().unmanaged_jobs()
    assert (running.name, running.kind, running.state, running.is_final) == (
        "theirs-1",
        "Ray job",
        "RUNNING",
        False,
    )
    assert (running.entrypoint, running.message) == ("python train.py", "Job is currently running.")
    assert (running.started_at_s, running.ended_at_s) == (1767225600.5, None)
    assert running.facts == (("team", "ads"),)
    assert (failed.name, failed.state, failed.is_final) == ("raysubmit_Xy", "FAILED", True)
    assert (failed.started_at_s, failed.ended_at_s) == (1767225700.0, 1767225760.0)
    assert failed.facts == (("exit code", "1"),)
    assert "a secret" not in str((failed, running)), "variables of others are theirs"


def test_the_last_lines_are_read(server, error_words):
    server.logs["theirs-1"] = "a\nb\nc\n"
    cluster = Cluster()
    assert cluster.unmanaged_log(unmanaged_job(cluster, "theirs-1"), 2) == ("b", "c")
    with error_words(NotFoundError):
        cluster.unmanaged_log(unmanaged_job(cluster, "raysubmit_Xy"), 2)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        (
            "theirs-1",
            UnmanagedJobError,
            r"theirs-1 is a Ray job that others run \(RUNNING\).* ray job stop theirs-1 --",
        ),
        ("raysubmit_Xy", UnmanagedJobError, r"not change it here$"),
        ("x", NotFoundError, r"^no job 'x'$"),
    ],
)
def test_a_job_of_others_is_refused_in_words_and_one_of_nobody_is_not_found(server, name, error, words):
    with pytest.raises(error, match=words), refused_where_unmanaged(Cluster(), name):
        Cluster().job(name)
    assert server.asked == ["/api/jobs/"], "nothing but the list is asked for"


@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", b'[{"status": "RUNNING"}]', b'[{"type": 1}]'])
def test_another_answer_is_refused_and_a_missing_job_stays_missing(server, answer):
    server.broken = answer or b" "
    with pytest.raises(BackendError, match="in another form than expected"):
        Cluster().unmanaged_jobs()
    with pytest.raises(NotFoundError, match=r"^no job 'x'$"), refused_where_unmanaged(Cluster(), "x"):
        Cluster().job("x")


def test_a_server_that_is_away_is_said(monkeypatch):
    monkeypatch.setenv(ADDRESS_VAR, "http://127.0.0.1:1")
    with pytest.raises(BackendError, match=f"cannot be read .*; {ADDRESS_VAR} may name another"):
        Cluster().unmanaged_jobs()


@given(st.binary(max_size=60))
def test_garbage_is_refused_in_words_or_an_empty_list(body):
    try:
        found = read_jobs(body, "http://h")
    except BackendError as error:
        found = ()
        told = str(error)
    else:
        told = "a list"
    assert found == ()
    assert told
