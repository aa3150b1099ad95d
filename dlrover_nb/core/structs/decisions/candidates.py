"""Candidates: plans with what is predicted of them, and the front that the best of them form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, hypot, log

from dlrover_nb.core.basics.percents import signed_fraction
from dlrover_nb.core.structs.plan.resources import ResourcePlan, ScalePlan
from dlrover_nb.core.structs.training.quality import CurveOrigin

SPEEDS = ("samples_per_s", "low", "high", "mean_low", "mean_high")  # of a prediction
REST, HOST = "rest", "host"  # parts of an iteration: what no term explains, and other work on the host
UNKNOWN_QUALITY = "not known yet"
SOURCES = {
    CurveOrigin.REHEARSAL: "by a rehearsal",
    CurveOrigin.RUNS: "by this job",
    CurveOrigin.SIMILAR: "by similar jobs",
}
EFFORT_UNIT = "cores (8 GiB as one)"  # of `ResourcePlan.effort`


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput of a plan with 90 % bands, in samples per second.

    `low` to `high` is where a window of the plan will lie: it is compared with what is measured next.
    `mean_low` to `mean_high` is where the plan's mean lies: plans are chosen by it, as a job trains for hours
    at the mean, and noise of the windows is no doubt about it. 0: not known, as in records of version 0.1.

    `host` is the part of the plan's speed that the host gave to the job when this was predicted, as other
    load ran beside it; all figures are with it. 1: the host was free.

    `extrapolates` says that the plan lies outside what was tried, so that the bands rest on the form
    of the model more than on measurements.
    """

    samples_per_s: float
    low: float
    high: float
    extrapolates: bool
    mean_low: float = 0.0
    mean_high: float = 0.0
    host: float = 1.0

    @property
    def without_host(self) -> Prediction:
        """The same for a host without other load."""
        speeds = (getattr(self, name) / self.host for name in SPEEDS)
        return replace(self, **dict(zip(SPEEDS, speeds, strict=True)), host=1.0)

    def surely_over(self, now: Prediction) -> float:
        """Return the low end of this mean over that of another plan, neither being known exactly."""
        return self.samples_per_s / now.samples_per_s * exp(-hypot(self.doubt_below, now.doubt_above))

    def possibly_over(self, now: Prediction) -> float:
        """Return the high end of this mean over that of another plan, neither being known exactly."""
        return self.samples_per_s / now.samples_per_s * exp(hypot(self.doubt_above, now.doubt_below))

    @property
    def doubt_below(self) -> float:
        """Half-width of the band of the mean below it, in log throughput; of a window's where unknown."""
        return log(self.samples_per_s / (self.mean_low or self.low))

    @property
    def doubt_above(self) -> float:
        """Half-width of the band of the mean above it, in log throughput; of a window's where unknown."""
        return log((self.mean_high or self.high) / self.samples_per_s)

    @property
    def relative_width(self) -> float:
        """Width of the band over the central value."""
        return (self.high - self.low) / self.samples_per_s


@dataclass(frozen=True, slots=True)
class TermShare:
    """One term of T_iter at a plan: its seconds and its share of the iteration."""

    term: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class WayChange:
    """Change of AUC with another way of applying gradients in the same plan, with its 90 % band."""

    way: str
    auc: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class QualityChange:
    """Held-out quality that a plan leads to, less that of the present plan, with 90 % bands.

    Parameters
    ----------
    auc, auc_low, auc_high
        Of the area under the ROC curve, a fraction: below 0 is worse.
    loss, loss_low, loss_high
        Of the mean held-out loss in nats: above 0 is worse.
    age, age_now
        Mean age of gradients in the plan and in the present one, in updates by other workers.
    origins
        Where the curves behind it were measured; empty: none was needed, as nothing makes a difference.
    first_low
        Low end of the change of AUC against the plan that the job was submitted with, which a bound counts.
    n_row
        Rows of the longest of these runs; 0 without any.
    ways
        What other ways of applying gradients would change, where that is measured.
    """

    auc: float
    auc_low: float
    auc_high: float
    loss: float
    loss_low: float
    loss_high: float
    age: float
    age_now: float
    origins: tuple[CurveOrigin, ...] = ()
    first_low: float = 0.0
    n_row: int = 0
    ways: tuple[WayChange, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether the plan makes no difference."""
        return self.auc == self.auc_low == self.auc_high == 0.0

    @property
    def words(self) -> str:
        """The change of AUC with its band: ``-0.003 (-0.006 to -0.001)``."""
        return "as now" if self.is_none else with_band(self.auc, self.auc_low, self.auc_high)

    @property
    def source(self) -> str:
        """Where it was measured, in words that follow ``measured``; empty: nowhere."""
        names = " and ".join(SOURCES[origin] for origin in self.origins)
        return f"{names} of {self.n_row:,} rows" if names else ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with its predicted gain and cost."""

    plan: ResourcePlan
    prediction: Prediction
    cost_per_hour: float | None  # money; None: a price is unknown
    cost_per_million: float | None  # money per million samples
    finish_s: float | None  # seconds to the end of the job; None when it is not known
    scale: ScalePlan
    transition_s: float  # seconds without training that the change costs
    gain_samples_per_s: float  # TG of Eq. 8, the transition's loss taken off
    breakdown: tuple[TermShare, ...]
    reason: str
    in_time: float | None = None  # probability to finish by the deadline; None: there is none
    margin_s: float | None = None  # from the predicted finish to the deadline; negative: late
    in_budget: float | None = None  # probability that the rest of the total budget is enough; None: no limit
    end_cost: float | None = None  # money until the end, with the job's fixed nodes; None as above
    quality: QualityChange | None = None  # against the present plan; None: not known yet

    @property
    def chance(self) -> float | None:
        """The probability to finish by the deadline and within the budget; None without either.

        Both depend on one speed, so the smaller one is that of both.
        """
        return min((each for each in (self.in_time, self.in_budget) if each is not None), default=None)

    @property
    def cost(self) -> float:
        """The cost for comparisons: money per hour; the plan's effort where that is unknown or zero."""
        return self.cost_per_hour or self.plan.effort


@dataclass(frozen=True, slots=True)
class Pick:
    """A named choice on the front: index into its candidates."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """Pareto-optimal plans in cost and throughput, cheapest first."""

    candidates: tuple[Candidate, ...]
    current: Candidate
    picks: tuple[Pick, ...]
    n_plan: int  # number of evaluated plans
    currency: str
    why_empty: str = ""  # which constraint leaves no plan at all
    with_auc: tuple[Candidate, ...] = ()  # nothing beats them in cost, throughput and expected AUC together

    @property
    def cost_unit(self) -> str:
        """Unit of `Candidate.cost`."""
        return cost_unit(self.current, self.currency)


def is_worth_telling(change: QualityChange | None) -> bool:
    """Whether a change of quality is known and makes a difference."""
    return change is not None and not change.is_none


def auc_words(change: QualityChange | None) -> str:
    """Return a change of AUC in words; that it is not known where it is not."""
    return UNKNOWN_QUALITY if change is None else change.words


def with_band(auc: float, low: float, high: float) -> str:
    """Return a change of AUC with its band."""
    return f"{signed_fraction(auc)} ({signed_fraction(low)} to {signed_fraction(high)})"


def cost_unit(candidate: Candidate, currency: str) -> str:
    """Return the unit of `Candidate.cost`: money where its price is known and above zero, else cores."""
    return f"{currency} per hour" if candidate.cost_per_hour else EFFORT_UNIT
