"""A row of buttons that shows one page of several below it; at first none.

The first screen then holds what is always asked, and a page that is not shown costs nothing: its owner draws
what `TabBar.chosen` names. Bokeh's own tabs were rejected: their heads are no buttons, so neither a keyboard
nor a screen reader opens them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import RadioButtonGroup

from dlrover_nb.widgets.live.controls.elements import pane
from dlrover_nb.widgets.theme import ANY, TABS, WIDGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class TabBar:
    """The pages of one screen.

    Parameters
    ----------
    pages
        The parts of each page by its name.
    on_choose
        Called when another page was chosen; `show` then makes it visible.
    """

    def __init__(self, pages: Mapping[str, Sequence[object]], on_choose: Callable[[], None]) -> None:
        self.names, self._on_choose = (*pages,), on_choose
        self._pages = tuple(
            pn.Column(*parts, sizing_mode="stretch_width", visible=False, styles=ANY)
            for parts in pages.values()
        )
        self.model = RadioButtonGroup(
            labels=[*self.names], active=None, sizing_mode="stretch_width", stylesheets=[WIDGETS, TABS],
            html_attributes={"role": "group", "aria-label": "More of this job"},
        )  # fmt: skip
        self.model.on_change("active", self._changed)

    @property
    def layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """The buttons above the pages."""
        return pn.Column(pane(self.model), *self._pages, sizing_mode="stretch_width", styles=ANY)

    @property
    def chosen(self) -> str:
        """The name of the page that is shown; empty: none is."""
        return "" if self.model.active is None else self.names[self.model.active]

    def choose(self, name: str) -> None:
        """Choose a page, as a press of its button does."""
        self.model.active = self.names.index(name)

    def show(self) -> None:
        """Show the chosen page, and hide the others."""
        for i, page in enumerate(self._pages):
            if page.visible != (i == self.model.active):
                page.visible = i == self.model.active

    def _changed(self, attr: str, old: int | None, new: int | None) -> None:  # noqa: ARG002 - bokeh's signature
        self._on_choose()
