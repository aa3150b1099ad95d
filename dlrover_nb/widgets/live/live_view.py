"""A job live: charts, the open proposal, and the buttons to answer it, in a notebook or a served page.

A `LiveView` holds the job's newest state (`JobViewModel`) and any number of screens drawn from it. The poller
of the job's cluster refreshes the view model; each screen flushes once a tick. `cell_outputs` writes the
outputs of a notebook's cell, live and saved.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.widgets.jobs.plans import plans_view
from dlrover_nb.widgets.jobs.status import status_tables, status_view
from dlrover_nb.widgets.live.browser.cell_outputs import can_show_live, static_bundle
from dlrover_nb.widgets.live.browser.live_page import LivePage
from dlrover_nb.widgets.live.browser.widget_cell import WidgetScreen, shows_widgets
from dlrover_nb.widgets.live.job_view_model import JobViewModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.widgets.live.browser.poller import Poller
    from dlrover_nb.widgets.live.browser.render_target import RenderTarget
    from dlrover_nb.widgets.live.job_screen import Screen
    from dlrover_nb.widgets.rows.tables import Tables


class LiveView(LivePage["Screen"]):
    """Live view of one job.

    Parameters
    ----------
    handle
        The job.
    poller
        Keeps the view up to date; the one of the job's cluster.
    can_act
        Whether its screens have what sends a command; without, a person can look and ask what if.
    is_part
        Whether the page around it says the job's sentence.
    monotonic
        A monotonic clock in seconds, by which the view says how old it is.
    """

    def __init__(
        self,
        handle: JobHandle,
        poller: Poller,
        *,
        can_act: bool = True,
        is_part: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(poller)
        self._can_act, self._is_part = can_act, is_part
        self._widget: WidgetScreen | None = None  # in front ends that run no scripts of Panel
        self.name = handle.name
        self.view_model = JobViewModel(handle, self.flush, monotonic=monotonic)
        poller.watch(self)

    def screen_on(self, stage: RenderTarget) -> Screen:
        """Return a screen for the render target of another live view, until `take_off`."""
        screen = self._added(self._make_screen(stage.lock))
        screen.stage.put_on(stage)
        return screen

    def take_off(self, screen: Screen) -> None:
        """Remove a screen of `screen_on`."""
        self._drop(screen)

    @property
    def n_screen(self) -> int:
        """Number of pages and cells that show it."""
        return super().n_screen + (self._widget is not None)

    def flush(self) -> None:
        """Update every screen."""
        super().flush()
        if (widget := self._widget) is not None:
            widget.flush()

    def _ipython_display_(self) -> None:
        if not (can_show_live() and shows_widgets()):
            super()._ipython_display_()
            return
        if self._widget is not None:
            self._widget.close()
        self._widget = WidgetScreen(self.view_model, can_act=self._can_act)
        self._cell.display_widget(self._widget.layout)
        self._poller.watch(self)

    def _make_screen(self, lock: RLock | None = None) -> Screen:
        from dlrover_nb.widgets.live.job_screen import Screen  # noqa: PLC0415 - panel takes seconds to import

        take_back = self._cell.take_back_scripts
        return Screen(
            self.view_model, self._drop, take_back, lock=lock, can_act=self._can_act, is_part=self._is_part
        )

    def _added(self, screen: Screen) -> Screen:
        super()._added(screen)
        self._poller.watch(self)
        return screen

    def _drop(self, screen: Screen) -> None:
        """Remove a screen whose page or cell is gone; a view without screens is not polled."""
        super()._drop(screen)
        if not self.n_screen:
            self._poller.forget(self)

    def poll(self) -> None:
        """Fetch and show updates (called by the poller); an ended job is no longer polled."""
        if not self._ended:
            self.view_model.fetch()
        self.flush()
        self._cell.renew(is_last=self._ended)

    @property
    def _ended(self) -> bool:
        return self.view_model.state().snapshot.phase.is_final

    def tables(self) -> Tables:
        """Return the newest state as data."""
        return status_tables(self.view_model.state().snapshot)

    def _static(self) -> dict[str, str]:
        state = self.view_model.state()
        return static_bundle((status_view(state.snapshot, state.series), plans_view(state.snapshot)))
