"""How the command line prints a result: as text of the terminal's width, as rows for a pipe, or as JSON.

A hint is written once, for the notebook (`%dlrover show`); here it is said in the shell's words, with the
cluster that the call named, as the next call would go elsewhere without it. That is done to the blocks of a
view and not to the printed text, since verbatim lines (logs, an exported document) belong to others and stay
as they are.
"""

from __future__ import annotations

import codecs
import io
import re
import shlex
import shutil
import sys
import unicodedata
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TextIO, assert_never

from dlrover_nb.api.job import Job
from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.blocks import (
    Contents,
    Facts,
    Heading,
    Lead,
    Paragraph,
    StaticChart,
    Table,
    Verbatim,
    View,
    table_lines,
)

if TYPE_CHECKING:
    from dlrover_nb.widgets.blocks import Block
    from dlrover_nb.widgets.rows.tables import Tables

CLI = "dlrover-nb"
LEAST_WIDTH = 60  # of text; a narrower terminal breaks the lines itself
UNBROKEN = sys.maxsize  # width of text that goes to a file or a program: a row of a table is one line
CLUSTER_OF_HINTS = ContextVar("what --cluster of this call says; empty: it has none", default="")
WITHOUT_CLUSTER = ("connect", "server", "serve", "tokens", "users", "demo", "lab")  # verbs without it
_HINT = re.compile(r"%%?dlrover ([a-z][a-z-]*)")


def write_what_can_be(stream: TextIO) -> None:
    """Let a stream whose encoding lacks a character of ours write another one for it, and go on."""
    if isinstance(stream, io.TextIOWrapper) and not stream.closed:
        stream.reconfigure(errors=_NEAR)


def _near(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    alike = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()  # … is ..., é is e
    return _PLAIN.get(character) or alike or "?"


_NEAR = "dlrover_nb.near"
_PLAIN = {
    "≤": "<=",
    "≥": ">=",
    "\u00d7": "x",
    "\u2212": "-",
    "\u2013": "-",
    "±": "+-",
    "→": "->",
    "·": "-",
    "€": "EUR",
}
codecs.register_error(_NEAR, _near)


class Result(Protocol):
    """What a verb returns."""

    def view(self) -> View:
        """Return what is displayed."""
        ...

    def tables(self) -> Tables:
        """Return the same as data."""
        ...


def printed(result: Result, *, as_json: bool, width: int) -> str:
    """Return a result as it is printed, without the last line's end."""
    if isinstance(result, Job) and result.first is not None:
        result = result.first  # a job that was just submitted: its master may not answer yet
    if as_json:
        text = result.tables().json().decode()
        return text if isinstance(result, Shown) and result.is_verbatim else in_shell_words(text)
    if width == UNBROKEN and isinstance(result, Shown) and (listing := result.listing()) is not None:
        return "\n".join(line for table in _tables(listing) for line in _rows(table))
    return view_in_shell_words(result.view()).text(width)


def width_of(stream: TextIO) -> int:
    """Return how wide text may be: as the terminal, or as it likes where there is none."""
    return max(shutil.get_terminal_size().columns, LEAST_WIDTH) if stream.isatty() else UNBROKEN


def in_shell_words(text: str) -> str:
    """Return a text with its hints as they are typed in a shell."""
    word = CLUSTER_OF_HINTS.get()
    option = f" --cluster {shlex.quote(word)}" if word else ""
    return _HINT.sub(lambda hint: f"{CLI} {hint[1]}{'' if hint[1] in WITHOUT_CLUSTER else option}", text)


def view_in_shell_words(view: View) -> View:
    """Return a view with its hints as they are typed in a shell."""
    return View(view.title, tuple(map(_block_in_shell_words, view.blocks)))


def _block_in_shell_words(block: Block) -> Block:
    say = in_shell_words
    match block:
        case Paragraph():
            return replace(block, text=say(block.text), code=tuple(map(say, block.code)))
        case Lead():
            return replace(block, text=say(block.text), detail=say(block.detail))
        case Facts():
            return Facts(tuple((name, say(value)) for name, value in block.rows))
        case Table():
            return replace(
                block, rows=tuple(tuple(map(say, row)) for row in block.rows), note=say(block.note)
            )
        case StaticChart() | Heading() | Contents() | Verbatim():
            return block
        case _:
            assert_never(block)


def _tables(view: View) -> tuple[Table, ...]:
    return tuple(block for block in view.blocks if isinstance(block, Table))


def _rows(table: Table) -> list[str]:
    """Return the head of a table and one line for each row, as programs read them."""
    _, head, _, *rows = table_lines(replace(table, note=""), UNBROKEN)
    return [head, *rows]
