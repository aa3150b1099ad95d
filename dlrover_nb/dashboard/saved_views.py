"""Saved views of the list of jobs: filters and order under a name, each person's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.history.stores.notes import Note
from dlrover_nb.dashboard.jobs_board.filters import Wanted, wanted_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.history.stores.notes import NoteStore

KIND = "view"
MOST_NAME, MOST_VIEWS = 60, 50


@dataclass(frozen=True, slots=True)
class SavedView:
    """Filters and order under a name."""

    name: str
    wanted: Wanted


def saved_views(notes: NoteStore, person: str) -> tuple[SavedView, ...]:
    """Return the views of a person, by name."""
    return tuple(SavedView(note.name, wanted_from(note.text)) for note in notes.find(person, KIND))


def changed_views(notes: NoteStore, person: str, form: Mapping[str, str], at_s: float) -> str:
    """Save or drop the view that a form names; return what was done.

    Raises
    ------
    InvalidValueError
        When the name is empty or too long, or there are too many views.
    """
    name = " ".join(form.get("name", "").split())
    if not 0 < len(name) <= MOST_NAME:
        raise InvalidValueError(f"a view's name must have 1 to {MOST_NAME} letters, got {len(name)}")
    if form.get("do") == "drop":
        notes.drop(person, KIND, name)
        return f"The view {name} is removed."
    if len(notes.find(person, KIND)) >= MOST_VIEWS and not notes.find(person, KIND, name):
        raise InvalidValueError(f"at most {MOST_VIEWS} views can be saved; remove one first")
    notes.keep(Note(person, KIND, name, at_s, wanted_from(form.get("view", "")).address))
    return f"The view {name} is saved."
