from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.codec import from_msgpack, to_msgpack
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.gradient_ages import GradientAges, MeanAges
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.telemetry import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    SPLIT_COLUMNS,
    JobTelemetry,
    TelemetryState,
    mean_ages_until,
    thinned,
)


def node(at_s: float) -> NodeSample:
    return NodeSample("w0", Role.WORKER, at_s, 1.0, 10, 5120, 0.1, TimeSplit(), 0.5, 300.0)


def record(telemetry: JobTelemetry, at_s: float, *, is_job: bool) -> None:
    if is_job:
        telemetry.record_job(at_s, 1000.0, 2, 1)
    else:
        telemetry.record_node(node(at_s))


@settings(deadline=None)
@given(rows=st.lists(st.booleans(), max_size=60), reads=st.sets(st.integers(0, 60)), n=st.integers(1, 20))
def test_reading_by_cursor_shows_each_row_once_or_counts_it_as_lost(rows, reads, n):
    telemetry, cursor, seen, lost = JobTelemetry(n_job_row=n, n_node_row=n), 0, [], 0
    for i, is_job in enumerate([*rows, True]):
        record(telemetry, float(i), is_job=is_job)
        if i in reads or i == len(rows):
            chunk = telemetry.read(cursor)
            assert chunk.cursor >= cursor
            cursor, lost = chunk.cursor, lost + chunk.lost
            seen += chunk.job["at_s"] + chunk.node["at_s"]
    assert len(seen) == len(set(seen))
    assert len(seen) + lost == len(rows) + 1


def test_columns_are_of_equal_length_and_named():
    telemetry = JobTelemetry()
    telemetry.record_node(node(1.0))
    telemetry.record_job(2.0, 5120.0, 2, 1)
    chunk = telemetry.read()
    assert tuple(chunk.job) == JOB_COLUMNS
    assert tuple(chunk.node) == NODE_COLUMNS
    assert [column[0] for column in chunk.job.values()][:4] == [2.0, 5120.0, 2.0, 1.0]
    assert [column[0] for column in chunk.node.values()][:6] == [1.0, "w0", "worker", 300.0, 0.5, 0.1]


def test_nothing_new_reads_nothing():
    telemetry = JobTelemetry()
    record(telemetry, 1.0, is_job=True)
    chunk = telemetry.read(telemetry.read().cursor)
    assert chunk.job["at_s"] == []
    assert chunk.lost == 0


def test_cursor_of_an_earlier_life_reads_from_the_start():
    telemetry = JobTelemetry()
    record(telemetry, 1.0, is_job=True)
    assert telemetry.read(999).job["at_s"] == [1.0]


def test_negative_cursor_is_refused():
    with pytest.raises(InvalidValueError, match="cursor"):
        JobTelemetry().read(-1)


def test_rows_carry_shards_rates_and_the_parts_of_an_iteration():
    telemetry = JobTelemetry()
    split = TimeSplit(data_s=0.01, compute_s=0.06, lookup_s=0.03)
    telemetry.record_node(NodeSample("w0", Role.WORKER, 1.0, 2.0, 10, 5120, 0.1, split, 0.5, 300.0))
    telemetry.record_job(1.0, 2560.0, 1, 1, shards=ShardCounts(todo=3, doing=1, done=2))
    telemetry.record_job(2.0, 2560.0, 1, 1)
    chunk = telemetry.read()
    assert chunk.node["samples_per_s"] == [2560.0]
    assert sum(chunk.node[name][0] for name in SPLIT_COLUMNS) == pytest.approx(split.total_s)
    assert [chunk.job[name][0] for name in ("todo", "doing", "done")] == [3.0, 1.0, 2.0]
    assert math.isnan(chunk.job["todo"][1])


@settings(deadline=None)
@given(
    lives=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), max_size=8),
    n_job_row=st.integers(2, 30),
    n_node_row=st.integers(16, 60),
)
def test_thinned_rows_keep_the_ends_of_the_job_and_of_every_node_in_order(lives, n_job_row, n_node_row):
    telemetry = JobTelemetry()
    for at_s in range(60):
        telemetry.record_job(float(at_s), 1000.0, 2, 1)
        for i, (first, n) in enumerate(lives):
            if first <= at_s < first + n:
                telemetry.record_node(replace(node(float(at_s)), node=f"w{i}"))
    whole = telemetry.read()
    thin = thinned(whole, n_job_row=n_job_row, n_node_row=n_node_row)
    assert len(thin.job["at_s"]) == min(n_job_row, 60)
    assert (thin.job["at_s"][0], thin.job["at_s"][-1]) == (0.0, 59.0)
    assert len(thin.node["at_s"]) <= n_node_row
    assert thin.node["at_s"] == sorted(thin.node["at_s"])
    assert thin.cursor == whole.cursor
    for i in range(len(lives)):
        own, kept = times(whole, f"w{i}"), times(thin, f"w{i}")
        assert set(kept) <= set(own)
        assert (kept[0], kept[-1]) == (own[0], own[-1])


def times(chunk, name):
    return [at_s for at_s, each in zip(chunk.node["at_s"], chunk.node["node"], strict=True) if each == name]


def aged(at_s: float, **counts: tuple[int, ...]) -> NodeSample:
    ages = tuple(GradientAges(worker, each) for worker, each in counts.items())
    return NodeSample("ps-0", Role.PS, at_s, 1.0, 10, 0, 0.1, TimeSplit(), 0.5, 300.0, ages=ages)


