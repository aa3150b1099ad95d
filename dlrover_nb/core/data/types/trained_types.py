"""Values in the types of training, whichever file or table they come from.

A hash of 12 is not the hash of "12", and a time in seconds is not its number of nanoseconds. So the type that
each column had when the encoding was made is kept with it (`FeatureSpec.trained_types`), and every value is
read in that type, or refused with a sentence. The rows of a CSV file, of Parquet and of a DataFrame then have
the same ids and numbers.

- **Numbers** are compared as numbers, whatever their width. Times get the unit of training.
  Text is read as numbers were written in training (`NumericColumn.form`).
- **Ids of text** are what is written in the cell: "007" is not "7". Text files are always read so, because
  the type of a column is a guess from its neighbours: with one "guest" among them, 12 was "12" before. A
  number of a typed table becomes the text that the training's file would have for it, as far as the cells of
  the sample agree on how numbers are written (`TextForm`). Where they do not ("007"), or there are none, the
  number is refused: pandas has read "007" as 7, and what was written is lost.
  Writers of text differ in no more than 12 and 12.0, True and true: a cell in the other form is the same id.
- **Ids of numbers** (from Parquet or a DataFrame) are numbers in text too: "12" and "12.0" are 12. Any other
  text is an id of its own that training has not seen; one "guest" ends no job.
- **Texts that readers of text files take for missing** ("", "NA") are missing in typed tables too.

Rejected: to hash "12" as the number 12 everywhere. Models of earlier releases have hashed texts otherwise,
and zip codes would lose their zeros. Encodings of earlier releases have no `TextForm`: their values are
hashed as they were then, and numbers in a column of text are refused. Where they have no types either, values
are taken as they are.

Few functions here make an array of Python's values: `pyarrow.array` imports pandas (see `encode`).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.kinds import (
    MISSING_TEXTS,
    Kind,
    is_bytes,
    is_number,
    is_text,
    kind_of,
    text_array,
)
from dlrover_nb.core.data.types.agreement import read_types
from dlrover_nb.core.data.types.number_text import numbers_of
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.data.features import NumberForm, TextForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec, NumericColumn

    Column = Any  # an array or a chunked one; what comes is what is returned

MOST_EXACT = 2.0**53  # from here on, floats skip whole numbers
_PLAIN = r"^(0|-?[1-9][0-9]*)$"  # a whole number as programs write it
_SHORT = r"^-?[0-9]{1,15}$"  # a whole number that any type of number holds
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_BOOLEAN = r"^(?i:true|false)$"
_MISSING = text_array(MISSING_TEXTS)
_BOOLEANS = {"True": ("True", "False"), "true": ("true", "false"), "TRUE": ("TRUE", "FALSE")}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_ANY_DAY = "1970-01-01"
_ZONE = r"\d(Z|[+-]\d\d(:?\d\d)?)$"  # behind a time, and not the day of a date


def form_of(texts: pa.Array) -> TextForm:
    """Return how numbers and truth values are written among the distinct values of a column of text.

    Other columns have no form: there is nothing written in them.
    """
    if not is_text(texts.type):
        return TextForm()
    trimmed = pc.utf8_trim_whitespace(texts)
    numbers = texts.filter(pc.match_substring_regex(trimmed, _NUMBER))
    booleans = texts.filter(pc.match_substring_regex(texts, _BOOLEAN)).to_pylist()
    form = next((form for form, both in _BOOLEANS.items() if booleans and {*booleans} <= {*both}), "")
    return TextForm(_number_form(numbers), form)


def _number_form(numbers: pa.Array) -> NumberForm:
    others = numbers.filter(pc.invert(pc.match_substring_regex(numbers, _PLAIN))).to_pylist()
    if not len(numbers) or any(repr(float(text)) != text for text in others):
        return NumberForm.UNKNOWN
    if not any(float(text).is_integer() for text in others):
        return NumberForm.PLAIN
    return NumberForm.POINT if len(others) == len(numbers) else NumberForm.UNKNOWN


# ids


def ids_as_trained(
    values: pa.Array, trained: pa.DataType | None, column: CategoricalColumn
) -> list[pa.Array]:
    """Return distinct values of a column of ids in the type of training.

    Parameters
    ----------
    trained
        The type; None: not known, and the values are taken as they are.

    Returns
    -------
    list of pa.Array
        Arrays of the length of `values`, with at most one value that is there at each place: texts among
        numbers need an array of their own. Nothing anywhere: the value is missing.

    Raises
    ------
    InvalidValueError
        When the values cannot be read in that type; it names the column.
    """
    if column.form is not None and is_text(values.type):
        values = without_missing_texts(values)
    is_same = values.type == trained and not is_text(values.type)
    if trained is None or is_same or _is_empty(values):
        return [values]
    read = next((read for is_kind, read in _IDS if is_kind(trained)), None)
    parts = None if read is None else read(values, trained, column)
    if parts is None:
        _refuse(column.name, values, trained)
    return parts


def _ids_of_text(values: pa.Array, _: pa.DataType, column: CategoricalColumn) -> list[pa.Array] | None:
    kind, form = values.type, column.form or TextForm()
    if is_bytes(kind):
        return [values]
    if is_text(kind):
        return [_in_form(values, form)]
    if pa.types.is_boolean(kind):
        return [_in_form(values.cast(pa.string()), form)] if form.booleans else None
    is_fraction = pa.types.is_decimal(kind) and kind.scale > 0
    if form.numbers is NumberForm.UNKNOWN or not is_number(kind) or is_fraction:
        return None
    if not pa.types.is_floating(kind):
        return [_in_form(values.cast(pa.string()), form)]
    _check_exact(values, column.name)
    width = kind.to_pandas_dtype()  # with the fewest digits that are this float of its own width
    texts = [None if x is None or math.isnan(x) else str(width(x)) for x in values.to_pylist()]
    return [_in_form(pa.array(texts, pa.string()), form)]


def _in_form(texts: pa.Array, form: TextForm) -> pa.Array:
    """Return texts with numbers and truth values written as in training, where all were written alike."""
    if form.numbers is NumberForm.PLAIN and pc.any(pc.ends_with(texts, ".0")).as_py():
        texts = pc.replace_substring_regex(texts, r"^(0|-?[1-9][0-9]*)\.0$", r"\1")
    elif form.numbers is NumberForm.POINT:
        texts = pc.replace_substring_regex(texts, r"^(-?(?:0|[1-9][0-9]{0,14}))$", r"\1.0")
    for word in _BOOLEANS.get(form.booleans, ()):
        texts = pc.replace_substring_regex(texts, f"^(?i:{word})$", word)
    return texts


def _ids_of_numbers(
    values: pa.Array, trained: pa.DataType, column: CategoricalColumn
) -> list[pa.Array] | None:
    kind = values.type
    if pa.types.is_decimal(kind):
        values, kind = values.cast(pa.string()), pa.string()
    if is_text(kind):
        return _numbers_in_text(values, trained)
    if not is_number(kind) and not pa.types.is_boolean(kind):
        return None
    if pa.types.is_floating(trained):
        return [values.cast(trained, safe=False)]
    if pa.types.is_floating(kind):
        _check_exact(values, column.name)
    return [values]


def _numbers_in_text(texts: pa.Array, trained: pa.DataType) -> list[pa.Array]:
    """Return the numbers among texts, and the other texts as they are."""
    trimmed = pc.utf8_trim_whitespace(texts)
    is_short = pc.match_substring_regex(trimmed, _SHORT)
    is_number = pc.match_substring_regex(trimmed, _NUMBER)
    short = _where(is_short, trimmed).cast(pa.int64())
    odd = _odd_numbers(_where(pc.and_not(is_number, is_short), trimmed), trained)
    if pa.types.is_floating(trained):
        short = short.cast(trained)
    return [short, *odd, _where(pc.invert(is_number), texts)]


def _odd_numbers(texts: pa.Array, trained: pa.DataType) -> list[pa.Array]:
    """Return numbers that are long, have a point, an exponent or a sign; whole ones exactly."""
    if texts.null_count == len(texts):
        return []
    words = texts.to_pylist()
    if pa.types.is_floating(trained):
        floats = [None if word is None else float(word) for word in words]
        return [pa.array(floats, pa.float64()).cast(trained, safe=False)]
    values = [None if word is None else _number(word) for word in words]
    ranges = ((pa.int64(), range(-(2**63), 2**63)), (pa.uint64(), range(2**63, 2**64)))
    whole = [
        pa.array([x if isinstance(x, int) and x in numbers else None for x in values], kind)
        for kind, numbers in ranges
    ]
    return [*whole, pa.array([x if isinstance(x, float) else None for x in values], pa.float64())]


def _number(word: str) -> int | float:
    whole = int(word) if _WHOLE.fullmatch(word) else None
    return float(word) if whole is None or not -(2**63) <= whole < 2**64 else whole


def _ids_of_booleans(values: pa.Array, _: pa.DataType, __: CategoricalColumn) -> list[pa.Array] | None:
    if is_number(values.type):
        return [values]
    if not is_text(values.type):
        return None
    trimmed = pc.utf8_trim_whitespace(values)
    is_boolean = pc.match_substring_regex(trimmed, _BOOLEAN)
    return [
        _where(is_boolean, trimmed).cast(pa.bool_()),
        *_numbers_in_text(_where(pc.invert(is_boolean), values), pa.int64()),
    ]


def _where(mask: pa.Array, values: Column) -> Column:
    """Return the values where `mask` is set; elsewhere, and where it is missing, nothing."""
    return pc.if_else(mask, values, pa.nulls(len(values), values.type))


def _ids_of_times(values: pa.Array, trained: pa.DataType, column: CategoricalColumn) -> list[pa.Array]:
    return [_as_times(values, trained, column.name)]


def _ids_of_bytes(values: pa.Array, _: pa.DataType, __: CategoricalColumn) -> list[pa.Array] | None:
    return [values] if is_text(values.type) or is_bytes(values.type) else None


def _ids_of_decimals(
    values: pa.Array, trained: pa.DataType, column: CategoricalColumn
) -> list[pa.Array] | None:
    if not is_text(values.type) and not is_number(values.type):
        return None
    return [_cast(values, trained, trained, column.name)]


_IDS: Sequence[
    tuple[
        Callable[[pa.DataType], bool],
        Callable[[pa.Array, pa.DataType, CategoricalColumn], list[pa.Array] | None],
    ]
] = (
    (is_text, _ids_of_text),
    (pa.types.is_decimal, _ids_of_decimals),
    (is_number, _ids_of_numbers),
    (pa.types.is_boolean, _ids_of_booleans),
    (pa.types.is_temporal, _ids_of_times),
    (is_bytes, _ids_of_bytes),
)


# numbers


def numbers_as_trained(
    column: pa.ChunkedArray, trained: pa.DataType | None, number: NumericColumn, first_row: int = 0
) -> pa.ChunkedArray:
    """Return a number column, whose first value is that of row `first_row`, in the type of training.

    Raises as `ids_as_trained`.
    """
    name = number.name
    check_plain(column, trained, name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type):
        column = without_missing_texts(column)
    is_time = pa.types.is_temporal(column.type)
    if pa.types.is_null(column.type) or (is_time and trained in {None, column.type}):
        return column
    if trained is not None and pa.types.is_temporal(trained):
        return _as_times(column, trained, name)
    if is_time or is_bytes(column.type):
        if not _is_empty(column):
            _refuse(name, column, trained)
        return pa.chunked_array([pa.nulls(len(column), pa.float64())])
    if pa.types.is_decimal(column.type):  # Arrow's own cast to float is off by the last digit
        column = column.cast(pa.string())
    if is_text(column.type) and number.form is not None:
        column = numbers_of(column, number.form, name, first_row)
    elif is_text(column.type):
        column = _cast(pc.utf8_trim_whitespace(column), pa.float64(), trained, name)
    is_narrow = trained is not None and (pa.types.is_float32(trained) or pa.types.is_float16(trained))
    return column.cast(trained, safe=False) if is_narrow else column


def time_type(texts: Column) -> pa.DataType:
    """Return the type of the times that texts stand for: moments where they name a zone."""
    has_zone = pc.any(pc.match_substring_regex(texts.cast(pa.string()), _ZONE)).as_py()
    return pa.timestamp("us", "UTC" if has_zone else None)


def text_types(features: FeatureSpec) -> dict[str, pa.DataType]:
    """Return the types to read number columns of text files with, so that they are as in training."""
    trained = read_types(features.trained_types or features.column_types)
    files = read_types(features.column_types)
    return {
        number.name: _read_as(trained[number.name], number, files.get(number.name, pa.null()))
        for number in features.numeric
        if number.name in trained
    }


def _read_as(trained: pa.DataType, number: NumericColumn, in_files: pa.DataType) -> pa.DataType:
    """Return a type that takes any number, and times of finer units; text where numbers have a form."""
    is_local = number.form is not None and not number.form.is_plain
    if is_text(in_files) or (is_local and not pa.types.is_temporal(trained)):
        return pa.string()
    return _time_to_read(trained) if pa.types.is_temporal(trained) else pa.float64()


def _time_to_read(trained: pa.DataType) -> pa.DataType:
    """Return a type of times that is as fine as any text of them."""
    is_coarse = pa.types.is_date(trained) or (pa.types.is_timestamp(trained) and trained.unit in {"s", "ms"})
    return pa.timestamp("us", getattr(trained, "tz", None)) if is_coarse else trained


# both


def check_plain(values: Column, trained: pa.DataType | None, name: str) -> None:
    """Refuse lists and structures."""
    if kind_of(values.type) in {Kind.SEQUENCE, Kind.OTHER} and values.null_count < len(values):
        _refuse(name, values, trained)


def without_missing_texts(texts: Column) -> Column:
    """Return texts without those that readers of text files take for a missing value."""
    is_missing = pc.is_in(texts, value_set=_MISSING.cast(texts.type))
    return _where(pc.invert(is_missing), texts) if pc.any(is_missing).as_py() else texts


def _as_times(values: Column, trained: pa.DataType, name: str) -> Column:
    """Return times in the unit of training; finer ones are cut to it."""
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(values)
        if pa.types.is_time(trained):  # Arrow has no cast from text to the time of a day
            values = pc.binary_join_element_wise(_ANY_DAY, values, " ")
        kind = pa.timestamp("us") if pa.types.is_time(trained) else _time_to_read(trained)
        values = _cast(values, kind, trained, name)
    elif not _are_alike(values.type, trained):
        if not _is_empty(values):
            _refuse(name, values, trained)
        return pa.chunked_array([pa.nulls(len(values), trained)])
    return _cast(values, trained, trained, name)


def _are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether times are of one kind: a time with a zone is a moment, one without is what a clock shows."""
    types = pa.types
    moments = [types.is_timestamp(kind) and kind.tz is not None for kind in (one, other)]
    if any(moments):
        return all(moments)
    days = [types.is_timestamp(kind) or types.is_date(kind) for kind in (one, other)]
    same = (types.is_time, types.is_duration)
    return all(days) or any(is_kind(one) and is_kind(other) for is_kind in same)


