"""Small parts that live views are put together from; nothing in them knows of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import Div

if TYPE_CHECKING:
    from typing import Any

# The press carries what the browser showed: between a change here and its arrival there, a press means what
# was still on the button, and the master refuses what is stale instead of taking it for something else.
_PRESS = "press.value = button.label + '\\n' + Date.now()"


def text(**options: object) -> Div:
    """Return text that changes: a Bokeh model, because Panel's panes send their style sheets each time."""
    return Div(**{"text": "", "sizing_mode": "stretch_width", "disable_math": True, **options})


def pane(model: object, **options: object) -> pn.pane.Bokeh:
    """Return a Bokeh model as a part of a layout, as wide as there is room."""
    return pn.pane.Bokeh(model, **{"sizing_mode": "stretch_width", **options})


def button(label: str, color: str = "default", **options: object) -> Any:  # noqa: ANN401 - panel has no types
    """Return a button."""
    return pn.widgets.Button(label=label, color=color, **options)


def press_field() -> Any:  # noqa: ANN401 - panel has no types
    """Return the unseen field that presses arrive in; `sends` binds buttons to it."""
    return pn.widgets.TextInput(label="pressed", visible=False)


def sends(pressed: Any, into: Any) -> None:  # noqa: ANN401 - panel has no types
    """Have a button send the label that the user saw on it into a field of `press_field`."""
    pressed.js_on_click(args={"button": pressed, "press": into}, code=_PRESS)
