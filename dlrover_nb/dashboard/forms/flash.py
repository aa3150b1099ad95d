"""Lines that a page shows once, after a form was sent: kept for the person, named by a token in the address.

The text itself is not in the address: a link that another person made could then put words of theirs into our
page. It is in the database and not in this process, so that every process of the server can answer next.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import BackendError, WireError
from dlrover_nb.core.history.stores.notes import Note
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets.blocks import Paragraph, Tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from dlrover_nb.core.history.stores.notes import NoteStore
    from dlrover_nb.dashboard.page import Visit

KIND = "flash"


@dataclass(frozen=True, slots=True)
class Flash:
    """One line, with the kind of its paragraph.

    `form` is what the form held that was refused, by its fields: its page fills it in again, so that one
    wrong number does not cost the others. It is kept here, since an address is too short for it.
    """

    tone: Tone
    words: str
    form: tuple[tuple[str, str], ...] = ()

    @property
    def block(self) -> Paragraph:
        """The line as it is shown."""
        return Paragraph(self.words, self.tone)


def keep_flash(notes: NoteStore, person: str, lines: Sequence[Flash], at_s: float) -> str:
    """Keep lines for the next page of a person; return the token for its address."""
    token = secrets.token_urlsafe(12)
    notes.keep(Note(person, KIND, token, at_s, to_json(tuple(lines)).decode()))
    return token


def take_flash(notes: NoteStore, person: str, token: str) -> tuple[Flash, ...]:
    """Return the lines of a token, once; none where it is not that person's, or was shown."""
    saved = notes.find(person, KIND, token) if token else ()
    with suppress(BackendError):  # a database that takes nothing now: better told twice than never
        for note in saved:
            notes.drop(person, KIND, note.name)
    try:
        return tuple(line for note in saved for line in from_json(note.text, tuple[Flash, ...]))
    except WireError:  # of another release
        return ()


def flash_html(visit: Visit) -> Markup:
    """Return what became of the form that led to this page, as its news; empty: none did."""
    return lines_html(flash_of(visit))


def flash_of(visit: Visit) -> tuple[Flash, ...]:
    """Take the lines that the address of a page names."""
    return take_flash(visit.team.notes, visit.person.name, visit.query.get("flash", ""))


def lines_html(lines: Sequence[Flash]) -> Markup:
    """Return lines as the news of a page; empty: there are none."""
    return render("flash.html", lines=[line.block for line in lines])