def _is_empty(values: Column) -> bool:
    return bool(pc.all(pc.is_null(values, nan_is_null=True), min_count=0).as_py())


def _check_exact(values: pa.Array, name: str) -> None:
    """Refuse floats that may have been rounded: they may be another id now."""
    large = pc.max(pc.abs(values.filter(pc.is_finite(values)))).as_py() or 0.0
    if large >= MOST_EXACT:
        raise InvalidValueError(
            f"column {shown(name)} holds ids from 2^53 on as {values.type}, which rounds them; give it as "
            "whole numbers or text (in pandas: dtype='Int64' where values are missing)"
        )


def _cast(values: Column, kind: pa.DataType, trained: pa.DataType | None, name: str) -> Column:
    """Return values as a type on their way to that of training, or refuse them."""
    try:
        return pc.cast(values, options=pc.CastOptions(kind, allow_time_truncate=True))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if not is_text(values.type):
            _refuse(name, values, trained)
        first = next((each for each in pc.unique(values) if not _is_readable(each, kind)), None)
        raise InvalidValueError(
            f"column {shown(name)} was {trained} in training, got the text {shown(str(first))}; "
            "write it as in training, or leave it empty where it is missing"
        ) from error


def _is_readable(text: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _refuse(name: str, values: Column, trained: pa.DataType | None) -> NoReturn:
    what = "of plain values" if trained is None else "text" if is_text(trained) else str(trained)
    value = next(each for each in values if each.is_valid)
    if pa.types.is_temporal(value.type):  # nanoseconds are no value of Python
        value = value.cast(pa.string())
    raise InvalidValueError(
        f"column {shown(name)} was {what} in training, got {values.type} such as {shown(value.as_py())}; "
        f"{_advice(name, values.type, trained)}"
    )


def _advice(name: str, kind: pa.DataType, trained: pa.DataType | None) -> str:
    if trained is None or kind_of(kind) in {Kind.SEQUENCE, Kind.OTHER}:
        return "give it as it was in training"
    if is_text(trained):
        return f"read it as the text that its file holds, such as dtype={{{name!r}: str}} of pandas.read_csv"
    if pa.types.is_timestamp(trained) and pa.types.is_timestamp(kind):
        return "give its times with a zone" if trained.tz else "give its times without a zone"
    if pa.types.is_temporal(trained):
        return "give times, such as those that pandas.to_datetime returns"
    return "give it as it was in training"
