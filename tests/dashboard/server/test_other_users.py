"""Another user of the machine, for real: what a dashboard and a job on this machine give to them.

The security page of the documentation lists what is tried here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from support.waiting import LIMIT_S, until
from test_serve_process import CLI, Process

from dlrover_nb.dashboard.sign_in.by_secret import own_server

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user"),
]


def as_nobody(**asked):
    """Return what another user finds."""
    program = Path(__file__).with_name("other_user.py")
    done = subprocess.run(
        [sys.executable, program, json.dumps(asked)],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(monkeypatch):
    """Give a folder that everybody may enter, so that the files in it protect themselves.

    Those of pytest are closed to others.
    """
    with tempfile.TemporaryDirectory(prefix="dlrover-open-") as path:
        folder = Path(path)
        folder.chmod(0o755)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
        yield folder


@pytest.fixture
def start(folder):
    started = []

    def begin(*words):
        started.append(Process(folder, *words))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGTERM)


def test_the_dashboard_tells_another_user_nothing_and_takes_nothing(start):
    server = start("--port", "0")
    url = server.url()
    own = own_server(url, urlsplit(url).port)
    closed = (
        "jobs",
        "live?job=x",
        "events/jobs",
        "file?kind=plan",
        "metrics",
        "api/v1/clusters",
        "approve/r1",
    )
    found = as_nobody(
        urls=[url + path for path in (*closed, "enter", "enter?token=x", "healthz")],
        posts=[url + path for path in ("do", "batch", "api/v1/jobs/local/x/stop")],
        websockets=[f"{url}live/ws"],
        files=[str(each) for each in Path(os.environ["XDG_STATE_HOME"]).rglob("*")],
    )
    statuses = {each.removeprefix(url): status for each, status in found["urls"].items()}
    assert statuses == {**dict.fromkeys(closed, 401), "enter": 403, "enter?token=x": 403, "healthz": 200}
    assert set(found["posts"].values()) == {401}
    assert set(found["websockets"].values()) == {401}
    assert not found["files"]
    assert own.secret not in " ".join(psutil.Process(server.process.pid).cmdline())
    with server.opened("jobs") as answer:
        assert answer.status == 200


def test_the_socket_of_a_dashboard_opens_for_its_account_alone(start, folder):
    path = str(folder / "d.sock")
    server = start("--unix-socket", path)
    until(lambda: server.line("the dashboard is at"), what="the server")
    assert as_nobody(sockets=[path])["sockets"] == []


def test_a_browser_is_started_without_the_secret_in_its_arguments(start, folder, monkeypatch):
    browser, seen = folder / "browser", folder / "seen"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.new; mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    server = start("--port", "0", "--open")
    own = own_server(server.url(), urlsplit(server.url()).port)
    until(seen.exists, what="the browser")
    address = seen.read_text().strip()
    assert own.secret not in address
    page = Path(urlsplit(address).path)
    assert own.address() in page.read_text()
    assert not as_nobody(files=[str(page)])["files"]


def test_a_terminal_gets_the_address_with_the_secret(folder):
    ours, its = os.openpty()
    process = subprocess.Popen(
        [*CLI, "serve", "--cluster", "local", "--port", "0"],
        env={**os.environ, "DLROVER_NB_HISTORY": f"sqlite:///{folder / 'history.db'}"},
        stdout=subprocess.DEVNULL, stderr=its,
    )  # fmt: skip
    os.close(its)
    try:
        with open(ours, encoding="utf-8", errors="replace") as terminal:  # noqa: PTH123 - a descriptor
            line = next(each for each in iter(terminal.readline, "") if "is at" in each)
            address = line.partition("is at ")[2].split(";")[0]
            assert own_server(address.partition("enter?")[0], urlsplit(address).port).address() == address
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def test_the_secret_is_not_printed_into_a_log_file_and_link_tells_it(folder):
    log = folder / "serve.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*CLI, "serve", "--cluster", "local", "--port", "0"],
            env={**os.environ, "DLROVER_NB_HISTORY": f"sqlite:///{folder / 'history.db'}"},
            stdout=subprocess.DEVNULL, stderr=file,
        )  # fmt: skip
    try:
        line = until(
            lambda: [each for each in log.read_text().split("\n") if "is at" in each], what="the server"
        )
        url = line[0].removeprefix("the dashboard is at ").split(";")[0]
        own = own_server(url, urlsplit(url).port)
        assert own.secret not in log.read_text()
        words = [*CLI, "serve", "--link", "--port", str(urlsplit(url).port)]
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
        assert own.address() in told
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def test_a_job_of_this_machine_tells_another_user_nothing(folder, monkeypatch):
    monkeypatch.setenv("DLROVER_NB_ADDRESS", "local")
    monkeypatch.setenv("DLROVER_NB_HISTORY", f"sqlite:///{folder / 'history.db'}")

    def verb(*words):
        return subprocess.run([*CLI, *words], capture_output=True, text=True, check=False, timeout=LIMIT_S)

    told = verb("submit", "ads", "--epochs", "100000", "--mode", "manual")
    assert told.returncode == 0, told.stderr
    try:
        until(lambda: '"training"' in verb("status", "ads", "--json").stdout, what="a job that trains")
        processes = processes_of(folder)
        listening = [c for p in processes for c in p.net_connections() if c.status == psutil.CONN_LISTEN]
        ports = sorted({each.laddr.port for each in listening if each.laddr})
        sockets = [
            c.laddr for p in processes for c in p.net_connections(kind="unix") if str(c.laddr)[:1] == "/"
        ]
        shared = [m.path for p in processes for m in p.memory_maps() if m.path.startswith("/dev/shm/")]
        files = [str(each) for each in (folder / "state").rglob("*") if not each.is_socket()]
        assert ports, "the master listens"
        assert files
        calls = ("", "call", "api/v1/jobs", "metrics")
        found = as_nobody(
            urls=[f"http://127.0.0.1:{port}/{path}" for port in ports for path in calls],
            posts=[f"http://127.0.0.1:{port}/{path}" for port in ports for path in calls],
            sockets=sorted(set(sockets)),
            files=[*files, *sorted(set(shared))],
        )
        assert all({each.laddr.ip} <= {"127.0.0.1", "::1"} for each in listening)
        assert not [
            url for url, status in (*found["urls"].items(), *found["posts"].items()) if 200 <= status < 400
        ]
        assert not found["sockets"]
        assert not found["files"]
    finally:
        verb("delete", "ads", "--force")
        until(lambda: not processes_of(folder), what="the end of the job's processes")


def processes_of(folder):
    """Return the processes that were started with a state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("XDG_STATE_HOME") == str(
                folder / "state"
            ):
                found.append(process)
        except psutil.Error:  # it ended meanwhile, or has no environment
            continue
    return found
