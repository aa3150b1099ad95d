"""A worker that is slow for long behind a smaller batch: seen by rows, as its steps take as long as its peers'."""

from __future__ import annotations

import pytest

from dlrover_nb.core.straggler import SOLUTIONS, KillRestart, Monitor, MonitorSettings, Pace, Situation
from dlrover_nb.core.straggler.situation import WorkerState
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

SHORT_S, LONG_S = 10.0, 20.0
ROWS = 100  # of a batch, at first
ROW_S = 0.001  # of a worker that is well


def report(node: str, n_row: float, row_s: float) -> NodeSample:
    iter_s = n_row * row_s
    return NodeSample(
        at_s=0.0,
        node=node,
        role=Role.WORKER,
        window_s=1.0,
        n_iter=10,
        n_sample=round(10 * n_row),
        iter_s=iter_s,
        split=TimeSplit(compute_s=iter_s),
        cpu_cores=1.0,
        memory_mib=1.0,
    )


def ran(monitor: Monitor, from_s: int, n_second: int, slowdown: float, rows: tuple[int, int, int]) -> int:
    """Let three workers report; the second takes `slowdown` times as long for a row."""
    for second in range(from_s + 1, from_s + n_second + 1):
        for i, n_row in enumerate(rows):
            row_s = ROW_S * (slowdown if i == 1 else 1.0)
            monitor.observe(report(f"worker-{i}", n_row, row_s), float(second))
    return from_s + n_second


EVEN, LEVELLED = (ROWS, ROWS, ROWS), (133, 33, 133)


def levelled_after(n_second: int, well_s: int = 20, slowdown: float = 4.0) -> tuple[Monitor, float]:
    monitor = Monitor(MonitorSettings(SHORT_S, LONG_S))
    at_s = ran(monitor, 0, well_s, 1.0, EVEN)
    at_s = ran(monitor, at_s, 5, slowdown, EVEN)
    return monitor, float(ran(monitor, at_s, n_second, slowdown, LEVELLED))


def test_its_steps_show_nothing_and_its_rows_do():
    monitor, at_s = levelled_after(25)
    assert monitor.findings(at_s) == ()
    (finding,) = monitor.levelled(at_s)
    assert (finding.node, finding.pace, finding.by_rows) == ("worker-1", Pace.PERSISTENT, True)
    assert finding.ratio == pytest.approx(4.0)
    assert finding.peers_s == pytest.approx(133 * ROW_S)  # of as many rows as its peers have


@pytest.mark.parametrize("n_second", [1, 5, 10])
def test_it_is_none_before_it_was_slow_for_long(n_second):
    assert levelled_after(n_second)[0].levelled(25.0 + n_second) == ()


def test_one_that_gets_well_is_none_though_its_batch_is_still_small():
    monitor, at_s = levelled_after(25)
    end = ran(monitor, int(at_s), 12, 1.0, LEVELLED)
    assert monitor.levelled(float(end)) == ()


def test_workers_that_differ_since_they_began_are_none():
    monitor = Monitor(MonitorSettings(SHORT_S, LONG_S))
    at_s = ran(monitor, 0, 50, 4.0, LEVELLED)
    assert monitor.levelled(float(at_s)) == ()


def test_a_new_worker_of_the_same_name_begins_anew():
    monitor, at_s = levelled_after(25)
    monitor.forget("worker-1")
    end = ran(monitor, int(at_s), 50, 4.0, LEVELLED)
    assert monitor.levelled(float(end)) == ()


def test_one_that_is_slow_and_has_the_usual_batch_is_a_matter_of_its_steps():
    monitor = Monitor(MonitorSettings(SHORT_S, LONG_S))
    at_s = ran(monitor, 0, 20, 1.0, EVEN)
    at_s = ran(monitor, at_s, 25, 4.0, EVEN)
    assert monitor.levelled(float(at_s)) == ()
    assert {each.node for each in monitor.findings(float(at_s))} == {"worker-1"}


def test_speeds_since_it_became_slow_are_not_those_of_before():
    monitor = Monitor(MonitorSettings(SHORT_S, LONG_S))
    ran(monitor, 0, 20, 1.0, EVEN)
    at_s = float(ran(monitor, 20, 5, 4.0, EVEN))
    (whole,) = [each for each in monitor.times(Role.WORKER, at_s) if each.node == "worker-1"]
    (newest,) = [
        each for each in monitor.times(Role.WORKER, at_s, {"worker-1": 20.0}) if each.node == "worker-1"
    ]
    assert newest.samples_per_s == pytest.approx(1 / (4 * ROW_S))
    assert whole.samples_per_s > 1.3 * newest.samples_per_s
    just_now = monitor.times(Role.WORKER, at_s, {"worker-1": 24.5})  # too little to say anything
    assert whole in just_now


def test_it_is_restarted_with_words_about_rows(words):
    monitor, at_s = levelled_after(25)
    workers = tuple(WorkerState(f"worker-{i}", n, 1 / ROW_S) for i, n in enumerate(LEVELLED))
    slow = WorkerState("worker-1", LEVELLED[1], 1 / (4 * ROW_S))
    situation = Situation(Sync.BSP, (workers[0], slow, workers[2]), exchange_s=0.0, global_batch=299)
    first = SOLUTIONS["antdt-nd"](monitor.levelled(at_s), situation)[0]
    assert first.action == KillRestart("worker-1", Role.WORKER)
    assert first.reason == words
    assert first.gain == pytest.approx(3 / 2.25 - 1)
