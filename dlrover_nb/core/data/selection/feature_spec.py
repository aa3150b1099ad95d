"""Decide how rows become numbers, from the data's schema and a sample of its first rows.

Runs at submit, so it reads at most `N_SAMPLE_ROW` rows. Table sizes follow from the sample:

- A column with a growing number of values (Good-Turing: the share of rows with a value seen once is the
  chance that the next row brings a new one; above `OPEN_SHARE`) gets `ModelSpec.hash_size` table rows.
- Any other gets the smallest power of two, from `ROOM` times its distinct values on, in which none of them
  collide, up to `MAX_ROOM` times them (or `SMALL_TABLE`), and `hash_size`. Small vocabularies thus lose
  nothing by hashing, and forty columns of a few dozen values do not claim forty tables of 65,536 rows.

With hashed embeddings there is no table size: every value gets a row when it is trained.

A sequence with the embeddings of another column has its table, whose size follows from the values of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.encode import (
    MISSING,
    PADDING,
    distinct,
    hashes_of,
    items_of,
    labels_of,
    scale_of,
    sequence_ids,
)
from dlrover_nb.core.data.kinds import Kind, is_list, is_text, item_type, kind_of
from dlrover_nb.core.data.selection.column_choice import N_SAMPLE_ROW, check_numeric, choose
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.data.storage.file_set import FilesSource
from dlrover_nb.core.data.types.agreement import value_type, written_types
from dlrover_nb.core.data.types.trained_types import form_of, numbers_as_trained, time_type
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec, NumericColumn, SequenceSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.data.selection.column_choice import Choice
    from dlrover_nb.core.data.source import Source
    from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec

STREAM_ROWS = 1_000_000_000  # assumed for planning where the number of rows is unknown
OPEN_SHARE = 0.01
ROOM = 8
MAX_ROOM = 64
SMALL_TABLE = 4096


@dataclass(frozen=True, slots=True)
class Selection:
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
) -> Selection:
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
        categorical=_columns(choice, sample, model),
        n_train=n_row - n_eval,
        n_eval=n_eval,
        is_stream=source.n_row is None,
        files=source.files if isinstance(source, FilesSource) else (),
        column_types=written_types(types, used) if isinstance(source, FilesSource) else "",
        trained_types=written_types(trained_types, used),
    )
    return Selection(source, choice, features, sample)


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


def _columns(choice: Choice, sample: pa.Table, model: ModelSpec) -> tuple[CategoricalColumn, ...]:
    """Give each column its range of the one table, one after the other; an open one needs none."""
    drafts = [
        CategoricalColumn(name, 0, 0, sequence=_sequence(name, sample, choice.sequences))
        for name in choice.categorical
    ]
    _check_tables(drafts)
    tables: dict[str, CategoricalColumn] = {}
    offset = 0
    for name in (column.name for column in drafts if column.table == column.name):
        with_it = sorted((c for c in drafts if c.table == name), key=lambda column: column.name != name)
        column = _with_table(with_it, sample, model)
        tables[name] = replace(column, offset=offset)
        offset += column.hash_size
    placed = (_placed(column, tables[column.table]) for column in drafts)
    return tuple(_counted(column, sample) for column in placed)


def _sequence(name: str, sample: pa.Table, specs: Mapping[str, SequenceSpec]) -> SequenceSpec | None:
    """Return how the column is a sequence; None: it has one id in each row."""
    kind = sample.schema.field(name).type
    if is_list(kind) and kind_of(kind) is Kind.OTHER and not _are_whole(sample.column(name)):
        raise InvalidValueError(
            f"column {shown(name)} holds lists of {item_type(kind)}, expected whole numbers or text; make "
            "ids of them, or a column of each number, or exclude it"
        )
    return specs.get(name) or (SequenceSpec(name) if is_list(kind) else None)


def _are_whole(lists: pa.ChunkedArray) -> bool:
    """Whether items are whole numbers that are stored as fractions, as pandas does where one is missing."""
    items = pc.list_flatten(lists)
    if not pa.types.is_floating(items.type):
        return False
    items = items.cast(pa.float64()).drop_null()
    return bool(pc.all(pc.or_(pc.is_nan(items), pc.equal(pc.floor(items), items)), min_count=0).as_py())


def _check_tables(columns: Iterable[CategoricalColumn]) -> None:
    by_name = {column.name: column for column in columns}
    for column in by_name.values():
        owner = by_name.get(column.table)
        if owner is None or owner.table != owner.name:
            why = "has those of another column itself" if owner else "is no column of ids that is used"
            raise InvalidValueError(
                f"sequence {shown(column.name)} has embedding_of {shown(column.table)}, which {why}; name a "
                "column of ids with embeddings of its own"
            )


def _with_table(columns: list[CategoricalColumn], sample: pa.Table, model: ModelSpec) -> CategoricalColumn:
    """Return the first column, whose table all of them have, with its form and its size."""
    first = columns[0]
    values = [distinct(_values(column, sample)) for column in columns]
    texts = [words.cast(pa.large_string()) for words, _ in values if is_text(words.type)]
    form = form_of(pa.concat_arrays(texts) if len(texts) == len(values) else values[0][0])
    column = replace(first, form=form)
    if model.embedding is Embedding.HASH:
        return column
    trained = item_type(value_type(sample.schema.field(first.name).type))
    hashes = [hashes_of(words, column, trained if i else None) for i, (words, _) in enumerate(values)]
    if len(columns) == 1:
        return replace(column, hash_size=table_size(hashes[0], values[0][1], model.hash_size))
    rows = np.concatenate([each[codes] for each, (_, codes) in zip(hashes, values, strict=True)])
    together, codes = np.unique(rows, return_inverse=True)
    return replace(column, hash_size=table_size(np.append(together, MISSING), codes, model.hash_size))


def _values(column: CategoricalColumn, sample: pa.Table) -> pa.ChunkedArray:
    values = sample.column(column.name)
    return items_of(values, column.sequence)[0] if column.sequence else values


def _placed(column: CategoricalColumn, owner: CategoricalColumn) -> CategoricalColumn:
    return replace(column, offset=owner.offset, hash_size=owner.hash_size, form=owner.form)


def _counted(column: CategoricalColumn, sample: pa.Table) -> CategoricalColumn:
    """Return a column with the number of items that a row has on average."""
    if column.sequence is None or not sample.num_rows:
        return column
    trained = item_type(value_type(sample.schema.field(column.table).type))
    ids = sequence_ids(sample.column(column.name), column, column.sequence, trained)
    return replace(column, n_item=float((ids != PADDING).sum(1).mean()))


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
    present = np.unique(np.append(hashes[counts > 0], MISSING))
    size = 1 << math.ceil(math.log2(ROOM * len(present)))
    limit = min(max(MAX_ROOM * len(present), SMALL_TABLE), most)
    while size < limit and np.unique(present % np.uint64(size)).size < present.size:
        size *= 2
    return min(size, most)
