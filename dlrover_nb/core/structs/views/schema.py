"""What a submit took of the user's data: columns, rows, and what looks like a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """What a column is used as."""

    LABEL = "label"
    NUMERIC = "number"
    CATEGORICAL = "ids"
    SEQUENCE = "lists of ids"


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """One column that is used.

    Parameters
    ----------
    type
        Name of its Arrow type, such as ``int64`` or ``string``.
    missing
        Share of missing values among the rows that were looked at; of a sequence, of empty lists.
    n_distinct
        Distinct values there; of a sequence, distinct items.
    """

    name: str
    use: Use
    type: str
    missing: float
    n_distinct: int


@dataclass(frozen=True, slots=True)
class DataSchema:
    """What a job trains on.

    Parameters
    ----------
    columns
        The label first, then those of features.
    unused
        Other columns of the data.
    n_row
        Rows of the data; None for a stream.
    n_train, n_eval
        Rows to train on, and rows kept for evaluation.
    n_first, n_spread
        Rows that were looked at: the first ones, and others spread evenly behind them.
    positive
        Share of label 1 among them.
    warnings
        What looks like a mistake, each one sentence with what to do.
    suggested
        Keys of the group ``data`` that follow the warnings, with their columns; empty without any.
    guesses
        What was decided by names and values of columns that no key names, and how to have it otherwise.
    """

    columns: tuple[ColumnSchema, ...]
    unused: tuple[str, ...]
    n_row: int | None
    n_train: int
    n_eval: int
    n_first: int
    n_spread: int
    positive: float
    warnings: tuple[str, ...] = ()
    suggested: tuple[tuple[str, tuple[str, ...]], ...] = ()
    guesses: tuple[str, ...] = ()
