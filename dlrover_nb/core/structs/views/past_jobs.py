"""Records of finished jobs for later ones: traits to find them by, plans, fits, rolled-up series."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import ResourcePlan
from dlrover_nb.core.structs.training.quality import QualityCurve


@dataclass(frozen=True, slots=True)
class JobTraits:
    """What is known of a job before it runs, to find similar jobs (DLRover-RM, Algorithm 1).

    Parameters
    ----------
    model
        Kind of model, such as ``wide_deep``.
    n_table, embedding_dim, n_table_row
        Embedding tables, floats of one row over all tables, and rows of all tables. A sequence counts as so
        many tables as a row has items.
    dense_bytes
        Size of the dense parameters.
    n_sample
        Samples to train, all epochs.
    code_hash
        Identity of the code that computes the model, a built-in one's too; empty: unknown.
    data_hash
        Identity of the data's shape: its columns and their kinds; empty: unknown.
    cluster
        Identity of where it runs; empty: unknown.
    """

    model: str
    n_table: int
    embedding_dim: int
    n_table_row: int
    dense_bytes: int
    batch_size: int
    n_sample: int
    owner: str = ""
    name: str = ""
    code_hash: str = ""
    data_hash: str = ""
    cluster: str = ""

    def __post_init__(self) -> None:
        for name in ("n_table", "embedding_dim", "n_table_row", "dense_bytes", "n_sample"):
            _check.at_least(name, getattr(self, name), 0)
        _check.at_least("batch_size", self.batch_size, 1)

    @property
    def program(self) -> str:
        """Identity of what a mini-batch computes: code, shape of model and data, rows; empty: not known.

        Whose job it is, how long it is and where it runs do not count.
        """
        if not (self.code_hash and self.data_hash):
            return ""
        shape = self.n_table, self.embedding_dim, self.dense_bytes, self.batch_size
        text = "\n".join(map(str, (self.model, *shape, self.code_hash, self.data_hash)))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class JobCurve:
    """A curve of quality against the age of gradients, the job that it is of, and when it was measured."""

    job: str
    at_s: float
    traits: JobTraits
    curve: QualityCurve


@dataclass(frozen=True, slots=True)
class TermKnowledge:
    """A coefficient of a finished fit: value and standard error in its unit, and whether it is known."""

    term: str
    value: float
    std_error: float
    identified: bool


class TransitionKind(StrEnum):
    """How a change of plan is made; the values are those that records of earlier releases hold."""

    WORKERS = "workers"  # they come or go while others train
    MOVES = "moves seamless"  # other PS or sizes; the new nodes start beside those that serve
    RESTARTS = "moves restart"  # through a checkpoint: by the job's choice, or as nothing has room for both


@dataclass(frozen=True, slots=True)
class FitSummary:
    """The result of a fit, small enough to keep, and sufficient as the prior of another job.

    Parameters
    ----------
    terms
        Coefficients of the terms that the fit used.
    log_error
        Between-configuration error of log T_iter.
    dense_bytes, embedding_dim, batch_size
        M, D and m of Eqs. 1-6 under which the coefficients were fitted.
    pauses
        `TransitionKind` and seconds without training of the job's changes of plan.
    """

    at_s: float
    terms: tuple[TermKnowledge, ...]
    log_error: float
    n_plan: int
    n_sample: int
    dense_bytes: float
    embedding_dim: float
    batch_size: int
    pauses: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """A minute or more of a job, rolled up: means of the speed, maxima of the memory and cores of any node.

    It covers the `span_s` seconds that ended at `at_s`. Cores are those that the node used in one of its
    reports; 0: not known, as in rows of releases before 0.2.
    """

    at_s: float
    span_s: float
    samples_per_s: float
    workers: int
    ps: int
    worker_memory_mib: float
    ps_memory_mib: float
    worker_cpu: float = 0.0
    ps_cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class PastJob:
    """A finished job for warm start: its traits, its final plan, and its fit."""

    traits: JobTraits
    first: ResourcePlan
    final: ResourcePlan
    fit: FitSummary | None = None
