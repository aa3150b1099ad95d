import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.structs.views.snapshot import SeriesChunk
from dlrover_nb.widgets.series import N_SEEN, Window, few, summary_rows, trace, widen

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=3000)


@settings(deadline=None, max_examples=40)
@given(values, st.integers(1, 50))
def test_thinning_keeps_the_greatest_and_the_least_and_stays_small(y, n_bucket):
    thin = trace([float(t) for t in range(len(y))], y, n_bucket=n_bucket)
    kept = [v for v in thin.y if math.isfinite(v)]
    assert max(kept) == max(y)
    assert min(kept) == min(y)
    assert len(kept) <= 2 * n_bucket + 2
    assert list(thin.t_s) == sorted(thin.t_s)


@settings(deadline=None, max_examples=30)
@given(st.integers(700, 1100), st.integers(1, 60))
def test_complete_buckets_never_change_while_the_width_stays(n, more):
    y = [math.sin(t) for t in range(n + more)]
    t_s = [float(t) for t in range(n + more)]
    before, after = trace(t_s[:n], y[:n], n_bucket=300), trace(t_s, y, n_bucket=300)
    shared = len(before.t_s) - 3  # the last bucket was not complete
    assert before.t_s[:shared] == after.t_s[:shared]


def test_silence_is_a_gap_not_a_straight_line():
    thin = trace([0, 1, 2, 60, 61], [1, 1, 1, 2, 2])
    assert sum(map(math.isnan, thin.y)) == 1


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(st.floats(0, 1000), st.sampled_from(["w-1", "w-2", "w-10"]), st.floats(1, 1e4)), min_size=1
    )
)
def test_every_node_shares_one_grid_and_no_peak_is_lost(rows):
    wide = widen([t for t, _, _ in rows], [n for _, n, _ in rows], [v for _, _, v in rows])
    for name, column in wide.values.items():
        assert len(column) == len(wide.t_s)
        assert max(v for v in column if math.isfinite(v)) == max(v for _, n, v in rows if n == name)


def test_nodes_are_in_natural_order():
    wide = widen([0.0, 0.0, 0.0], ["w-10", "w-2", "ps-0"], [1.0, 1.0, 1.0])
    assert list(wide.values) == ["ps-0", "w-2", "w-10"]


def test_a_dead_node_leaves_a_gap_while_others_go_on():
    t_s = [float(t) for t in range(20)] + [float(t) for t in range(5)]
    wide = widen(t_s, ["w-0"] * 20 + ["w-1"] * 5, [1.0] * 25)
    assert math.isnan(wide.values["w-1"][-1])
    assert wide.values["w-0"][-1] == 1.0


def test_window_keeps_the_newest_rows_and_an_empty_chunk_loses_none():
    window = Window(n_row=3)
    window.add(SeriesChunk(2, {"at_s": [1.0, 2.0]}, {}))
    window.add(SeriesChunk(4, {"at_s": [3.0, 4.0]}, {}))
    window.add(SeriesChunk(4, {}, {}))
    assert window.chunk().job == {"at_s": [2.0, 3.0, 4.0]}
    assert window.cursor == 4


@settings(deadline=None)
@given(values)
def test_summary_rows_bound_the_values(y):
    rows = summary_rows([float(t) for t in range(len(y))], y, 8)
    assert len(rows) <= 8
    assert max(high for *_, high in rows) == max(y)
    assert all(low - 1e-6 <= mean <= high + 1e-6 for _, mean, low, high in rows)


@given(st.integers(1, 5000), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_of_a_very_long_line_what_can_be_seen_is_kept_in_order_with_spikes_and_gaps(n, seed):
    random = Random(seed)
    t_s = sorted(random.uniform(0, 1e5) for _ in range(n))
    y = [math.nan if random.random() < 0.01 else random.uniform(0, 300) for _ in t_s]
    few_t, few_y = few(t_s, y)
    if n <= 4 * N_SEEN:
        assert (few_t, few_y) == (t_s, y)
        return
    numbers, kept = ([v for v in values if not math.isnan(v)] for values in (y, few_y))
    assert (min(numbers), max(numbers)) == (min(kept), max(kept))
    assert [*few_t] == sorted(few_t)
    known = dict(zip(t_s, map(repr, y), strict=True))
    assert all(known[t] == repr(v) for t, v in zip(few_t, few_y, strict=True))
    assert any(map(math.isnan, few_y)) == any(map(math.isnan, y))
    assert len(few_t) <= 4 * (N_SEEN + 1)
