"""What columns are that no key names: likely ids are ids, dates and row numbers are left out.

The type of a column does not tell: ids of 10^9 and the second of a click are whole numbers, and a model that
takes them as such learns next to nothing, or the order of the rows. So names and values are looked at too. A
guess is only made where it is hardly ever wrong (a name of ids with whole numbers, the type or the form of a
date, each number of a row once), is said before the job starts, and says how to have it otherwise. What is
less certain (another whole number in nearly every row) stays a number, and is asked about.

Counts such as Criteo's integers have none of these names and stay numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.data.column_types import ColumnType
from dlrover_nb.core.structs.views.schema import Use

if TYPE_CHECKING:
    from dlrover_nb.core.data.selection.value_evidence import ColumnValues

_PARTS = "hour and weekday derived from it are of more use"
_SIMPLE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Guess:
    """What a column is by its name and values, and not by its type.

    Parameters
    ----------
    use
        Its better use; None: none.
    reason, as_it_was
        Why, and what it is without the guess.
    otherwise
        Its type in ``data.types`` that goes against the guess.
    is_time
        Whether it holds moments, which are of use in parts.
    """

    column: str
    use: Use | None
    reason: str
    as_it_was: str
    otherwise: ColumnType
    is_time: bool = False

    @property
    def followed(self) -> str:
        """What was done, and how to have it otherwise."""
        done = "left out" if self.use is None else "taken as ids"
        return f"column {self.column!r} {self.reason}, so it is {done}; {self._other}"

    @property
    def _other(self) -> str:
        word = "a number" if self.otherwise is not ColumnType.CATEGORY else "ids"
        parts = f"{_PARTS}, and " if self.is_time else ""
        return f"{parts}{typed(self.column, self.otherwise)} takes it as {word}"

    @property
    def advice(self) -> str:
        """What is said of it where it was not followed."""
        ids = f"{typed(self.column, ColumnType.CATEGORY)} makes it ids"
        better = "exclude it" if self.use is None else ids
        parts = ", or derive hour and weekday from it" if self.is_time else ""
        return f"column {self.column!r} {self.reason}, {self.as_it_was}; {better}{parts}"


def typed(column: str, kind: ColumnType) -> str:
    """Return the key of a job file that types one column."""
    name = column if _SIMPLE.fullmatch(column) else repr(column)
    return f"types: {{{name}: {kind}}}"


def guess(column: ColumnValues, use: Use, n_row: int | None) -> Guess | None:
    """Return what a column is by its name and values; None where its type says as much.

    Parameters
    ----------
    use
        What it is by its type.
    n_row
        Rows of all data; None: a stream.
    """
    is_of_ids = use is Use.SEQUENCE or (use is Use.CATEGORICAL and not column.is_time_as_text)
    if not column.n_there or is_of_ids:
        return None
    if use is Use.CATEGORICAL:
        as_it_was = "each an id of its own"
        return Guess(column.name, None, "holds times as text", as_it_was, ColumnType.CATEGORY, is_time=True)
    if column.is_time:
        as_it_was = "taken as one number"
        return Guess(column.name, None, "holds times", as_it_was, ColumnType.NUMBER, is_time=True)
    if column.is_row_index(n_row):
        reason = "counts the rows" if column.counts else "numbers the rows"
        return Guess(column.name, None, reason, "taken as a number", ColumnType.NUMBER)
    if column.is_named_as_ids:
        return Guess(column.name, Use.CATEGORICAL, "looks like ids", "taken as numbers", ColumnType.NUMBER)
    return None


def question(column: ColumnValues, use: Use, n_row: int | None) -> Guess | None:
    """Return what a column may be, where that is too uncertain to be done unasked."""
    if use is not Use.NUMERIC or guess(column, use, n_row) is not None or not column.n_there:
        return None
    if column.is_rounded:
        reason = "holds whole numbers from 2^53 on, as ids have them"
        return Guess(column.name, Use.CATEGORICAL, reason, "rounded as numbers", ColumnType.NUMBER)
    if not column.is_ever_new:
        return None
    if column.is_permutation(n_row):
        reason = "holds each number up to that of the rows once"
        return Guess(column.name, None, reason, "taken as a number", ColumnType.NUMBER)
    reason = "looks like ids, another in nearly every row"
    return Guess(column.name, Use.CATEGORICAL, reason, "taken as numbers", ColumnType.NUMBER)
