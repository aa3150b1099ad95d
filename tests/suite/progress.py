"""How far a run is and what remains, in place of nine thousand dots; and that nothing was left out.

A line every 20 s says which share of the work is done, by the measured costs, and how long the rest will take at the
speed so far. Each failure is named at once. At the end, a test that was selected and has no result fails the run: a
worker process that gave up, or a run that was cut, is no success.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from suite import costs

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERY_S = 20.0
LEFT_AT_FIRST = 0.97  # of the work: before, its speed says nothing


def minutes(seconds: float) -> str:
    """Return a time as on a clock: 4:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """Of one run, in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = self.said = time.monotonic()
        self.cost: dict[str, float] = {}
        self.open: set[str] = set()
        self.counts: Counter[str] = Counter()

    def select(self, nodeids: Iterable[str]) -> None:
        """Take the tests of the run; each worker process names the same."""
        if not self.cost:
            self.cost = costs.spread(nodeids, costs.read())
            self.open = set(self.cost)
            self._say(f"{len(self.open)} tests")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take what one process collected."""
        if session.items and not session.config.option.collectonly:
            self.select(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Take what a worker process collected."""
        self.select(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print nothing for a test that passed or was skipped."""
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            return "passed", "", ""
        return ("skipped", "", "") if report.skipped and not hasattr(report, "wasxfail") else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report; name what failed at once, as a run that is cut has no summary."""
        if report.failed:
            self.counts["failed"] += 1
            crash = getattr(report.longrepr, "reprcrash", None)
            self._say(
                f"{report.nodeid} failed in {report.when}: {crash.message.splitlines()[0] if crash else ''}"
            )
        if report.when == "teardown" or (report.failed and report.when not in {"setup", "call"}):
            self.open.discard(report.nodeid)
            self.counts["done"] += 1
            self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self.said < EVERY_S or not self.cost:
            return
        self.said, elapsed = now, now - self.began
        left = sum(self.cost[each] for each in self.open) / (sum(self.cost.values()) or 1.0)
        rest = f"; about {minutes(elapsed * left / (1 - left))} to go" if left < LEFT_AT_FIRST else ""
        self._say(
            f"{minutes(elapsed)}  {1 - left:4.0%} of the work, {self.counts['done']} of {len(self.cost)} tests,"
            f" {self.counts['failed']} failed{rest}"
        )

    def _say(self, text: str) -> None:
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(text)
            terminal.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that left out what it had selected."""
        stopped = session.shouldstop or session.shouldfail or self.config.option.collectonly
        if self.open and not stopped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what has no result."""
        if self.open and not self.config.option.collectonly:
            terminalreporter.write_sep("!", f"{len(self.open)} selected tests have no result", red=True)
            for nodeid in sorted(self.open)[:50]:
                terminalreporter.write_line(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Report in the process that reports, and not where each test is named or marked."""
    if not hasattr(config, "workerinput") and config.option.verbose <= 0:
        config.pluginmanager.register(Progress(config), "progress")
