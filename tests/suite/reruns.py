"""A test with processes, threads or sockets that fails is run once more, alone, in a fresh process.

A pass then does not fail the run, but the summary names the test as flaky, with both logs below ``build/flaky``. What is
pure is never run again, as nothing but its code decides. A test counts as real by what it does: the audit events of the
interpreter tell when it, or a fixture made for it, starts a process or a thread or uses a socket; so do its markers.
Tests of the ledger, of fencing and of checkpoints are never run again: a rare failure there is lost rows, not noise.

Rejected: a list of flaky tests (it only grows), and pytest-rerunfailures (it runs them in the same process, whose state
may be the cause).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "flaky"
MOST = 10  # beyond so many failures something is broken, and no run alone makes that better
LIMIT_S = 900.0
REAL = "real"  # the property of a report
MARKERS = ("ray", "browser", "kube", "pods")
EVENTS = frozenset({
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "_thread.start_new_thread", "socket.connect",
    "socket.bind",
})  # fmt: skip
FINALIZER = pytest.PytestUnraisableExceptionWarning.__name__
NEVER_AGAIN = re.compile(r"ledger|fenc|checkpoint|sharding", re.IGNORECASE)

_seen = {"events": 0}


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if event in EVENTS:
        _seen["events"] += 1


class Watcher:
    """Notes in each report whether the test was real so far (where tests run)."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Begin a test."""
        _seen["events"] = 0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what has happened."""
        report = yield
        marked = any(item.get_closest_marker(name) for name in MARKERS)
        report.user_properties.append((REAL, marked or _seen["events"] > 0))
        return report


def may_run_again(report: pytest.TestReport) -> bool:
    """Whether something else than the test's code may have decided; a worker that died left no note of it.

    An exception in a finalizer fails whichever test runs when the object is collected, so mostly another one's.
    """
    real = dict(report.user_properties).get(REAL, True)
    return bool(real or FINALIZER in report.longreprtext) and not NEVER_AGAIN.search(report.nodeid)


class Reruns:
    """Runs again what failed (in the process that reports), after all others have ended."""

    def __init__(self) -> None:
        self.flaky: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run each again once the others have ended; where all pass, the run has not failed.

        Not when the session finishes: the exit code is decided by then, and other plugins put it back.
        """
        done = yield
        self._run_again(session)
        return done

    def _run_again(self, session: pytest.Session) -> None:
        terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        failed = [*terminal.stats.get("failed", ()), *terminal.stats.get("error", ())]
        names = sorted({report.nodeid for report in failed})
        if session.shouldstop or len(names) > MOST or not all(map(may_run_again, failed)):
            return
        for name in names:
            reports = [report for report in failed if report.nodeid == name]
            if self._passes_alone(name, "\n".join(_text(report) for report in reports), terminal):
                self._take_back(reports, terminal, session)

    def _passes_alone(self, name: str, first: str, terminal: Any) -> bool:
        nodeid = name.partition("@")[0]
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / re.sub(r"[^\w.-]+", "-", nodeid)[-150:]
        log.with_name(f"{log.name}.1.log").write_text(first, encoding="utf-8")
        terminal.write_line(f"again, alone: {nodeid}")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", nodeid]
        with log.with_name(f"{log.name}.2.log").open("wb") as out:
            try:
                done = subprocess.run(
                    command, cwd=terminal.config.rootpath, env=_own_environment(), stdout=out,
                    stderr=subprocess.STDOUT, check=False, timeout=LIMIT_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    def _take_back(self, reports: list[pytest.TestReport], terminal: Any, session: pytest.Session) -> None:
        for report in reports:
            terminal.stats["error" if report in terminal.stats.get("error", ()) else "failed"].remove(report)
        session.testsfailed -= len(reports)
        terminal._add_stats("flaky", reports[:1])  # else its closing line does not count them
        self.flaky.append(reports[0].nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name them."""
        if self.flaky:
            terminalreporter.write_sep(
                "-", f"failed, and passed alone; both logs in {LOGS.relative_to(ROOT)}"
            )
            for name in self.flaky:
                terminalreporter.write_line(name)


def _text(report: pytest.TestReport) -> str:
    return "\n".join([report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections)])


def _own_environment() -> dict[str, str]:
    """Return the environment without what pytest and xdist set for this run."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take whether failures are run again: `make test` does, who runs one file wants to see it fail."""
    parser.addoption(
        "--run-failures-alone", action="store_true", help="run failed tests with processes once more"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch where tests run, run again where they are reported."""
    if not config.getoption("--run-failures-alone"):
        return
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reruns(), "reruns")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        sys.addaudithook(_watch)
        config.pluginmanager.register(Watcher(), "watcher")
