"""The result of `Job.staleness`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.structs.training.gradient_ages import AgeUnit, class_of, least_age
from dlrover_nb.widgets.charts.per_worker import batch_by_worker, distance, rows_by_speed
from dlrover_nb.widgets.charts.per_worker.age_rows import NONE, Ages, age_rows
from dlrover_nb.widgets.jobs.staleness_view import PassQuality, passes_of, staleness_view
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    times: Ages = NONE
    row_ages: Ages = NONE


@dataclass(frozen=True, slots=True)
class AgesOf:
    """Ages of the gradients of a job, or on one PS: in updates, milliseconds, and updates of single rows."""

    name: str
    ages: Ages
    times: Ages
    row_ages: Ages


_PASSES: Columns[PassQuality] = Columns(
    fields(
        "n_pass auc=evaluation.auc log_loss=evaluation.log_loss n_gradient=ages.n_gradient "
        "age_mean=ages.updates age_mean_s=ages.seconds row_age_mean=ages.row_updates"
    )
)


def _second(times: Ages, share: float) -> float | None:
    age_ms = times.quantile(share)
    return None if age_ms is None else age_ms / 1000


def _fresh(ages: Ages) -> float | None:
    """Return the share of gradients that missed nothing; None: there are none."""
    return dict(zip(ages.at_most, ages.shares, strict=True)).get(0, 0.0) if ages.n else None


def _quantiles(f: AgesOf | WorkerFigures) -> dict[str, float | int | None]:
    return {
        "age_half": f.ages.quantile(0.5),
        "age_95": f.ages.quantile(0.95),
        "age_most": f.ages.quantile(1.0),
        "age_half_s": _second(f.times, 0.5),
        "age_95_s": _second(f.times, 0.95),
        "n_row_gradient": f.row_ages.n or None,
        "row_age_95": f.row_ages.quantile(0.95),
        "row_fresh_share": _fresh(f.row_ages),
    }


_QUANTILES = {
    key: (lambda f, key=key: _quantiles(f)[key]) for key in _quantiles(AgesOf("", NONE, NONE, NONE))
}
_HEAD: Columns[AgesOf] = Columns({**fields("job=name n_gradient=ages.n"), **_QUANTILES})
_WORKERS: Columns[WorkerFigures] = Columns(
    {
        **fields("worker n_gradient=ages.n"),
        **_QUANTILES,
        **fields("ahead batch_size n_row samples_per_s"),
    }
)
_SERVERS: Columns[AgesOf] = Columns({**fields("ps=name n_gradient=ages.n"), **_QUANTILES})
_AGES: Columns[tuple[str, str, str, int, int, int]] = Columns(
    fields("ps=0 worker=1 unit=2 age_from=3 age_to=4 n_gradient=5")
)


@dataclass(frozen=True, slots=True, repr=False)
class StalenessView(Shown):
    """How old gradients are when they are applied, how far workers are apart, and what each trains."""

    snapshot: JobSnapshot
    series: SeriesChunk | None = None

    @property
    def ages(self) -> Ages:
        """The ages of all gradients, in updates."""
        return self._rows().of()

    @property
    def times(self) -> Ages:
        """The ages of all gradients, in milliseconds."""
        return self._rows(AgeUnit.MILLISECONDS).of()

    @property
    def row_ages(self) -> Ages:
        """The ages of gradients of single rows, of a sample of rows, in updates of the row."""
        return self._rows(AgeUnit.ROW_UPDATES).of()

    @property
    def servers(self) -> tuple[AgesOf, ...]:
        """The ages on each PS."""
        by_unit = {unit: self._rows(unit, of_each_ps=True) for unit in AgeUnit}
        return tuple(
            AgesOf(name, *(rows.of(rows.ps == name) for rows in by_unit.values()))
            for name in by_unit[AgeUnit.UPDATES].servers
        )

    @property
    def passes(self) -> tuple[PassQuality, ...]:
        """Quality on the held-out rows by pass and at the end, with the mean ages of gradients until then."""
        return passes_of(self.snapshot, self.series)

    @property
    def workers(self) -> tuple[WorkerFigures, ...]:
        """What is known of each worker."""
        rows = self._rows()
        times, of_rows = self._rows(AgeUnit.MILLISECONDS), self._rows(AgeUnit.ROW_UPDATES)
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
                times.of(times.node == name),
                of_rows.of(of_rows.node == name),
            )
            for name in names
        )

    def view(self) -> View:
        """Return the content."""
        return staleness_view(self.snapshot, self.series)

    def tables(self) -> Tables:
        """Return it as data: the workers, the PS, and the distribution of ages of each worker on each PS."""
        head = AgesOf(self.snapshot.spec.name, self.ages, self.times, self.row_ages)
        tables = {
            "workers": _WORKERS.table(self.workers),
            "servers": _SERVERS.table(self.servers),
            "passes": _PASSES.table(self.passes),
            "ages": _AGES.table([*self._classes()]),
        }
        return Tables(one(_HEAD, head), tables, "workers")

    def _classes(self) -> Iterator[tuple[str, str, str, int, int, int]]:
        """Return the gradients of each PS, worker, unit and class of age."""
        for unit in AgeUnit:
            rows = self._rows(unit, of_each_ps=True)
            for ps, worker in itertools.product(rows.servers or ("",), rows.workers):
                ages = rows.of((rows.ps == ps) & (rows.node == worker))
                for at_most, n in zip(ages.at_most, ages.n_update, strict=True):
                    yield ps, worker, str(unit), least_age(class_of(at_most, unit.n_class)), at_most, n

    def _rows(self, unit: AgeUnit = AgeUnit.UPDATES, *, of_each_ps: bool = False) -> AgeRows:
        spec, start_s = self.snapshot.spec, self.snapshot.started_at_s
        return age_rows(self.series, spec.name, start_s, unit, of_each_ps=of_each_ps)
