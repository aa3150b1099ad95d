"""A row of buttons that shows one page of several below it; at first none.

The first screen then holds what is always asked, and a page that is not shown costs nothing: its parts are
made when it is opened for the first time, and its owner draws what `TabBar.chosen` names. Bokeh's own tabs
were rejected: their heads are no buttons, so neither a keyboard nor a screen reader opens them.

Until a page is there for the first time, the browser shows its place by itself: the kernel or server may be
busy, and a press that changes nothing looks lost. No model stands for it, whose state both sides would set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import CustomJS, RadioButtonGroup

from dlrover_nb.widgets.live.controls.elements import pane
from dlrover_nb.widgets.theme import ANY, TABS, WIDGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# The buttons and the pages are the parts of one layout, and a page is visible once it has parts of its own.
_OPENS = """
const view = Bokeh.index.find_one(group)
const parts = view?.parent?.child_views ?? []
const isWanted = () => group.active !== null && parts.every(part => part === view || !part.model.visible)
const endMs = Date.now() + 20_000
const show = () => {
  const isOpening = isWanted() && Date.now() < endMs
  view.el.classList.toggle('dlrover-opens', isOpening)
  if (isOpening) setTimeout(show, 50)
}
if (view) show()
"""


class TabBar:
    """The pages of one screen.

    Parameters
    ----------
    names
        The names of the pages.
    on_choose
        Called when another page was chosen; `open` then takes its parts, and `show` makes it visible.
    """

    def __init__(self, names: Sequence[str], on_choose: Callable[[], None]) -> None:
        self.names, self._on_choose = (*names,), on_choose
        self._pages = {
            name: pn.Column(sizing_mode="stretch_width", visible=False, styles=ANY) for name in names
        }
        self.model = RadioButtonGroup(
            labels=[*self.names], active=None, sizing_mode="stretch_width", stylesheets=[WIDGETS, TABS],
            html_attributes={"role": "group", "aria-label": "More of this job"},
        )  # fmt: skip
        self.model.on_change("active", self._changed)
        self.model.js_on_change("active", CustomJS(args={"group": self.model}, code=_OPENS))

    @property
    def layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """The buttons above the pages."""
        pages = self._pages.values()
        return pn.Column(pane(self.model), *pages, sizing_mode="stretch_width", styles=ANY)

    @property
    def chosen(self) -> str:
        """The name of the page that is shown; empty: none is."""
        return "" if self.model.active is None else self.names[self.model.active]

    def choose(self, name: str) -> None:
        """Choose a page, as a press of its button does."""
        self.model.active = self.names.index(name)

    @property
    def to_open(self) -> str:
        """The name of the page that is shown, if it has no parts yet; empty: it has, or none is shown."""
        return self.chosen if self.chosen and not self._pages[self.chosen].objects else ""

    def page(self, name: str) -> Any:  # noqa: ANN401 - panel has no types
        """Return the layout of a page."""
        return self._pages[name]

    def open(self, name: str, parts: Sequence[object]) -> None:
        """Give the chosen page its parts, and show it."""
        self._pages[name].objects = [*parts]
        self.show()

    def show(self) -> None:
        """Show the chosen page, once it has parts, and hide the others."""
        for name, page in self._pages.items():
            is_shown = name == self.chosen and bool(page.objects)
            if page.visible != is_shown:
                page.visible = is_shown

    def _changed(self, attr: str, old: int | None, new: int | None) -> None:  # noqa: ARG002 - bokeh's signature
        self._on_choose()
