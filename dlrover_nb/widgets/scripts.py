"""Panel's scripts in a notebook: brought to the page with each live view, and kept out of the saved file.

There may be no network, so the scripts travel inline: 3 MB, which Panel stores twice, once for each of two
front ends. A saved notebook has no use for them, because a live view needs a kernel and the static copy
beside it needs nothing. So we publish them once, in the form that all front ends run, under a display id of
their own, and take them back when the view has connected or the job has ended. A page that was opened again
has lost them, so each live view brings them; a page that has them skips them.
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING

import panel as pn
from IPython.display import display, update_display
from IPython.utils.capture import capture_output

if TYPE_CHECKING:
    from IPython.utils.capture import RichOutput

_JAVASCRIPT = "application/javascript"
_ONCE = "if (window.dlrover_scripts !== '{mark}') {{ window.dlrover_scripts = '{mark}';\n{code}\n}}"


class Scripts:
    """The scripts in one output of one cell."""

    def __init__(self) -> None:
        self._display_id: str | None = f"dlrover-scripts-{uuid.uuid4().hex}"
        self._style, code = _published()
        display({_JAVASCRIPT: code}, raw=True, display_id=self._display_id)

    def take_back(self) -> None:
        """Leave only the style sheet in the output: the page has run the scripts, or will never need them."""
        if self._display_id is not None:
            update_display({"text/html": self._style}, raw=True, display_id=self._display_id)
            self._display_id = None


@cache
def _published() -> tuple[str, str]:
    """Return the style sheet and the code that Panel publishes to a notebook; once per kernel."""
    with capture_output(stdout=False, stderr=False) as captured:
        pn.extension(inline=True)
    codes = _contents(captured.outputs, _JAVASCRIPT)
    style = next(iter(_contents(captured.outputs, "text/html")), "")
    return style, _ONCE.format(mark=uuid.uuid4().hex, code="\n;\n".join(codes))


def _contents(outputs: list[RichOutput], mime: str) -> list[str]:
    return [output.data[mime] for output in outputs if mime in output.data]
