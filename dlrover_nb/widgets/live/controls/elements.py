"""Small parts of live views, independent of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import Button, CustomJS, Div, Select, TextInput

from dlrover_nb.widgets.live.delivery import ACTS
from dlrover_nb.widgets.theme import TEXT, WIDGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# The press carries what the browser showed: between a change here and its arrival there, a press means what
# was still on the button, and the master refuses what is stale instead of taking it for something else. It
# also carries for how many ms the button had meant that, by a clock that is never set: a click aimed at what
# was there before is not meant.
# It carries the version of the plan that the page showed too. A page that is old sends nothing.
_PRESS = """
const link = button.document?.dlrover_link
if (link?.is_old()) { link.show(); return }
const now = performance.now()
const from = button.means_this_from ?? link?.began ?? -1e9
press.value = [button.label, now - from, press.tags[0] ?? '', now].join('\\n')
"""
_CHOICE = """
const link = choice.document?.dlrover_link
if (choice.value === choice.tags[0]) { return }
if (link?.is_old()) { choice.value = choice.tags[0]; link.show(); return }
press.value = [`${verb} to ${choice.value}`, 1e9, press.tags[0] ?? '', performance.now()].join('\\n')
"""
_CHANGED = "button.means_this_from = performance.now()"


def text(**options: object) -> Div:
    """Return changing text: a Bokeh model, because Panel's panes send their style sheets each time."""
    return Div(
        **{"text": "", "sizing_mode": "stretch_width", "disable_math": True, "stylesheets": [TEXT], **options}
    )


def pane(model: object, **options: object) -> pn.pane.Bokeh:
    """Return a Bokeh model as a part of a layout, at full width."""
    return pn.pane.Bokeh(model, **{"sizing_mode": "stretch_width", **options})


def button(label: str, color: str = "default", **options: object) -> Any:  # noqa: ANN401 - panel has no types
    """Return a button."""
    return pn.widgets.Button(label=label, color=color, stylesheets=[WIDGETS], **options)


def select(label: str, options: object, **others: object) -> Any:  # noqa: ANN401 - as above
    """Return a choice of one of the options."""
    return pn.widgets.Select(label=label, options=options, stylesheets=[WIDGETS], **others)


def press_field(on_press: Callable[[str, float, str], None]) -> TextInput:
    """Return the invisible field that receives presses.

    Each is a label, for how long (s) it had meant the same, and the version of the plan that was shown with
    it: what the field had as its tag.
    """
    field = TextInput(title="pressed", visible=False)

    def pressed(_attr: str, _old: str, new: str) -> None:
        label, shown_ms, version, _ = new.split("\n")
        on_press(label, float(shown_ms) / 1000, version)

    field.on_change("value", pressed)
    return field


def press_button(label: str, color: str = "default", **options: object) -> Button:
    """Return a button that sends its label, as the user saw it, to the field that `sends` binds.

    It is Bokeh's: Panel keeps a button with a script, and all that it can reach, for the life of the process.
    """
    return Button(label=label, button_type=color, stylesheets=[WIDGETS], css_classes=[ACTS], **options)


def choice(label: str, options: Iterable[tuple[str, str]], **others: object) -> Select:
    """Return a choice that `sends_choice` binds; its tag is the value that holds."""
    return Select(title=label, options=[*options], stylesheets=[WIDGETS], css_classes=[ACTS], **others)


def sends_choice(chosen: Select, verb: str, into: TextInput) -> None:
    """Have a choice of `choice` send a value that is not the one that holds, as ``<verb> to <value>``."""
    args = {"choice": chosen, "press": into, "verb": verb}
    chosen.js_on_change("value", CustomJS(args=args, code=_CHOICE))


def sends(pressed: Button, into: TextInput) -> None:
    """Have a button of `press_button` send its label into a field of `press_field`."""
    pressed.js_on_change("tags", CustomJS(args={"button": pressed}, code=_CHANGED))
    pressed.js_on_event("button_click", CustomJS(args={"button": pressed, "press": into}, code=_PRESS))


def relabel(shown: Button, label: str, meaning: str) -> None:
    """Change the label of a button of `press_button`, and say what a press of it means in short."""
    shown.label, shown.tags = label, [meaning]
