"""A view as data: paragraphs, facts, tables and charts, written once and rendered as text and as HTML.

Both renderings use the same strings, so a terminal shows the same numbers as a notebook. The HTML is
self-contained: no script, no style sheet (GitHub strips both), no request. Styles are inline, on a card in
the colors of the page (`theme`).
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets import theme
from dlrover_nb.widgets.said_once import said_once
from dlrover_nb.widgets.units import NO_BREAK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TEXT_WIDTH = 100
EMPTY = "nothing yet"  # text of a table without rows
_GAP = 2
_NUMBER = re.compile(r"[-+]?[\d.,]+(-[\d.,]+)?( \S{1,10})?|-")

_CARD = (
    f"{theme.INLINE};background:{theme.BG};color:{theme.INK};border:1px solid {theme.EDGE};border-radius:6px;"
    "padding:12px 16px;font:13px/1.45 system-ui,sans-serif;max-width:980px;box-sizing:border-box"
)
_LONG_NAME = re.compile(r"\w{25,}")
_CELL = "padding:2px 10px 2px 0;border:0;vertical-align:top;"
_CODE = f"background:{theme.SURFACE};color:{theme.INK}"
_TABLE = f"border-collapse:collapse;font:inherit;background:{theme.BG}"
_ROW = f"background:{theme.BG};color:{theme.INK}"  # a notebook's style sheet paints rows, not cells


class Tone(StrEnum):
    """Kind of a paragraph; shown by text and a border, never by color alone."""

    PLAIN = ""
    HINT = "Hint"
    NEWS = "Now"
    WARNING = "Warning"
    FAILED = "Failed"


_TONE_COLOR = {
    Tone.PLAIN: theme.BG,
    Tone.HINT: "#0072B2",
    Tone.NEWS: "#009E73",
    Tone.WARNING: "#D55E00",
    Tone.FAILED: "#D55E00",
}


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or two, followed by `code` as a command, and by the address `link` of another page."""

    text: str
    tone: Tone = Tone.PLAIN
    code: tuple[str, ...] = ()
    link: str = ""

    def __post_init__(self) -> None:
        assert not self.link or self.link.startswith(("http://", "https://", "/")), self.link


@dataclass(frozen=True, slots=True)
class Lead:
    """The sentence that a view begins with, and a line below it: why, and at what price."""

    text: str
    detail: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length under a head.

    `brief` are the places of the rows that plain text shows, where all of them would be a wall of numbers;
    None: all. A page has room for all, as it scrolls and folds.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    brief: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.head) for row in self.rows), self.title

    @property
    def shortened(self) -> Table:
        """The table as plain text shows it."""
        if self.brief is None or len(self.brief) == len(self.rows):
            return self
        n_more = len(self.rows) - len(self.brief)
        note = f"{self.note} {n_more:,} more rows: see --json or to_frame().".strip()
        return replace(self, rows=tuple(self.rows[i] for i in self.brief), note=note, brief=None)


@dataclass(frozen=True, slots=True)
class StaticChart:
    """A static chart and the table of the same numbers."""

    svg: str
    data_table: Table


