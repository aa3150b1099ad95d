"""A view as data: paragraphs, facts, tables and charts, written once and rendered as text and as HTML.

Both renderings use the same strings, so a terminal shows the same numbers as a notebook. The HTML is
self-contained: no script, no style sheet (GitHub strips both), no request. Styles are inline, on a card with
its own color, because a notebook's dark theme would otherwise paint dark text on dark rows.
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets.units import NO_BREAK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TEXT_WIDTH = 100
EMPTY = "nothing yet"  # text of a table without rows
_GAP = 2
_NUMBER = re.compile(r"[-+]?[\d.,]+(-[\d.,]+)?( \S{1,10})?|-")

_CARD = (
    "background:#fff;color:#1a1a1a;border:1px solid #d0d7de;border-radius:6px;padding:12px 16px;"
    "font:13px/1.45 system-ui,sans-serif;max-width:980px"
)
_CELL = "padding:2px 10px 2px 0;border:0;vertical-align:top;"
_ROW = "background:#fff;color:#1a1a1a"  # a notebook's style sheet paints rows, not cells


class Tone(StrEnum):
    """Kind of a paragraph; shown by text and a border, never by color alone."""

    PLAIN = ""
    HINT = "Hint"
    NEWS = "Now"
    EXPLORE = "EXPLORE"
    WARNING = "Warning"


_TONE_COLOR = {
    Tone.PLAIN: "#fff",
    Tone.HINT: "#0072B2",
    Tone.NEWS: "#009E73",
    Tone.EXPLORE: "#CC79A7",
    Tone.WARNING: "#D55E00",
}


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or two, followed by `code` as a command."""

    text: str
    tone: Tone = Tone.PLAIN
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length under a head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.head) for row in self.rows), self.title


@dataclass(frozen=True, slots=True)
class StaticChart:
    """A static chart and the table of the same numbers."""

    svg: str
    data_table: Table


@dataclass(frozen=True, slots=True)
class Heading:
    """Start of a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Verbatim lines: a file, a log."""

    text: str


Block = Paragraph | Facts | Table | StaticChart | Heading | Verbatim


@dataclass(frozen=True, slots=True)
class View:
    """A titled list of blocks."""

    title: str
    blocks: tuple[Block, ...]

    def html(self) -> str:
        """Return one self-contained piece of HTML."""
        body = "".join(map(block_html, self.blocks))
        title = f'<div style="font-weight:600;font-size:15px;margin-bottom:4px">{escape(self.title)}</div>'
        return f'<div class="dlrover-card" style="{_CARD}">{title}{body}</div>'

    def text(self) -> str:
        """Return plain text, at most `TEXT_WIDTH` wide except where it is verbatim."""
        lines = [*textwrap.wrap(self.title, TEXT_WIDTH), "=" * min(len(self.title), TEXT_WIDTH)]
        for block in self.blocks:
            lines.extend(_block_lines(block))
        return "\n".join(lines)

    def mimebundle(self) -> dict[str, str]:
        """Return what `_repr_mimebundle_` returns."""
        return {"text/plain": self.text(), "text/html": self.html()}


def escape(text: object) -> str:
    """Return text escaped for elements and attributes."""
    return html.escape(str(text), quote=True)


def block_html(block: Block) -> str:
    """Return one block as HTML."""
    match block:
        case Paragraph():
            return _paragraph_html(block)
        case Facts():
            return _facts_html(block)
        case Table():
            return table_html(block)
        case StaticChart():
            return _picture_html(block)
        case Heading():
            return f'<h3 style="margin:14px 0 4px;font-size:14px;color:#1a1a1a">{escape(block.text)}</h3>'
        case Verbatim():
            return (
                '<pre style="margin:4px 0;padding:8px;background:#f6f8fa;color:#1a1a1a;overflow:auto;'
                f'max-height:420px;white-space:pre-wrap;overflow-wrap:anywhere">{escape(block.text)}</pre>'
            )
        case _:
            assert_never(block)


def _paragraph_html(block: Paragraph) -> str:
    color = _TONE_COLOR[block.tone]
    edge = f"border-left:4px solid {color};padding-left:8px;" if block.tone else ""
    lead = f"<strong>{escape(block.tone)}</strong> " if block.tone else ""
    code = "".join(
        '<br><code style="background:#f6f8fa;color:#1a1a1a;padding:1px 4px;user-select:all">'
        f"{escape(c)}</code>"
        for c in block.code
    )
    return f'<p style="margin:6px 0;{edge}">{lead}{escape(block.text)}{code}</p>'


def _facts_html(block: Facts) -> str:
    rows = "".join(
        f'<tr style="{_ROW}"><th scope="row" style="{_CELL}text-align:left;font-weight:600;'
        f'white-space:nowrap">{escape(name)}</th><td style="{_CELL}text-align:left">{escape(value)}</td></tr>'
        for name, value in block.rows
    )
    return f'<table style="border-collapse:collapse;font:inherit;margin:4px 0;background:#fff">{rows}</table>'


