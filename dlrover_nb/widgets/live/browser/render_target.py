"""Render target of a live view: sends its changes to a browser, the same for every view.

Pages and notebooks differ. In a served page every change of a document must happen in its session: `flush`
schedules one callback on its next tick and no more until that has run. In a notebook there is no session:
changes are made on the poller's thread under our own lock and sent by `push`, and only once the browser's
side of the comm is open.

A message of a notebook's page is handled while nothing is drawn, and drawing that it causes follows
afterwards: Panel then releases all held changes, whatever their origin, and a page that misses one new model
cannot decode later messages about it.

A page registers our own kinds of models only when it loads. So each target holds an invisible slider: sliders
can then be added later, with an opened job or in place of the placeholder.

Only modules of screens and `scripts` import panel beside this one.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import Div, UIElement
from panel.io.notebook import block_comm, patch_inline_stylesheets, send
from panel.io.resources import LOCAL_DIST
from panel.io.state import set_curdoc

from dlrover_nb.widgets import theme
from dlrover_nb.widgets.live.controls.slider import Slider
from dlrover_nb.widgets.live.delivery import KEY, NumberedComm, Pulse, whole_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from threading import RLock
    from typing import Any

    from bokeh.document import Document
    from bokeh.model import Model

_PLACEHOLDER = (
    f'<div style="color:{theme.MUTED}">Live view: waiting for the kernel. Without one, the state as last '
    "seen stands below; run the cell again for the live view.</div>"
)

_TAKING_IN = threading.local()  # `later`: targets to draw once this thread has handled its message, or None


class _Layout(pn.Column):  # type: ignore[misc]  # panel has no types
    """The root layout of a target, with its own handling of messages of a notebook's page."""

    taking_in: Callable[[], AbstractContextManager[None]] = nullcontext
    _numbered: NumberedComm | None = None  # None: no notebook shows it yet

    def _render_mimebundle(self, model: Model, doc: Document, comm: Any, location: object = None) -> object:  # noqa: ANN401 - panel has no types
        self._numbered = NumberedComm(comm)
        return super()._render_mimebundle(model, doc, comm, location)

    def _on_msg(self, ref: str, manager: object, msg: Mapping[str, object]) -> None:
        with self.taking_in():
            if KEY not in msg:
                super()._on_msg(ref, manager, msg)
            elif self._numbered is not None and self._numbered.begin():
                self._send_whole(ref)

    def _send_whole(self, ref: str) -> None:
        """Send all models, as a page has asked that has lost some; what was not sent yet is in them."""
        _, root, doc, comm = pn.state._views[ref]  # noqa: SLF001 - panel has no public API
        doc.callbacks._held_events = []  # noqa: SLF001 - as above
        send(comm, whole_picture(root, doc))


