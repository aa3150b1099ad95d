"""What `submit` and `attach` return: the job itself, to look at, to steer and to await."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.magics.formatters import Note, PlansView, StatusView

if TYPE_CHECKING:
    from collections.abc import Generator

    from dlrover_nb.core.session.client import JobHandle
    from dlrover_nb.core.structs.snapshot import JobSnapshot
    from dlrover_nb.magics.formatters import Shown
    from dlrover_nb.widgets.live import LiveView

NEW_S = 2.0  # a job's master takes a moment to start; till then the first display must not wait for it


class Job:
    """A job under its name: shows its present state, and passes everything else on to its `JobHandle`.

    Parameters
    ----------
    handle
        The client's side of the job.
    first
        Shown instead of the state within `NEW_S` of the making, so that a submit's cell ends at once.
    """

    def __init__(self, handle: JobHandle, first: Note | None = None) -> None:
        self.handle = handle
        self._first = first
        self._made_s = time.monotonic()

    @property
    def name(self) -> str:
        """The job's name."""
        return self.handle.name

    def status(self) -> StatusView:
        """Return the job's present state."""
        return StatusView(self.handle.snapshot(), self.handle.series())

    def plans(self) -> PlansView:
        """Return the open proposal, the front and the fit."""
        return PlansView(self.handle.snapshot())

    def watch(self) -> LiveView:
        """Return a live view."""
        from dlrover_nb.widgets.live import LiveView  # noqa: PLC0415 - views load when asked for

        return LiveView(self.handle)

    def __await__(self) -> Generator[object, None, JobSnapshot]:
        """Wait for the end of the job; a cancelled wait leaves the job alone."""
        return self.handle.__await__()

    def __getattr__(self, name: str) -> object:
        if name == "handle":  # while unpickled or copied there is none yet
            raise AttributeError(name)
        return getattr(self.handle, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for n in dir(self.handle) if not n.startswith("_"))})

    def _shown(self) -> Shown:
        if self._first is not None and time.monotonic() - self._made_s < NEW_S:
            return self._first
        try:
            return self.status()
        except DlroverError as error:
            return Note(f"Job {self.name}", str(error))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self._shown()._repr_mimebundle_(include, exclude)

    def __str__(self) -> str:
        return str(self._shown())

    def __repr__(self) -> str:
        return f"Job({self.name!r})"
