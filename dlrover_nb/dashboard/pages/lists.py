"""Tables with links, and forms of filters, for pages that list things.

`widgets.blocks` knows no links: what it draws must read the same on a terminal and in a saved notebook. Here
a cell may lead to another page. A filter is a form that asks for the page again: so its state is in the
address, and it needs no script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.widgets import theme
from dlrover_nb.widgets.blocks import EMPTY, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_CELL = "padding:3px 12px 3px 0;vertical-align:top;text-align:left;overflow-wrap:break-word"
_HEAD = f"{_CELL};border-bottom:1px solid {theme.EDGE};white-space:nowrap"
_FIELD = "display:inline-flex;flex-direction:column;gap:2px;margin:0 12px 8px 0"
_INPUT = (
    f"font:inherit;padding:4px 6px;min-height:32px;box-sizing:border-box;background:{theme.BG};"
    f"color:{theme.INK};border:1px solid {theme.EDGE};border-radius:4px;max-width:100%"
)
_LEAST = "7em"  # of a column of words: on a phone the table scrolls, and words stay readable
CARD = (
    f"{theme.INLINE};background:{theme.BG};color:{theme.INK};border:1px solid {theme.EDGE};border-radius:6px;"
    "padding:12px 16px;margin:0 0 12px;box-sizing:border-box;max-width:100%"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    href
        Where it leads to; empty: nowhere.
    is_number
        Whether it stands at the right edge of its column.
    """

    text: str
    href: str = ""
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a filter: a text, or a choice where there are `options` (value and words)."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...] = ()
    hint: str = ""


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[Cell]], *, note: str = "") -> str:
    """Return a table that scrolls within its own width."""
    shown = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    empty = f'<tr><td colspan="{len(head)}" style="{_CELL};color:{theme.MUTED}">{EMPTY}</td></tr>'
    heads = "".join(f'<th scope="col" style="{_HEAD}">{escape(name)}</th>' for name in head)
    below = f'<p style="margin:4px 0;color:{theme.MUTED}">{escape(note)}</p>' if note else ""
    return (
        f'<div tabindex="0" role="group" aria-label="{escape(title)}" style="overflow-x:auto">'
        f'<table style="border-collapse:collapse;margin:8px 0 4px"><caption style="text-align:left;'
        f'font-weight:600;padding:0 0 4px">{escape(title)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(shown) or empty}</tbody></table></div>{below}"
    )


def filters(
    action: str,
    fields: Iterable[Field],
    given: Mapping[str, str],
    *,
    keep: Mapping[str, str] | None = None,
    submit: str = "Show",
) -> str:
    """Return the form of a filter with what is given now.

    Parameters
    ----------
    action
        Address of the page.
    keep
        Parameters that stay as they are.
    """
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in (keep or {}).items()
    )
    shown = "".join(_field(field, given.get(field.name, "")) for field in fields)
    return (
        f'<form method="get" action="{escape(action)}" role="search" aria-label="Filter" '
        f'style="display:flex;flex-wrap:wrap;align-items:flex-end">{hidden}{shown}'
        f'<button style="{_INPUT};margin:0 12px 8px 0;cursor:pointer">{escape(submit)}</button>'
        f'<a href="{escape(address(action, keep or {}))}" style="margin:0 0 14px">Clear</a></form>'
    )


def address(path: str, query: Mapping[str, str]) -> str:
    """Return an address with its parameters, the empty ones left out."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def link(href: str, text: str, *, is_current: bool = False) -> str:
    """Return a link; the current one of several says so."""
    current = ' aria-current="true"' if is_current else ""
    return f'<a href="{escape(href)}"{current}>{escape(text)}</a>'


def card(content: str, *, label: str = "") -> str:
    """Return content in a box with the colors of the page."""
    named = f' aria-label="{escape(label)}"' if label else ""
    return f'<section class="dlrover-card"{named} style="{CARD}">{content}</section>'


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    inner = f'<a href="{escape(cell.href)}">{text}</a>' if cell.href else text
    side = ";text-align:right;white-space:nowrap" if cell.is_number else f";min-width:{_LEAST}"
    return f'<td style="{_CELL}{side}">{inner}</td>'


def _field(field: Field, given: str) -> str:
    name, label = escape(field.name), escape(field.label)
    if field.options:
        options = "".join(
            f'<option value="{escape(value)}"{" selected" if value == given else ""}>{escape(words)}</option>'
            for value, words in (("", "all"), *field.options)
        )
        control = f'<select name="{name}" style="{_INPUT}">{options}</select>'
    else:
        control = (
            f'<input name="{name}" value="{escape(given)}" placeholder="{escape(field.hint)}" size="14" '
            f'style="{_INPUT}">'
        )
    return f'<label style="{_FIELD}"><span>{label}</span>{control}</label>'
