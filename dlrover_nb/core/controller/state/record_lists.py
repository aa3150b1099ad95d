"""The newest decisions, proposals and outcomes of a job: what views show and later decisions depend on.

A job that runs for months decides without an end, and each view and each snapshot holds all that is kept. So
the newest thousand are kept, as lines of the story are; the history has all. Numbers go on from the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

N_NEWEST = 1000

RecordT = TypeVar("RecordT")


def append(records: list[RecordT], new: RecordT) -> None:
    """Add to a list; the oldest record leaves where there are too many."""
    records.append(new)
    del records[:-N_NEWEST]


def next_id(letter: str, ids: Iterable[str]) -> str:
    """Return the id after the last of these, such as d1 where there is none."""
    *_, last = ("", *ids)
    return f"{letter}{int(last[1:] or 0) + 1}"
