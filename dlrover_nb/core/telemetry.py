"""Recent measurements of a job, bounded, readable by cursor.

Rows of the job, of all nodes, and of the ages of gradients share one numbering, so that one number is a
client's read position, and rows that left the ring since its last read can be counted instead of being lost
silently.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import fields, replace
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.gradient_ages import AgeUnit, MeanAges, class_of, least_age, mean_ages
from dlrover_nb.core.structs.training.samples import TimeSplit
from dlrover_nb.core.structs.views.snapshot import SeriesChunk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.training.shards import ShardCounts

JOB_COLUMNS = ("at_s", "samples_per_s", "workers", "ps", "todo", "doing", "done")
SPLIT_COLUMNS = tuple(field.name for field in fields(TimeSplit))
NODE_COLUMNS = (
    "at_s", "node", "role", "memory_mib", "cpu_cores", "iter_s", "samples_per_s", *SPLIT_COLUMNS,
    "n_sample", "batch_size",
)  # fmt: skip
AGE_COLUMNS = ("at_s", "node", "age", "n_update", "unit", "ps", "of_first")
_OLD_AGES: tuple[float | str, ...] = (
    str(AgeUnit.UPDATES),
    "",
    1.0,
)  # the last columns of what earlier releases counted
_N_OLD_AGE = len(AGE_COLUMNS) - len(_OLD_AGES)
_AT_N = AGE_COLUMNS.index("n_update")
_N_SPAN = 60  # of the ages that are kept of an ended job

JobRow = tuple[float, ...]
NodeRow = tuple[float | str, ...]
Row = TypeVar("Row")


class TelemetryState(NamedTuple):
    """The rows of a job's telemetry: how many there were ever, and the rings with the names of columns."""

    n_row: int
    job: tuple[tuple[str, ...], list[tuple[int, JobRow]]]
    node: tuple[tuple[str, ...], list[tuple[int, NodeRow]]]
    ages: tuple[tuple[str, ...], list[tuple[int, NodeRow]]] = (AGE_COLUMNS, [])


class JobTelemetry:
    """Three rings of rows: one of the job, one of its nodes, one of the ages of gradients.

    Parameters
    ----------
    n_job_row, n_node_row
        Rows kept: an hour of one job row and of ten node rows a second by default; of ages as many as of
        nodes, which is hours.
    """

    def __init__(self, *, n_job_row: int = 3600, n_node_row: int = 36_000) -> None:
        _check.at_least("n_job_row", n_job_row, 1)
        _check.at_least("n_node_row", n_node_row, 1)
        self._next = 0
        self._ages: deque[tuple[int, NodeRow]] = deque(maxlen=n_node_row)
        self._counts: dict[AgeUnit, list[float]] = {unit: [0.0] * unit.n_class for unit in AgeUnit}
        self._job: deque[tuple[int, JobRow]] = deque(maxlen=n_job_row)
        self._node: deque[tuple[int, NodeRow]] = deque(maxlen=n_node_row)

    def record_job(
        self, at_s: float, samples_per_s: float, workers: int, ps: int, *, shards: ShardCounts | None = None
    ) -> None:
        """Add a row of the job: throughput, nodes of each role, and its shards (NaN where not reported)."""
        counts = (shards.todo, shards.doing, shards.done) if shards else (math.nan,) * 3
        self._job.append((self._number(), (at_s, samples_per_s, *map(float, (workers, ps, *counts)))))

    def record_node(self, sample: NodeSample) -> None:
        """Add a row of a node, and one of each worker and class of age that it counted."""
        row = (
            sample.at_s,
            sample.node,
            str(sample.role),
            sample.memory_mib,
            sample.cpu_cores,
            sample.iter_s,
            sample.n_sample / sample.window_s if sample.window_s > 0 else 0.0,
            *(getattr(sample.split, name) for name in SPLIT_COLUMNS),
            float(sample.n_sample),
            sample.n_sample / sample.n_iter if sample.n_iter else 0.0,
        )
        self._node.append((self._number(), row))
        for each in sample.ages:
            of_ps = sample.node, float(each.of_first_ps)
            for unit in AgeUnit:
                for number, n_update in enumerate(each.of(unit)):
                    if n_update:
                        row = sample.at_s, each.worker, float(least_age(number)), float(n_update)
                        self._add_ages(self._number(), (*row, str(unit), *of_ps))

    def read(self, cursor: int = 0) -> SeriesChunk:
        """Return all rows since `cursor`, oldest first.

        A cursor beyond the end comes from before a restart of the job master: it reads from the start.
        """
        _check.at_least("cursor", cursor, 0)
        since = cursor if cursor <= self._next else 0
        job = _since(self._job, since)
        node = _since(self._node, since)
        ages = _since(self._ages, since)
        return SeriesChunk(
            cursor=self._next,
            job={name: [row[i] for row in job] for i, name in enumerate(JOB_COLUMNS)},
            node={name: [row[i] for row in node] for i, name in enumerate(NODE_COLUMNS)},
            lost=self._next - since - len(job) - len(node) - len(ages),
            ages={name: [row[i] for row in ages] for i, name in enumerate(AGE_COLUMNS)},
        )

    @property
    def state(self) -> TelemetryState:
        """All rows, for a snapshot."""
        rings = (JOB_COLUMNS, [*self._job]), (NODE_COLUMNS, [*self._node]), (AGE_COLUMNS, [*self._ages])
        return TelemetryState(self._next, *rings)

    def restore(self, state: TelemetryState) -> None:
        """Continue with the rows of an earlier master.

        An earlier release has the first of the columns: the others are zero, as where nothing was counted.
        Rows of other columns are left out.
        """
        self._next = state.n_row
        if state.job[0] == JOB_COLUMNS:
            self._job.extend(state.job[1])
        if (n := len(state.node[0])) and state.node[0] == NODE_COLUMNS[:n]:
            missing = (0.0,) * (len(NODE_COLUMNS) - n)
            self._node.extend((number, (*row, *missing)) for number, row in state.node[1])
        if (n := len(state.ages[0])) >= _N_OLD_AGE and state.ages[0] == AGE_COLUMNS[:n]:
            for number, row in state.ages[1]:
                self._add_ages(number, (*row, *_OLD_AGES[n - _N_OLD_AGE :]))

    @property
    def mean_ages(self) -> MeanAges | None:
        """Mean ages of all gradients; after a restart of the master, of those whose rows were kept."""
        return mean_ages(self._counts)

    def _add_ages(self, number: int, row: NodeRow) -> None:
        self._ages.append((number, row))
        unit = AgeUnit(str(row[_AT_N + 1]))
        if row[-1] or unit is AgeUnit.ROW_UPDATES:
            self._counts[unit][class_of(int(row[_AT_N - 1]), unit.n_class)] += float(row[_AT_N])

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


