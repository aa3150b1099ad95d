"""What came of a lab: each job of each run, figures of a run, and medians with intervals over seeds.

A figure of a contender is the median over seeds, with the 90 % interval of that median by resampling seeds.
One seed has no interval. Contenders run the same jobs with the same noise, so they are compared seed by seed
(`Score.ratio`): the ratio of two runs of one seed scatters far less than either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.warmstart.start_plan import accuracy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

N_RESAMPLE = 1000
INTERVAL = (5.0, 95.0)  # percentiles
N_BIN = 60  # of the use of the cluster over time
N_QUANTILE = 41
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """What one job came to.

    Parameters
    ----------
    jct_s
        From its submission to its end, of which `queued_s` before its start.
    alone_s
        On its request without any wait.
    core_s, used_core_s
        Core seconds that it held, and kept busy.
    pause_s
        Of its run without training: starts and changes.
    in_time
        Whether it met its deadline; None: it had none.
    last
        The plan that it ended on.
    first_nodes, last_nodes
        Workers and PS that it began with, and ended with.
    """

    job: str
    owner: str
    jct_s: float
    queued_s: float
    alone_s: float
    ended_at_s: float
    core_s: float
    used_core_s: float
    cost: float
    pause_s: float
    n_change: int
    n_question: int
    in_time: bool | None
    last: str
    first_nodes: tuple[int, int] = (1, 1)
    last_nodes: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class RunResult:
    """One contender under one seed; `use` are (seconds, cores held) from then on, of `cores` in all.

    `is_warm`: whether its jobs began on what similar ones had ended on.
    """

    contender: str
    seed: int
    jobs: tuple[JobResult, ...]
    use: tuple[tuple[float, float], ...]
    cores: float
    is_warm: bool = False

    def column(self, name: str) -> Array:
        """Return a number of each job."""
        return np.array([getattr(job, name) for job in self.jobs], dtype=np.float64)

    @property
    def makespan_s(self) -> float:
        """Seconds until the last job ended."""
        return float(self.column("ended_at_s").max())


def _fairness(run: RunResult) -> float:
    """Return Jain's index of slowdowns: 1 where all jobs take equally many times their length alone."""
    slowdown = run.column("jct_s") / run.column("alone_s")
    return float(slowdown.sum() ** 2 / (len(slowdown) * (slowdown**2).sum()))


def _in_time(run: RunResult) -> float:
    judged = [job.in_time for job in run.jobs if job.in_time is not None]
    return float(np.mean(judged)) if judged else float("nan")


def _held(run: RunResult) -> float:
    at_s, cores = (np.array(each) for each in zip(*run.use, strict=True))
    end_s = run.makespan_s
    spans_s = np.diff(np.append(np.minimum(at_s, end_s), end_s))
    return float((cores * spans_s).sum() / (run.cores * end_s))


def _start_accuracy(role: int) -> Callable[[RunResult], float]:
    """Return DLRover-RM's measure of a start (section 6.2): 1 - |first - last|/last nodes of a role."""
    return lambda run: float(
        np.mean([accuracy(each.first_nodes[role], each.last_nodes[role]) for each in run.jobs])
    )


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a run: its words, its unit, whether less is better, and how it is computed."""

    words: str
    unit: str
    of: Callable[[RunResult], float]
    less_is_better: bool = True


MEASURES: Mapping[str, Measure] = {
    "jct_mean_h": Measure(
        "mean completion time", "h", lambda run: float(run.column("jct_s").mean()) / HOUR_S
    ),
    "jct_median_h": Measure(
        "median completion time", "h", lambda run: float(np.median(run.column("jct_s"))) / HOUR_S
    ),
    "jct_p95_h": Measure(
        "95th percentile of it", "h", lambda run: float(np.percentile(run.column("jct_s"), 95)) / HOUR_S
    ),
    "queued_mean_h": Measure(
        "mean wait in the queue", "h", lambda run: float(run.column("queued_s").mean()) / HOUR_S
    ),
    "makespan_h": Measure("until the last end", "h", lambda run: run.makespan_s / HOUR_S),
    "cost": Measure("cost", "money", lambda run: float(run.column("cost").sum())),
    "core_h": Measure("cores reserved", "core h", lambda run: float(run.column("core_s").sum()) / HOUR_S),
    "cpu_use": Measure(
        "busy share of reserved cores",
        "",
        lambda run: float(run.column("used_core_s").sum() / run.column("core_s").sum()),
        less_is_better=False,
    ),
    "cluster_use": Measure("reserved share of the cluster", "", _held, less_is_better=False),
    "fairness": Measure("fairness (Jain, of slowdowns)", "", _fairness, less_is_better=False),
    "changes": Measure("changes of plan a job", "", lambda run: float(run.column("n_change").mean())),
    "start_workers": Measure(
        "workers of the start beside those of the end", "", _start_accuracy(0), less_is_better=False
    ),
    "start_ps": Measure(
        "PS of the start beside those of the end", "", _start_accuracy(1), less_is_better=False
    ),
    "paused": Measure(
        "share of the run without training",
        "",
        lambda run: float(run.column("pause_s").sum() / (run.column("jct_s") - run.column("queued_s")).sum()),
    ),
    "in_time": Measure("deadlines met", "", _in_time, less_is_better=False),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A median over seeds with its interval; NaN: there is nothing to measure."""

    median: float
    low: float
    high: float

    @property
    def is_there(self) -> bool:
        """Whether there was anything to measure."""
        return bool(np.isfinite(self.median))


