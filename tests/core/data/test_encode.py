"""Laws of hashing and scaling."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data.encode import MISSING, hash_values, ids_of, labels_of, scale_of, scaled
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.data.features import CategoricalColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=12)), max_size=40)
GOLDEN_TEXT = [14087677454934409008, 6857225946766476583, 3575023389036567113, 4135137711586550400]
GOLDEN_INTEGER = [16294208416658607535, 10451216379200822465, 16490336266968443936]
GOLDEN_OPEN = [7905938367326838216, 8834116166347784436, 2950510060079462702]
LAW = settings(deadline=None, max_examples=60)


def fixed(values: pa.ChunkedArray, hash_size: int) -> NDArray[np.int64]:
    return ids_of(values, CategoricalColumn("c", 0, hash_size))


@LAW
@given(TEXTS)
def test_equal_text_gets_the_same_row_however_it_is_stored(values: list[str | None]) -> None:
    plain = pa.chunked_array([values], pa.string())
    stored = [
        plain,
        plain.dictionary_encode(),
        plain.cast(pa.large_string()),
        plain.cast(pa.binary()),
        pa.chunked_array([values[:3], values[3:]], pa.string()),
        pa.chunked_array([pa.array(["x", *values], pa.string())[1:]]),
    ]
    rows = [fixed(column, 64) for column in stored]
    for other in rows[1:]:
        np.testing.assert_array_equal(rows[0], other)
    by_value: dict[str | None, int] = {}
    for value, row in zip(values, rows[0], strict=True):
        assert by_value.setdefault(value, row) == row
        assert 0 <= row < 64


@LAW
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_equal_integers_get_the_same_row_whatever_their_width(values: list[int]) -> None:
    hashes = hash_values(pa.array(values, pa.int64()))
    assert len(set(hashes.tolist())) == len(set(values))  # the mixer is a bijection
    small = [v for v in values if -(2**31) <= v < 2**31]
    np.testing.assert_array_equal(
        hash_values(pa.array(small, pa.int32())), hash_values(pa.array(small, pa.int64()))
    )


def test_hashes_are_the_same_for_ever_and_on_every_machine() -> None:
    # golden values: a change here makes every older checkpoint useless
    assert hash_values(pa.array(["", "a", "68fd1e64", "Füße"])).tolist() == GOLDEN_TEXT
    assert hash_values(pa.array([0, 1, -1])).tolist() == GOLDEN_INTEGER


def test_hashes_do_not_depend_on_the_process() -> None:
    code = (
        "import pyarrow as pa; from dlrover_nb.core.data.encode import hash_values as h;"
        "print(h(pa.array(['a', 'bc', None])).tolist())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    ).stdout
    assert told.strip() == str(hash_values(pa.array(["a", "bc", None])).tolist())


def test_reading_and_encoding_never_import_pandas() -> None:
    code = (
        "import sys; from dlrover_nb.core.data import *; from dlrover_nb.core.structs.job.job import *;"
        "[ShardReader(DataSpec(), make_features(DataSpec(), ModelSpec(embedding=e))).read(0, 100) for e in Embedding];"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_large_unsigned_integers_have_hashes_of_their_own() -> None:
    hashes = hash_values(pa.array([2**64 - 1, 2**63, None, 5], pa.uint64()))
    assert len(set(hashes.tolist())) == 4
    assert hashes[2] == MISSING


def test_missing_is_a_category_of_its_own() -> None:
    assert hash_values(pa.array(["", None]))[1] == MISSING != hash_values(pa.array([""]))[0]
    assert hash_values(pa.array([1.5, float("nan"), None])).tolist()[1:] == [int(MISSING)] * 2
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["x", None]))
    rows = fixed(pa.chunked_array([codes]), 1 << 20)
    assert rows[1] == rows[2] == int(MISSING) % (1 << 20)
    assert rows[0] != rows[1]


def test_a_slice_of_a_large_dictionary_hashes_as_the_whole() -> None:
    whole = pa.array([f"id{i}" for i in range(1000)]).dictionary_encode()
    column = pa.chunked_array([whole])
    np.testing.assert_array_equal(fixed(column.slice(990), 512), fixed(column, 512)[990:])


@LAW
@given(st.lists(st.text(max_size=12), unique=True), st.text(), st.text())
def test_open_columns_give_every_value_of_every_column_an_id_of_its_own(
    values: list[str], name: str, other: str
) -> None:
    column = pa.chunked_array([values], pa.string())
    ids = ids_of(column, CategoricalColumn(name, 0, 0))
    assert (ids >= 0).all()
    assert len(np.unique(ids)) == len(values)
    again = ids_of(column.dictionary_encode(), CategoricalColumn(name, 0, 0))
    np.testing.assert_array_equal(ids, again)
    if name != other:
        assert not np.isin(ids, ids_of(column, CategoricalColumn(other, 0, 0))).any()


def test_open_ids_are_the_same_on_every_machine() -> None:
    ids = ids_of(pa.chunked_array([["a", None, "b"]]), CategoricalColumn("site", 0, 0))
    assert ids.tolist() == GOLDEN_OPEN


@LAW
@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_scaled_numbers_are_finite_and_standardised(values: list[float]) -> None:
    column = pa.chunked_array([values], pa.float64())
    scale = scale_of("x", column)
    result = scaled(column, scale)
    assert np.isfinite(result).all()
    present = result[np.isfinite(values)]
    if present.size and scale.std != 1.0:
        assert present.mean() == pytest.approx(0, abs=1e-6)
        assert present.std() == pytest.approx(1, abs=1e-6)


def test_scaling_matches_its_formula_and_missing_becomes_the_mean() -> None:
    column = pa.chunked_array([[0, 1, -3, None]], pa.int64())
    scale = scale_of("x", column)
    expected = np.array([0, np.log(2), -np.log(4)])
    assert scale.mean == pytest.approx(expected.mean())
    np.testing.assert_allclose(scaled(column, scale)[:3], (expected - expected.mean()) / expected.std())
    assert scaled(column, scale)[3] == 0


def test_a_constant_or_empty_column_scales_to_zero() -> None:
    for values in ([5.0, 5.0], [None, None]):
        column = pa.chunked_array([values], pa.float64())
        assert scaled(column, scale_of("x", column)).tolist() == [0.0, 0.0]


def test_dates_are_numbers() -> None:
    column = pa.chunked_array([[0, 86_400_000_000]], pa.timestamp("us"))
    assert scaled(column, scale_of("t", column)).tolist() == pytest.approx([-1, 1])


@for_each("values", [[0, 1, 2], [0, None], ["0", "yes"], [0.5]])
def test_a_label_that_is_not_0_or_1_is_refused(values: list[object], error_words) -> None:
    with error_words(InvalidValueError):
        labels_of(pa.chunked_array([values]), "click", 100)


def test_a_wrong_label_is_named_by_its_row(error_words) -> None:
    with error_words(InvalidValueError):
        labels_of(pa.chunked_array([[0, 1, 7]]), "click", 100)


def test_labels_may_be_booleans_or_text_digits() -> None:
    for values in ([True, False], ["1", "0"], [1.0, 0.0]):
        assert labels_of(pa.chunked_array([values]), "y", 0).tolist() == [1, 0]


@LAW
@given(st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=30))
def test_codes_are_the_same_whether_they_come_as_integers_or_floats(codes: list[int]) -> None:
    as_integers = hash_values(pa.array(codes, pa.int64()))
    np.testing.assert_array_equal(as_integers, hash_values(pa.array([float(code) for code in codes])))
    with_missing = hash_values(pa.array([*map(float, codes), None]))
    np.testing.assert_array_equal(with_missing, [*as_integers, MISSING])


def test_floats_that_are_no_integers_have_hashes_of_their_own() -> None:
    values = [0.5, -0.5, 1e300, -1e300, float("inf"), float("-inf"), 2.0**63, 0.0, 1.0]
    assert len(set(hash_values(pa.array(values)).tolist())) == len(values)
    assert hash_values(pa.array([0.0]))[0] == hash_values(pa.array([-0.0]))[0]
