"""A served page of a job's screen without a browser: what it shows, what is pressed on it, and when it is drawn.

It knows the screen as a browser does, by the models of its document. Nothing is drawn before a test asks for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import panel as pn
from bokeh.document import Document
from bokeh.models import Button, Div, GlyphRenderer, Scatter, TextInput
from panel.io.document import MockSessionContext
from panel.io.state import set_curdoc

from dlrover_nb.widgets.live.job_screen import Screen
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.widgets.jobs.whatif import Axis
    from dlrover_nb.widgets.live.job_view_model import JobViewModel


def new_session() -> Document:
    """Return the document of a new session of a server that has written no page for it."""
    doc = Document()
    context = MockSessionContext(document=doc)
    doc._session_context = lambda: context
    return doc


def models_of(screen: Screen, kind: type) -> list[Any]:
    """Return the models of one kind that a screen shows."""
    shown = (pane.object for pane in screen.layout.select(pn.pane.Bokeh))
    return [model for model in shown if isinstance(model, kind)]


class PlayedPage:
    """A page that a server shows."""

    def __init__(
        self,
        view_model: JobViewModel,
        on_close: Callable[[Screen], None] = lambda _: None,
        *,
        can_act: bool = True,
    ) -> None:
        self.view_model, self._doc = view_model, new_session()
        with set_curdoc(self._doc):
            self.screen = Screen(view_model, on_close, can_act=can_act)

    def draw(self) -> None:
        """Draw the newest state that is known here."""
        self.screen.flush()
        until(lambda: self._doc.session_callbacks)
        for due in list(
            self._doc.session_callbacks
        ):  # one: what is asked for meanwhile waits for the next call
            due.callback()

    def redraw(self) -> None:
        """Fetch the newest state, and draw it."""
        self.view_model.fetch()
        self.draw()

    # what it shows

    def models(self, kind: type) -> list[Any]:
        """Return its models of one kind."""
        return models_of(self.screen, kind)

    @property
    def text(self) -> str:
        """All of its text."""
        return "\n".join(div.text for div in self.models(Div) if div.visible)

    @property
    def status(self) -> str:
        """What it says to screen readers as it changes."""
        (status,) = (div for div in self.models(Div) if div.html_attributes.get("role") == "status")
        return status.text

    @property
    def labels(self) -> list[str]:
        """The labels of its visible buttons that send a command."""
        return [button.label for button in self.models(Button) if button.visible]

    def crosses(self, chart: str) -> list[float]:
        """Where crosses lie along the x axis of a chart; that of its legend lies nowhere."""
        renderers = self.screen.chart_grid.figures[chart].root.select(GlyphRenderer)
        crosses = (r for r in renderers if isinstance(r.glyph, Scatter) and r.glyph.marker == "x")
        return [x for cross in crosses for x in cross.data_source.data["x"] if not math.isnan(x)]

    # what the user does

    def field(self, title: str) -> TextInput:
        """Return the field of a title."""
        (field,) = (each for each in self.models(TextInput) if each.title == title)
        return field

    @property
    def version(self) -> str:
        """Of the plan that it shows."""
        (version,) = self.field("pressed").tags
        return version

    def press(self, label: str, n: int = 1, *, shown_ms: float = 60_000, version: str = "") -> None:
        """Press for the `n`-th time a button that had this label for so long."""
        self.field("pressed").value = f"{label}\n{shown_ms:g}\n{version or self.version}\n{n}"

    def click(self, label: str) -> None:
        """Click a button that sends no command."""
        (button,) = (each for each in self.screen.layout.select(pn.widgets.Button) if each.label == label)
        button.clicks += 1

    def open(self, name: str) -> None:
        """Open a page of what is not on the first screen."""
        self.screen.tabs.choose(name)

    def tap(self, chart: str, x: float) -> None:
        """Tap a marker of a chart at this x."""
        for renderer in self.screen.chart_grid.figures[chart].root.select(GlyphRenderer):
            selected, xs = renderer.data_source.selected, list(renderer.data_source.data.get("x", ()))
            if isinstance(renderer.glyph, Scatter) and renderer.glyph.marker != "x" and x in xs:
                selected.indices = [xs.index(x)]

    def move(self, axis: Axis, words: str) -> None:
        """Move a slider as the browser does: its index changes."""
        knob = self.screen.sliders.knobs[axis]
        knob.at = knob.choices.index(words)
