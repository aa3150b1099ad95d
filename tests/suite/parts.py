"""Parts of the test suite: which tests share a worker process, in which order they run, and what each part costs.

A test belongs to one part, decided by its markers and folder. Tests of a part that shares something real (one Ray
head, one API server, one cluster with nodes, one PostgreSQL server, one JupyterLab at a time) run in one worker
process, so that it is started once. All others are dealt to workers file by file, the dearest file first by the
measured costs (`costs.tsv`), so that no worker ends long after the others.

Ray and browsers, whose jobs train while a test waits, share one process too: side by side, each test takes longer, and
its job trains on meanwhile. Notebooks do not, or that process would end long after the others. Parts that mostly wait
come first, and unit tests use the processor time that they leave.

The same commit runs the same tests in the same order. Which tests a run takes, their marks say: none of the first tier
has one, ``more`` is the second tier, ``release`` (of variants: ``release_variants``) runs with `make test-all` alone.

Rejected: `--dist loadgroup` alone (it deals tests without a group one by one, and so starts the fixtures of a module
in every worker) and a lock around one shared Ray head (a worker that ends first would end it for the others).
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from suite import costs
from suite.costs import file_of

if TYPE_CHECKING:
    from collections.abc import Generator

PARTS = ("pods", "ray", "kube", "notebooks", "browser", "history", "unit")  # in the order of their start
MARKED = ("pods", "browser", "ray", "kube")  # the first that a test is marked with is its part
FOLDERS = {"notebooks": "notebooks", "history": "core/history"}  # parts that are whole folders of tests/
LANES = {"ray": "jobs", "browser": "jobs"}  # parts that share a worker process with others
PART = "part"  # the property of a test's report
COSTLY = ("nodes", "control_plane", "cluster")  # session fixtures that take processor time while they are up
FIRST_TIER = "not more and not release"  # as `make test` selects it
LATER_FILE = re.compile(
    r"^pytestmark = .*\bmark\.(?:more|release)\b|^    pytest\.mark\.(?:more|release),$", re.MULTILINE
)


def part_of(item: pytest.Item) -> str:
    """Return the part of a test: real nodes first, then its folder, then its markers."""
    if item.get_closest_marker("pods"):
        return "pods"
    for part, folder in FOLDERS.items():
        if item.nodeid.startswith(f"tests/{folder}/"):
            return part
    return next((part for part in MARKED if item.get_closest_marker(part)), "unit")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which the first tier takes nothing."""
    if config.option.markexpr != FIRST_TIER or not collection_path.name.startswith("test_"):
        return None
    return True if LATER_FILE.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to a release those variants of a test that its mark ``release_variants`` names."""
    for mark in item.iter_markers("release_variants"):
        if not hasattr(item, "callspec"):
            raise pytest.UsageError(f"{item.nodeid} has no variants; take its mark release_variants away")
        if item.callspec.id in mark.args:
            item.add_marker(pytest.mark.release)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """Keep the tests of a lane together in one worker process, and order those that others leave selected."""
    for item in items:  # before xdist reads the groups
        part = part_of(item)
        item.user_properties.append((PART, part))
        if part != "unit":
            item.add_marker(pytest.mark.xdist_group(LANES.get(part, part)))
    result = yield
    seconds: Counter[str] = Counter()
    for nodeid, cost in costs.spread([item.nodeid for item in items], costs.read()).items():
        seconds[file_of(nodeid)] += cost
    order: dict[pytest.Item, tuple[int, float, str]] = {}
    for item in items:
        part, file = dict(item.user_properties)[PART], file_of(item.nodeid)
        order[item] = (PARTS.index(part), -seconds[file] if part == "unit" else 0.0, file)
    items.sort(key=order.__getitem__)
    return result


_costly: list[tuple[pytest.FixtureDef[object], pytest.FixtureRequest]] = []  # those that are up


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note a costly fixture that has been made for the session."""
    made = yield
    if fixturedef.scope == "session" and fixturedef.argname in COSTLY:
        _costly.append((fixturedef, request))
    return made


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End what a part shared with its last test here, and not with the run; who asks again gets it made anew."""
    if nextitem is not None and part_of(nextitem) != part_of(item):
        while _costly:
            fixturedef, request = _costly.pop()
            fixturedef.finish(request)


def parts_before() -> list[str]:
    """Return what `tools/test.sh` measured before the tests, where it started them."""
    measured = os.environ.get("DLROVER_NB_PART_SECONDS")
    return Path(measured).read_text().splitlines() if measured else []


def pytest_collection_finish() -> None:
    """Take modules and tests out of garbage collection: else each of many hundred runs walks through all of them."""
    gc.collect()
    gc.freeze()


class PartTimes:
    """Seconds and tests of each part, summed over all workers from their reports."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report."""
        part = dict(report.user_properties).get(PART, "unit")
        self.seconds[part] += report.duration
        self.tests[part] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a table of the parts; tests run side by side, so their sum exceeds the time of the run."""
        terminalreporter.write_sep("-", "seconds of each part")
        for line in parts_before():
            part, seconds = line.split()
            terminalreporter.write_line(f"{part:<12}{seconds:>8} s")
        for part in PARTS:
            if part in self.seconds:
                terminalreporter.write_line(
                    f"{part:<12}{self.seconds[part]:>8.0f} s{self.tests[part]:>7} tests"
                )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in the process that reports, not in the workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(PartTimes(), "part-times")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Deal groups and files, in the order in which they were collected."""
    from xdist.scheduler import LoadGroupScheduling  # noqa: PLC0415 - only where xdist runs

    class ByGroupOrFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return file_of(nodeid) if scope == nodeid else scope

        def _reschedule(self, node: object) -> None:
            """Give a worker more when its last test begins, not two tests before: these can take minutes."""
            if node.shutting_down or not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
                super()._reschedule(node)

        def remove_node(self, node: object) -> str | None:
            """Give what a worker process left to the others, but not the test in which it died: it would kill them too."""
            died_in = super().remove_node(node)
            for scope, tests in list(self.workqueue.items()):
                tests.pop(died_in, None)
                if all(tests.values()):
                    del self.workqueue[scope]
            return died_in

    config.option.loadscopereorder = False
    return ByGroupOrFile(config, log)
