"""Tables with links, and forms of filters, for pages that list things; `lists.html` writes them.

`widgets.blocks` knows no links: what it draws must read the same on a terminal and in a saved notebook. Here
a cell may lead to another page. A filter is a form that asks for the page again: so its state is in the
address, and it needs no script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
class Listing:
    """A table with its title and its head."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a filter: a text, or a choice where there are `options` (value and words)."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """The form of a filter.

    Parameters
    ----------
    action
        Address of the page.
    values
        What is filtered by now.
    keep
        Parameters that stay as they are.
    """

    action: str
    fields: Sequence[Field]
    values: Mapping[str, str]
    keep: Mapping[str, str]

    @property
    def clear(self) -> str:
        """The address without the filter."""
        return address(self.action, self.keep)


def address(path: str, query: Mapping[str, str]) -> str:
    """Return an address with its parameters, the empty ones left out."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path
