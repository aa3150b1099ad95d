"""Traces of clusters as CSV, which may be compressed: when jobs arrived, how long they ran, and how large.

Nothing of a trace is in this package. Columns are found by the names that public traces have (Philly, Pollux,
Alibaba, Helios); a lab file names others. Three kinds of rows are read: a job with its duration, one with its
begin and its end, and one interval with the number of jobs that arrived in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dlrover_nb.core.errors import InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# What a column means -> names that it has in public traces. `cpu_milli` is in thousandths of a core.
NAMES: Mapping[str, tuple[str, ...]] = {
    "at": ("time", "timestamp", "submit_time", "creation_time", "arrival"),
    "lasts_s": ("duration", "lasts_s", "duration_s", "run_time"),
    "until": ("deletion_time", "end_time"),
    "workers": ("workers", "num_gpus", "num_replicas", "gpu_num", "num_gpu"),
    "cpu": ("cpu_request", "worker_cpu"),
    "cpu_milli": ("cpu_milli",),
    "count": ("submit_job_all",),
}


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One job of a trace; None: the trace does not say."""

    at_s: float
    lasts_s: float | None = None
    workers: int | None = None
    cpu: float | None = None


def read_trace(path: Path, columns: Mapping[str, str]) -> tuple[TraceRow, ...]:
    """Read a trace, its arrivals ascending and counted from the first.

    Parameters
    ----------
    columns
        What a column means, one of `NAMES`, and its name, where it is none of the usual ones.

    Raises
    ------
    NotFoundError
        When there is no such file.
    InvalidValueError
        When a named column is not there, none has arrivals, or no row has one.
    """
    if not path.exists():
        raise NotFoundError(f"there is no trace {path}; name a CSV file, which may be compressed")
    table = pd.read_csv(path)
    names = _names(path, [str(column) for column in table.columns], columns)
    at_s = _seconds(table[names["at"]])
    lengths = {key: _numbers(table, names, key) for key in ("lasts_s", "workers", "cpu", "cpu_milli")}
    lasts_s, workers, cpu = lengths["lasts_s"], lengths["workers"], lengths["cpu"]
    if lasts_s is None and "until" in names:
        lasts_s = _seconds(table[names["until"]]) - at_s
    if cpu is None and lengths["cpu_milli"] is not None:
        cpu = lengths["cpu_milli"] / 1000
    if "count" in names:
        at_s = _spread(at_s, table[names["count"]].to_numpy(np.int64))
        lasts_s = workers = cpu = None
    return _rows(path, at_s, lasts_s, workers, cpu)


def chosen(rows: tuple[TraceRow, ...], n: int, days: float, rng: np.random.Generator) -> tuple[TraceRow, ...]:
    """Return at most `n` rows of the first so many days, drawn evenly, in the order of time."""
    within = [row for row in rows if row.at_s <= days * 86_400]
    if len(within) <= n:
        return tuple(within)
    picked = np.sort(rng.choice(len(within), n, replace=False))
    return tuple(within[int(i)] for i in picked)


def _names(path: Path, there: list[str], columns: Mapping[str, str]) -> dict[str, str]:
    for meaning, name in columns.items():
        if meaning not in NAMES:
            raise InvalidValueError(f"columns may name {', '.join(NAMES)}, got {meaning}; correct it")
        if name not in there:
            raise InvalidValueError(f"{path.name} has no column {name}; its columns are {', '.join(there)}")
    names = dict(columns)
    for meaning, usual in NAMES.items():
        first = next((name for name in usual if name in there), None)
        if meaning not in names and first is not None:
            names[meaning] = first
    if "at" not in names:
        raise InvalidValueError(
            f"{path.name} must have a column of arrivals, got {', '.join(there)}; name it: columns: {{at: …}}"
        )
    return names


def _seconds(column: pd.Series) -> Array:
    """Return a column of seconds or of dates as seconds; NaN where there is none."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(np.float64)
    dates = pd.to_datetime(column, errors="coerce")
    seconds = (dates - pd.Timestamp(0)) / pd.Timedelta(1, "s")
    return np.asarray(seconds.to_numpy(np.float64))


def _numbers(table: pd.DataFrame, names: Mapping[str, str], key: str) -> Array | None:
    return table[names[key]].to_numpy(np.float64) if key in names else None


def _spread(at_s: Array, counts: NDArray[np.int64]) -> Array:
    """Return one arrival for each job of an interval, evenly within it."""
    width_s = float(np.median(np.diff(at_s))) if len(at_s) > 1 else 0.0
    pairs = zip(at_s, np.maximum(counts, 0), strict=True)
    return np.concatenate([begin + width_s * np.arange(n) / n for begin, n in pairs if n] or [np.zeros(0)])


def _rows(
    path: Path, at_s: Array, lasts_s: Array | None, workers: Array | None, cpu: Array | None
) -> tuple[TraceRow, ...]:
    good = np.isfinite(at_s)
    if lasts_s is not None:
        good &= np.isfinite(lasts_s) & (lasts_s > 0)
    index = np.flatnonzero(good)
    if not len(index):
        raise InvalidValueError(f"{path.name} must have at least one job, got none; check its columns")
    index = index[np.argsort(at_s[index], kind="stable")]
    first_s = float(at_s[index[0]])
    return tuple(
        TraceRow(
            float(at_s[i]) - first_s,
            None if lasts_s is None else float(lasts_s[i]),
            _whole(workers, int(i)),
            None if cpu is None or not (np.isfinite(cpu[i]) and cpu[i] > 0) else float(cpu[i]),
        )
        for i in index
    )


def _whole(values: Array | None, i: int) -> int | None:
    return None if values is None or not np.isfinite(values[i]) else max(int(values[i]), 1)
