"""Definition of a chart: pure columns, and marks and data table as functions of them.

A chart is one file with three functions and one line in the table of `charts`:

- ``columns(snapshot, series)`` returns the data, as a frozen record;
- ``marks(columns)`` describes the drawing, see `dlrover_nb.widgets.svg.marks`;
- ``data_table(columns)`` returns the same numbers as a table.

`chart` joins them. Both renderers take the joined functions, so a chart imports neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.svg import svg_drawing

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.svg.marks import Drawing

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Chart:
    """One line of the table of charts; make it with `chart`.

    Attributes
    ----------
    drawing
        Returns the drawing of a job and its telemetry in a live view.
    static
        Returns the saved copy: SVG, and the table of the same numbers.
    data_table
        Returns the table alone.
    is_heavy
        Whether drawing is slow with many reports: then it is not redrawn each second.
    whole
        As `drawing`, of a chart that begins with a part of its data, with all of them; None: it always has.
    """

    name: str
    title: str
    drawing: Callable[[JobSnapshot, SeriesChunk | None], Drawing]
    static: Callable[[JobSnapshot, SeriesChunk | None], StaticChart]
    data_table: Callable[[JobSnapshot, SeriesChunk | None], Table]
    is_heavy: bool = False
    whole: Callable[[JobSnapshot, SeriesChunk | None], Drawing] | None = None


def chart(  # noqa: PLR0913 - the parts of a chart, by keyword
    name: str,
    title: str,
    *,
    columns: Callable[[JobSnapshot, SeriesChunk | None], C],
    marks: Callable[[C], Drawing],
    data_table: Callable[[C], Table],
    static_columns: Callable[[JobSnapshot, SeriesChunk | None], C] | None = None,
    whole_columns: Callable[[JobSnapshot, SeriesChunk | None], C] | None = None,
    is_heavy: bool = False,
) -> Chart:
    """Join the functions of a chart.

    Parameters
    ----------
    static_columns
        The columns of a saved copy, where they differ: coarser, since every kB of a saved file counts.
    whole_columns
        The columns with all data, where those of `columns` are drawn in part.
    """
    saved = static_columns or columns

    def drawn(
        data: Callable[[JobSnapshot, SeriesChunk | None], C],
    ) -> Callable[[JobSnapshot, SeriesChunk | None], Drawing]:
        return lambda snapshot, series: marks(data(snapshot, series))

    def static(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
        data = saved(snapshot, series)
        return StaticChart(svg_drawing.draw(marks(data)), data_table(data))

    return Chart(
        name,
        title,
        drawing=drawn(columns),
        static=static,
        data_table=lambda snapshot, series: data_table(saved(snapshot, series)),
        is_heavy=is_heavy,
        whole=None if whole_columns is None else drawn(whole_columns),
    )
