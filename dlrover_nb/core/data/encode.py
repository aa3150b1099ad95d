"""Rows of a table to a batch of numbers: hashed ids, scaled numbers, labels.

Ids are hashed, not looked up: a vocabulary would have to be built by a pass over all data and shipped to
every node, and later ids would have no row. The hash is implemented here, since Python's differs from process
to process and those of pandas or pyarrow may change with the next version, while the rows of a checkpoint
must be found again. Missing is a value of its own. Values are read in the types of training before
(`core.data.types.trained_types`).

A sequence takes as many places of a row as it may have items, filled from the left with the newest of them,
the newest last; what is left is padding. A missing item is left out, and a missing list is an empty one.
Ragged arrays were rejected: rows are shuffled and cut into batches, and padding is never looked up.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.kinds import is_list, is_text, item_type, text_array
from dlrover_nb.core.data.types.agreement import read_types
from dlrover_nb.core.data.types.trained_types import check_plain, ids_as_trained, numbers_as_trained
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.data.features import (
        CategoricalColumn,
        FeatureSpec,
        NumericColumn,
        SequenceSpec,
    )

_Number = TypeVar("_Number", bound=np.generic)

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
MISSING = np.uint64(0x6D697373696E6721)  # hash of a missing value
PADDING = -1  # where a sequence has no item
_LONG = 1024  # bytes of a text: a longer one is hashed by its digest, as bytes one by one take 5 s for a MB
_MIN_STD = 1e-6  # below it a column is constant, up to rounding


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded rows.

    Parameters
    ----------
    ids
        int64 array of shape (n, n_slot): rows of the one embedding table, or hashes of 63 bits. A column has
        one place of a row, a sequence as many as it may have items; `PADDING` where it has fewer.
    dense
        float32 array of shape (n, n_numeric), scaled. Where a user's own module takes plain ids, they stand
        behind the numbers, one for each place of `ids`, exact below 2^24.
    labels
        float32 array of shape (n,), each 0 or 1.
    """

    ids: NDArray[np.int64]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)


def encode(table: pa.Table, features: FeatureSpec, first_row: int) -> Batch:
    """Encode the rows of `table`, whose first is row `first_row` of the data."""
    labels = labels_of(table.column(features.label), features.label, first_row)
    return Batch(*encode_inputs(table, features, first_row), labels)


