"""How the columns of the data become numbers: made once, the same on every node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.structs.column_types import WrittenNumbers
from dlrover_nb.core.structs.file_rows import FileRows


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """A number column and how to scale it: (x - mean) / std of sign(x)*log1p(|x|).

    `form` is how its numbers are written where they are text; None: of a job of an earlier release, for which
    ``12.5%`` is no number.
    """

    name: str
    mean: float
    std: float
    form: WrittenNumbers | None = None


class NumberForm(StrEnum):
    """How numbers are written in a column of text."""

    PLAIN = "plain"  # 12, 1.5
    POINT = "point"  # 12.0, 1.5: as a column of whole numbers where some are missing
    UNKNOWN = ""  # there were none, or in several forms or another one: 007, 1e3


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a column of text has what other files have as numbers and truth values.

    `booleans` is how true is written there; empty: it is not.
    """

    numbers: NumberForm = NumberForm.UNKNOWN
    booleans: str = ""


@dataclass(frozen=True, slots=True)
class CategoricalColumn:
    """A column of ids and its place in the one embedding table: rows [offset, offset + hash_size).

    `hash_size` 0: an open column: every distinct value has its own row. `form` None: of a job of an earlier
    release, for which a text such as "NA" is no missing value.
    """

    name: str
    offset: int
    hash_size: int
    form: TextForm | None = None

    @property
    def is_open(self) -> bool:
        """Whether ids are hashes of 63 bits and not rows of a fixed table."""
        return self.hash_size == 0


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """The encoding of rows as numbers; made once from the data, the same on every node.

    The number of rows of a stream (`is_stream`) is unknown: `n_train` is an estimate for planning. Rows are
    numbered over `files`; `column_types` is the Arrow schema in base64 that all of them are read with, and
    `trained_types` that of the values which parameters were trained with: another one in a job that goes on
    with parameters of earlier data. Jobs before these fields have none.
    """

    label: str
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    n_train: int
    n_eval: int
    is_stream: bool = False
    files: tuple[FileRows, ...] = ()
    column_types: str = ""
    trained_types: str = ""

    @property
    def n_table_row(self) -> int:
        """Rows of the one embedding table that all categorical columns share; 0 when ids are hashed."""
        return sum(c.hash_size for c in self.categorical)
