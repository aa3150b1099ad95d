"""What each test costs, as measured: for the choice of tiers, for the order of a run and for its progress.

``costs.tsv`` holds CPU seconds (of the test's process and of all that it starts) and seconds on the clock: a row for
each test function of half a CPU second or more, all its variants together, and a row for the rest of each file.
`make costs` runs everything and writes it anew. A test that costs more than `FIRST_TIER_CPU_S` is marked ``more`` in its
file (or ``release``, if only a release can afford it); `make costs` ends with the list of those whose mark does not
fit their cost. The mark decides, not the table: a slow machine does not change which tests run.

The processor time of processes that outlive their parents (masters, Ray, nodes) is in it where the worker process may
make a control group of its own; elsewhere only that of children that were waited for.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

TABLE = Path(__file__).with_suffix(".tsv")
ACCOUNT = Path("/sys/fs/cgroup/cpuacct")
OWN_ROW_CPU_S = 0.5
FIRST_TIER_CPU_S = 2.0
COST = "cost"  # the property of a report
# Imported before the first test, or it would be charged for them.
IMPORTED_AHEAD = (
    "torch",
    "panel",
    "bokeh.plotting",
    "scipy.stats",
    "sklearn.ensemble",
    "ray",
    "kubernetes.client",
)


class Cost(NamedTuple):
    """Of a test or of several."""

    cpu_s: float
    wall_s: float

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        """Add both figures."""
        return Cost(self.cpu_s + other.cpu_s, self.wall_s + other.wall_s)


NOTHING = Cost(0.0, 0.0)


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def function_of(nodeid: str) -> str:
    """Return the name of a test without its variant, and without the lane that xdist appends."""
    return nodeid.partition("[")[0].partition("@")[0]


def read(table: Path = TABLE) -> dict[str, Cost]:
    """Return the rows of the table by name."""
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as lines:
        rows = csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t")
        return {name: Cost(float(cpu_s), float(wall_s)) for cpu_s, wall_s, name in rows}


def rows(of_function: dict[str, Cost]) -> dict[str, Cost]:
    """Gather functions that cost little into one row of their file."""
    table: dict[str, Cost] = defaultdict(lambda: NOTHING)
    for name, cost in of_function.items():
        table[name if cost.cpu_s >= OWN_ROW_CPU_S else file_of(name)] += cost
    return dict(sorted(table.items()))


def write(table: dict[str, Cost], path: Path = TABLE) -> None:
    """Write the rows in the order of their names."""
    lines = [f"{cost.cpu_s:.2f}\t{cost.wall_s:.2f}\t{name}" for name, cost in sorted(table.items())]
    head = "# CPU seconds, seconds, test function or rest of a file: made by `make costs`, see costs.py"
    path.write_text("\n".join([head, *lines, ""]), encoding="utf-8")


def spread(nodeids: Iterable[str], table: dict[str, Cost]) -> dict[str, float]:
    """Return the seconds that each test will take: a row is shared evenly by the tests that are in it."""
    tests = list(nodeids)
    row_of = {each: name if (name := function_of(each)) in table else file_of(each) for each in tests}
    members: dict[str, int] = defaultdict(int)
    for each in tests:
        members[row_of[each]] += 1
    unknown = Cost(0.02, 0.02)
    return {
        each: max(table[row_of[each]]) / members[row_of[each]] if row_of[each] in table else max(unknown)
        for each in tests
    }


# recording


class Meter:
    """Processor time of this process and of what it starts, and the clock."""

    def __init__(self) -> None:
        self._usage: int | None = None  # a descriptor: tests patch what opens files
        group = ACCOUNT / f"tests-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self._usage = os.open(group / "cpuacct.usage", os.O_RDONLY)
        except OSError:  # not root, or cgroup v2
            pass
        self.last = self.now()

    def now(self) -> Cost:
        """Return both, since some moment."""
        if self._usage is None:
            return Cost(sum(os.times()[:4]), time.monotonic())
        return Cost(int(os.pread(self._usage, 32, 0)) / 1e9, time.monotonic())

    def lap(self) -> Cost:
        """Return what has passed since the last lap."""
        before, self.last = self.last, self.now()
        return Cost(self.last.cpu_s - before.cpu_s, self.last.wall_s - before.wall_s)


@dataclass(eq=False)  # plugins are kept in sets
class Recorder:
    """Notes the cost of each phase of a test in its report (in a worker process, or in the only one)."""

    meter: Meter

    def pytest_collection_finish(self) -> None:
        """Import what several tests import."""
        for module in IMPORTED_AHEAD:
            importlib.import_module(module)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Begin a test."""
        self.meter.lap()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note a phase."""
        report = yield
        report.user_properties.append((COST, tuple(self.meter.lap())))
        return report


class Journal:
    """Writes what was measured, a line a phase, as it comes (in the process that reports)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lines = path.open("a", buffering=1, encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a report's cost."""
        if cost := dict(report.user_properties).get(COST):
            self._lines.write(json.dumps([report.nodeid, report.when, report.outcome, *cost]) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take where to write costs."""
    parser.addoption("--record-costs", type=Path, help="write what each test costs to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, write where they are reported."""
    if (path := config.getoption("--record-costs")) is None:
        return
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Journal(path), "cost-journal")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recorder(Meter()), "cost-recorder")


# renewing the table


def measured(path: Path) -> dict[str, Cost]:
    """Return the cost of each function in a journal of costs, of tests that passed; the last run of each counts."""
    of_test: dict[str, Cost] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, when, outcome, cpu_s, wall_s = json.loads(line)
        nodeid = name.partition("@")[0]  # without its lane
        before = NOTHING if when == "setup" else of_test.get(nodeid, NOTHING)
        of_test[nodeid] = before + Cost(cpu_s, wall_s)
        if outcome == "skipped":
            del of_test[nodeid]
    functions: dict[str, Cost] = defaultdict(lambda: NOTHING)
    for nodeid, cost in of_test.items():
        functions[function_of(nodeid)] += cost
    return functions


def main(journal: str) -> int:
    """Write the table anew; rows of files that were not run stay."""
    new = rows(measured(Path(journal)))
    files = {file_of(name) for name in new}
    old = {
        name: cost
        for name, cost in read().items()
        if file_of(name) not in files and Path(file_of(name)).exists()
    }
    write(old | new)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
