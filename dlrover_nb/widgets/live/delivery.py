"""Whether what a browser shows is what was drawn: how a lost or late message is noticed, and mended.

Only differences are sent, so a page that has missed one is wrong from then on. A browser that sleeps misses
many: JupyterLab's server gives a silent page up after 90 s and throws away what it had sent; the kernel drops
what its queue does not hold; a served page whose connection is lost gets nothing more.

- **Frames of a notebook's messages are numbered.** A page that misses one takes no more of them, since each
  is about a picture that it does not have, and asks for the whole picture. That begins a new generation of
  numbers. It holds every model in full: the browser sets those that it has and makes those that it lacks, so
  the page of a user keeps what was typed and chosen.
- **Each drawing ends with a pulse**, in notebooks and in served pages. A page that hears none for `OLD_S`, or
  hears them that much later than the quickest of them, as while it takes in what has piled up, is old. A
  notebook's page passes over what has piled up and asks for the whole picture, or one on a busy machine,
  which takes in less than is sent, would be further behind with each frame.
- **While a page is old** it says since when, nothing in it can be pressed that sends a command, and it asks
  again every few seconds. A served page, whose connection loses nothing while it lasts, is loaded again once
  its server answers.

Rejected: to answer each message, which costs a request a second of each page, and of a notebook also two
messages about the state of the kernel; and to send all columns now and then, which is what differences save.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

from bokeh.core.serialization import Serializer
from bokeh.document.events import ModelChangedEvent
from bokeh.document.json import PatchJson
from bokeh.models import CustomJS, Div
from bokeh.protocol.messages.patch_doc import patch_doc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from bokeh.document import Document
    from bokeh.model import Model
    from bokeh.protocol.message import Message

OLD_S = 5.0  # without a pulse, of which there is one a second
AGAIN_S = 5.0  # after which a page asks again
LEAST_APART_S = 2.0  # between whole pictures: what a page asked before a lost connection comes all at once
ACTS = "dlrover-acts"  # the CSS class of what sends a command
KEY = "dlrover"  # in the metadata of a frame: its generation and number; in a page's message: what it asks

# One link for each document of a page. Bokeh's `sync: false` keeps what is set here out of the kernel.
_PULSE = """
const doc = pulse.document
if (doc == null) { return }
function begin() {
  const link = {
    pulse, notice, rests: false, is_cut: false, is_late: false, was_old: false, asked_ms: 0,
    least_ms: Infinity, heard_ms: Date.now(), as_of_ms: Date.now(), began: performance.now(),
  }
  const kernels = () => [...doc._all_models.values()].filter((model) => model.dlrover_at)
  link.is_old = () => {
    if (link.is_cut || kernels().some((kernel) => kernel.dlrover_lost)) { return true }
    return !link.rests && (link.is_late || Date.now() - link.heard_ms > OLD_MS)
  }
  link.take = (sent_ms, rests) => {
    link.heard_ms = Date.now()
    link.rests = rests
    link.least_ms = Math.min(link.least_ms, link.heard_ms - sent_ms)
    link.is_late = link.heard_ms - sent_ms - link.least_ms > OLD_MS
    if (!link.is_late) { link.as_of_ms = link.heard_ms }
    else { for (const kernel of kernels()) { kernel.dlrover_lose() } }
    link.show()
  }
  link.show = () => {
    const is_old = link.is_old()
    if (!is_old && !link.was_old) { return }
    link.was_old = is_old
    for (const model of doc._all_models.values()) {
      if (!model.css_classes?.includes(acts)) { continue }
      for (const view of Bokeh.index.find_all(model)) {
        view.el.inert = is_old
        view.el.style.opacity = is_old ? '0.45' : ''
      }
    }
    const since = new Date(link.as_of_ms).toLocaleTimeString()
    const whom = is_page ? 'the server' : 'the kernel'
    const words = `This view is old: it shows the state of ${since}. Nothing can be decided here until ` +
      `${whom} answers; then it shows what is new by itself.`
    link.notice.setv({text: is_old ? words : '', visible: is_old}, {sync: false})
    if (is_old && Date.now() - link.asked_ms > AGAIN_MS) {
      link.asked_ms = Date.now()
      link.ask()
    }
  }
  link.ask = () => {
    for (const kernel of kernels()) { kernel.dlrover_ask() }
    if (is_page && (link.is_cut || Date.now() - link.as_of_ms > 3 * OLD_MS)) {
      fetch(location.href, {method: 'HEAD', cache: 'no-store'})
        .then((answer) => { if (answer.status < 500) { location.reload() } }, () => {})
    }
  }
  doc.on_event('connection_lost', () => { link.is_cut = true; link.show() })
  setInterval(link.show, 500)
  return link
}
const link = doc.dlrover_link ??= begin()
if (link.pulse.document == null) { Object.assign(link, {pulse, notice}) }
if (link.pulse === pulse) { link.take(...pulse.tags) }
"""
# Of a notebook's link to its kernel: methods of Panel's `CommManager`, beside those of `scripts`.
TAKES = """
    dlrover_takes(at) {
      const [generation, n] = at, [now, last] = (this.dlrover_at ??= [0, 0]);
      const begins = generation > now && n === 1;
      const takes_none = this.dlrover_lost && !this.dlrover_mends;
      if (!begins && (takes_none || generation !== now || n !== last + 1)) {
        this.dlrover_lose();
        return false;
      }
      if (begins) { this._receiver = new this._receiver.constructor(); this.dlrover_mends = true; }
      this.dlrover_at = at;
      return true;
    },
    dlrover_taken() {
      if (!this.dlrover_mends || this._receiver.message == null) { return; }
      this.dlrover_lost = this.dlrover_mends = false;
      this.dlrover_asked_ms = 0;
      for (const model of this.document?._all_models.values() ?? []) {
        if (model.type === 'ColumnDataSource') { model.properties.data.change.emit(); }
      }
      const link = this.document?.dlrover_link;
      if (link) { link.least_ms = Infinity; link.take(...link.pulse.tags); }
    },
    dlrover_lose() {
      this.dlrover_lost = true;
      this.dlrover_mends = false;
      this.dlrover_ask();
      this.document?.dlrover_link?.show();
    },
    dlrover_ask() {
      if (Date.now() - (this.dlrover_asked_ms ?? 0) < AGAIN_MS) { return; }
      this.dlrover_asked_ms = Date.now();
      try { this._client_comm?.send({KEY: this.dlrover_at}, {}, []); } catch (error) { console.warn(error); }
    },
