"""Laws of the monitor, whatever rule it follows; then what one rule sees that the other does not."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.controller.state_bytes import PACKAGES
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.object_graph import GraphDecoder, GraphEncoder
from dlrover_nb.core.straggler import RULES, Monitor, MonitorSettings, Pace
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

SHORT_S, LONG_S, EVERY_S = 10.0, 20.0, 1.0
BOTH = pytest.mark.parametrize("rule", sorted(RULES))


def settings_of(rule: str = "robust") -> MonitorSettings:
    return MonitorSettings(SHORT_S, LONG_S, rule)


def report(node: str, iter_s: float, role: Role = Role.WORKER, split: TimeSplit | None = None, **more):
    told = {"at_s": 0.0, "window_s": EVERY_S, "n_iter": 10, "n_sample": 100, "cpu_cores": 1.0}
    split = split or TimeSplit(compute_s=iter_s)
    return NodeSample(
        **{**told, "node": node, "role": role, "iter_s": iter_s, "split": split, "memory_mib": 1.0, **more}
    )


def fed(table, rule="robust", role=Role.WORKER, names=None) -> Monitor:
    """Return a monitor that has read a table of iteration times, a row per node and a column per second."""
    monitor = Monitor(settings_of(rule))
    for second, column in enumerate(np.asarray(table, dtype=float).T, 1):
        for i, iter_s in enumerate(column):
            if not math.isnan(iter_s):
                monitor.observe(report(names[i] if names else f"{role}-{i}", iter_s, role), float(second))
    return monitor


def facts(monitor, at_s):
    return [(f.node, f.pace, f.since_s) for f in monitor.findings(at_s)]


def noisy(n_node, n_second, seed, cv=0.2):
    return 0.01 * np.random.default_rng(seed).lognormal(0.0, cv, (n_node, n_second))


tables = st.builds(
    lambda n, seed, slow, factor: noisy(n, 20, seed) * np.where(np.arange(n) == slow % n, factor, 1)[:, None],
    st.integers(2, 8),
    st.integers(0, 10_000),
    st.integers(0, 7),
    st.floats(1, 4),
)


@pytest.mark.more
@BOTH
@settings(max_examples=30, deadline=None)
@given(tables, st.sampled_from([2.0**-20, 0.5, 2.0, 8.0]))
def test_the_unit_of_time_of_an_iteration_changes_no_finding(rule, table, factor):
    assert facts(fed(table, rule), 20.0) == facts(fed(table * factor, rule), 20.0)


@pytest.mark.more
@BOTH
@settings(max_examples=30, deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_names_and_order_of_nodes_say_nothing(rule, table, chance):
    order = chance.sample(range(len(table)), len(table))
    names = [f"worker-{i}" for i in order]
    assert facts(fed(table, rule), 20.0) == facts(fed(table[order], rule, names=names), 20.0)


@pytest.mark.more
@BOTH
@settings(max_examples=30, deadline=None)
@given(tables, st.randoms(use_true_random=False), st.sampled_from([-3600.0, 0.0, 3600.0]))
def test_reports_out_of_order_and_clocks_an_hour_apart_change_no_straggler(rule, table, chance, off_s):
    late = Monitor(settings_of(rule))
    rows = [(s, i, v) for i, row in enumerate(table) for s, v in enumerate(row, 1)]
    for second, i, iter_s in chance.sample(rows, len(rows)):
        late.observe(report(f"worker-{i}", iter_s, at_s=second + off_s * (i % 2)), float(second))
    told = {(f.node, f.pace) for f in fed(table, rule).findings(20.0)}
    assert {(f.node, f.pace) for f in late.findings(20.0)} == told


@pytest.mark.more
@BOTH
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("n_node", [2, 3, 10])
def test_a_node_three_times_as_slow_is_found_within_one_window(rule, role, n_node):
    for seed in range(5):
        table = noisy(n_node, 30, seed)
        table[1, 20:] *= 3
        ends = (fed(table[:, :end], rule, role).findings(float(end)) for end in (24, 26, 28, 30))
        found = [f for findings in ends for f in findings if f.node == f"{role}-1"]
        assert found, seed
        assert found[0].pace is Pace.TRANSIENT
        assert found[0].ratio > 1.15
        assert found[0].role is role


@BOTH
def test_a_node_that_stays_slow_becomes_persistent_and_keeps_since_when(rule):
    table = noisy(6, 60, 1, cv=0.05)
    table[2, 20:] *= 3
    found = fed(table, rule).findings(60.0)
    assert [(f.node, f.pace) for f in found] == [("worker-2", Pace.TRANSIENT), ("worker-2", Pace.PERSISTENT)]
    assert all(f.since_s == pytest.approx(20.0, abs=1.0) for f in found)


@BOTH
def test_a_node_that_has_recovered_is_no_straggler_whatever_it_was(rule):
    table = np.ones((6, 60))
    table[2, :45] = 50.0
    assert fed(table, rule).findings(60.0) == ()


@pytest.mark.more
@pytest.mark.parametrize("n_node", [2, 3, 8, 30])
def test_equal_nodes_whose_times_scatter_by_a_fifth_are_accused_less_than_once_in_two_hundred(n_node):
    n_judged = n_found = 0
    for seed in range(60):
        monitor = fed(noisy(n_node, 20, seed), "robust")
        n_found += len({f.node for f in monitor.findings(20.0)})
        n_judged += n_node
    assert n_found <= max(n_judged / 200, 1)


@BOTH
def test_equal_nodes_of_the_same_speed_are_no_stragglers_even_when_all_become_slow(rule):
    table = np.ones((5, 40))
    table[:, 20:] = 7.0
    for end in (20, 22, 25, 30, 40):
        assert fed(table[:, :end], rule).findings(float(end)) == ()


@BOTH
def test_one_node_alone_and_none_are_no_stragglers(rule):
    assert fed(np.full((1, 20), 9.0), rule).findings(20.0) == ()
    assert Monitor(settings_of(rule)).findings(20.0) == ()


@BOTH
def test_roles_are_not_compared_with_each_other(rule):
    monitor = Monitor(settings_of(rule))
    for second in range(1, 21):
        for i in range(3):
            monitor.observe(report(f"worker-{i}", 9.0), float(second))
            monitor.observe(report(f"ps-{i}", 0.001, Role.PS), float(second))
    assert monitor.findings(20.0) == ()


@BOTH
def test_waiting_is_no_work_of_a_worker_and_idling_none_of_a_ps(rule):
    monitor = Monitor(settings_of(rule))
    for second in range(1, 21):
        for i in range(3):
            waits = TimeSplit(compute_s=1.0, peers_s=9.0 * (i == 0))
            monitor.observe(report(f"worker-{i}", waits.total_s, split=waits), float(second))
            idles = TimeSplit(update_s=1.0 + 2.0 * (i == 1), idle_s=50.0 * (i == 0))
            monitor.observe(report(f"ps-{i}", idles.total_s, Role.PS, idles), float(second))
    assert {f.node for f in monitor.findings(20.0)} == {"ps-1"}


@BOTH
def test_a_worker_with_a_slow_exchange_is_found_and_its_finding_says_so(rule):
    monitor = Monitor(settings_of(rule))
    for second in range(1, 21):
        for i in range(4):
            split = TimeSplit(compute_s=1.0, lookup_s=1.0 + 8.0 * (i == 3), update_s=0.5)
            monitor.observe(report(f"worker-{i}", split.total_s, split=split), float(second))
    found = monitor.findings(20.0)
    assert {f.node for f in found} == {"worker-3"}
    assert all("exchange" in f.rule for f in found)
    times = {each.node: each for each in monitor.times(Role.WORKER, 20.0)}
    assert times["worker-3"].work_s == pytest.approx(1.0)
    assert times["worker-3"].exchange_s == pytest.approx(9.5)
    assert times["worker-3"].samples_per_s == pytest.approx(10.0)


@BOTH
def test_reports_without_an_iteration_or_a_number_are_ignored(rule):
    table = np.ones((3, 20))
    table[0] = 3.0
    monitor, told = fed(table, rule), facts(fed(table, rule), 20.0)
    nothing = report("worker-1", 0.0, split=TimeSplit())
    monitor.observe(nothing, 20.0)
    monitor.observe(replace(nothing, n_iter=0), 20.0)
    broken = report("worker-2", 1.0)
    object.__setattr__(broken, "iter_s", math.nan)
    monitor.observe(broken, 20.0)
    assert facts(monitor, 20.0) == told


@BOTH
def test_a_node_that_left_is_forgotten_and_one_that_has_just_come_is_not_judged(rule):
    table = np.full((4, 40), 0.01)
    table[0] = 0.05
    table[0, 20:] = math.nan
    table[1, :38] = math.nan
    table[1, 38:] = 0.05
    assert fed(table, rule).findings(40.0) == ()


@BOTH
def test_iterations_longer_than_a_part_fill_the_window(rule):
    monitor = Monitor(settings_of(rule))
    for second in range(4, 41, 4):
        for i in range(3):
            monitor.observe(report(f"worker-{i}", 4.0 if i else 3.9, n_iter=1), float(second))
        monitor.observe(report("worker-3", 12.0, n_iter=1, window_s=4.0), float(second))
    assert {(f.node, f.pace) for f in monitor.findings(40.0)} == {("worker-3", pace) for pace in Pace}


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.lists(st.floats(0, 500), min_size=1, max_size=200))
def test_memory_is_bounded_by_the_nodes_of_a_window_however_many_come(n_node, seconds):
    monitor = Monitor(settings_of())
    for i, at_s in enumerate(sorted(seconds)):
        monitor.observe(report(f"worker-{i % n_node}", 1.0, window_s=1e6), at_s)
        monitor.note_error(f"worker-{i % n_node}", Role.WORKER, at_s, is_retryable=True)
        monitor.note_pending(1.0, at_s)
        assert monitor.n_part <= (2 * n_node + 1) * settings_of().n_long


def test_nodes_that_come_once_are_not_kept():
    monitor = Monitor(settings_of())
    for second in range(1, 400):
        monitor.observe(report(f"worker-{second}", 1.0), float(second))
    assert monitor.n_part <= 3 * settings_of().n_long
    assert len(monitor._parts[Role.WORKER]) <= LONG_S + 2


@pytest.mark.more
@BOTH
@settings(max_examples=20, deadline=None)
@given(tables, tables)
def test_a_monitor_that_was_written_and_read_back_goes_on_as_the_one_that_stayed(rule, before, after):
    stayed = fed(before, rule)
    stayed.note_error("worker-0", Role.WORKER, 20.0, is_retryable=False)
    stayed.note_pending(5.0, 20.0)
    links = {"rule": RULES[rule]}
    written = GraphEncoder(links, packages=PACKAGES).pack(stayed)
    for back in (GraphDecoder(links, packages=PACKAGES).unpack(written), pickle.loads(pickle.dumps(stayed))):
        ours = pickle.loads(pickle.dumps(stayed))
        for monitor in (ours, back):
            for second, column in enumerate(after.T, 21):
                for i, iter_s in enumerate(column):
                    monitor.observe(report(f"worker-{i}", iter_s), float(second))
        assert back.findings(40.0) == ours.findings(40.0)
        assert vars(back) == vars(ours)


def test_errors_are_counted_by_kind_and_forgotten_after_the_long_window():
    monitor = Monitor(settings_of())
    for at_s in (1.0, 2.0, 15.0):
        monitor.note_error("ps-0", Role.PS, at_s, is_retryable=at_s < 10)
    assert [(e.node, e.n_retryable, e.n_unretryable) for e in monitor.errors(15.0)] == [("ps-0", 2, 1)]
    assert [(e.node, e.n_retryable, e.n_unretryable) for e in monitor.errors(30.0)] == [("ps-0", 0, 1)]
    assert monitor.errors(60.0) == ()
    assert {each.window_s for each in monitor.errors(15.0)} == {LONG_S}


def test_pending_time_is_a_mean_over_each_window():
    monitor = Monitor(settings_of())
    assert monitor.pending_s(Pace.TRANSIENT, 0.0) is None
    for at_s, pending_s in ((1.0, 60.0), (15.0, 20.0), (16.0, 40.0)):
        monitor.note_pending(pending_s, at_s)
    assert monitor.pending_s(Pace.TRANSIENT, 20.0) == 30.0
    assert monitor.pending_s(Pace.PERSISTENT, 20.0) == 40.0


@pytest.mark.parametrize("bad", [{"short_s": 0.0}, {"short_s": 9.0, "long_s": 8.0}, {"rule": "guess"}])
def test_settings_without_sense_are_refused(bad):
    with pytest.raises(InvalidValueError):
        Monitor(MonitorSettings(**bad))


def test_only_the_robust_rule_finds_a_node_that_is_a_quarter_slower():
    table = noisy(10, 40, 3, cv=0.03)
    table[4, 20:] *= 1.25
    assert {f.node for f in fed(table, "robust").findings(40.0)} == {"worker-4"}
    assert fed(table, "ratio").findings(40.0) == ()


def test_only_the_ratio_takes_one_long_iteration_for_a_straggler():
    table = noisy(10, 20, 3, cv=0.03)
    table[4, 15] = 20.0
    assert fed(table, "robust").findings(20.0) == ()
    assert {f.node for f in fed(table, "ratio").findings(20.0)} == {"worker-4"}


def test_machines_of_several_kinds_are_not_stragglers():
    speeds = np.array([708, 686, 748, 856, 851, 908, 834, 847, 842, 799]) / 840  # of a measured job
    table = noisy(10, 40, 5, cv=0.02) * speeds[:, None]
    assert fed(table, "robust").findings(40.0) == ()


def test_a_node_that_is_forgotten_leaves_nothing_and_the_others_stay():
    table = noisy(4, 20, 1)
    table[2] *= 3
    monitor = fed(table)
    monitor.note_error("worker-2", Role.WORKER, 20.0, is_retryable=True)
    assert {node for node, _, _ in facts(monitor, 20.0)} == {"worker-2"}
    n_before = monitor.n_part
    monitor.forget("worker-2")
    monitor.forget("worker-9")
    assert facts(monitor, 20.0) == []
    assert monitor.errors(20.0) == ()
    assert [each.node for each in monitor.times(Role.WORKER, 20.0)] == ["worker-0", "worker-1", "worker-3"]
    assert 0 < monitor.n_part < n_before


@pytest.mark.more
@settings(deadline=None)
@given(st.integers(2, 8), st.integers(0, 1000), st.floats(1.0, 3.0), st.floats(0.0, 0.3))
def test_a_spread_is_told_only_of_workers_that_differ_steadily(n, seed, ratio, cv):
    table = noisy(n, 20, seed, cv) * np.linspace(1, ratio, n)[:, None]
    spread = fed(table).spread(20.0)
    if spread is not None:
        assert spread.ratio >= 1.2
        assert spread.ratio == pytest.approx(table.mean(axis=1).max() / table.mean(axis=1).min())
        assert spread.slowest in spread.words
    elif cv < 0.02:
        assert ratio < 1.2 / 0.95


def test_one_worker_that_has_just_become_slow_is_no_spread():
    table = noisy(4, 20, 3, 0.01)
    table[1, 12:] *= 2
    assert fed(table).spread(20.0) is None
    assert fed(noisy(1, 20, 3)).spread(20.0) is None
    assert Monitor().spread(20.0) is None