def thinned(series: SeriesChunk, *, n_job_row: int = 600, n_node_row: int = 3000) -> SeriesChunk:
    """Return the series with fewer rows, evenly over its time, ends included: what is kept of an ended job.

    Each node keeps as many as the others, so that one that was there for a minute is still seen. Ages are
    added up: all gradients stay counted.
    """
    n_row = len(series.job.get("at_s", ()))
    rows_of: dict[float | str, list[int]] = {}
    for i, node in enumerate(series.node.get("node", ())):
        rows_of.setdefault(node, []).append(i)
    n_each = max(n_node_row // max(len(rows_of), 1), 2)
    indices = sorted(rows[i] for rows in rows_of.values() for i in _evenly(len(rows), n_each))
    return replace(
        series,
        job={name: [column[i] for i in _evenly(n_row, n_job_row)] for name, column in series.job.items()},
        node={name: [column[i] for i in indices] for name, column in series.node.items()},
        ages=_summed(series.ages),
    )


def _summed(ages: dict[str, list[float | str]]) -> dict[str, list[float | str]]:
    """Return the rows of ages added up over equal spans of time; a sum has the time of its last row."""
    columns = with_all_columns(ages)
    rows = sorted(zip(*columns.values(), strict=True))
    if not rows:
        return ages
    first_s, width_s = float(rows[0][0]), (float(rows[-1][0]) - float(rows[0][0])) / _N_SPAN or 1.0
    sums: dict[tuple[int, tuple[float | str, ...]], tuple[float, float]] = {}
    for row in rows:
        at_s, n_update, span = float(row[0]), float(row[_AT_N]), (float(row[0]) - first_s) / width_s
        key = min(int(span), _N_SPAN - 1), (*row[1:_AT_N], *row[_AT_N + 1 :])
        sums[key] = at_s, sums.get(key, (0.0, 0.0))[1] + n_update
    whole: list[tuple[float | str, ...]] = [
        (at_s, *of[: _AT_N - 1], n, *of[_AT_N - 1 :]) for (_, of), (at_s, n) in sums.items()
    ]
    return {name: [row[i] for row in whole] for i, name in enumerate(AGE_COLUMNS)}


def with_all_columns(ages: dict[str, list[float | str]]) -> dict[str, list[float | str]]:
    """Return the columns of ages, also those that an earlier release does not have."""
    n = len(ages.get("at_s", ()))
    old = dict(zip(AGE_COLUMNS[_N_OLD_AGE:], _OLD_AGES, strict=True))
    return {
        name: ages[name] if name in ages else [old[name]] * n if name in old else [] for name in AGE_COLUMNS
    }


def mean_ages_until(series: SeriesChunk, until_s: float) -> MeanAges | None:
    """Return the mean ages of the gradients that were applied until a moment, as far as they are kept."""
    columns = with_all_columns(series.ages)
    counts = {unit: [0.0] * unit.n_class for unit in AgeUnit}
    for at_s, _, age, n_update, name, _, of_first in zip(*columns.values(), strict=True):
        unit = AgeUnit(str(name))
        if float(at_s) <= until_s and (of_first or unit is AgeUnit.ROW_UPDATES):
            counts[unit][class_of(int(age), unit.n_class)] += float(n_update)
    return mean_ages(counts)


def _evenly(n: int, most: int) -> Iterable[int]:
    """Return indices below n, `most` at most, the first and the last among them."""
    return range(n) if n <= most else sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


def _since(rows: deque[tuple[int, Row]], cursor: int) -> list[Row]:
    newest_first = takewhile(lambda numbered: numbered[0] >= cursor, reversed(rows))
    return [row for _, row in newest_first][::-1]