def table_html(table: Table) -> str:
    """Return a table with its caption, numbers to the right."""
    right = _right_columns(table)
    head = "".join(
        f'<th scope="col" style="{_CELL}border-bottom:1px solid #8c959f;text-align:{_side(right[i])}">'
        f"{escape(name)}</th>"
        for i, name in enumerate(table.head)
    )
    rows = "".join(_row_html(row, right) for row in table.rows) or _empty_html(len(table.head))
    note = f'<p style="margin:2px 0 6px;color:#57606a">{escape(table.note)}</p>' if table.note else ""
    return (
        '<div style="overflow-x:auto">'
        '<table style="border-collapse:collapse;font:inherit;margin:8px 0 4px;background:#fff">'
        '<caption style="caption-side:top;text-align:left;font-weight:600;color:#1a1a1a;padding:0">'
        f'{escape(table.title)}</caption><thead><tr style="{_ROW}">{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _empty_html(n_column: int) -> str:
    return f'<tr style="{_ROW}"><td colspan="{n_column}" style="{_CELL}color:#57606a">{EMPTY}</td></tr>'


def _row_html(row: Sequence[str], right: Sequence[bool]) -> str:
    cells = "".join(
        f'<td style="{_CELL}text-align:{_side(right[i])}">{escape(cell)}</td>' for i, cell in enumerate(row)
    )
    return f'<tr style="{_ROW}">{cells}</tr>'


def _side(right: bool) -> str:  # noqa: FBT001 - its one meaning is its name
    return "right" if right else "left"


def _picture_html(block: StaticChart) -> str:
    return (
        f'<div style="margin:8px 0;overflow-x:auto">{block.svg}</div>'
        '<details style="margin:0 0 8px"><summary style="cursor:pointer;color:#57606a">'
        f"Numbers: {escape(block.data_table.title)}</summary>{table_html(block.data_table)}</details>"
    )


def _right_columns(table: Table) -> list[bool]:
    columns = zip(*table.rows, strict=True) if table.rows else ([] for _ in table.head)
    return [all(_NUMBER.fullmatch(cell) for cell in column) and bool(column) for column in columns]


# text


def _block_lines(block: Block) -> list[str]:
    match block:
        case Paragraph():
            return _paragraph_lines(block)
        case Facts():
            return _facts_lines(block)
        case Table():
            return ["", *table_lines(block)]
        case StaticChart():
            return ["", *table_lines(block.data_table)]
        case Heading():
            return ["", block.text, "-" * len(block.text)]
        case Verbatim():
            return ["", *block.text.splitlines()]
        case _:
            assert_never(block)


def _paragraph_lines(block: Paragraph) -> list[str]:
    text = f"{block.tone}: {block.text}" if block.tone else block.text
    return [*textwrap.wrap(text, TEXT_WIDTH, break_on_hyphens=False), *(f"    {c}" for c in block.code)]


def _facts_lines(block: Facts) -> list[str]:
    width = max((len(name) for name, _ in block.rows), default=0) + _GAP
    lines = []
    for name, value in block.rows:
        first, *rest = textwrap.wrap(value, TEXT_WIDTH - width, break_on_hyphens=False) or [""]
        lines.append(f"{name:<{width}}{first}".rstrip())
        lines.extend(" " * width + line for line in rest)
    return lines


def table_lines(table: Table) -> list[str]:
    """Return a table as lines: columns fitted to the width, long cells wrapped."""
    if not table.rows:
        return [f"{table.title}: {EMPTY}", *(textwrap.wrap(table.note, TEXT_WIDTH) if table.note else ())]
    widths = _fit_widths(table)
    right = _right_columns(table)
    note = textwrap.wrap(table.note, TEXT_WIDTH) if table.note else []
    rule = ["-" * w for w in widths]
    body = [line for row in (table.head, rule, *table.rows) for line in _row_lines(row, widths, right)]
    return [table.title, *body, *note]


def _fit_widths(table: Table) -> list[int]:
    """Shrink the widest columns until the table fits."""
    rows = (table.head, *table.rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.head))]
    least = [
        max(len(word) for row in rows for word in (row[i] or "x").split(" ")) for i in range(len(widths))
    ]
    room = TEXT_WIDTH - _GAP * (len(widths) - 1)
    while sum(widths) > room:
        slack = [w - min(m, w) for w, m in zip(widths, least, strict=True)]
        if not any(slack):
            break
        at = max(range(len(widths)), key=lambda i: (slack[i] > 0, widths[i]))
        widths[at] -= 1
    return widths


def _row_lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterable[str]:
    cells = [
        textwrap.wrap(cell, max(w, 1), break_on_hyphens=False) or [""]
        for cell, w in zip(row, widths, strict=True)
    ]
    for at in range(max(map(len, cells))):
        parts = [cell[at] if at < len(cell) else "" for cell in cells]
        yield (
            (" " * _GAP)
            .join(
                f"{part:>{w}}" if r else f"{part:<{w}}"
                for part, w, r in zip(parts, widths, right, strict=True)
            )
            .replace(NO_BREAK, " ")
            .rstrip()
        )
