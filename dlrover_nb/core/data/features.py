"""Decide how rows become numbers, from the data's schema and a sample of its first rows.

Runs at submit, so it reads at most `N_SAMPLE_ROW` rows. Table sizes follow from the sample:

- A column with a growing number of values (Good-Turing: the share of rows with a value seen once is the
  chance that the next row brings a new one; above `OPEN_SHARE`) gets `ModelSpec.hash_size` table rows.
- Any other gets the smallest power of two, from `ROOM` times its distinct values on, in which none of them
  collide, up to `MAX_ROOM` times them (or `SMALL_TABLE`), and `hash_size`. Small vocabularies thus lose
  nothing by hashing, and forty columns of a few dozen values do not claim forty tables of 65,536 rows.

With hashed embeddings there is no table size: every value gets a row when it is trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dlrover_nb.core.data.choice import N_SAMPLE_ROW, check_numeric, choose
from dlrover_nb.core.data.columns import value_type, written_types
from dlrover_nb.core.data.encode import MISSING, distinct, hashes_of, labels_of, scale_of
from dlrover_nb.core.data.files import FilesSource
from dlrover_nb.core.data.kinds import is_text
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.data.trained_types import form_of, numbers_as_trained, time_type
from dlrover_nb.core.errors import InvalidValueError, shown
from dlrover_nb.core.structs.features import CategoricalColumn, FeatureSpec, NumericColumn
from dlrover_nb.core.structs.job import Embedding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.data.choice import Choice
    from dlrover_nb.core.data.source import Source
    from dlrover_nb.core.structs.job import DataSpec, ModelSpec

STREAM_ROWS = 1_000_000_000  # assumed for planning where the number of rows is unknown
OPEN_SHARE = 0.01
ROOM = 8
MAX_ROOM = 64
SMALL_TABLE = 4096


@dataclass(frozen=True, slots=True)
class Taken:
    """What a job takes of its data: the open source, the chosen columns, their encoding, and a sample."""

    source: Source
    choice: Choice
    features: FeatureSpec
    sample: pa.Table


def make_features(
    data: DataSpec, model: ModelSpec, *, folder: Path | None = None, trained: FeatureSpec | None = None
) -> FeatureSpec:
    """Open the data and fix its columns, scales, table sizes, and its split in training and evaluation.

    Parameters
    ----------
    folder
        The job's run folder, where a user's own object lies.
    trained
        The encoding of the rows that the job's first parameters were trained with; None: they are untrained.

    Raises
    ------
    NotFoundError
        When the file or a named column is not there.
    InvalidValueError
        When the file is not of its format, a column cannot be used as requested, or a label is not 0 or 1.
    """
    return take(data, model, folder=folder, trained=trained).features


def take(
    data: DataSpec, model: ModelSpec, *, folder: Path | None = None, trained: FeatureSpec | None = None
) -> Taken:
    """Return what `make_features` does, and what it was made from; raises as it does."""
    source = open_source(data, folder)
    choice = choose(source, data, trained)
    n_row = STREAM_ROWS if source.n_row is None else source.n_row
    used = (*choice.numeric, *choice.categorical, data.label)
    sample = source.read(0, min(n_row, N_SAMPLE_ROW), used)
    types = {field.name: field.type for field in sample.schema}
    labels_of(sample.column(data.label), data.label, 0)
    n_eval = 0 if source.n_row is None else round(n_row * data.holdout)
    if n_eval >= n_row:
        raise InvalidValueError(
            f"holdout {data.holdout:g} leaves none of {n_row} rows to train on; use a smaller one"
        )
    trained_types = types | {name: _number_type(name, sample.column(name), choice) for name in choice.numeric}
    features = FeatureSpec(
        label=data.label,
        numeric=tuple(
            _scale(name, sample.column(name), trained_types[name], choice) for name in choice.numeric
        ),
        categorical=_columns(choice.categorical, sample, model),
        n_train=n_row - n_eval,
        n_eval=n_eval,
        is_stream=source.n_row is None,
        files=source.files if isinstance(source, FilesSource) else (),
        column_types=written_types(types, used) if isinstance(source, FilesSource) else "",
        trained_types=written_types(trained_types, used),
    )
    return Taken(source, choice, features, sample)


def _number_type(name: str, column: pa.ChunkedArray, choice: Choice) -> pa.DataType:
    """Return the type that values of a number column have for a model."""
    check_numeric(name, column.type, is_time=name in choice.times)
    if not is_text(value_type(column.type)):
        return column.type
    return time_type(column) if name in choice.times else pa.float64()


def _scale(name: str, column: pa.ChunkedArray, kind: pa.DataType, choice: Choice) -> NumericColumn:
    number = NumericColumn(name, 0.0, 1.0, choice.form(name))
    if not is_text(value_type(column.type)):
        return replace(scale_of(name, column), form=number.form)
    try:
        return replace(scale_of(name, numbers_as_trained(column, kind, number)), form=number.form)
    except InvalidValueError as error:
        if name not in choice.times:
            raise
        raise InvalidValueError(
            f"column {shown(name)} has the type time, as text such as 2026-01-31 12:30 ({error}); write "
            "times so, or leave its type out"
        ) from error


def _columns(names: Iterable[str], sample: pa.Table, model: ModelSpec) -> tuple[CategoricalColumn, ...]:
    """Give each column its range of the one table, one after the other; an open one needs none."""
    columns, offset = [], 0
    for name in names:
        values, codes = distinct(sample.column(name))
        column = CategoricalColumn(name, 0, 0, form_of(values))
        if model.embedding is not Embedding.HASH:
            size = table_size(hashes_of(values, column), codes, model.hash_size)
            column = replace(column, offset=offset, hash_size=size)
        columns.append(column)
        offset += column.hash_size
    return tuple(columns)


def table_size(hashes: NDArray[np.uint64], codes: NDArray[np.int64], most: int) -> int:
    """Return how many table rows a column gets, at most `most`.

    Parameters
    ----------
    hashes, codes
        Hashes of the distinct values with `MISSING` last, and each row's index in them.
    """
    counts = np.bincount(codes % len(hashes), minlength=len(hashes))
    if counts.size and (counts == 1).sum() > OPEN_SHARE * len(codes):
        return most
    seen = np.unique(np.append(hashes[counts > 0], MISSING))
    size = 1 << math.ceil(math.log2(ROOM * len(seen)))
    limit = min(max(MAX_ROOM * len(seen), SMALL_TABLE), most)
    while size < limit and np.unique(seen % np.uint64(size)).size < seen.size:
        size *= 2
    return min(size, most)
