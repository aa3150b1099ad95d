"""The real process of `dlrover-nb serve`: how it begins, what it refuses, and that it leaves nothing."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from urllib.parse import urlsplit

import psutil
import pytest
from support.waiting import LIMIT_S, is_gone, until

from dlrover_nb import cli
from dlrover_nb.dashboard.sign_in.by_secret import secret_file
from dlrover_nb.dashboard.sign_in.users import read_users

pytestmark = pytest.mark.more

CLI = [sys.executable, "-m", "dlrover_nb.cli"]


class Process:
    """A server in a process of its own, and the lines that it writes."""

    def __init__(self, folder, *words):
        env = {**os.environ, "DLROVER_NB_HISTORY": f"sqlite:///{folder / 'history.db'}"}
        command = [*CLI, "serve", "--cluster", "local", *words]
        self.process = subprocess.Popen(
            command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self._reader.start()

    def url(self):
        said = until(
            lambda: self.line("the dashboard is at") or self.process.poll() is not None,
            what=lambda: self.lines,
        )
        assert said is not True, self.lines
        return said.split("the dashboard is at ")[1].split(";")[0].split()[0]

    def opened(self, path):
        """Ask for a page as a program of this account does."""
        secret = secret_file(urlsplit(self.url()).port).read_text().strip()
        request = urllib.request.Request(self.url() + path, headers={"Authorization": f"Bearer {secret}"})
        return urllib.request.urlopen(request, timeout=LIMIT_S)

    def line(self, part):
        return next((line for line in tuple(self.lines) if part in line), None)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        self.process.stderr.close()
        self.said = self.process.stdout.read()
        self.process.stdout.close()
        return code


@pytest.fixture
def start(tmp_path):
    """Start servers in processes; they end with the test."""
    started = []

    def begin(*words):
        started.append(Process(tmp_path, *words))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.mark.release_variants("SIGINT")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_it_serves_until_a_signal_and_leaves_no_process(start, how):
    server = start("--port", "0", "--log-format", "json")
    with urllib.request.urlopen(f"{server.url()}healthz", timeout=LIMIT_S) as answer:
        assert answer.read() == b"ok\n"
    until(lambda: _ready(server), what="a server that is ready")
    with server.opened("jobs") as answer:
        request = answer.headers["X-Request-Id"]
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert server.end(how) == 0
    until(lambda: all(is_gone(each.pid) for each in children), what="the end of its processes")
    logged = json.loads(server.line(request))
    assert (logged["path"], logged["status"], logged["method"]) == ("/jobs", 200, "GET")
    assert "has ended" in server.said


def _ready(server):
    try:
        with urllib.request.urlopen(f"{server.url()}readyz", timeout=LIMIT_S) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        error.close()
        return False


def test_a_port_in_use_is_told_in_one_line_with_the_fix(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        second = start("--port", port)
        assert second.process.wait(LIMIT_S) == 3
    assert second.end() == 3
    assert second.line(f"port {port} is in use; end what uses it, or add --port 0")
    assert not second.line("Traceback")


REFUSED = {
    ("--address", "0.0.0.0"): "without a sign-in",
    ("--trusted-proxy", "10.0.0.1"): "--proxy-header",
    ("--proxy-header", "X-User"): "--trusted-proxy",
    ("--users", "/none/users.yaml"): "users add",
    ("--settings", "/none/serve.yaml"): "no settings",
    ("--prefix", "x"): "/dlrover",
    ("--port", "99999"): "0 to 65535",
    ("--demo",): "--demo serves simulated jobs alone",
}
EACH = """
import contextlib, io, json, sys
from dlrover_nb import cli

for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.main(["serve", "--cluster", "local", *words])
    print(json.dumps([code, said.getvalue()]))
"""


def test_what_must_not_be_is_refused_in_one_line():
    """All in one process, which ends with its limit where one of them is served."""
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        input=json.dumps([*REFUSED]), capture_output=True, text=True, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    refusals = [json.loads(line) for line in done.stdout.splitlines()]
    for (words, part), (code, text) in zip(REFUSED.items(), refusals, strict=True):
        assert code == 2, words
        assert part in text, words
        assert "Traceback" not in text, words


@pytest.fixture
def told(monkeypatch, capsys):
    def run(*words, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = cli.main(words)
        return code, "".join(capsys.readouterr())

    return run


def test_users_are_added_listed_and_removed(told, tmp_path):
    file = ("--file", str(tmp_path / "users.yaml"))
    words = ("users", "add", "ada", "--role", "operator", "--group", "ads", "--password-stdin")
    added = told(*words, *file, stdin="correct horse\n")
    assert added[0] == 0, added
    assert read_users(tmp_path / "users.yaml")["ada"].groups == ("ads",)
    assert "correct horse" not in added[1]
    assert "ada: operator; groups ads" in told("users", "list", *file)[1]
    assert told("users", "add", "ada", "--password-stdin", *file, stdin="correct horse\n")[0] == 2
    assert told("users", "add", "bob", "--password-stdin", *file, stdin="short\n")[0] == 2
    assert told("users", "remove", "bob", *file)[0] == 2
    assert told("users", "remove", "ada", *file)[0] == 0
    assert read_users(tmp_path / "users.yaml") == {}


def test_a_demo_serves_simulated_jobs_keeps_nothing_and_ends_with_them(tmp_path):
    env = {**os.environ, "DLROVER_NB_HISTORY": f"sqlite:///{tmp_path / 'history.db'}"}
    command = [*CLI, "server", "--demo", "--port", "0"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr))
    reader.start()
    try:
        said = until(
            lambda: next((line for line in lines if "the dashboard is at" in line), None), what=lambda: lines
        )
        url = said.split("the dashboard is at ")[1].split(";")[0].split()[0]
        secret = secret_file(urlsplit(url).port).read_text().strip()
        request = urllib.request.Request(url + "jobs", headers={"Authorization": f"Bearer {secret}"})
        page = urllib.request.urlopen(request, timeout=LIMIT_S).read().decode()
        assert page.count("<tbody data-job") == 30
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(LIMIT_S)
        reader.join(LIMIT_S)
        process.stderr.close()
        process.stdout.close()
    assert code == 0
    assert not (tmp_path / "history.db").exists()
