"""The grid of many jobs, and that a browser's copy of it is always equal to it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.widgets.clusters.many.figure import TIME, Figure, column
from dlrover_nb.widgets.clusters.many.grid import MAX_STRIDE, Grid, moved_most

N_ROW = 12
NAMES = ("ads", "search", "feed", "mail")
speeds = st.one_of(st.just(math.nan), st.floats(0, 1e6, width=32))
ticks = st.dictionaries(st.sampled_from(NAMES), speeds)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ticks),
        st.tuples(st.just("drop"), st.sampled_from(NAMES)),
        st.tuples(st.just("fill"), st.sampled_from(NAMES)),
        st.tuples(st.just("show"), st.none()),
    ),
    max_size=60,
)


def take(grid, steps, on_show=lambda _grid: None):
    for at, (what, arg) in enumerate(steps, 1):
        match what:
            case "add":
                grid.add(float(at), arg)
            case "drop":
                grid.drop(arg)
            case "fill":
                grid.fill(arg, [float(s) for s in range(at)], [7.0] * at)
            case _:
                on_show(grid)


@given(steps)
def test_rows_stay_few_in_order_and_of_one_length(steps):
    grid = Grid(N_ROW)
    take(grid, steps)
    wide = grid.copy()
    assert len(wide.t_s) <= N_ROW
    assert wide.t_s == sorted(set(wide.t_s))
    assert {len(y) for y in wide.y.values()} <= {len(wide.t_s)}
    assert len(set(wide.slot.values())) == len(wide.slot)
    assert max(wide.slot.values(), default=0) < len(NAMES)


@given(n=st.integers(1, N_ROW * 8), spike=st.sampled_from((0.0, 900.0)), data=st.data())
@settings(max_examples=40)
def test_a_spike_and_a_dip_of_one_tick_survive_thinning(n, spike, data):
    at = data.draw(st.integers(n // 3, n - 1))  # the first row has none before it to be measured against
    grid = Grid(N_ROW)
    for i in range(n):
        grid.add(float(i), {"ads": spike if i == at else 100.0})
    assert spike in grid.copy().y["ads"]


def test_when_rows_cannot_grow_wider_the_oldest_leave():
    grid = Grid(4)
    for i in range(4 * MAX_STRIDE * 3):
        grid.add(float(i), {"ads": 1.0})
    wide = grid.copy()
    assert wide.first > 0
    assert len(wide.t_s) == 4
    assert wide.t_s[-1] == 4 * MAX_STRIDE * 3 - 1


def test_what_is_not_known_is_a_gap_and_history_fills_only_gaps():
    grid = Grid()
    grid.open_back(0.0, 100.0, 10)
    grid.add(100.0, {"ads": 5.0})
    assert [math.isnan(v) for v in grid.copy().y["ads"]] == [True] * 9 + [False]
    grid.fill("ads", [float(t) for t in range(30, 101, 2)], [3.0] * 36)
    y = grid.copy().y["ads"]
    assert [math.isnan(v) for v in y[:3]] == [True, True, False]
    assert y[3:] == [3.0] * 6 + [5.0]


def test_silence_in_a_history_stays_a_gap():
    grid = Grid()
    grid.open_back(0.0, 100.0, 10)
    grid.add(100.0, {"ads": 5.0})
    times = [float(t) for t in (*range(31), *range(70, 101))]
    grid.fill("ads", times, [3.0] * len(times))
    assert [t for t, v in zip(grid.copy().t_s, grid.copy().y["ads"], strict=True) if math.isnan(v)] == [
        40,
        50,
        60,
    ]


def test_the_value_kept_is_the_one_that_moved_most():
    assert moved_most(100.0, (101.0, 60.0, 120.0)) == 60.0
    assert moved_most(math.nan, (1.0, math.nan, 3.0)) == 3.0
    assert math.isnan(moved_most(1.0, (math.nan,)))


@pytest.mark.more
@given(steps)
@settings(max_examples=30, deadline=None)
def test_a_browser_has_what_the_grid_has_however_seldom_it_looks(steps):
    grid, figure = Grid(N_ROW), Figure()

    def look(grid):
        figure.update(grid.copy().since(0.0), "time")
        wide, data = grid.copy(), figure.source.data
        assert list(data[TIME]) == wide.t_s
        for name, y in wide.y.items():
            np.testing.assert_array_equal(np.float32(data[column(wide.slot[name])]), np.float32(y))
        shown = {line.name: line.glyph.y for line in figure.root.renderers if line.visible}
        assert shown == {name: column(slot) for name, slot in wide.slot.items()}

    take(grid, [*steps, ("show", None)], look)


def test_a_job_that_comes_takes_the_line_of_one_that_went():
    grid, figure = Grid(), Figure()
    for at, names in enumerate((("a", "b"), ("b",), ("b", "c"))):
        for gone in grid.names.difference(names):
            grid.drop(gone)
        grid.add(float(at), dict.fromkeys(names, 1.0))
        figure.update(grid.copy(), "time")
    assert [line.name for line in figure.root.renderers] == ["c", "b"]
