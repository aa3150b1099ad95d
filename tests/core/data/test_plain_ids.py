"""Ids and numbers that reach a user's own module as they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.data.encode import encode_inputs
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.data.features import (
    CategoricalColumn,
    FeatureSpec,
    NumericColumn,
    SequenceSpec,
)

ITEM = CategoricalColumn("item", 10, 7, is_plain=True)
PAST = CategoricalColumn("past", 10, 7, sequence=SequenceSpec("past", 3), is_plain=True)
PRICE = NumericColumn("price", 5.0, 2.0, is_plain=True)
FEATURES = FeatureSpec("label", (PRICE,), (ITEM, PAST), 1, 0)


@given(st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=5)), min_size=1))
def test_ids_are_rows_of_the_table_and_stand_behind_the_numbers(rows):
    items, lists = [item for item, _ in rows], [past for _, past in rows]
    table = pa.table(
        {
            "item": pa.array(items, pa.int64()),
            "past": pa.array(lists, pa.list_(pa.int64())),
            "price": pa.array([1.5] * len(rows)),
        }
    )
    ids, dense = encode_inputs(table, FEATURES)
    newest = [[*past[-3:], 0, 0, 0][:3] for past in lists]
    values = np.column_stack([items, newest])
    np.testing.assert_array_equal(ids, values + 10)
    np.testing.assert_array_equal(dense, np.column_stack([np.full(len(rows), 1.5), values]))


def test_columns_with_overlapping_rows_count_once():
    assert FEATURES.n_table_row == 17


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"item": [7]}, "whole numbers from 0 to 6, .* got 7 in row 40", id="too_large"),
        pytest.param({"item": [-1]}, "got -1 in row 40", id="below"),
        pytest.param({"item": pa.array([None], pa.int64())}, "got nothing in row 40", id="missing"),
        pytest.param({"item": [0.5]}, "got 0.5 in row 40", id="fraction"),
        pytest.param({"item": ["a"]}, "got 'a' in row 40", id="text"),
        pytest.param({"past": [[1, 9]]}, "column 'past' must hold .* got 9 in row 40", id="of_a_list"),
        pytest.param(
            {"price": pa.array([None], pa.float64())}, "column 'price' must hold a finite number", id="number"
        ),
    ],
)
def test_what_is_no_id_of_the_module_is_refused(change, message):
    table = pa.table({"item": [1], "past": [[1]], "price": [1.0]} | change)
    with pytest.raises(InvalidValueError, match=message):
        encode_inputs(table, FEATURES, 40)