def encode_inputs(
    table: pa.Table, features: FeatureSpec, first_row: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return ids and scaled numbers of rows, as in `Batch`; they need no label.

    `first_row` is the number of the first one, for messages.

    Raises
    ------
    InvalidValueError
        When a column cannot be read in the type of training.
    """
    n, types = table.num_rows, read_types(features.trained_types or features.column_types)
    ids = np.empty((n, sum(column.n_slot for column in features.categorical)), np.int64)
    at = 0
    for column in features.categorical:
        trained = types.get(column.table)
        values = table.column(column.name)
        if column.is_plain:
            encoded = plain_ids(values, column, first_row) + column.offset
        else:
            encoded = _ids(values, column, None if trained is None else item_type(trained))
        ids[:, at : at + column.n_slot] = encoded
        at += column.n_slot
    n_numeric = len(features.numeric)
    dense = np.empty((n, n_numeric + ids.shape[1] * features.has_plain_ids), np.float32)
    if features.has_plain_ids:
        starts = [column.offset for column in features.categorical for _ in range(column.n_slot)]
        dense[:, n_numeric:] = ids - np.array(starts, np.int64)
    for i, number in enumerate(features.numeric):
        values = numbers_as_trained(table.column(number.name), types.get(number.name), number, first_row)
        if number.is_plain:
            dense[:, i] = plain_numbers(values, number.name, first_row)
        else:
            dense[:, i] = scaled(values, number)
    return ids, dense


def squashed(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return sign(x)*log1p(|x|) of a number column; missing and infinite values become NaN."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    x = _floats(_one_array(column), safe=False)
    with np.errstate(invalid="ignore"):
        x = np.where(np.isfinite(x), x, np.nan)
    return np.asarray(np.sign(x) * np.log1p(np.abs(x)))


def scale_of(name: str, column: pa.ChunkedArray) -> NumericColumn:
    """Fit the scale of a number column to a sample of it."""
    from dlrover_nb.core.structs.data.features import NumericColumn  # noqa: PLC0415 - a record, made only here

    x = squashed(column)
    x = x[~np.isnan(x)]
    if not x.size:
        return NumericColumn(name, 0.0, 1.0)
    std = float(x.std())
    return NumericColumn(name, float(x.mean()), std if std > _MIN_STD else 1.0)


def scaled(column: pa.ChunkedArray, scale: NumericColumn) -> NDArray[np.float64]:
    """Return the column squashed and standardized; a missing value becomes 0, the mean."""
    return np.nan_to_num((squashed(column) - scale.mean) / scale.std, nan=0.0)


def _ids(
    values: pa.ChunkedArray, column: CategoricalColumn, trained: pa.DataType | None
) -> NDArray[np.int64]:
    if column.sequence is not None:
        return sequence_ids(values, column, column.sequence, trained)
    return ids_of(values, column, trained)[:, None]


def plain_ids(values: pa.ChunkedArray, column: CategoricalColumn, first_row: int) -> NDArray[np.int64]:
    """Return whole numbers below `hash_size` as they are, of shape (n, n_slot); short lists end with zeros.

    Raises
    ------
    InvalidValueError
        When a value is missing, is none of them, or a list holds such a one.
    """
    if column.sequence is None:
        return _whole(values, column, lambda place: first_row + place)[:, None]
    items, n_each = items_of(values, column.sequence)
    rows = np.repeat(np.arange(len(values)), n_each)
    ids = _whole(items, column, lambda place: first_row + int(rows[place]))
    return np.maximum(padded(rows, ids, (len(values), column.sequence.length)), 0)


def _whole(
    values: pa.ChunkedArray, column: CategoricalColumn, row_of: Callable[[int], int]
) -> NDArray[np.int64]:
    each = _one_array(values)
    try:
        numbers = _floats(each.dictionary_decode() if pa.types.is_dictionary(each.type) else each)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        numbers = np.full(len(each), np.nan)
    is_id = (numbers >= 0) & (numbers < column.hash_size) & (numbers == np.floor(numbers))
    if not is_id.all():
        place = int(np.argmin(is_id))
        value = each[place].as_py()
        raise InvalidValueError(
            f"column {shown(column.name)} must hold whole numbers from 0 to {column.hash_size - 1}, the rows "
            f"of the module's table, got {'nothing' if value is None else shown(value)} in row "
            f"{row_of(place)}; encode it as for the module's own training"
        )
    return numbers.astype(np.int64)


def plain_numbers(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.float64]:
    """Return numbers as they are.

    Raises
    ------
    InvalidValueError
        When one is missing or infinite.
    """
    numbers = _floats(_one_array(column), safe=False)
    if not np.isfinite(numbers).all():
        row = first_row + int(np.argmin(np.isfinite(numbers)))
        raise InvalidValueError(
            f"column {shown(name)} must hold a finite number in each row, as the module takes them as they "
            f"are, got none in row {row}; fill it as for the module's own training"
        )
    return numbers


def ids_of(
    values: pa.ChunkedArray, column: CategoricalColumn, trained: pa.DataType | None = None
) -> NDArray[np.int64]:
    """Return the id of each value: a row of the column's part of a fixed table, or a hash of its own.

    `trained` is the type that the column had in training, if that is known.
    """
    check_plain(values, trained, column.name)
    different, codes = distinct(values)
    return _hashed_ids(hashes_of(different, column, trained), column)[codes]


def _hashed_ids(hashes: NDArray[np.uint64], column: CategoricalColumn) -> NDArray[np.int64]:
    if column.is_open:
        return open_ids(hashes, column.table)
    return (hashes % np.uint64(column.hash_size)).astype(np.int64) + column.offset


def sequence_ids(
    values: pa.ChunkedArray,
    column: CategoricalColumn,
    sequence: SequenceSpec,
    trained: pa.DataType | None = None,
) -> NDArray[np.int64]:
    """Return the ids of the newest items of each row, of shape (n, length), and `PADDING` behind them.

    `trained` is the type that the items had in training, if that is known.

    Raises
    ------
    InvalidValueError
        When the values are no lists, and no text that is one.
    """
    items, n_each = items_of(values, sequence)
    check_plain(items, trained, column.name)
    different, codes = distinct(items)
    hashes = hashes_of(different, column, trained)
    is_there = hashes[codes] != MISSING
    rows = np.repeat(np.arange(len(values)), n_each)[is_there]
    return padded(rows, _hashed_ids(hashes, column)[codes][is_there], (len(values), sequence.length))


def padded(rows: NDArray[np.int64], ids: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return the last ids of each row from the left on, and `PADDING` behind them.

    Parameters
    ----------
    rows, ids
        The row of each id, ascending, and the ids.
    shape
        Rows, and the most ids of one.
    """
    n_row, length = shape
    counts = np.bincount(rows, minlength=n_row)
    first = np.cumsum(counts) - np.minimum(counts, length)  # of the ids that each row has in the end
    place = np.arange(len(ids)) - first[rows]
    result = np.full(shape, PADDING, np.int64)
    result[rows[place >= 0], place[place >= 0]] = ids[place >= 0]
    return result


def items_of(values: pa.ChunkedArray, sequence: SequenceSpec) -> tuple[pa.ChunkedArray, NDArray[np.int64]]:
    """Return the items of all rows, one after the other, and how many each row has; raises as above."""
    lists = _one_array(values)
    if pa.types.is_dictionary(lists.type):
        lists = lists.dictionary_decode()
    if is_text(lists.type):
        lists = pc.split_pattern(lists, sequence.separator)
    if pa.types.is_null(lists.type):
        lists = lists.cast(pa.list_(pa.null()))
    if not is_list(lists.type):
        raise InvalidValueError(
            f"column {shown(sequence.column)} must hold lists of ids, or text with "
            f"{shown(sequence.separator)} between them, got {lists.type}; give lists such as [17, 4]"
        )
    lengths = _integers(pc.list_value_length(lists), missing=0)
    return pa.chunked_array([pc.list_flatten(lists)]), lengths


def hashes_of(
    values: pa.Array, column: CategoricalColumn, trained: pa.DataType | None = None
) -> NDArray[np.uint64]:
    """Return hashes of distinct values, read in the type of training, and `MISSING` behind them."""
    first, *more = ids_as_trained(values, trained, column)
    hashes = hash_values(first)
    for part in more:
        hashes = np.where(_absent(part), hashes, hash_values(part))
    return np.append(hashes, MISSING)


def open_ids(hashes: NDArray[np.uint64], name: str) -> NDArray[np.int64]:
    """Return ids of 63 bits for hashed values of the column `name`.

    The column's name is hashed with them, so that equal values of two columns are two ids. With a million
    ids, the chance that any two of them are the same is 5e-8.
    """
    return (_mixed(hashes ^ _key_of(name)) >> np.uint64(1)).astype(np.int64)


@cache
def _key_of(name: str) -> np.uint64:
    (key,) = hash_values(text_array([name]))
    return np.uint64(key)


def distinct(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the distinct values, and the index of each row's value in them; -1 where it is missing.

    Dictionary columns carry their distinct values already. A dictionary larger than the rows at hand (a slice
    of a large file) is left alone: hashing it whole would cost more than the rows.
    """
    values = _one_array(column)
    if pa.types.is_dictionary(values.type) and len(values.dictionary) > len(values):
        values = values.dictionary_decode()
    if not pa.types.is_dictionary(values.type):
        values = pc.dictionary_encode(values)
    return values.dictionary, _integers(values.indices, missing=-1)


def hash_values(values: pa.Array) -> NDArray[np.uint64]:
    """Hash values, the same on every machine; null and NaN give `MISSING`."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        hashes = _mixed(_integers(values, missing=0).view(np.uint64))
    elif pa.types.is_floating(kind):
        hashes = _hash_floats(_floats(values))
    else:
        hashes = _hash_bytes(values)
    return np.where(_absent(values), MISSING, hashes)


def _hash_floats(x: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Hash floats, whole ones as integers: a column of codes turns to floats where one of them is missing."""
    with np.errstate(invalid="ignore"):
        is_whole = (np.abs(x) < 2.0**63) & (np.floor(x) == x)
        whole = np.where(is_whole, x, 0).astype(np.int64)
    return np.where(is_whole, _mixed(whole.view(np.uint64)), _mixed(x.view(np.uint64)))


def _hash_bytes(values: pa.Array) -> NDArray[np.uint64]:
    """Hash text or bytes by FNV-1a, one byte position of all values at a time, longest values first."""
    if not pa.types.is_large_binary(values.type):
        text = values if pa.types.is_binary(values.type) else values.cast(pa.large_string())
        values = text.cast(pa.large_binary())
    n = len(values)
    _, offsets, data = values.buffers()
    ends = (
        np.frombuffer(offsets, np.int64)[values.offset : values.offset + n + 1]
        if n
        else np.zeros(1, np.int64)
    )
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(ends)
    if lengths.max(initial=0) > _LONG:
        return _hash_long(values, ends, raw)
    order = np.argsort(-lengths, kind="stable")
    starts = ends[:-1][order]
    n_longer = n - np.searchsorted(np.sort(lengths), np.arange(lengths.max(initial=0)), side="right")
    hashes = np.full(n, _FNV_OFFSET, np.uint64)
    for position, m in enumerate(n_longer):
        hashes[:m] = (hashes[:m] ^ raw[starts[:m] + position]) * _FNV_PRIME
    result = np.empty(n, np.uint64)
    result[order] = _mixed(hashes)
    return result


def _hash_long(values: pa.Array, ends: NDArray[np.int64], raw: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash values of which some are longer than `_LONG` bytes: those by their SHA-256."""
    is_long = np.diff(ends) > _LONG
    short = pc.if_else(pa.array(is_long), pa.scalar(b"", pa.large_binary()), values)
    hashes = _hash_bytes(short)
    for i in np.flatnonzero(is_long).tolist():
        digest = hashlib.sha256(raw[ends[i] : ends[i + 1]].tobytes()).digest()
        hashes[i] = int.from_bytes(digest[:8], "little")
    return hashes


# pyarrow's own to_numpy and fill_null import pandas: 0.1 s and 40 MiB wasted on every node. So the
# buffers are read as they are (their layout is the Arrow standard).


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, dictionaries unified."""
    values = column.unify_dictionaries().combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # returned by older versions where there is nothing to combine
        values = values.chunk(0) if values.num_chunks else pa.nulls(0, values.type)
    return values


def _buffer(values: pa.Array, kind: type[_Number]) -> NDArray[_Number]:
    """Return the values of an array of fixed width; the content at missing ones is undefined."""
    n = len(values)
    data = values.buffers()[1] if n else None
    return np.zeros(n, kind) if data is None else np.frombuffer(data, kind)[values.offset : values.offset + n]


def _absent(values: pa.Array) -> NDArray[np.bool_]:
    """Return where a value is missing (null or NaN)."""
    return _buffer(pc.is_null(values, nan_is_null=True).cast(pa.uint8()), np.uint8).astype(bool)


def _floats(values: pa.Array, *, safe: bool = True) -> NDArray[np.float64]:
    """Return numbers as floats, missing as NaN."""
    wide = values.cast(pa.float64(), safe=safe)
    return np.where(_absent(wide), np.nan, _buffer(wide, np.float64))


def _integers(values: pa.Array, *, missing: int) -> NDArray[np.int64]:
    """Return integers with `missing` where there is none; those of 2**63 and more wrap around."""
    wide = values.cast(pa.uint64() if pa.types.is_uint64(values.type) else pa.int64())
    return np.where(_absent(wide), missing, _buffer(wide, np.int64))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits of 64-bit numbers (the finalizer of splitmix64), so that any low bits may be used."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


_MAP_LABELS = (
    "write 1 for what is to be predicted and 0 for the rest, as in (rows[column] == value).astype(int), or "
    "name another column with label"
)


_DROP_ROWS = "leave out rows without a label, as in rows.dropna(subset=[column])"


def labels_of(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.float32]:
    """Return the labels, refusing all that is not 0 or 1."""
    try:
        labels = _floats(_one_array(column))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        first = next((each.as_py() for each in column if not _is_number(each)), None)
        raise InvalidValueError(
            f"label column {shown(name)} must hold 0 or 1, got {shown(first)} ({column.type}); {_MAP_LABELS}"
        ) from error
    wrong = np.flatnonzero((labels != 0) & (labels != 1))
    if wrong.size:
        value = column[int(wrong[0])].as_py()
        is_missing = value is None or value != value  # noqa: PLR0124 - NaN
        got, advice = ("nothing", _DROP_ROWS) if is_missing else (shown(value), _MAP_LABELS)
        row = first_row + int(wrong[0])
        raise InvalidValueError(
            f"label column {shown(name)} must hold 0 or 1, got {got} in row {row}; {advice}"
        )
    return np.asarray(labels, np.float32)


def _is_number(value: pa.Scalar) -> bool:
    try:
        float(value.as_py() if value.is_valid else 0)
    except (TypeError, ValueError):
        return False
    return True