""".replace("KEY", KEY).replace("AGAIN_MS", f"{AGAIN_S * 1000:g}")


class Pulse:
    """The end of each drawing of one view, and the line that says that the view is old.

    Parameters
    ----------
    is_page
        Whether a server shows the view: it can be loaded again.
    monotonic
        A monotonic clock in seconds: a page compares by how much it and its own clock go on.
    """

    def __init__(self, *, is_page: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.notice = Div(
            text="",
            visible=False,
            sizing_mode="stretch_width",
            disable_math=True,
            html_attributes={"role": "alert"},
            styles={"padding": "6px 10px", "font-weight": "600"},
        )
        self.model = Div(text="", visible=False, tags=[0, False])
        code = _PULSE.replace("OLD_MS", f"{OLD_S * 1000:g}").replace("AGAIN_MS", f"{AGAIN_S * 1000:g}")
        args = {"pulse": self.model, "notice": self.notice, "is_page": is_page, "acts": ACTS}
        self.model.js_on_change("tags", CustomJS(args=args, code=code))

    def beat(self, *, rests: bool) -> None:
        """End a drawing; a view that rests, since its job has ended, needs no further one."""
        if not (rests and self.model.tags[1]):
            self.model.tags = [round(1000 * self._monotonic()), rests]


class NumberedComm:
    """The frames of one notebook's output, numbered from 1 in each generation.

    Parameters
    ----------
    comm
        Panel's link to the page; its frames are numbered from now on.
    monotonic
        A monotonic clock in seconds.
    """

    def __init__(self, comm: Any, monotonic: Callable[[], float] = time.monotonic) -> None:  # noqa: ANN401 - panel has no types
        self._send, self._monotonic = comm.send, monotonic
        self._lock = threading.Lock()
        self._generation, self._numbers = 0, itertools.count(1)
        self._began_s: float | None = None  # None: no whole picture was sent yet
        comm.send = self.send

    def send(self, data: object = None, metadata: Any = None, buffers: Sequence[object] = ()) -> None:  # noqa: ANN401 - as above
        """Send one frame with its number."""
        with self._lock:
            at = [self._generation, next(self._numbers)]
            self._send(data, metadata={**(metadata or {}), KEY: at}, buffers=[*buffers])

    def begin(self) -> bool:
        """Begin a generation, for a whole picture that is sent now; return False right after another one."""
        now_s = self._monotonic()
        if self._began_s is not None and now_s - self._began_s < LEAST_APART_S:
            return False
        with self._lock:
            self._began_s = now_s
            self._generation, self._numbers = self._generation + 1, itertools.count(1)
        return True


def whole_picture(root: Model, doc: Document) -> Message[Any]:
    """Return a message with a root and every model below it in full; the page must have the root.

    It sets the same models that the page has, where it has them. Rejected: to remove them and add them again
    in a second message, which moves what stands below the view, and forgets what is half typed.
    """
    serializer = Serializer(references={root}, deferred=True)
    values = root.properties_with_values(include_defaults=False)
    changes = [ModelChangedEvent(doc, root, name, value) for name, value in values.items()]
    patch = PatchJson(events=serializer.encode(changes))
    message = patch_doc(patch_doc.create_header(), {"use_buffers": True}, patch)
    for buffer in serializer.buffers:
        message.add_buffer(buffer)
    doc.models.flush_synced()
    return message
