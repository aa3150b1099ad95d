"""Tests that take long, and the minutes that a run has for them.

`long_tests.txt` lists them; `pytest -m long` selects them. With ``--long-minutes N`` they come after all others, and
none begins once the run has lasted N minutes: on a fast machine more of them run than on a busy one, but the run ends.
In which order they come changes with every commit, so that over some runs all have their turn.

Listed and not marked where they are, as it depends on the whole suite which tests it can afford each time: a part
should be tried by one of its tests at least, whatever that takes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from zlib import crc32

import pytest

LISTED = Path(__file__).with_suffix(".txt")
SEED = "DLROVER_NB_TEST_SEED"
_UNTIL = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the minutes."""
    parser.addoption("--long-minutes", type=float, help="begin long tests only in so many minutes of the run")


def pytest_configure(config: pytest.Config) -> None:
    """Note until when they may begin; a worker process takes the time of the one that reports."""
    minutes = config.getoption("--long-minutes")
    until = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    config.stash[_UNTIL] = getattr(config, "workerinput", {}).get("long_until", until)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a worker process."""
    node.workerinput["long_until"] = node.config.stash[_UNTIL]


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def listed() -> set[str]:
    """Return node ids, each of one test or, without what is in brackets, of all its variants."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def mark(items: list[pytest.Item], *, whole_files: bool) -> None:
    """Mark those that are listed; of files that were collected whole, each line has to name a test."""
    names, used = listed(), set()
    for item in items:
        if which := {item.nodeid, item.nodeid.partition("[")[0]} & names:
            item.add_marker(pytest.mark.long)
            used |= which
    files = {file_of(item.nodeid) for item in items} if whole_files else ()
    if unknown := sorted(name for name in names - used if file_of(name) in files):
        raise pytest.UsageError(f"{LISTED.name} lists what is no test: {', '.join(unknown)}")


def turn(name: str) -> int:
    """Return a number that orders files and lanes of long tests, other for each commit."""
    return crc32(f"{os.environ.get(SEED, '')} {name}".encode())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a long test out when its time is over, before anything is set up for it."""
    if item.get_closest_marker("long") and time.monotonic() > item.config.stash[_UNTIL]:
        pytest.skip("a long test, and the run has no more minutes for these")