@dataclass(frozen=True, slots=True)
class Score:
    """One contender over all seeds.

    Parameters
    ----------
    figures
        By the names of `MEASURES`.
    ratio
        Of its mean completion time over that of the first contender, seed by seed.
    quantiles_h
        Of completion times of all jobs of all seeds, at even shares from 0 to 1.
    use
        Share of the cluster's cores held over time, of the first seed.
    n_question
        How often its policy was asked in a run: the mean.
    """

    contender: str
    figures: Mapping[str, Figure]
    ratio: Figure
    quantiles_h: tuple[float, ...]
    use: tuple[tuple[float, float], ...]
    n_question: float


@dataclass(frozen=True, slots=True)
class LabResult:
    """A comparison: its contenders side by side, and what has to be known to read it.

    Parameters
    ----------
    workload
        Where the jobs came from, in words.
    n_job
        Of the first seed.
    runs
        All of them, contender by contender, seed by seed.
    published
        A paper's figures, by contender.
    """

    name: str
    workload: str
    n_job: int
    seeds: tuple[int, ...]
    scores: tuple[Score, ...]
    runs: tuple[RunResult, ...] = ()
    notes: tuple[str, ...] = ()
    published: Mapping[str, str] = field(default_factory=dict)
    currency: str = "USD"

    def score(self, contender: str) -> Score:
        """Return the score of a contender by its name."""
        return next(each for each in self.scores if each.contender == contender)


def scored(runs: Sequence[RunResult], first: Sequence[RunResult]) -> Score:
    """Return the score of one contender's runs beside the first contender's of the same seeds."""
    figures = {
        name: interval(np.array([measure.of(run) for run in runs])) for name, measure in MEASURES.items()
    }
    mean = MEASURES["jct_mean_h"].of
    ratios = np.array([mean(run) / mean(other) for run, other in zip(runs, first, strict=True)])
    jct_h = np.concatenate([run.column("jct_s") for run in runs]) / HOUR_S
    return Score(
        contender=runs[0].contender,
        figures=figures,
        ratio=interval(ratios),
        quantiles_h=tuple(np.quantile(jct_h, np.linspace(0, 1, N_QUANTILE)).tolist()),
        use=_binned(runs[0]),
        n_question=float(np.mean([run.column("n_question").sum() for run in runs])),
    )


def interval(values: Array) -> Figure:
    """Return the median of some values and its 90 % interval, by resampling them with a fixed seed."""
    if not np.isfinite(values).all():
        return Figure(float("nan"), float("nan"), float("nan"))
    drawn = np.random.default_rng(0).choice(values, (N_RESAMPLE, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), INTERVAL)
    return Figure(float(np.median(values)), float(low), float(high))


def _binned(run: RunResult) -> tuple[tuple[float, float], ...]:
    """Return the mean share of cores that were held in each of `N_BIN` equal spans, by their ends."""
    at_s, cores = (np.array(each) for each in zip(*run.use, strict=True))
    edges_s = np.linspace(0, run.makespan_s, N_BIN + 1)
    core_s = np.concatenate(([0.0], np.cumsum(cores[:-1] * np.diff(at_s))))
    place = np.clip(np.searchsorted(at_s, edges_s, side="right") - 1, 0, None)
    until = core_s[place] + cores[place] * (edges_s - at_s[place])
    means = np.diff(until) / np.maximum(np.diff(edges_s), 1e-9) / run.cores
    return tuple(zip((edges_s[1:] / HOUR_S).tolist(), means.tolist(), strict=True))
