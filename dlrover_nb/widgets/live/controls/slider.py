"""A slider with keyboard control and an accessible name.

Bokeh's slider, and Panel's over it, draws a handle with the role of a slider and without a name, and no way
to set one. This is the browser's own range input over a list of choices.
"""

from __future__ import annotations

import param
from panel.reactive import ReactiveHTML

_SHOW = """
knob.max = Math.max(0, data.choices.length - 1); knob.value = data.at; knob.disabled = data.fixed;
const words = data.choices[data.at] ?? '';
knob.setAttribute('aria-label', data.label); knob.setAttribute('aria-valuetext', words);
title.textContent = data.label; said.textContent = words;
"""


class Slider(ReactiveHTML):  # type: ignore[misc]  # panel has no types
    """One slider: `at` is the index of the selected choice."""

    label = param.String(default="")
    choices = param.List(default=[])
    at = param.Integer(default=0)
    fixed = param.Boolean(default=False)

    _template = """
    <div id="box" style="font:12px/1.4 system-ui,sans-serif;width:100%">
      <div aria-hidden="true" style="display:flex;justify-content:space-between;gap:4px;flex-wrap:wrap">
        <span id="title"></span><strong id="said"></strong>
      </div>
      <input id="knob" type="range" min="0" step="1" style="width:100%;margin:0" oninput="${script('move')}"/>
    </div>
    """
    _scripts = {  # noqa: RUF012 - panel reads it from the class
        "render": "self.show()",
        "show": _SHOW,
        "label": "self.show()",
        "choices": "self.show()",
        "at": "self.show()",
        "fixed": "self.show()",
        "move": "data.at = Number(knob.value); self.show()",
    }
