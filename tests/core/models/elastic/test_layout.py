"""Rows of tables: each has its own floats, and what is looked up by the same ids lies side by side."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.models.elastic.layout import Slots, layout_of
from dlrover_nb.core.models.elastic.lookups import Call
from dlrover_nb.core.models.elastic.tables import Table


@st.composite
def lookups(draw):
    """Tables, columns, and calls in which each is used; a shift is of the column, so none contradict."""
    n_column = draw(st.integers(1, 5))
    shifts = draw(st.lists(st.integers(0, 5), min_size=n_column, max_size=n_column))
    tables = [
        Table((f"t{i}.weight",), draw(st.integers(6, 20)), draw(st.integers(1, 9)))
        for i in range(draw(st.integers(1, 6)))
    ]
    columns = st.lists(st.integers(0, n_column - 1), min_size=1, unique=True)
    calls = [
        Call(t, tuple(c), tuple(shifts[i] for i in c)) for t in range(len(tables)) for c in [draw(columns)]
    ]
    calls += [
        Call(0, (c,), (shifts[c],)) for c in range(n_column) if not any(c in call.slots for call in calls)
    ]
    slots = Slots(tuple(f"c{i}" for i in range(n_column)), tuple(range(n_column)))
    return tables, calls, slots


@given(lookups())
def test_each_float_has_one_table(made):
    tables, calls, slots = made
    layout = layout_of(tables, calls, slots)
    areas = [
        (part.first_row, part.first_row + table.n_row, part.start, part.stop)
        for table, part in zip(tables, layout.tables, strict=True)
    ]
    for (a, b, c, d), (e, f, g, h) in combinations(areas, 2):
        assert b <= e or f <= a or d <= g or h <= c
    assert all(a >= 0 and b <= layout.n_row and d <= layout.row_width for a, b, _, d in areas)
    assert 0 <= layout.unused < 1


@given(lookups())
def test_an_id_of_a_column_has_the_row_of_each_table_that_it_looks_up(made):
    tables, calls, slots = made
    layout = layout_of(tables, calls, slots)
    for call in calls:
        for slot, shift in zip(call.slots, call.shifts, strict=True):
            column, part = layout.columns[slots.columns[slot]], layout.tables[call.table]
            assert column.first_row == part.first_row + shift
            assert column.n_id + shift <= tables[call.table].n_row