def test_ages_are_rows_of_each_worker_and_class():
    telemetry = JobTelemetry()
    telemetry.record_node(aged(5.0, w0=(3, 0, 2), w1=(0, 0, 0, 0, 7)))
    assert telemetry.read().ages == {
        "at_s": [5.0, 5.0, 5.0], "node": ["w0", "w0", "w1"], "age": [0.0, 2.0, 4.0], "n_update": [3.0, 2.0, 7.0],
        "unit": ["updates"] * 3, "ps": ["ps-0"] * 3, "of_first": [1.0] * 3,
    }  # fmt: skip
    assert telemetry.read(telemetry.read().cursor).ages["at_s"] == []
    assert telemetry.read().lost == 0


@given(times=st.lists(st.integers(0, 10_000), min_size=1, max_size=200))
def test_thinned_ages_count_every_gradient(times):
    telemetry = JobTelemetry()
    for at_s in sorted(times):
        telemetry.record_node(aged(float(at_s), w0=(2, 1), w1=(1,)))
    thin = thinned(telemetry.read()).ages
    assert len(thin["at_s"]) <= 3 * 60
    assert thin["at_s"][-1] == max(times)
    counts = dict.fromkeys([("w0", 0.0), ("w0", 1.0), ("w1", 0.0)], 0.0)
    for worker, age, n in zip(thin["node"], thin["age"], thin["n_update"], strict=True):
        counts[worker, age] += n
    assert [*counts.values()] == [2 * len(times), len(times), len(times)]


def test_rows_of_an_earlier_release_go_on_with_its_columns():
    older = JobTelemetry()
    older.record_node(node(1.0))
    before = older.state
    n = len(SPLIT_COLUMNS) + 7
    short = before._replace(node=(NODE_COLUMNS[:n], [(i, row[:n]) for i, row in before.node[1]]))
    telemetry = JobTelemetry()
    telemetry.restore(from_msgpack(to_msgpack(tuple(short)[:3]), TelemetryState))
    assert telemetry.read().node["memory_mib"] == [300.0]
    assert telemetry.read().node["batch_size"] == [0.0]


def test_all_rows_survive_a_restart():
    telemetry, later = JobTelemetry(), JobTelemetry()
    telemetry.record_node(aged(5.0, w0=(3,)))
    later.restore(from_msgpack(to_msgpack(telemetry.state), TelemetryState))
    assert later.read() == telemetry.read()


def test_ages_of_an_earlier_release_are_updates_on_the_first_ps():
    telemetry = JobTelemetry()
    old = ("at_s", "node", "age", "n_update")
    telemetry.restore(TelemetryState(1, ((), []), ((), []), (old, [(0, (5.0, "w0", 2.0, 7.0))])))
    ages = telemetry.read().ages
    assert {name: column[0] for name, column in ages.items()} == {
        "at_s": 5.0, "node": "w0", "age": 2.0, "n_update": 7.0, "unit": "updates", "ps": "", "of_first": 1.0,
    }  # fmt: skip


@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from(["updates", "milliseconds", "row updates"])), max_size=9
    )
)
def test_ages_of_each_ps_and_unit_stay_apart_when_they_are_thinned(rows):
    telemetry, names = JobTelemetry(), {"updates": "counts", "milliseconds": "milliseconds"}
    expected = dict[tuple[object, ...], float]()
    for at_s, (is_first, unit) in enumerate(rows):
        counts = {"counts": (), names.get(unit, "rows"): (0, 3)}
        ages = (GradientAges("w0", of_first_ps=is_first, **counts),)
        telemetry.record_node(replace(aged(float(at_s)), ages=ages))
        expected[unit, float(is_first)] = expected.get((unit, float(is_first)), 0.0) + 3
    thin = thinned(telemetry.read()).ages
    counted = dict.fromkeys(expected, 0.0)
    for unit, first, n in zip(thin["unit"], thin["of_first"], thin["n_update"], strict=True):
        counted[unit, first] += n
    assert counted == expected


def test_mean_ages_are_those_of_the_first_ps_and_outlive_a_restart():
    telemetry = JobTelemetry()
    assert telemetry.mean_ages is None
    first = GradientAges("w0", (1, 0, 3), (0, 4), (2, 2))
    other = GradientAges("w0", (0, 0, 0, 9), (9,), (4,), of_first_ps=False)
    telemetry.record_node(replace(aged(1.0), ages=(first, other)))
    assert telemetry.mean_ages == MeanAges(4, 1.5, 0.001, 0.25)
    again = JobTelemetry()
    again.restore(telemetry.state)
    assert again.mean_ages == telemetry.mean_ages


@given(ages=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3)), min_size=1), until=st.integers(0, 99))
def test_mean_ages_until_a_moment_are_those_of_what_came_before(ages, until):
    telemetry = JobTelemetry()
    for at_s, age in ages:
        sample = replace(aged(float(at_s)), ages=(GradientAges("w0", (0,) * age + (1,)),))
        telemetry.record_node(sample)
    before = [age for at_s, age in ages if at_s <= until]
    means = mean_ages_until(telemetry.read(), until)
    assert means == (MeanAges(len(before), pytest.approx(sum(before) / len(before))) if before else None)
