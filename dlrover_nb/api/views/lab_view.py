"""What a lab displays: contenders side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.lab import MEASURES
from dlrover_nb.widgets.past import lab
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.lab import Figure, JobResult, LabResult, RunResult
    from dlrover_nb.widgets.blocks import View

RATIO = "jct_over_first"  # of the mean completion time over that of the first contender

_LAB: Columns[LabResult] = Columns(
    {**fields("lab=name workload n_job currency"), "n_seed": lambda r: len(r.seeds)}
)
_FIGURES: Columns[_FigureRow] = Columns(fields("contender figure unit median low high"))
_JOBS: Columns[tuple[RunResult, JobResult]] = Columns(
    fields(
        "contender=0.contender seed=0.seed job=1.job owner=1.owner jct_s=1.jct_s queued_s=1.queued_s "
        "alone_s=1.alone_s ended_at_s=1.ended_at_s core_s=1.core_s used_core_s=1.used_core_s cost=1.cost "
        "pause_s=1.pause_s n_change=1.n_change n_question=1.n_question in_time=1.in_time last=1.last"
    )
)


@dataclass(frozen=True, slots=True)
class _FigureRow:
    contender: str
    figure: str
    unit: str
    of: Figure

    @property
    def median(self) -> float:
        """Over seeds; NaN: there was nothing to measure."""
        return self.of.median

    @property
    def low(self) -> float:
        """The low end of its interval."""
        return self.of.low

    @property
    def high(self) -> float:
        """The high end of its interval."""
        return self.of.high


def _figures(result: LabResult) -> Iterator[_FigureRow]:
    for score in result.scores:
        yield _FigureRow(score.contender, RATIO, "", score.ratio)
        for name, figure in score.figures.items():
            unit = MEASURES[name].unit
            yield _FigureRow(score.contender, name, result.currency if unit == "money" else unit, figure)


@dataclass(frozen=True, slots=True, repr=False)
class LabView(Shown):
    """A comparison of policies; ``result`` holds each job of each run."""

    result: LabResult

    def view(self) -> View:
        """Return the content."""
        return lab.lab_view(self.result)

    def tables(self) -> Tables:
        """Return it as data: a row for each figure of each contender, and one for each job of each run."""
        rows = [(run, job) for run in self.result.runs for job in run.jobs]
        tables = {"figures": _FIGURES.table(_figures(self.result)), "jobs": _JOBS.table(rows)}
        return Tables(one(_LAB, self.result), tables, "figures")
