"""Panel's scripts in a notebook: sent to the page with each live view, and kept out of the saved file.

There may be no network, so the scripts are sent inline: 3 MB, which Panel stores twice, once for each of two
front ends. A saved notebook does not need them, because a live view needs a kernel and the static copy needs
no scripts. So they are published once, in the form that all front ends run, under their own display id, and
removed when the view has connected or the job has ended. A reloaded page has lost them, so each live view
sends them; a page that has them skips them.

They include fixes for Panel's link to a notebook's kernel (and `delivery`, which notices what it loses):

- It echoes each change from the kernel back to the kernel. The echo resets a view that changes each second to
  older states. So changes from the kernel are not sent back, as in a served page.
- It sends changes that wait for each other in one message, of which the kernel takes nothing if it cannot
  read one of them, as of a part that has been replaced meanwhile. So each change is a message of its own, and
  a press is taken.
- It waits for the kernel's answer before it sends more, and where that is lost, until something else changes.
  So what waits is sent at the latest when the time for an answer has passed.
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING

import panel as pn
from IPython.display import display, update_display
from IPython.utils.capture import capture_output

from dlrover_nb.widgets.live.delivery import KEY, TAKES

if TYPE_CHECKING:
    from IPython.utils.capture import RichOutput

_JAVASCRIPT = "application/javascript"
FIXES = """
(function fix() {
  const Comm = window.Bokeh?.Models?.get?.('panel.models.comm_manager.CommManager');
  if (!Comm) { setTimeout(fix, 50); return; }
  if (Comm.prototype.dlrover_fixes) { return; }
  const {msg_handler, process_events, _document_changed} = Comm.prototype;
  Object.assign(Comm.prototype, {
    dlrover_fixes: true,
    msg_handler(msg) {
      const at = msg.metadata?.KEY;
      if (at && !this.dlrover_takes(at)) { return; }
      this.dlrover_applies = true;
      try {
        msg_handler.call(this, msg);
        this.dlrover_taken();
      } catch (error) {
        if (!at) { throw error; }
        console.error(error);
        this.dlrover_lose();
      } finally { this.dlrover_applies = false; }
    },
TAKES
    _document_changed(event) {
      if (this.dlrover_applies) { return; }
      _document_changed.call(this, event);
      setTimeout(() => this.dlrover_send_late(event), this.timeout + this.debounce);
    },
    process_events() {
      if (this.document == null || this._client_comm == null) { return; }
      for (const event of this._event_buffer.splice(0)) {
        this._event_buffer = [event];
        try { process_events.call(this); } catch (error) { console.error(error); }
      }
      this._event_buffer = [];
    },
    dlrover_send_late(event) {
      if (this._event_buffer.includes(event)) { this.on_ack({metadata: {}}); }
    },
  });
})();
""".replace("TAKES\n", TAKES).replace("KEY", KEY)
_ONCE = "if (window.dlrover_scripts !== '{mark}') {{ window.dlrover_scripts = '{mark}';\n{code}\n}}"


class Scripts:
    """The scripts in one output of one cell."""

    def __init__(self) -> None:
        self._display_id: str | None = f"dlrover-scripts-{uuid.uuid4().hex}"
        self._style, code = _published()
        display({_JAVASCRIPT: code}, raw=True, display_id=self._display_id)

    def take_back(self) -> None:
        """Leave only the style sheet in the output: the page has run the scripts, or does not need them."""
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
    return style, _ONCE.format(mark=uuid.uuid4().hex, code="\n;\n".join([*codes, FIXES]))


def _contents(outputs: list[RichOutput], mime: str) -> list[str]:
    return [output.data[mime] for output in outputs if mime in output.data]
