"""The result of `Job.staleness`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.structs.training.gradient_ages import class_of, least_age
from dlrover_nb.widgets.charts.per_worker import batch_by_worker, distance, rows_by_speed
from dlrover_nb.widgets.charts.per_worker.age_rows import Ages, age_rows
from dlrover_nb.widgets.jobs.staleness_view import staleness_view
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.charts.per_worker.age_rows import AgeRows


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What is known of one worker; None: not known.

    `ahead` are its updates beyond those of the slowest worker, `batch_size` its mini-batch now, `n_row` what
    it trained within the reports that are kept, and `samples_per_s` its speed while it did.
    """

    worker: str
    ages: Ages
    ahead: float | None = None
    batch_size: float | None = None
    n_row: int | None = None
    samples_per_s: float | None = None


_HEAD: Columns[tuple[str, Ages]] = Columns(
    {
        **fields("job=0 n_gradient=1.n"),
        "age_half": lambda s: s[1].quantile(0.5),
        "age_95": lambda s: s[1].quantile(0.95),
        "age_most": lambda s: s[1].quantile(1.0),
    }
)
_WORKERS: Columns[WorkerFigures] = Columns(
    {
        **fields("worker n_gradient=ages.n"),
        "age_half": lambda f: f.ages.quantile(0.5),
        "age_95": lambda f: f.ages.quantile(0.95),
        "age_most": lambda f: f.ages.quantile(1.0),
        **fields("ahead batch_size n_row samples_per_s"),
    }
)
_AGES: Columns[tuple[str, int, int, int]] = Columns(fields("worker=0 age_from=1 age_to=2 n_gradient=3"))


@dataclass(frozen=True, slots=True, repr=False)
class StalenessView(Shown):
    """How old gradients are when they are applied, how far workers are apart, and what each trains."""

    snapshot: JobSnapshot
    series: SeriesChunk | None = None

    @property
    def ages(self) -> Ages:
        """The ages of all gradients."""
        return self._rows().of()

    @property
    def workers(self) -> tuple[WorkerFigures, ...]:
        """What is known of each worker."""
        rows = self._rows()
        ahead = distance.columns(self.snapshot, self.series).last
        sizes = batch_by_worker.columns(self.snapshot, self.series).last
        trained = {each.name: each for each in rows_by_speed.columns(self.snapshot, self.series).workers}
        names = sorted({*rows.workers, *sizes, *trained}, key=natural)
        return tuple(
            WorkerFigures(
                name,
                rows.of(rows.node == name),
                ahead.get(name),
                sizes.get(name),
                trained[name].n_row if name in trained else None,
                trained[name].samples_per_s if name in trained else None,
            )
            for name in names
        )

    def view(self) -> View:
        """Return the content."""
        return staleness_view(self.snapshot, self.series)

    def tables(self) -> Tables:
        """Return it as data: the workers, and the distribution of ages of each."""
        rows = self._rows()
        ages = [
            (name, least_age(class_of(at_most)), at_most, n)
            for name in rows.workers
            for of_worker in (rows.of(rows.node == name),)
            for at_most, n in zip(of_worker.at_most, of_worker.n_update, strict=True)
        ]
        tables = {"workers": _WORKERS.table(self.workers), "ages": _AGES.table(ages)}
        return Tables(one(_HEAD, (self.snapshot.spec.name, rows.of())), tables, "workers")

    def _rows(self) -> AgeRows:
        return age_rows(self.series, self.snapshot.spec.name, self.snapshot.started_at_s)
