"""The rules on real jobs, where those data are at hand: ten workers each, every tenth iteration recorded."""

from __future__ import annotations

import csv
import lzma
from typing import TYPE_CHECKING

from suite.missing import shared

from dlrover_nb.core.straggler import Monitor, MonitorSettings
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.stragglers import Spread


def found(job: str, rule: str) -> set[str]:
    """Return all nodes that were ever found in a job; windows of 20 and 40 records."""
    return watched(job, rule)[0]


def watched(job: str, rule: str = "robust") -> tuple[set[str], list[Spread | None]]:
    """Return all nodes that were ever found, and how far workers differed for good after each record."""
    monitor, nodes, spreads = Monitor(MonitorSettings(20.0, 40.0, rule)), set(), []
    with lzma.open(shared("data", "alibaba", "minibatch_time_jobs.csv.xz"), "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["job"] == job]
    for row in sorted(rows, key=lambda row: int(row["time"])):
        at_s, iter_s = (int(row["time"]) - 1) / 10 + 1, int(row["batch_time_norm"]) / 1e6
        split = TimeSplit(compute_s=iter_s)
        if row["worker"] == "0":
            nodes |= {each.node for each in monitor.findings(at_s - 1)}
            spreads.append(monitor.spread(at_s - 1))
        monitor.observe(
            NodeSample(row["worker"], Role.WORKER, 0.0, 1.0, 1, 1, iter_s, split, cpu_cores=1, memory_mib=1),
            at_s,
        )
    return nodes, spreads


def test_the_straggler_below_lambda_is_found_and_by_the_ratio_it_is_not():
    assert found("1", "robust") == {"6"}
    assert found("1", "ratio") == set()


def test_workers_that_differ_for_good_are_no_stragglers():
    assert found("2", "robust") == set()


def test_workers_that_differ_for_good_are_told_as_that():
    nodes, spreads = watched("2")
    known = [each for each in spreads if each is not None]
    assert nodes == set()
    assert len(known) > 0.8 * len(spreads)
    assert {(each.fastest, each.slowest) for each in known} == {("1", "5")}
    assert all(1.25 < each.ratio < 1.4 for each in known)


def test_a_straggler_among_equal_workers_is_no_difference_for_good():
    assert set(watched("1")[1]) == {None}
