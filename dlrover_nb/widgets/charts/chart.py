"""What a chart is: pure columns, a static picture with its table, and a live figure that takes updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.blocks import StaticChart


class LiveFigure(Protocol):
    """A drawn figure; `root` is its Bokeh model."""

    @property
    def root(self) -> object:
        """The Bokeh model to lay out."""
        ...

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data; return whether anything changed."""
        ...


@dataclass(frozen=True, slots=True)
class Chart:
    """One line of the table of charts."""

    name: str
    title: str
    picture: Callable[[JobSnapshot, SeriesChunk | None], StaticChart]
    figure: Callable[[], LiveFigure]
