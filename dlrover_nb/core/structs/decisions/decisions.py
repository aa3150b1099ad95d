"""Candidates, proposals, decisions, and outcomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, hypot, log

from dlrover_nb.core.basics.redaction import BareReason
from dlrover_nb.core.structs.decisions.actions import ActionChoice
from dlrover_nb.core.structs.job.job import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, ScalePlan

SPEEDS = ("samples_per_s", "low", "high", "mean_low", "mean_high")  # of a prediction
FIRST_VERSION = "d0"  # of a job whose plan, mode and pins no decision has changed
REST, HOST = "rest", "host"  # parts of an iteration: what no term explains, and other work on the host
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

    @property
    def cost_unit(self) -> str:
        """Unit of `Candidate.cost`."""
        return cost_unit(self.current, self.currency)


def cost_unit(candidate: Candidate, currency: str) -> str:
    """Return the unit of `Candidate.cost`: money where its price is known and above zero, else cores."""
    return f"{currency} per hour" if candidate.cost_per_hour else EFFORT_UNIT


class ProposalKind(StrEnum):
    """Whether a plan is proposed to learn from it, because it is better, or to keep a node alive."""

    EXPLORE = "explore"
    IMPROVE = "improve"
    PROTECT = "protect"  # more memory, before or after a node runs out of memory


class ProposalStatus(StrEnum):
    """Life of a proposal; the transitions stand in `core.controller.plans.proposals`."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    OVERRIDDEN = "overridden"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    APPLYING = "applying"
    APPLIED = "applied"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The nearest change of one quantity at which another plan would be recommended.

    Parameters
    ----------
    quantity
        The quantity that would have to change: ``throughput of the proposed plan``.
    now, at
        Its current value and the break-even value, in `unit`.
    plan
        The plan recommended beyond the break-even.
    words
        The result as one sentence.
    """

    quantity: str
    now: float
    at: float
    unit: str
    plan: ResourcePlan
    words: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan proposed to the user; `id` (``p1``, ``p2``, …) is unique in its job."""

    id: str
    job: str
    kind: ProposalKind
    candidate: Candidate
    baseline: Candidate
    why: str
    created_at_s: float
    status: ProposalStatus = ProposalStatus.PENDING
    closed_at_s: float | None = None
    note: str = ""
    flip: BreakEven | None = None  # None: no plausible change would alter the recommendation


class Verdict(StrEnum):
    """Kind of a decision."""

    ACCEPT = "accept"
    OVERRIDE = "override"
    REJECT = "reject"
    SCALE = "scale"
    MODE = "mode"
    PIN = "pin"
    MITIGATE = "mitigate"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Decision(BareReason):
    """One decision by a user or by auto mode; magics, buttons and the command line make the same record.

    `proposal` is the id that the user saw, of a proposal or of a mitigation; `plan` is given for OVERRIDE and
    SCALE, `mode` for MODE, `pins` (all that hold from now on) for PIN, `action` for MITIGATE, `budget_total`
    for BUDGET (None: no limit).
    `id` is filled in by the controller (``d1``, ``d2``, …). `undoes` names the decision that this one
    reverts; the controller refuses it once a later one has changed the same thing. `seen` is the version of
    the plan that the user saw (`JobSnapshot.version`); empty: whichever it is now. A credential in `why`
    becomes a placeholder.
    """

    verdict: Verdict
    by: str
    at_s: float
    proposal: str | None = None
    plan: ResourcePlan | None = None
    mode: Mode | None = None
    why: str = ""
    id: str = ""
    pins: Pins | None = None
    undoes: str = ""
    seen: str = ""
    action: ActionChoice | None = None
    budget_total: float | None = None

    @property
    def words(self) -> str:
        """The decision: ``accept p2``, ``scale 2w x 0.5 + 1p x 0.25``, ``undo of d3: mode manual``."""
        plan, pins = self.plan and self.plan.short, None if self.pins is None else str(self.pins)
        action = self.action and self.action.words
        parts = (self.verdict, self.proposal, plan, self.mode, pins, action, self._budget_words)
        text = " ".join(str(word) for word in parts if word)
        return f"undo of {self.undoes}: {text}" if self.undoes else text

    @property
    def _budget_words(self) -> str:
        if self.verdict is not Verdict.BUDGET:
            return ""
        return "off" if self.budget_total is None else f"{self.budget_total:,.6g}"


def version_of(undo: Decision | None) -> str:
    """Return the version of plan, mode and pins, by the decision that would undo the latest change."""
    return FIRST_VERSION if undo is None else undo.undoes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an applied plan: predicted against measured throughput.

    It covers the steady windows up to the next change, so that an outcome becomes surer as the plan runs
    on. Predicted and measured speed are compared without what the host's other load took: that came and went
    whatever the plan was.

    Parameters
    ----------
    predicted
        None: nothing could be predicted when it was decided.
    measured_samples_per_s
        Mean over its windows, as measured.
    n_sample
        Steady windows behind the measurement.
    host_share
        Part of that time which other load on the host took.
    """

    decision: str
    plan: ResourcePlan
    predicted: Prediction | None
    measured_samples_per_s: float
    before_samples_per_s: float | None
    n_sample: int
    applied_at_s: float
    pause_s: float
    host_share: float = 0.0

    @property
    def plan_samples_per_s(self) -> float:
        """Measured throughput of the plan on a host without other load."""
        return self.measured_samples_per_s / (1 - self.host_share)

    @property
    def promised(self) -> Prediction | None:
        """What was predicted of the plan on a host without other load."""
        return None if self.predicted is None else self.predicted.without_host

    @property
    def error(self) -> float | None:
        """Relative error of the prediction, without what the host changed."""
        plan = self.promised
        return None if plan is None else plan.samples_per_s / self.plan_samples_per_s - 1

    @property
    def inside_band(self) -> bool | None:
        """Whether the measurement lies in the predicted band, without what the host changed."""
        plan = self.promised
        return None if plan is None else plan.low <= self.plan_samples_per_s <= plan.high
