"""The parameters that the papers leave to operators, with their equation, unit and default.

One group, `tuning`, with a group for each paper. What a job decides stands in its file (`JobTuning`); what
the brain decides for all jobs of a cluster is given to it (`ClusterTuning`, `server brain --set`). A key is
in the place that reads it, and is refused in the other one: rho in a job file would look as if a job could
weigh itself against others. Rejected: one record for both places, half of whose keys would do nothing in
each.

Defaults are the papers'. Where a paper gives no number, ours is named as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

MAX_RHO = 20.0  # beyond it a day's remaining time exceeds the range of floating point


@dataclass(frozen=True, slots=True)
class AntDT:
    """How AntDT finds and answers stragglers (section VI-A; defaults of section VII-A).

    Parameters
    ----------
    slowness_ratio
        λ, above 1: a node is slow whose mean time is at least λ times the mean of the others.
    long_window_s
        L^per in seconds: who is slow over it too is a persistent straggler. None: twice `straggler_window_s`
        (L^trans), which are the paper's 600 s for its 300 s.
    backup_share
        Share of the workers that `backup-workers` leaves out of a step at most, at least one; above 0, below
        1. The paper fixes their number b and does not give it; 0.15 is ours.
    """

    slowness_ratio: float = 1.5
    long_window_s: float | None = None
    backup_share: float = 0.15

    def __post_init__(self) -> None:
        _above_one("slowness_ratio", self.slowness_ratio, usual=1.5)
        if self.long_window_s is not None:
            _check.above_zero("long_window_s", self.long_window_s)
        _open_share("backup_share", self.backup_share, usual=0.15)


@dataclass(frozen=True, slots=True)
class Nearchus:
    """When NEARCHUS takes cores as used, links as full and a job as stable, and how it scales (section IV).

    Parameters
    ----------
    start_share
        R_0 over R_max: share of the quota of cores with which 1 PS and 2 workers start. The default is that
        of the paper's evaluation, 15 of 100 cores.
    scale_up
        R_up: cores that are added at once, as a share of the present ones.
    job_efficiency
        E_thd_job: share of all allocated cores (e_job) from which on no bottleneck is claimed.
    node_efficiency
        E_thd_opt: share of a node's or a role's cores (e_i) below which the rest is idle and may move.
    n_network
        N_net: network samples of each PS that are judged.
    link_share, link_samples
        A PS's network is the bottleneck where more than `link_samples` of these samples exceed `link_share`
        of its link's capacity.
    n_stable, stable_cv
        N_comp and CV: a job is stable if over its last `n_stable` samples the coefficient of variation is
        below `stable_cv`.
    """

    start_share: float = 0.15
    scale_up: float = 0.5
    job_efficiency: float = 0.95
    node_efficiency: float = 0.8
    n_network: int = 30
    link_share: float = 0.9
    link_samples: float = 0.1
    n_stable: int = 5
    stable_cv: float = 0.05

    def __post_init__(self) -> None:
        _check.above_zero("scale_up", self.scale_up)
        _check.above_zero("stable_cv", self.stable_cv)
        for name in ("start_share", "job_efficiency", "node_efficiency", "link_share"):
            _share(name, getattr(self, name))
        _check.fraction("link_samples", self.link_samples)
        _check.within("n_stable", self.n_stable, 2, _MOST_SAMPLES)
        _check.within("n_network", self.n_network, self.n_stable, _MOST_SAMPLES)
        if self.node_efficiency > self.job_efficiency:
            raise InvalidValueError(
                f"node_efficiency must be at most job_efficiency, got {self.node_efficiency:g} above "
                f"{self.job_efficiency:g}; the paper's are 0.8 and 0.95"
            )


class StartMethod(StrEnum):
    """How past plans are combined to one; see `core.warmstart.start_plan`."""

    PAPER = "paper"
    INTERPOLATE = "interpolate"


@dataclass(frozen=True, slots=True)
class SimilarJobs:
    """How a job starts from similar ones (DLRover-RM section 4.3, Algorithm 1).

    Parameters
    ----------
    method
        ``paper``: exactly Algorithm 1. ``interpolate``, ours: where at least 8 jobs have finished, also how
        needs grow with the size of a job.
    k
        Similar jobs that are looked at. The paper gives no number; 5 is ours.
    mu
        Eq. 10, above 0 and below 1: weight of each job against all less similar ones. The paper gives no
        number; 0.5 is ours.
    """

    method: StartMethod = StartMethod.INTERPOLATE
    k: int = 5
    mu: float = 0.5

    def __post_init__(self) -> None:
        _check.within("k", self.k, 1, _MOST_SAMPLES)
        _open_share("mu", self.mu, usual=0.5)


@dataclass(frozen=True, slots=True)
class RemainingTime:
    """How the weight `remaining time` prefers short jobs (DLRover-RM, Eq. 14).

    Parameters
    ----------
    rho
        Rho within ±20: above 0 it prefers short jobs, 0 none, below 0 long ones.
    epsilon_s
        ε in seconds, above 0: jobs that end sooner are equally urgent. The paper calls it very small; 1 s is
        ours.
    """

    rho: float = 2.5
    epsilon_s: float = 1.0

    def __post_init__(self) -> None:
        if not abs(self.rho) <= MAX_RHO:
            raise InvalidValueError(f"rho must be within +-{MAX_RHO:g}, got {self.rho}; 2.5 is the paper's")
        _check.above_zero("epsilon_s", self.epsilon_s, hint="1 is usual")


@dataclass(frozen=True, slots=True)
class Placement:
    """How Qore-DL weighs hosts for new nodes (its Eq. 17).

    Parameters
    ----------
    cpu_weight
        α₁ from 0 to 1: weight of the used share of a host's cores; that of its memory is 1 - α₁. For a
        parameter server the two change places.
    """

    cpu_weight: float = 0.7

    def __post_init__(self) -> None:
        _check.within("cpu_weight", self.cpu_weight, 0, 1)


@dataclass(frozen=True, slots=True)
class ClusterLoads:
    """From which utilisation on a cluster is loaded, as Qore-DL weighs it (Eqs. 1 and 17).

    Parameters
    ----------
    light
        θ₁: up to it jobs grow though none is late, and large jobs of the queue come first.
    middle
        θ₂: beyond it jobs with time to spare give back what late ones lack.
    heavy
        θ₃: beyond it jobs with time to spare give back for new ones, and small jobs of the queue come first.
    cpu_weight
        α₁ from 0 to 1: weight of the used share of a host's cores; that of its memory is 1 - α₁.
    """

    light: float = 0.35
    middle: float = 0.55
    heavy: float = 0.70
    cpu_weight: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.light < self.middle < self.heavy <= 1:
            raise InvalidValueError(
                "light, middle and heavy must rise within 0 and 1, got "
                f"{self.light:g}, {self.middle:g}, {self.heavy:g}; the paper's are 0.35, 0.55, 0.7"
            )
        _check.within("cpu_weight", self.cpu_weight, 0, 1)


@dataclass(frozen=True, slots=True)
class JobTuning:
    """What a job decides; see each group.

    Parameters
    ----------
    antdt
        Stragglers.
    nearchus
        The policy `nearchus`, and bottlenecks in `plan --why`.
    dlrover_rm
        The start from similar jobs.
    qore
        Hosts for new nodes.
    """

    antdt: AntDT = field(default_factory=AntDT)
    nearchus: Nearchus = field(default_factory=Nearchus)
    dlrover_rm: SimilarJobs = field(default_factory=SimilarJobs)
    qore: Placement = field(default_factory=Placement)


@dataclass(frozen=True, slots=True)
class ClusterTuning:
    """What the brain decides for all jobs of a cluster; see each group.

    Parameters
    ----------
    dlrover_rm
        The weight `remaining time`.
    qore
        The method and the order `qore`.
    """

    dlrover_rm: RemainingTime = field(default_factory=RemainingTime)
    qore: ClusterLoads = field(default_factory=ClusterLoads)


_MOST_SAMPLES = 10_000  # far beyond what is kept of any node, or of past jobs


def _above_one(name: str, value: float, *, usual: float) -> None:
    if not 1 < value < float("inf"):
        raise InvalidValueError(f"{name} must be a number above 1, got {value}; {usual:g} is usual")


def _share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InvalidValueError(f"{name} must be above 0 and at most 1, got {value}; it is a share")


def _open_share(name: str, value: float, *, usual: float) -> None:
    if not 0 < value < 1:
        raise InvalidValueError(f"{name} must be above 0 and below 1, got {value}; {usual:g} is usual")
