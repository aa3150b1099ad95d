"""How the columns of the data become numbers: made once, the same on every node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.data.column_types import WrittenNumbers
from dlrover_nb.core.structs.data.file_rows import FileRows

MOST_ITEMS = 1 << 16  # of a row: what is longer is a slip, and a batch of it would not fit into memory


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """A number column and how to scale it: (x - mean) / std of sign(x)*log1p(|x|).

    `form` is how its numbers are written where they are text; None: of a job of an earlier release, for which
    ``12.5%`` is no number. `is_plain`: numbers are taken as they are, not scaled.
    """

    name: str
    mean: float
    std: float
    form: WrittenNumbers | None = None
    is_plain: bool = False


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
class SequenceSpec:
    """A column with a list of ids in each row, such as the items that a user has clicked, the newest last.

    Parameters
    ----------
    column
        Its name.
    length
        The most items of a row; of a longer list the last ones are taken.
    separator
        What stands between the items where a row is text.
    embedding_of
        The column of ids whose embeddings the items have; empty: those of their own.
    """

    column: str
    length: int = 50
    separator: str = "|"
    embedding_of: str = ""

    def __post_init__(self) -> None:
        _check.within("length", self.length, 1, MOST_ITEMS)
        if not self.separator:
            raise InvalidValueError('separator must be text such as "|", got none')
        if self.embedding_of == self.column:
            raise InvalidValueError(
                f"embedding_of of {self.column} must be another column of ids; leave it out for embeddings "
                "of its own"
            )


@dataclass(frozen=True, slots=True)
class CategoricalColumn:
    """A column of ids and its place in the one embedding table: rows [offset, offset + hash_size).

    `hash_size` 0: an open column: every distinct value has its own row. `form` None: of a job of an earlier
    release, for which a text such as "NA" is no missing value. `sequence` None: one id in each row; else
    `n_item` are the items of a row, on average in the sample. `is_plain`: values are whole numbers below
    `hash_size`, nothing is hashed, and columns whose rows overlap share a table.
    """

    name: str
    offset: int
    hash_size: int
    form: TextForm | None = None
    sequence: SequenceSpec | None = None
    n_item: float = 1.0
    is_plain: bool = False

    @property
    def is_open(self) -> bool:
        """Whether ids are hashes of 63 bits and not rows of a fixed table."""
        return self.hash_size == 0

    @property
    def table(self) -> str:
        """The column whose embeddings these are: itself, unless its sequence has those of another."""
        return (self.sequence.embedding_of if self.sequence else "") or self.name

    @property
    def n_slot(self) -> int:
        """Ids of a row, with the padding of a sequence."""
        return self.sequence.length if self.sequence else 1


@dataclass(frozen=True, slots=True)
class SequenceInput:
    """A sequence as an input of a model.

    Parameters
    ----------
    name
        Of its column.
    place
        Where its bag stands among the columns of ids.
    length
        Items of a row, with padding.
    target
        Where the column of single ids stands whose embeddings the items have; None: they have their own.
    """

    name: str
    place: int
    length: int
    target: int | None = None


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
        if self.has_plain_ids:
            return max(c.offset + c.hash_size for c in self.categorical)
        return sum(c.hash_size for c in self.categorical if c.table == c.name)

    @property
    def has_plain_ids(self) -> bool:
        """Whether ids are those of the user's own module, which gets them beside the numbers of a row."""
        return any(c.is_plain for c in self.categorical)

    @property
    def n_lookup(self) -> int:
        """Ids that a row looks up, on average: padding is never looked up."""
        return round(sum(c.n_item for c in self.categorical))

    @property
    def sequences(self) -> tuple[SequenceInput, ...]:
        """The sequences among the columns of ids."""
        single = {c.name: i for i, c in enumerate(self.categorical) if c.sequence is None}
        return tuple(
            SequenceInput(c.name, i, c.n_slot, single.get(c.table))
            for i, c in enumerate(self.categorical)
            if c.sequence is not None
        )
