"""Jobs side by side, running ones too: their curves over each other, their numbers, and where they differ.

Past runs are compared by `widgets.past.compare`, from the history; here everything comes from the jobs
themselves, so that two of them can be compared while they train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.prices import ARE_ASSUMED
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Paragraph, Table, View
from dlrover_nb.widgets.past.compare import Curve, curves_chart, differing
from dlrover_nb.widgets.rows.job_cells import line_of
from dlrover_nb.widgets.rows.job_columns import COMPARED, whole_cells
from dlrover_nb.widgets.series import trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

N_AUC_DIGIT = 4


def comparison_view(jobs: Sequence[tuple[JobSnapshot, SeriesChunk | None]]) -> View:
    """Return two jobs or more, a line and a column for each; `series` is None where it is not known."""
    snapshots = [snapshot for snapshot, _ in jobs]
    whose = units.counted(len(jobs), "job")
    speeds = [_speed(snapshot, series) for snapshot, series in jobs]
    blocks: list[Block] = [curves_chart(speeds, whose), *_quality(snapshots, whose), _facts(snapshots)]
    specs = [snapshot.spec for snapshot in snapshots]
    blocks.append(differing(specs, [spec.name for spec in specs]))
    return View(f"{whose} compared", tuple(blocks))


def _speed(snapshot: JobSnapshot, series: SeriesChunk | None) -> Curve:
    columns = {} if series is None else series.job
    t_s = [at_s - snapshot.started_at_s for at_s in columns.get("at_s", ())]
    line = trace(t_s, list(columns.get("samples_per_s", ())))
    return Curve(snapshot.spec.name, line.t_s, line.y)


def _quality(snapshots: Sequence[JobSnapshot], whose: str) -> tuple[Block, ...]:
    """Return the AUC over time of the jobs that are evaluated between their passes."""
    curves = [
        Curve(
            each.spec.name,
            [of.at_s - each.started_at_s for of in each.rounds],
            [of.evaluation.auc for of in each.rounds],
        )
        for each in snapshots
    ]
    if not any(len(curve.t_s) > 1 for curve in curves):
        text = "Only a job that stops early is evaluated between its passes; the last values are below."
        return (Paragraph(text),)
    title = "Quality on held-out rows"
    return (curves_chart(curves, whose, title=title, unit="AUC", digits=N_AUC_DIGIT),)


def _facts(snapshots: Sequence[JobSnapshot]) -> Table:
    columns = [whole_cells(COMPARED, line_of(summarize(each))) for each in snapshots]
    rows = tuple(
        (column.title, *(cell.text for cell in cells))
        for column, cells in zip(COMPARED, zip(*columns, strict=True), strict=True)
    )
    note = ARE_ASSUMED if any(each.spec.prices.assumed for each in snapshots) else ""
    return Table("Side by side", ("", *(each.spec.name for each in snapshots)), rows, note)
