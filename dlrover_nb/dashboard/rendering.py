"""How a page becomes HTML: by a template of the folder `templates`, which escapes every value that it writes.

A page hands values to its template, so none can be forgotten. `Markup`, which is not escaped again, is made
here alone: of what a template has rendered, and of blocks. Those escape their own texts (`widgets.blocks`),
and have no template, as they are also the outputs of a notebook. A template that asks for a value that it
was not given is an error. Rejected: f-strings with a call of `escape` for each value; one was missing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dlrover_nb.dashboard.page import MOST_REASON
from dlrover_nb.widgets import theme
from dlrover_nb.widgets.blocks import EMPTY, Verbatim, View, block_html
from dlrover_nb.widgets.said_once import said_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.widgets.blocks import Block


def render(template: str, **values: object) -> Markup:
    """Return a template with its values."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - it escapes each value


def drawn(shown: Iterable[Block] | View, level: int = 3) -> Markup:
    """Return a view, or blocks below each other, whose headings are of a level."""
    if isinstance(shown, View):
        return Markup(shown.html())  # noqa: S704 - blocks escape their own texts
    html = "".join(block_html(block, level=level) for block in said_once(shown, Verbatim))
    return Markup(html)  # noqa: S704 - blocks escape their own texts


@cache  # made with the first page
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dlrover_nb.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {"drawn": drawn, "theme": theme, "empty": EMPTY, "most_reason": MOST_REASON}
    return environment
