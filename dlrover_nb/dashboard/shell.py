"""The frame of every page: head, navigation, heading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, escape

if TYPE_CHECKING:
    from dlrover_nb.core.errors import DlroverError
    from dlrover_nb.dashboard.page import Page, Visit


def page_html(page: Page, visit: Visit, body: str) -> str:
    """Return a whole page."""
    from dlrover_nb.dashboard.pages import PAGES  # noqa: PLC0415 - pages are drawn in this frame

    links = "".join(_link(each, page, visit.root) for each in PAGES if each.is_listed)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(page.title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head><body>'
        f'<nav aria-label="Pages"><ul>{links}</ul></nav><main><h1>{escape(page.title)}</h1>{body}</main>'
        "</body></html>"
    )


def error_html(error: DlroverError) -> str:
    """Return an error as the content of a page."""
    return block_html(Paragraph(str(error), Tone.WARNING))


def _link(page: Page, shown: Page, root: str) -> str:
    current = ' aria-current="page"' if page is shown else ""
    return f'<li><a href="{escape(root)}/{page.path}"{current}>{escape(page.title)}</a></li>'