class RenderTarget:
    """A target that a view is drawn on: a session of a served page, or the output of a cell.

    Parameters
    ----------
    body
        The view's layout.
    show
        Updates the models of `body`.
    lock
        Held while the view is drawn in a notebook; the view's own, where a user's moves wait for it too. A
        view within another target shares that one's.
    on_close
        Called when the served page, or the output of the cell, is gone.
    on_connect
        Called when a notebook's page has rendered the view.
    rests
        Whether what was drawn last stays as it is, so that a page need not hear more to be up to date.

    Attributes
    ----------
    add
        Called before `show`; a view whose parts come later adds them here, within `changed`.
    """

    def __init__(
        self,
        body: pn.Column,
        show: Callable[[], None],
        *,
        lock: RLock | None = None,
        on_close: Callable[[], None],
        on_connect: Callable[[], None] = lambda: None,
        rests: Callable[[], bool] = lambda: False,
    ) -> None:
        self._body, self._on_connect, self._on_close = body, on_connect, on_close
        self._show_body, self._rests = show, rests
        self.add: Callable[[], None] = lambda: None
        self._root = self  # the target in the cell: this one, or the one that contains it
        self.lock = lock or threading.RLock()
        self._queued = False
        self._doc = _session()
        self._is_connected = False  # a notebook's page has rendered the view, and is not gone
        if self._doc is not None:
            self._soon = _soon(self._doc)
            self._doc.on_session_destroyed(lambda _context: on_close())
            _take_style_sheets_from_here(self._doc)
        self._pulse = Pulse(is_page=self._doc is not None)
        self._notice = pn.pane.Bokeh(self._pulse.notice, sizing_mode="stretch_width")
        self._unseen = (
            pn.pane.Bokeh(Div(text=theme.REPAINT, height=0, margin=0)),
            pn.pane.Bokeh(self._pulse.model),
            Slider(visible=False),
        )
        self.layout = _Layout(
            *self._around(body), sizing_mode="stretch_width", css_classes=["dlrover-live"],
            styles=theme.VARIABLES | theme.FIGURES | theme.PANEL | theme.ANY,
        )  # fmt: skip
        self.layout.taking_in = self._taking_in

    def _around(self, shown: object) -> tuple[object, ...]:
        """Return all parts of the layout: what is shown, below the line that says that it is old."""
        return (self._notice, shown, *self._unseen)

    def _show(self) -> None:
        """Draw, and end the drawing for the page: within another target, that one does."""
        self._show_body()
        if self._root is self:
            self._pulse.beat(rests=self._rests())

    def flush(self) -> None:
        """Show updates, in the way that this front end needs; from any thread."""
        if self._doc is None:
            self._flush_notebook()
        elif not self._queued:
            self._queued = True
            self._soon(self._schedule, self._doc)

    def push(self) -> None:
        """Send changes that were made outside of `flush`."""
        if self._doc is None:
            with self._root.lock:
                pn.io.push_notebook(self._root.layout)

    def put_on(self, other: RenderTarget) -> None:
        """Draw within another target from now on, through its connection to the browser."""
        self._root = other._root

    @contextmanager
    def changed(self, part: Any = None) -> Iterator[None]:  # noqa: ANN401 - panel has no types
        """Hold changes that bring new models, and send them with every style sheet inline.

        Panel makes a first render self-contained but takes style sheets of what is added later from its
        CDN, and nothing may be asked of an outside host.

        Parameters
        ----------
        part
            The layout that gets new models; None: any.
        """
        if self._doc is not None:
            with _in_order(self._doc):
                yield
            return
        with self.lock, self._root.lock, self._frozen(), block_comm():
            yield
            layout = self._root.layout if part is None else part
            for root, _parent in layout._models.values():  # noqa: SLF001 - the models just made
                for model in root.select({"type": UIElement}):
                    patch_inline_stylesheets(model)
        self.push()

    def _schedule(self, doc: Document) -> None:
        """Have the page drawn on the next tick of its session, unless that has just ended.

        Only on the server's own thread, where sessions end: Bokeh takes a document apart before it reports
        that, and a thread that draws in between finds parts of it missing. Two threads must not call Bokeh
        here at a time: it keeps the current document of all of them in one list.
        """
        if doc.session_context is None:
            self._on_close()
        else:
            doc.add_next_tick_callback(self._flush_page)

    def _flush_page(self) -> None:
        self._queued = False
        if self._doc is None or not _is_seen(self._doc):
            return
        with set_curdoc(self._doc):
            if _is_ready(self._doc):
                self.add()
            with self._frozen():
                self._show()  # not held by Panel: it drops changes of sessions that it considers unconnected

    def _flush_notebook(self) -> None:
        later: list[RenderTarget] | None = getattr(_TAKING_IN, "later", None)
        if later is not None:
            later.append(self)
            return
        with self.lock, self._root.lock:  # the same lock where this target is within another
            if self._root._is_open():  # noqa: SLF001 - of the same class
                self.add()
                with self._frozen():
                    self._show()
                self.push()

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Let Bokeh collect a document's models once at the end, not again for each one that a chart adds."""
        if self._doc is not None:
            docs = {self._doc}
        else:
            roots = self._root.layout._models.values()  # noqa: SLF001 - panel has no public API
            docs = {root.document for root, _parent in roots} - {None}
        with ExitStack() as stack:
            for doc in docs:
                stack.enter_context(_collected_once(doc.models))
            yield

    @contextmanager
    def _taking_in(self) -> Iterator[None]:
        """Defer drawing while a message of the page is handled, and draw afterwards.

        This thread draws no target meanwhile, so it never waits for the lock of a second one.
        """
        with self.lock:
            later: list[RenderTarget] = []
            _TAKING_IN.later = later
            try:
                yield
            finally:
                _TAKING_IN.later = None
        for stage in dict.fromkeys(later):
            stage.flush()

    def notebook_layout(self) -> Any:  # noqa: ANN401 - panel has no types
        """Return the layout with only a placeholder: the rest follows once a live kernel is connected."""
        self.layout[:] = self._around(pn.pane.HTML(_PLACEHOLDER))
        return self.layout

    def _is_open(self) -> bool:
        """Whether the browser's side of the comm is open; if so, the view replaces the placeholder."""
        comms = [comm for comm, _ in self.layout._comms.values()]  # noqa: SLF001 - panel has no public API
        if not any(getattr(comm, "_comm", None) for comm in comms):
            self._let_go()
            return False
        if self._body not in self.layout.objects:
            self._connect()
        return True

    def _let_go(self) -> None:
        """Report once that the output of the cell is gone: cleared, run again or deleted."""
        if self._is_connected:
            self._is_connected = False
            self._on_close()

    def _connect(self) -> None:
        """Replace the placeholder by the view, with every style sheet inline."""
        with self.changed():
            self.layout[:] = self._around(self._body)
            self.layout.css_classes = ["dlrover-live", "dlrover-live-on"]
        self._is_connected = True
        self._on_connect()


