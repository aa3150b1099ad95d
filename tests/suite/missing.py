"""What this machine lacks: a test that needs it is skipped, and fails where ``REQUIRE`` names it.

One rule for every tool, in place of a look at ``CI`` in each fixture: a hosted CI sets that variable on machines that
have neither root nor a test cluster. The variable ``DLROVER_NB_REQUIRE`` (`make test REQUIRE=kube,chromium`) says what
has to be there. The table at the end of a run counts what was skipped, by reason.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRE = "DLROVER_NB_REQUIRE"
SHARED = Path(os.environ.get("DLROVER_NB_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TOOLS = {  # each with how it comes to this machine
    "axe": "make install",
    "chromium": "make browser",
    "kube": "make kube, where the test cluster lies beside this checkout",
    "pods": "make kube, as root, with cgroup v1",
    "libraries": "make libraries",
    "npm": "Node.js, for a provider of OpenID Connect to sign in at",
    "postgresql": "make postgresql, or DLROVER_NB_TEST_POSTGRESQL_URL",
    "promtool": "make promtool",
    "shared": "measured data and schemas, which are no part of the repository; DLROVER_NB_SHARED names their folder",
}


def required() -> frozenset[str]:
    """Return the tools that have to be there; ``kube`` means its nodes too."""
    names = frozenset(os.environ.get(REQUIRE, "").replace(",", " ").split())
    if unknown := names - TOOLS.keys():
        raise pytest.UsageError(f"REQUIRE takes {', '.join(TOOLS)}; got {', '.join(sorted(unknown))}")
    return names | ({"pods"} if "kube" in names else frozenset())


def missing(tool: str, why: str = "") -> NoReturn:
    """Skip the test that needs this tool, or fail it where the tool is required."""
    reason = f"needs {tool}: {why or TOOLS[tool]}"
    if tool in required():
        pytest.fail(f"{reason} (REQUIRE names it)", pytrace=False)
    pytest.skip(reason)


def shared(*parts: str) -> Path:
    """Return a path of the measured data and schemas beside the checkout, if it is there."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        missing("shared", f"{'/'.join(parts)} is not there")
    return path


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped, without the place."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse a tool that nobody knows before anything runs."""
    required()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one table of what was skipped."""
    counts = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", ()))
    if counts:
        terminalreporter.write_sep("-", "skipped, and what would run it")
    for reason, count in counts.most_common():
        terminalreporter.write_line(f"{count:>5}  {reason}")
