"""When each test last passed in this checkout, and going on where a run of all tests stopped.

``build/passed.tsv`` gets a line for each pass: the date, the commit (with ``+`` where files had changed), seconds, the
test. With ``--resume`` what passed at this very state is not run again: `make test-all` takes hours, and a machine may
have to be given back in between.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSED = ROOT / "build" / "passed.tsv"


def state() -> str:
    """Return the commit, and a digest of what differs from it; empty outside of a checkout."""

    def said(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    new = said("ls-files", "--others", "--exclude-standard").splitlines()
    changes = said("diff", "HEAD") + "".join(said("hash-object", name) for name in new)
    digest = f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else ""
    return said("rev-parse", "--short=12", "HEAD") + digest


def last_passes(path: Path = PASSED) -> dict[str, tuple[str, str, float]]:
    """Return (date, state, seconds) of each test's last pass."""
    if not path.exists():
        return {}
    rows = (line.split("\t", 3) for line in path.read_text(encoding="utf-8").splitlines())
    return {
        row[3]: (row[0], row[1], float(row[2])) for row in rows if len(row) == 4
    }  # a last line may be cut


class Passes:
    """Writes each pass (in the process that reports)."""

    def __init__(self, path: Path = PASSED) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.state = state()
        self.seconds: dict[str, float] = {}
        self._lines = path.open("a", buffering=1, encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has passed when its last phase has."""
        name = report.nodeid.partition("@")[0]
        if report.outcome != "passed":
            self.seconds[name] = float("-inf")
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.when == "teardown" and (seconds := self.seconds.pop(name)) >= 0:
            date = time.strftime("%Y-%m-%d %H:%M")
            self._lines.write(f"{date}\t{self.state}\t{seconds:.1f}\t{name}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say when what did not pass now last did, and where the dates of all others are."""
        reports = [
            each for kind in ("failed", "error", "skipped") for each in terminalreporter.stats.get(kind, ())
        ]
        before = last_passes()
        terminalreporter.write_sep("-", f"last passes; those of all tests are in {PASSED.relative_to(ROOT)}")
        for name in sorted({report.nodeid.partition("@")[0] for report in reports}):
            date, then, _ = before.get(name, ("never", "here", 0.0))
            terminalreporter.write_line(f"{date} {then}  {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take both."""
    parser.addoption(
        "--note-passes", action="store_true", help="write when each test passed to build/passed.tsv"
    )
    parser.addoption(
        "--resume", action="store_true", help="leave out what passed at this state of the checkout"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Write where tests are reported."""
    if config.getoption("--note-passes") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passes(), "passes")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed; each worker process reads the same before the first test ends."""
    if not config.getoption("--resume"):
        return
    now = state()
    done = {name for name, (_, then, _) in last_passes().items() if then == now}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]
