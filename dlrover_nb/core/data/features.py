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

import difflib
import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.data.columns import written_types
from dlrover_nb.core.data.encode import MISSING, distinct, hashes_of, labels_of, scale_of
from dlrover_nb.core.data.files import FilesSource
from dlrover_nb.core.data.kinds import Kind
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.data.trained_types import form_of
from dlrover_nb.core.errors import MOST_SHOWN, InvalidValueError, NotFoundError, shown
from dlrover_nb.core.structs.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job import Embedding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from dlrover_nb.core.data.source import Source
    from dlrover_nb.core.structs.job import DataSpec, ModelSpec

N_SAMPLE_ROW = 20_000
STREAM_ROWS = 1_000_000_000  # assumed for planning where the number of rows is unknown
OPEN_SHARE = 0.01
ROOM = 8
MAX_ROOM = 64
SMALL_TABLE = 4096
_MOST_COMPARED, _MOST_LISTED = 1000, 50  # columns in a message about one that is not there


def make_features(data: DataSpec, model: ModelSpec, *, folder: Path | None = None) -> FeatureSpec:
    """Open the data and fix its columns, scales, table sizes, and its split in training and evaluation.

    `folder` is the job's run folder, where a user's own object lies.

    Raises
    ------
    NotFoundError
        When the file or a named column is not there.
    InvalidValueError
        When the file is not of its format, a column cannot be used as requested, or a label is not 0 or 1.
    """
    return read_features(open_source(data, folder), data, model)[0]


def read_features(source: Source, data: DataSpec, model: ModelSpec) -> tuple[FeatureSpec, pa.Table]:
    """Return what `make_features` does, and the rows that it was made from; raises as it does."""
    numeric, categorical = _chosen(data, source.kinds)
    n_row = STREAM_ROWS if source.n_row is None else source.n_row
    used = (*numeric, *categorical, data.label)
    sample = source.read(0, min(n_row, N_SAMPLE_ROW), used)
    types = {field.name: field.type for field in sample.schema}
    labels_of(sample.column(data.label), data.label, 0)
    n_eval = 0 if source.n_row is None else round(n_row * data.holdout)
    if n_eval >= n_row:
        raise InvalidValueError(
            f"holdout {data.holdout:g} leaves none of {n_row} rows to train on; use a smaller one"
        )
    features = FeatureSpec(
        label=data.label,
        numeric=tuple(scale_of(name, sample.column(name)) for name in numeric),
        categorical=_columns(categorical, sample, model),
        n_train=n_row - n_eval,
        n_eval=n_eval,
        is_stream=source.n_row is None,
        files=source.files if isinstance(source, FilesSource) else (),
        column_types=written_types(types, used) if isinstance(source, FilesSource) else "",
        trained_types=written_types(types, used),
    )
    return features, sample


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


def _chosen(data: DataSpec, kinds: Mapping[str, Kind]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the number columns and the categorical columns to use."""
    named = (data.label, *data.numeric, *data.categorical, *data.exclude)
    for column in named:
        _check_there(column, kinds, data)
    if data.numeric or data.categorical:
        chosen = data.numeric, data.categorical
    else:
        left_out = {data.label, *data.exclude}
        used = [(name, kind) for name, kind in kinds.items() if name not in left_out]
        chosen = (
            tuple(name for name, kind in used if kind is Kind.NUMERIC),
            tuple(name for name, kind in used if kind is Kind.CATEGORICAL),
        )
    _check_use(data, *chosen, kinds)
    return chosen


def _check_there(column: str, kinds: Mapping[str, Kind], data: DataSpec) -> None:
    if column in kinds:
        return
    near = difflib.get_close_matches(column, list(kinds)[:_MOST_COMPARED], n=1)
    hint = f"; did you mean {shown(near[0])}?" if near else ""
    raise NotFoundError(f"{data.place} has no column {shown(column)}{hint}; it has: {_listed(kinds)}")


def _listed(kinds: Mapping[str, Kind]) -> str:
    """Return the names of the first columns."""
    names = [name if name.isprintable() and 0 < len(name) <= MOST_SHOWN else shown(name) for name in kinds]
    text = ", ".join(names[:_MOST_LISTED])
    return text + (f", … ({len(names)} columns)" if len(names) > _MOST_LISTED else "")


def _check_use(
    data: DataSpec, numeric: tuple[str, ...], categorical: tuple[str, ...], kinds: Mapping[str, Kind]
) -> None:
    used = (*numeric, *categorical)
    if not used:
        raise InvalidValueError(
            f"{data.place} leaves no column to train on; name some in numeric or categorical"
        )
    twice, n = Counter((*used, data.label)).most_common(1)[0]
    if n > 1:
        raise InvalidValueError(
            f"column {shown(twice)} is named twice; use it once, and never the label as a feature"
        )
    for name in used:
        if kinds[name] is Kind.OTHER:
            raise InvalidValueError(
                f"column {shown(name)} holds lists or structures or no value, "
                "expected numbers or text; exclude it"
            )
    for name in numeric:
        if kinds[name] is not Kind.NUMERIC:
            raise InvalidValueError(f"column {shown(name)} holds no numbers; name it in categorical")
