"""What the configurator learns from: settings under which jobs ran, and what was measured there.

A row is one setting of one job, from a trace or from the history. Anything but the job and its features may
be unknown: which inputs and targets can be used is decided by the rows at hand (`regression`), and none is
invented. The history holds the speed, the largest memory and the most cores of the nodes of each role, minute
by minute. A node that used all the cores it was given may need more: what it used is no peak then, and left
out. Operations of a model are counted by its dense parameters, each of which multiplies and adds once a
sample: layers that use a parameter more often do more, and jobs of one kind of model still compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.model_features import ModelFeatures
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob, SeriesRow

FLOAT_BYTES = 4
FULL = 0.95  # of a node's cores: from there on it might have used more
TARGETS = ("worker_cpu", "worker_memory_mib", "ps_cpu", "ps_memory_mib", "iter_s")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a job runs; None: not known.

    Parameters
    ----------
    n_worker, n_ps
        Nodes of each role.
    worker_cores, ps_cores
        Cores given to one node.
    cpu_share, memory_share
        What a node is given, as a share of its peak: below 1 it has too little.
    cluster_load
        Weighted utilisation U of the cluster, 0 to 1.
    """

    n_worker: int | None = None
    n_ps: int | None = None
    worker_cores: float | None = None
    ps_cores: float | None = None
    cpu_share: float | None = None
    memory_share: float | None = None
    cluster_load: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_worker", "n_ps"):
            if (count := getattr(self, name)) is not None:
                _check.at_least(name, count, 1)
        for name in ("worker_cores", "ps_cores", "cpu_share", "memory_share"):
            if (given := getattr(self, name)) is not None:
                _check.above_zero(name, given)
        if self.cluster_load is not None:
            _check.at_least("cluster_load", self.cluster_load, 0)


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured: peaks of one node (cores, MiB), seconds of an iteration; None: it was not."""

    worker_cpu: float | None = None
    worker_memory_mib: float | None = None
    ps_cpu: float | None = None
    ps_memory_mib: float | None = None
    iter_s: float | None = None

    def __post_init__(self) -> None:
        for name in TARGETS:
            if (value := getattr(self, name)) is not None:
                _check.above_zero(name, value)


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One setting of one job, with what was measured there; rows of one job have the same `job`."""

    job: str
    features: ModelFeatures
    setting: Setting
    measured: Measurements


def rows_of_history(jobs: Iterable[tuple[PastJob, Sequence[SeriesRow]]]) -> tuple[TrainingRow, ...]:
    """Return a row for each pair of counts under which a finished job of the history trained.

    Parameters
    ----------
    jobs
        Each finished job with its series.

    Notes
    -----
    Speeds of one pair of counts are averaged over time; of memory the largest value counts. Cores are known
    for the counts of the first and the final plan alone, since a series holds none; where both have these
    counts and differ in cores, they stay unknown. Pieces without progress are starts and pauses, and left
    out. Runs of one job under one name are told apart by their place in `jobs`.
    """
    return tuple(row for place, (job, series) in enumerate(jobs) for row in _rows_of_job(job, series, place))


def n_param_of(traits: JobTraits) -> int:
    """Return the parameters of a job: the dense ones, and tables of which all have rows of the same width."""
    in_tables = traits.n_table_row * traits.embedding_dim // max(traits.n_table, 1)
    return traits.dense_bytes // FLOAT_BYTES + in_tables


def features_of(traits: JobTraits) -> ModelFeatures | None:
    """Return the features of a job by what is known before it runs; None where its model is not known."""
    n_param = n_param_of(traits)
    if n_param < 1:
        return None
    flops = 2 * traits.batch_size * (traits.dense_bytes // FLOAT_BYTES)
    return ModelFeatures(traits.batch_size, n_param, flops or None)


def _rows_of_job(job: PastJob, series: Sequence[SeriesRow], place: int) -> list[TrainingRow]:
    features = features_of(job.traits)
    if features is None:
        return []
    trained = [piece for piece in series if piece.samples_per_s > 0 and min(piece.workers, piece.ps) > 0]
    rows = []
    for counts in sorted({(piece.workers, piece.ps) for piece in trained}):
        pieces = [piece for piece in trained if (piece.workers, piece.ps) == counts]
        setting = _setting(job, *counts)
        measured = _measured(pieces, job.traits.batch_size, setting)
        rows.append(
            TrainingRow(f"{job.traits.name or job.traits.model}#{place}", features, setting, measured)
        )
    return rows


def _setting(job: PastJob, n_worker: int, n_ps: int) -> Setting:
    cores = {
        (plan.worker.cpu, plan.ps.cpu)
        for plan in (job.first, job.final)
        if (plan.worker.count, plan.ps.count) == (n_worker, n_ps)
    }
    worker_cores, ps_cores = cores.pop() if len(cores) == 1 else (None, None)
    return Setting(n_worker, n_ps, worker_cores, ps_cores)


def _measured(pieces: Sequence[SeriesRow], batch_size: int, setting: Setting) -> Measurements:
    n_sample = sum(piece.samples_per_s * piece.span_s for piece in pieces)
    n_iter_s = sum(piece.workers * batch_size * piece.span_s for piece in pieces)
    return Measurements(
        worker_cpu=_peak((piece.worker_cpu for piece in pieces), setting.worker_cores),
        ps_cpu=_peak((piece.ps_cpu for piece in pieces), setting.ps_cores),
        worker_memory_mib=max(piece.worker_memory_mib for piece in pieces) or None,
        ps_memory_mib=max(piece.ps_memory_mib for piece in pieces) or None,
        iter_s=n_iter_s / n_sample,  # T = w m / throughput
    )


def _peak(used_cores: Iterable[float], given: float | None) -> float | None:
    """Return the most cores that a node used; None where that is unknown, or may be less than it needs."""
    peak = max(used_cores)
    return peak if given is not None and 0 < peak < FULL * given else None
