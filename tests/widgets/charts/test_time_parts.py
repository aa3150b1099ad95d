"""Where the time goes: laws of the breakdown, and rounding that loses nothing."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs import builders as b

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import TimeSplit
from dlrover_nb.core.structs.views.snapshot import SeriesChunk
from dlrover_nb.widgets import units
from dlrover_nb.widgets.charts import breakdown
from dlrover_nb.widgets.charts.breakdown import PARTS
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.series import MOST_ROWS

NODES = ("worker-0", "worker-1", "ps-0")
split = st.lists(st.floats(0, 10), min_size=7, max_size=7).filter(lambda parts: sum(parts) > 1e-6)


def telemetry(rows: list[tuple[float, str, list[float]]], *, unsaid_s: float = 0.0) -> SeriesChunk:
    columns: dict[str, list[float | str]] = {
        "at_s": [b.START_S + t for t, _, _ in rows],
        "node": [name for _, name, _ in rows],
        "role": ["ps" if name.startswith("ps") else "worker" for _, name, _ in rows],
        "iter_s": [sum(parts) + unsaid_s for _, _, parts in rows],
    }
    columns |= {f"{part}_s": [parts[i] for _, _, parts in rows] for i, part in enumerate(PARTS)}
    return SeriesChunk(1, {}, columns)


def of(series: SeriesChunk) -> breakdown.Columns:
    return breakdown.columns(b.snapshot(nodes=()), series)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 900), st.sampled_from(NODES), split), min_size=1, max_size=30))
def test_the_parts_of_every_node_and_of_every_moment_sum_to_all_of_its_time(rows):
    data = of(telemetry(rows))
    for spent in data.nodes:
        assert math.isclose(sum(spent.shares), 1.0)
        assert math.isclose(sum(spent.seconds), spent.iter_s)
        assert all(share >= 0 for share in spent.shares)
    for course in data.courses:
        sums = np.sum(course.shares, axis=0)
        assert np.all(np.isclose(sums, 1.0) | np.isnan(sums))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(lambda v: sum(v) > 1e-3), st.integers(0, 2))
def test_printed_percents_sum_to_exactly_one_hundred(shares, digits):
    printed = [round(float(text.removesuffix(" %")) * 10**digits) for text in units.percents(shares, digits)]
    assert sum(printed) == 100 * 10**digits
    exact = [100 * 10**digits * share / sum(shares) for share in shares]
    assert all(abs(p - e) <= 1 for p, e in zip(printed, exact, strict=True))


def test_shares_of_nothing_are_not_known():
    assert units.percents([0.0, 0.0]) == (units.MISSING, units.MISSING)


def test_what_the_parts_leave_of_an_iteration_counts_as_other():
    data = of(telemetry([(1.0, "worker-0", [1.0] * 7)], unsaid_s=3.0))
    assert data.nodes[0].iter_s == pytest.approx(10.0)
    assert dict(zip(PARTS, data.nodes[0].shares, strict=True))["other"] == pytest.approx(0.4)


def test_reports_of_equal_time_count_equally_and_seconds_are_those_of_the_mean_iteration():
    fast, slow = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    spent = of(telemetry([(1.0, "worker-0", fast), (2.0, "worker-0", slow)])).nodes[0]
    assert spent.shares[PARTS.index("compute")] == pytest.approx(0.5)  # of two equal windows
    assert spent.iter_s == pytest.approx(1.5)  # 1 and 1/3 iterations a second: 2/3 in the mean
    assert spent.seconds[PARTS.index("data")] == pytest.approx(0.75)


def test_only_the_last_minute_and_only_nodes_that_are_there_have_a_bar():
    rows = [(0.0, "worker-0", [1.0] * 7), (100.0, "worker-1", [1.0] * 7), (100.0, "worker-9", [1.0] * 7)]
    snapshot = b.snapshot(nodes=(b.node("worker-1", Role.WORKER, memory=1.0),))
    assert [s.name for s in breakdown.columns(snapshot, telemetry(rows)).nodes] == ["worker-1"]
    assert {s.name for s in of(telemetry(rows)).nodes} == {"worker-1", "worker-9"}


def test_silence_is_a_gap_in_every_part():
    rows = [(float(t), "worker-0", [1.0] * 7) for t in (*range(10), *range(100, 110))]
    course = of(telemetry(rows)).courses[0]
    assert all(any(map(math.isnan, part)) for part in course.shares)


def test_without_telemetry_the_last_reports_speak():
    data = breakdown.columns(b.snapshot(), None)
    assert [s.name for s in data.nodes] == ["worker-0", "ps-0"]
    assert not any(course.t_s for course in data.courses)


def test_nothing_reported_says_so_in_words():
    idle = tuple(replace(n, last=replace(n.last, split=TimeSplit())) for n in b.snapshot().nodes)
    picture = breakdown.CHART.static(b.snapshot(nodes=idle), None)
    assert "No node has reported a step yet." in picture.svg
    assert picture.data_table.rows == ()


def test_of_many_nodes_the_slowest_have_a_bar_among_them_some_ps_and_the_rest_is_counted():
    names = [*(f"worker-{i}" for i in range(40)), *(f"ps-{i}" for i in range(9))]
    rows = [(1.0, name, [0.1 * (1 + int(name.split("-")[1]))] * 7) for name in names]
    data = of(telemetry(rows))
    assert len(data.nodes) == 49
    assert len(data.shown) == MOST_ROWS
    assert [s.name for s in data.shown][-1] == "ps-8"
    assert "worker-39" in {s.name for s in data.shown}
    assert "33 more are not shown" in breakdown.data_table(data).note


def test_the_table_holds_each_percent_that_a_bar_shows():
    picture = breakdown.CHART.static(b.snapshot(), b.series(nodes=NODES))
    shown = {
        text.split()[-2] for e in ET.fromstring(picture.svg).iter() if (text := e.text or "").endswith(" %")
    }
    row = " ".join(cell for r in picture.data_table.rows for cell in r)
    ticks = {"0", "20", "40", "60", "80", "100"}
    assert {f"{n} %" for n in shown - ticks} <= {f"{n} %" for n in row.replace(",", "").split()}
    assert shown - ticks


def test_a_live_update_with_the_same_rows_sends_nothing_and_with_new_ones_does():
    figure = LiveFigure(breakdown.CHART, b.snapshot())
    assert figure.update(b.snapshot(), b.series())
    assert not figure.update(b.snapshot(), b.series())
    assert figure.update(b.snapshot(), b.series(nodes=NODES))
