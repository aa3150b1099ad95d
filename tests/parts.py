"""Parts of the test suite: which tests share a worker process, in which order they run, and what each part costs.

A test belongs to one part, decided by its markers and folder. Tests of a part that shares something real (one Ray
head, one API server, one cluster with nodes, one PostgreSQL server, one JupyterLab at a time) run in one worker
process, so that it is started once. All others are dealt to workers file by file. Long tests come last (`long_tests`).

Ray and browsers, whose jobs train while a test waits, share one process too: side by side, each test takes longer, and
its job trains on meanwhile. Notebooks do not, or that process would end long after the others. Parts that mostly wait
come first, and unit tests use the processor time that they leave.

Rejected: `--dist loadgroup` alone (it deals tests without a group one by one, and so starts the fixtures of a module
in every worker) and a lock around one shared Ray head (a worker that ends first would end it for the others).
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from long_tests import file_of, mark, turn

if TYPE_CHECKING:
    from collections.abc import Generator

PARTS = ("pods", "ray", "kube", "notebooks", "browser", "history", "unit")  # in the order of their start
MARKED = ("pods", "browser", "ray", "kube")  # the first that a test is marked with is its part
FOLDERS = {"notebooks": "notebooks", "history": "core/history"}  # parts that are whole folders of tests/
LANES = {"ray": "jobs", "browser": "jobs"}  # parts that share a worker process with others
LONG = " long"  # ends the name of the lane of long tests
PART = "part"  # the property of a test's report
COSTLY = ("nodes", "control_plane", "cluster")  # session fixtures that take processor time while they are up


def part_of(item: pytest.Item) -> str:
    """Return the part of a test: real nodes first, then its folder, then its markers."""
    if item.get_closest_marker("pods"):
        return "pods"
    for part, folder in FOLDERS.items():
        if item.nodeid.startswith(f"tests/{folder}/"):
            return part
    return next((part for part in MARKED if item.get_closest_marker(part)), "unit")


def lane_of(item: pytest.Item) -> str:
    """Return what shares a worker process: the tests of a part, or of a file; long ones apart, as they come last."""
    part = part_of(item)
    lane = file_of(item.nodeid) if part == "unit" else LANES.get(part, part)
    return f"{lane}{LONG}" if is_long(item) else lane


def is_long(item: pytest.Item) -> bool:
    """Whether `long_tests.txt` lists it."""
    return item.get_closest_marker("long") is not None


def order(item: pytest.Item) -> tuple[object, ...]:
    """Order by part, then as collected; long tests after all others, in an order of their own."""
    if not is_long(item):
        return (False, PARTS.index(part_of(item)))
    return (True, turn(lane_of(item)), turn(file_of(item.nodeid)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order tests, and keep those of a lane together in one worker process."""
    mark(items, whole_files=not any("::" in each for each in config.args))
    for item in items:
        item.user_properties.append((PART, part_of(item)))
        if part_of(item) != "unit" or is_long(item):
            item.add_marker(pytest.mark.xdist_group(lane_of(item)))
    items.sort(key=order)


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

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report; name what failed at once, as a run that is cut at its limit has no summary."""
        part = dict(report.user_properties).get(PART, "unit")
        self.seconds[part] += report.duration
        self.tests[part] += report.when == "call"
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.splitlines()[0] if crash else ""
            self.config.get_terminal_writer().line(f"\n{report.nodeid} failed in {report.when}: {why}")

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
        config.pluginmanager.register(PartTimes(config), "part-times")


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
            if node.shutting_down or not self.workqueue:
                super()._reschedule(node)
            elif self._pending_of(self.assigned_work[node]) <= 1:
                if self._free(node):
                    super()._reschedule(node)
                else:
                    node.shutdown()  # what is left will be done by those that are in its lanes

        def _assign_work_unit(self, node: object) -> None:
            if free := self._free(node):  # at the start each worker gets something
                self.workqueue.move_to_end(free[0], last=False)
            super()._assign_work_unit(node)

        def _free(self, node: object) -> list[str]:
            """Return what a worker may do next: not the long tests of a lane whose others run in another worker."""
            running = {
                scope
                for other, units in self.assigned_work.items()
                for scope, tests in units.items()
                if other is not node and not all(tests.values())
            }
            return [scope for scope in self.workqueue if scope.removesuffix(LONG) not in running]

    config.option.loadscopereorder = False
    return ByGroupOrFile(config, log)
