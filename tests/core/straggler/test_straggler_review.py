"""The review of a running job: the telemetry that a client asks for is enough to say who is slow and what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs import builders

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.review import review
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, KillRestart
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Pace
from dlrover_nb.core.telemetry import JobTelemetry
from dlrover_nb.widgets.jobs.straggler_review import stragglers_view

SNAPSHOT = builders.snapshot(spec=JobSpec("ads"))
BATCH, START_S = 256, 1_790_000_000.0
WORKERS = tuple(f"ads-worker-{i}" for i in range(4))
BSP, ASP = (JobSpec("ads", sync=sync, batch_size=BATCH) for sync in (Sync.BSP, Sync.ASP))


def telemetry(work_s, n_second=240, n_ps=1, batch_size=BATCH):
    """Give what a job's master tells: a report a second of each node, whose own work takes so long."""
    told = JobTelemetry()
    slowest_s = max(work_s.values()) + 0.01
    for at_s in range(1, n_second + 1):
        for node, own_s in work_s.items():
            split = TimeSplit(compute_s=own_s, update_s=0.01, peers_s=slowest_s - own_s - 0.01)
            n_sample = round(batch_size / slowest_s)
            told.record_node(
                NodeSample(node, Role.WORKER, START_S + at_s, 1.0, 1, n_sample, slowest_s, split, 1.0, 100.0)
            )
        for i in range(n_ps):
            split = TimeSplit(lookup_s=0.001, idle_s=0.009)
            told.record_node(
                NodeSample(f"ads-ps-{i}", Role.PS, START_S + at_s, 1.0, 100, 0, 0.01, split, 0.1, 100.0)
            )
    return told.read()


def slow_one(factor):
    return {node: 0.2 * (factor if node == WORKERS[2] else 1.0) for node in WORKERS}


def test_a_slow_worker_is_found_by_its_own_work_and_batches_that_would_help_keep_the_sum():
    found = review(telemetry(slow_one(3.0)), (), BSP)
    assert {(each.node, each.pace) for each in found.findings} >= {(WORKERS[2], Pace.TRANSIENT)}
    assert found.findings[0].ratio == pytest.approx(3.0, rel=0.05)
    sizes = dict(next(each.action for each in found.proposed if isinstance(each.action, AdjustBatches)).sizes)
    assert sum(sizes.values()) == BATCH * len(WORKERS)
    assert sizes[WORKERS[2]] * 2.5 < sizes[WORKERS[0]]


def test_workers_that_wait_for_the_slow_one_are_not_slow_themselves():
    found = review(telemetry(slow_one(3.0)), (), BSP)
    assert {each.node for each in found.findings} == {WORKERS[2]}
    assert {round(each.work_s, 2) for each in found.times if each.role is Role.WORKER} == {0.2, 0.6}


def test_without_a_barrier_the_one_that_is_slow_for_long_would_be_restarted():
    found = review(telemetry(slow_one(3.0)), (), ASP)
    assert [each.action for each in found.proposed] == [KillRestart(WORKERS[2], Role.WORKER)]


def test_nobody_is_slow_where_all_are_and_nothing_is_proposed():
    found = review(telemetry(dict.fromkeys(WORKERS, 2.0)), (), BSP)
    assert (found.findings, found.proposed) == ((), ())


def test_nodes_that_are_gone_are_left_out():
    found = review(telemetry(slow_one(3.0)), {*WORKERS[:2], "ads-ps-0"}, BSP)
    assert {each.node for each in found.times} == {*WORKERS[:2], "ads-ps-0"}
    assert not found.findings


@pytest.mark.parametrize("series", [None, JobTelemetry().read()])
def test_a_job_that_has_reported_nothing_has_no_stragglers(series):
    found = review(series, (), BSP)
    assert (found.times, found.findings, found.proposed) == ((), (), ())
    assert "No node has reported" in str(stragglers_view(found, SNAPSHOT).blocks)


def test_each_name_of_a_solution_has_one():
    assert set(SOLUTIONS) == set(SolutionName)


def test_an_unknown_solution_names_the_known_ones():
    with pytest.raises(InvalidValueError, match="antdt-nd"):
        review(None, (), BSP, solution="magic")


def test_the_view_says_the_numbers_and_the_command_that_carries_it_out():
    text = str(stragglers_view(review(telemetry(slow_one(3.0)), (), BSP), SNAPSHOT))
    assert "worker-2" in text
    assert "3.00" in text
    assert "%dlrover apply ads --batches worker-0=" in text


def test_what_the_controller_found_is_shown_and_not_what_this_moment_says():
    known = (builders.straggler(WORKERS[1]),)
    found = review(telemetry(slow_one(3.0)), (), ASP, of_controller=known)
    assert found.findings == known
    snapshot = replace(SNAPSHOT, stragglers=known)
    text = str(stragglers_view(found, snapshot))
    assert "worker-1 is slow: it works 24.0 ms on a step, its peers 12.0 ms (2.0 times), since" in text
    assert "persistent (z-score 4.1 over 3)" in text
    assert "Slower than the others: worker-1." in text


@pytest.mark.parametrize("series", [None, telemetry(slow_one(1.0))])
def test_errors_of_nodes_are_told_a_line_each_also_where_nobody_reports(series):
    errors = (
        NodeErrors("ads-worker-2", Role.WORKER, 3, 0, 600.0),
        NodeErrors("ads-ps-0", Role.PS, 1, 1, 600.0),
    )
    view = stragglers_view(review(series, (), BSP), replace(SNAPSHOT, node_errors=errors))
    for text in (view.text(), view.html()):
        assert "worker-2: 3 retryable errors, 0 others in 10 min" in text
        assert "ps-0: 1 retryable error, 1 other in 10 min" in text
    assert "retryable" not in stragglers_view(review(series, (), BSP), SNAPSHOT).text()


def test_an_action_that_waits_stands_in_place_of_what_would_help():
    found = review(telemetry(slow_one(3.0)), (), ASP)
    snapshot = replace(SNAPSHOT, mitigations=(builders.mitigation(),))
    text = str(stragglers_view(found, snapshot))
    assert "%dlrover apply ads m1" in text
    assert "%dlrover apply ads --" not in text
    assert "%dlrover apply ads --restart worker-2" in str(stragglers_view(found, SNAPSHOT))
