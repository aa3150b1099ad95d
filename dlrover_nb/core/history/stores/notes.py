"""`NoteStore`: what people keep for themselves in the history's database, such as saved views of a page."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select

from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.tables import notes


@dataclass(frozen=True, slots=True)
class Note:
    """One note: `kind` and `name` identify it among those of a person, `text` is its content."""

    person: str
    kind: str
    name: str
    at_s: float
    text: str


class NoteStore(Store):
    """Notes of people."""

    def keep(self, note: Note) -> None:
        """Write a note, over one of the same person, kind and name."""
        row = {
            "person": note.person[:128],
            "kind": note.kind[:16],
            "name": note.name[:128],
            "at_s": note.at_s,
            "record": note.text,
        }
        self._database.upsert(notes, row, update=True)

    def find(self, person: str, kind: str, name: str | None = None) -> tuple[Note, ...]:
        """Return notes of a person, by name; all of a kind where no name is given."""
        wanted = select(notes).where(notes.c.person == person[:128], notes.c.kind == kind)
        if name is not None:
            wanted = wanted.where(notes.c.name == name[:128])
        rows = self._database.rows(wanted.order_by(notes.c.name))
        return tuple(Note(each.person, each.kind, each.name, each.at_s, each.record) for each in rows)

    def drop(self, person: str, kind: str, name: str) -> None:
        """Remove a note, if it is there."""
        mine = (notes.c.person == person[:128]) & (notes.c.kind == kind) & (notes.c.name == name[:128])
        with self._database.writing() as connection:
            connection.execute(delete(notes).where(mine))