@contextmanager
def _collected_once(models: Any) -> Iterator[None]:  # noqa: ANN401 - bokeh has no types
    """Collect the models at the end if one has come or gone; Bokeh's own `freeze` does in any case.

    It walks all models of the page: nearly half of the cost of a tick that only moves lines on.
    """
    if "invalidate" in vars(models):
        yield  # held already, further out
        return
    calls: list[None] = []
    models.invalidate = models.recompute = lambda: calls.append(None)  # Bokeh calls the one, Panel the other
    try:
        yield
    finally:
        del models.invalidate, models.recompute
        if calls:
            models.invalidate()


@contextmanager
def _in_order(doc: Document) -> Iterator[None]:
    """Let Bokeh send what changes, after what came before: Panel may send models later than their changes."""
    if doc.callbacks.hold_value:
        yield
        return
    doc.hold("collect")
    try:
        yield
    finally:
        doc.unhold()


def _is_ready(doc: Document) -> bool:
    """Whether a session's page is drawn; until then Panel drops new parts that it is to send."""
    session = getattr(doc.session_context, "session", None)
    return session is None or bool(pn.state._connected.get(doc))  # noqa: SLF001 - panel has no public API


def _is_seen(doc: Document) -> bool:
    """Whether a browser is connected to a session; one that is away may come back, and is drawn then."""
    session = getattr(doc.session_context, "session", None)
    return session is None or session.connection_count > 0


def _session() -> Document | None:
    """Return the document of the session that this thread serves; None in a cell.

    Panel's public `curdoc` falls back to Bokeh's, which is one list for all threads: while a server in
    another thread of a kernel draws a page, a new cell would be taken for that page and stay blank.
    """
    doc = pn.state._curdoc.get()  # noqa: SLF001 - the public one falls back
    return doc if doc and doc.session_context else None


def _soon(doc: Document) -> Callable[..., object]:
    """Return what calls a function on the thread of the server of a session; at once if it has no server."""
    server = doc.session_context.server_context
    return server.application_context.io_loop.add_callback if server else lambda call, *values: call(*values)


def _take_style_sheets_from_here(doc: Document) -> None:
    """Have a session's models name the style sheets of this server.

    Panel does so only when it writes the page. A session whose page connected late, or again after a break,
    was discarded and is created again without a page: its style sheets would come from Panel's CDN.
    """
    path = pn.state.rel_path
    doc.template_variables.setdefault("dist_url", f"{path}/{LOCAL_DIST}" if path else LOCAL_DIST)
