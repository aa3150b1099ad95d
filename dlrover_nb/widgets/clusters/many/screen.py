"""One drawing of all jobs with Panel: totals, the chart, the table, and one job's screen below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel as pn
from bokeh.models import Div

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, escape
from dlrover_nb.widgets.clusters.many import static
from dlrover_nb.widgets.clusters.many.figure import Figure
from dlrover_nb.widgets.clusters.many.job_rows import columns
from dlrover_nb.widgets.clusters.many.live_table import JobsTable
from dlrover_nb.widgets.live.browser.render_target import RenderTarget
from dlrover_nb.widgets.live.controls.elements import button, select
from dlrover_nb.widgets.series import natural
from dlrover_nb.widgets.theme import MUTED, PAGE, WRAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.widgets.clusters.many.job_rows import Columns, JobsViewState
    from dlrover_nb.widgets.live.job_screen import Screen
    from dlrover_nb.widgets.live.live_view import LiveView

_TOTALS = (  # sent once, the numbers each second
    f"dl{{display:flex;flex-wrap:wrap;margin:4px 0}}dl div{{margin-right:28px}}dt{{color:{MUTED}}}"
    "dd{margin:0;font-weight:600}"
)
_NONE = "(none)"


class ManyScreen:
    """One layout of all jobs.

    Parameters
    ----------
    state
        Returns the present state.
    open_job
        Returns the live view of a job.
    on_close
        Called when the served page that shows this screen is gone.
    on_connect
        Called when a notebook's page has rendered the view.
    opened
        Name of the job that is open at first; empty: none.
    """

    def __init__(
        self,
        state: Callable[[], JobsViewState],
        open_job: Callable[[str], LiveView],
        *,
        on_close: Callable[[ManyScreen], None],
        on_connect: Callable[[], None] = lambda: None,
        opened: str = "",
    ) -> None:
        self._state, self._open_job = state, open_job
        first = state()
        self._figure, self._table, self._totals = Figure(), JobsTable(), _text(stylesheets=[_TOTALS])
        self._message = _text(html_attributes={"role": "status", "aria-live": "polite"})  # for screen readers
        self._make_controls()
        self._opened: tuple[LiveView, Screen] | None = None
        self._below = pn.Column(sizing_mode="stretch_width")
        self.stage = RenderTarget(
            self._arrange(first), self.show, on_close=lambda: on_close(self), on_connect=on_connect
        )
        self.layout, self.flush = self.stage.layout, self.stage.flush
        self.show()
        if opened in self._job.options:
            self._job.value = opened
            self._open_chosen(None)

    def _make_controls(self) -> None:
        self._job = select("Job to highlight", [_NONE], width=260)
        self._job.param.watch(self._choose, "value")
        self._open = button("Open the job", "primary", width=200, disabled=True, align="end")
        self._open.on_click(self._open_chosen)
        self._close = button("Close the opened job", width=200, disabled=True, align="end")
        self._close.on_click(self._close_opened)

    def _arrange(self, first: JobsViewState) -> pn.Column:
        heading = f'<h2 style="margin:0;font-size:16px">{escape(static.title(first))}</h2>'
        return pn.Column(
            _pane(_text(text=heading)),
            _pane(self._message),
            _pane(self._totals),
            _pane(self._figure.root),
            pn.Row(self._job, self._open, self._close, styles=WRAP),
            _pane(self._table.root),
            self._below,
            styles=PAGE,
            sizing_mode="stretch_width",
            max_width=1200,
        )

    # what the user does

    def _choose(self, event: object) -> None:  # noqa: ARG002 - param's signature
        chosen = self._job.value
        with self.stage.lock:
            self._figure.highlight("" if chosen == _NONE else chosen)
            self._open.label = "Open the job" if chosen == _NONE else f"Open {chosen}"
            self._open.disabled = chosen == _NONE
            self.stage.push()

    def _open_chosen(self, event: object) -> None:  # noqa: ARG002 - param's signature
        try:
            view = self._open_job(self._job.value)
        except DlroverError as error:
            self._say(str(error).splitlines()[0], Tone.WARNING)
            return
        self._put_below(view)

    def _close_opened(self, event: object) -> None:  # noqa: ARG002 - param's signature
        self._put_below(None)

    def _put_below(self, view: LiveView | None) -> None:
        if self._opened is not None:
            before, screen = self._opened
            before.take_off(screen)
        with self.stage.changed():
            self._opened = None if view is None else (view, view.screen_on(self.stage))
            self._below[:] = [] if self._opened is None else [self._opened[1].layout]
            self._close.disabled = view is None

    def _say(self, text: str, tone: Tone) -> None:
        with self.stage.lock:
            self._message.text = block_html(Paragraph(text, tone))
            self.stage.push()

    # drawing

    def show(self) -> None:
        """Update all models."""
        state = self._state()
        data = columns(state)
        self._show_words(data)
        self._table.update(data.rows)
        self._figure.update(state.wide.since(state.origin_s), static.x_label(state))
        self._offer(sorted((row.name for row in data.rows), key=natural))

    def _show_words(self, data: Columns) -> None:
        _set(self._totals, totals_html(data))
        _set(self._message, block_html(Paragraph(data.badge, Tone.WARNING)) if data.badge else "")

    def _offer(self, names: list[str]) -> None:
        options = [_NONE, *names]
        if options != self._job.options:
            self._job.options = options


def totals_html(data: Columns) -> str:
    """Return the totals as a row of names and values."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in data.totals
    )
    return f"<dl>{cells}</dl>"


def _set(div: Div, text: str) -> None:
    if div.text != text:
        div.text = text


def _text(**options: object) -> Div:
    return Div(**{"text": "", "sizing_mode": "stretch_width", "disable_math": True, **options})


def _pane(model: object) -> pn.pane.Bokeh:
    return pn.pane.Bokeh(model, sizing_mode="stretch_width")