@dataclass(frozen=True, slots=True)
class Heading:
    """Start of a part; with an `anchor`, a place that `Contents` leads to."""

    text: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """Links to the parts of a long page; plain text, which is read from above, has none."""

    headings: tuple[Heading, ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Verbatim lines: a file, a log."""

    text: str


Block = Lead | Paragraph | Facts | Table | StaticChart | Heading | Contents | Verbatim


@dataclass(frozen=True, slots=True)
class View:
    """A titled list of blocks."""

    title: str
    blocks: tuple[Block, ...]

    def html(self, *, level: int = 2) -> str:
        """Return one self-contained piece of HTML; its title is a heading of this level."""
        body = "".join(block_html(block, level=level + 1) for block in self._blocks)
        title = (  # no h2: a notebook would give it the look and the room of a chapter
            f'<div role="heading" aria-level="{level}" style="font-weight:600;font-size:15px;'
            f'margin-bottom:4px">{escape(self.title)}</div>'
        )
        return f'<div class="dlrover-card" style="{_CARD}">{title}{body}</div>'

    def text(self, width: int = TEXT_WIDTH) -> str:
        """Return plain text, at most `width` wide except where it is verbatim."""
        lines = [*textwrap.wrap(self.title, width), "=" * min(len(self.title), width)]
        blocks = self._blocks
        for before, block in zip((None, *blocks), blocks, strict=False):
            if isinstance(before, Lead | Table | StaticChart) and isinstance(block, Facts | Paragraph):
                lines.append("")
            lines.extend(_block_lines(block, width))
        return "\n".join(lines)

    @property
    def _blocks(self) -> tuple[Block, ...]:
        return tuple(said_once(self.blocks, Verbatim))

    def mimebundle(self) -> dict[str, str]:
        """Return what `_repr_mimebundle_` returns."""
        return {"text/plain": self.text(), "text/html": self.html()}


def escape(text: object) -> str:
    """Return text escaped for elements and attributes."""
    return html.escape(str(text), quote=True)


def block_html(block: Block, *, level: int = 3) -> str:
    """Return one block as HTML; a heading is of this level."""
    match block:
        case Lead() | Paragraph():
            return lead_html(block) if isinstance(block, Lead) else _paragraph_html(block)
        case Facts():
            return _facts_html(block)
        case Table():
            return table_html(block)
        case StaticChart():
            return _picture_html(block)
        case Heading() | Contents():
            return _heading_html(block, level) if isinstance(block, Heading) else _contents_html(block)
        case Verbatim():
            return (
                f'<pre tabindex="0" style="margin:4px 0;padding:8px;{_CODE};overflow:auto;'
                f'max-height:420px;white-space:pre-wrap;overflow-wrap:anywhere">{escape(block.text)}</pre>'
            )
        case _:
            assert_never(block)


def _heading_html(block: Heading, level: int) -> str:
    place = f' id="{escape(block.anchor)}"' if block.anchor else ""
    return f'<h{level}{place} style="margin:14px 0 4px;font-size:14px">{escape(block.text)}</h{level}>'


def _contents_html(block: Contents) -> str:
    links = "".join(f'<li><a href="#{escape(h.anchor)}">{escape(h.text)}</a></li>' for h in block.headings)
    return f'<nav aria-label="Contents"><ul style="margin:6px 0;padding-left:20px">{links}</ul></nav>'


def lead_html(lead: Lead) -> str:
    """Return the sentence of a view, larger than all else, with the line below it."""
    edge = f"border-left:4px solid {_TONE_COLOR[lead.tone]};padding-left:10px" if lead.tone else ""
    detail = f'<p style="margin:2px 0 0;color:{theme.MUTED}">{escape(lead.detail)}</p>' if lead.detail else ""
    return (
        f'<div style="margin:8px 0 10px;{edge}"><p style="margin:0;font-size:17px;line-height:1.35;'
        f'font-weight:600">{escape(lead.text)}</p>{detail}</div>'
    )


def _paragraph_html(block: Paragraph) -> str:
    color = _TONE_COLOR[block.tone]
    edge = f"border-left:4px solid {color};padding-left:8px;" if block.tone else ""
    lead = f"<strong>{escape(block.tone)}</strong> " if block.tone else ""
    code = "".join(
        f'<br><code style="{_CODE};padding:1px 4px;user-select:all">{escape(c)}</code>' for c in block.code
    )
    link = _link_html(block.link) if block.link else ""
    return f'<p style="margin:6px 0;{edge}">{lead}{escape(block.text)}{link}{code}</p>'


def _link_html(address: str) -> str:
    return f' <a href="{escape(address)}" target="_blank" rel="noopener">{escape(address)}</a>'


def _facts_html(block: Facts) -> str:
    rows = "".join(
        f'<tr style="{_ROW}">{_fact_name_html(name)}'
        f'<td style="{_CELL}text-align:left;overflow-wrap:anywhere">{escape(value)}</td></tr>'
        for name, value in block.rows
    )
    return f'<table style="{_TABLE};margin:4px 0">{rows}</table>'


def _fact_name_html(name: str) -> str:
    """Return the name of a fact; a further value of the one above has none, and no empty heading."""
    style = f"{_CELL}text-align:left;font-weight:600;white-space:nowrap"
    return f'<th scope="row" style="{style}">{escape(name)}</th>' if name else f'<td style="{style}"></td>'


def table_html(table: Table) -> str:
    """Return a table with its caption, numbers to the right."""
    right = _right_columns(table)
    head = "".join(_head_html(name, _side(right[i])) for i, name in enumerate(table.head))
    rows = "".join(_row_html(row, right) for row in table.rows) or _empty_html(len(table.head))
    note = f'<p style="margin:2px 0 6px;color:{theme.MUTED}">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div tabindex="0" role="group" aria-label="{escape(table.title)}" style="overflow-x:auto">'
        f'<table style="{_TABLE};margin:8px 0 4px">'
        f'<caption style="caption-side:top;text-align:left;font-weight:600;color:{theme.INK};padding:0">'
        f'{escape(table.title)}</caption><thead><tr style="{_ROW}">{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _head_html(name: str, side: str) -> str:
    style = f"{_CELL}border-bottom:1px solid {theme.EDGE};text-align:{side}"
    return f'<th scope="col" style="{style}">{escape(name)}</th>' if name else f'<td style="{style}"></td>'


def _empty_html(n_column: int) -> str:
    return f'<tr style="{_ROW}"><td colspan="{n_column}" style="{_CELL}color:{theme.MUTED}">{EMPTY}</td></tr>'


def _row_html(row: Sequence[str], right: Sequence[bool]) -> str:
    cells = "".join(
        f'<td style="{_CELL}text-align:{_side(right[i])}">{_breakable(escape(cell))}</td>'
        for i, cell in enumerate(row)
    )
    return f'<tr style="{_ROW}">{cells}</tr>'


def _breakable(text: str) -> str:
    """Let a long name break between its words: else it moves the other columns out of a narrow page."""
    return _LONG_NAME.sub(lambda match: match[0].replace("_", "_<wbr>"), text)


def _side(right: bool) -> str:  # noqa: FBT001 - its one meaning is its name
    return "right" if right else "left"


def _picture_html(block: StaticChart) -> str:
    return (
        f'<div tabindex="0" role="group" aria-label="{escape(block.data_table.title)}" '
        f'style="margin:8px 0;overflow-x:auto">{block.svg}</div>'
        f'<details style="margin:0 0 8px"><summary style="cursor:pointer;color:{theme.MUTED}">'
        f"Numbers: {escape(block.data_table.title)}</summary>{table_html(block.data_table)}</details>"
    )


def _right_columns(table: Table) -> list[bool]:
    columns = zip(*table.rows, strict=True) if table.rows else ([] for _ in table.head)
    return [all(_NUMBER.fullmatch(cell) for cell in column) and bool(column) for column in columns]


# text


def _block_lines(block: Block, width: int) -> list[str]:
    match block:
        case Lead() | Paragraph():
            return _lead_lines(block, width) if isinstance(block, Lead) else _paragraph_lines(block, width)
        case Facts():
            return _facts_lines(block, width)
        case Table():
            return ["", *table_lines(block.shortened, width)]
        case StaticChart():
            return ["", *table_lines(block.data_table.shortened, width)]
        case Heading() | Contents():
            return ["", block.text, "-" * len(block.text)] if isinstance(block, Heading) else []
        case Verbatim():
            return ["", *block.text.splitlines()]
        case _:
            assert_never(block)


def _lead_lines(lead: Lead, width: int) -> list[str]:
    return [*textwrap.wrap(lead.text, width), *textwrap.wrap(lead.detail, width)]


def _paragraph_lines(block: Paragraph, width: int) -> list[str]:
    text = f"{block.tone}: {block.text}" if block.tone else block.text
    text = f"{text} {block.link}".strip()
    return [*textwrap.wrap(text, width, break_on_hyphens=False), *(f"    {c}" for c in block.code)]


def _facts_lines(block: Facts, full: int) -> list[str]:
    width = max((len(name) for name, _ in block.rows), default=0) + _GAP
    lines = []
    for name, value in block.rows:
        first, *rest = textwrap.wrap(value, max(full - width, 1), break_on_hyphens=False) or [""]
        lines.append(f"{name:<{width}}{first}".rstrip())
        lines.extend(" " * width + line for line in rest)
    return lines


def table_lines(table: Table, width: int = TEXT_WIDTH) -> list[str]:
    """Return a table as lines: columns fitted to the width, long cells wrapped."""
    if not table.rows:
        return [f"{table.title}: {EMPTY}", *(textwrap.wrap(table.note, width) if table.note else ())]
    widths = _fit_widths(table, width)
    right = _right_columns(table)
    note = textwrap.wrap(table.note, width) if table.note else []
    rule = ["-" * w for w in widths]
    body = [line for row in (table.head, rule, *table.rows) for line in _row_lines(row, widths, right)]
    return [table.title, *body, *note]


def _fit_widths(table: Table, width: int) -> list[int]:
    """Shrink the widest columns until the table fits."""
    rows = (table.head, *table.rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.head))]
    least = [
        max(len(word) for row in rows for word in (row[i] or "x").split(" ")) for i in range(len(widths))
    ]
    room = width - _GAP * (len(widths) - 1)
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
