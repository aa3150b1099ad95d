"""Small parts of live views, independent of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import Button, CustomJS, Div, TextInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The press carries what the browser showed: between a change here and its arrival there, a press means what
# was still on the button, and the master refuses what is stale instead of taking it for something else.
_PRESS = "press.value = button.label + '\\n' + Date.now()"


def text(**options: object) -> Div:
    """Return changing text: a Bokeh model, because Panel's panes send their style sheets each time."""
    return Div(**{"text": "", "sizing_mode": "stretch_width", "disable_math": True, **options})


def pane(model: object, **options: object) -> pn.pane.Bokeh:
    """Return a Bokeh model as a part of a layout, at full width."""
    return pn.pane.Bokeh(model, **{"sizing_mode": "stretch_width", **options})


def button(label: str, color: str = "default", **options: object) -> Any:  # noqa: ANN401 - panel has no types
    """Return a button."""
    return pn.widgets.Button(label=label, color=color, **options)


def press_field(on_press: Callable[[str], None]) -> TextInput:
    """Return the invisible field that receives the labels of pressed buttons."""
    field = TextInput(title="pressed", visible=False)
    field.on_change("value", lambda _attr, _old, new: on_press(new.split("\n")[0]))
    return field


def press_button(label: str, color: str = "default", **options: object) -> Button:
    """Return a button that sends its label, as the user saw it, to the field that `sends` binds.

    It is Bokeh's: Panel keeps a button with a script, and all that it can reach, for the life of the process.
    """
    return Button(label=label, button_type=color, **options)


def sends(pressed: Button, into: TextInput) -> None:
    """Have a button of `press_button` send its label into a field of `press_field`."""
    pressed.js_on_event("button_click", CustomJS(args={"button": pressed, "press": into}, code=_PRESS))
