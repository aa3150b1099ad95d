"""How the columns of the data become numbers: made once, the same on every node."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.file_rows import FileRows


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """A number column and how to scale it: (x - mean) / std of sign(x)*log1p(|x|)."""

    name: str
    mean: float
    std: float


@dataclass(frozen=True, slots=True)
class CategoricalColumn:
    """A column of ids and its place in the one embedding table: rows [offset, offset + hash_size).

    `hash_size` 0: an open column: every distinct value has its own row.
    """

    name: str
    offset: int
    hash_size: int

    @property
    def is_open(self) -> bool:
        """Whether ids are hashes of 63 bits and not rows of a fixed table."""
        return self.hash_size == 0


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """The encoding of rows as numbers; made once from the data, the same on every node.

    The number of rows of a stream (`is_stream`) is unknown: `n_train` is an estimate for planning. Rows are
    numbered over `files`; `column_types` is the Arrow schema in base64 that all of them are read with. Jobs
    before these fields have neither.
    """

    label: str
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    n_train: int
    n_eval: int
    is_stream: bool = False
    files: tuple[FileRows, ...] = ()
    column_types: str = ""

    @property
    def n_table_row(self) -> int:
        """Rows of the one embedding table that all categorical columns share; 0 when ids are hashed."""
        return sum(c.hash_size for c in self.categorical)
