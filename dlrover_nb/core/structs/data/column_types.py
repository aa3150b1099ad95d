"""Types that a user gives to single columns, and how numbers are written as text.

``data.types`` types the columns that it names and leaves all others as they are, where ``data.numeric`` and
``data.categorical`` name all columns to use. A job keeps it as texts COLUMN=TYPE, as it keeps all mappings.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", " ", "'")
TAB = "\t"


class ColumnType(StrEnum):
    """What a user says that a column is."""

    NUMBER = "number"  # also where it is text: 12,50 or 12.5% or $3
    CATEGORY = "category"  # ids, as they are written
    TIME = "time"  # a moment, used as one number


@dataclass(frozen=True, slots=True)
class WrittenNumbers:
    """How numbers are written in columns of text: their decimal mark, and what separates thousands."""

    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        if self.decimal not in DECIMALS:
            raise InvalidValueError(f"decimal must be '.' or ',', got {shown(self.decimal)}")
        if self.thousands not in THOUSANDS:
            raise InvalidValueError(
                f"thousands must be one of {', '.join(map(repr, filter(None, THOUSANDS)))}, "
                f"got {shown(self.thousands)}; leave it out where nothing separates them"
            )
        if self.decimal == self.thousands:
            raise InvalidValueError(
                f"decimal and thousands must differ, got {self.decimal!r} for both; set the other one too"
            )

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as programs write them."""
        return self.decimal == "." and not self.thousands

    @property
    def words(self) -> str:
        """The form as a person reads it."""
        return f"decimal {self.decimal!r}" + (f" and thousands {self.thousands!r}" if self.thousands else "")


PLAIN = WrittenNumbers()


def column_types(pairs: Sequence[str]) -> Mapping[str, ColumnType]:
    """Return the types of columns that texts COLUMN=TYPE give.

    Raises
    ------
    InvalidValueError
        For a text of another form, an unknown type, or a column that has two.
    """
    types: dict[str, ColumnType] = {}
    for pair in pairs:
        name, mark, word = pair.rpartition("=")
        if not mark or word not in set(ColumnType):
            raise InvalidValueError(
                f"types must give columns one of {', '.join(ColumnType)}, such as price: number, "
                f"got {shown(pair)}"
            )
        if types.get(name, word) != word:
            raise InvalidValueError(f"types name column {shown(name)} twice; leave one of them out")
        types[name] = ColumnType(word)
    return types


def check_separator(separator: str) -> None:
    """Refuse what cannot separate the fields of a text file."""
    is_one = len(separator) == 1 and separator.isascii() and (separator == TAB or separator.isprintable())
    if separator and (not is_one or separator == '"' or separator.isalnum()):
        raise InvalidValueError(
            f"separator must be one mark such as ';' or a tab, got {shown(separator)}; leave it out to find "
            "it in the header"
        )
