"""What users ask a job beside its picture: what if, why this plan, what did a node say."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions import BreakEven, Candidate, Prediction
from dlrover_nb.core.structs.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a plan would bring if it ran instead of today's.

    Parameters
    ----------
    plan
        The plan that was asked about.
    candidate
        What it would bring and cost; None while nothing is known to predict it by.
    refusal
        Why a decision for it would be refused now (which bound, what is possible); empty: it would not.
    """

    plan: ResourcePlan
    candidate: Candidate | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Marginal:
    """What the next step along one axis would bring, all else as in the plan that is explained.

    Parameters
    ----------
    what
        The step in words: ``1 more worker``, ``0.5 instead of 0.25 cpu per PS``, ``1 fewer PS``.
    weighed
        The plan after the step.
    samples_per_s
        Predicted change of throughput; None while nothing is known.
    cost_per_hour
        Change of money per hour; None where a price is unknown.
    """

    what: str
    weighed: Weighed
    samples_per_s: float | None
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """One plan among the measurements that a prediction rests on."""

    plan: ResourcePlan
    samples_per_s: float  # median of its windows
    n_window: int
    predicted: Prediction  # by the fit as it is now


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan is recommended (or, where nothing is open, why none is), and what would change that.

    Parameters
    ----------
    plan, proposal
        The plan that is explained, and the id of its proposal; None: it is the one that runs.
    candidate, baseline
        What it brings, beside what runs; None while nothing is known.
    why
        The reason in words.
    binding
        The constraints that the plan lies at, in words: ``workers: 3, the most that the job's bounds allow``.
    marginals
        One step along each axis, up and down, as far as there is one.
    evidence
        The measured plans behind the prediction, nearest to `plan` first.
    flip
        The nearest change of one number at which the recommendation would be another.
    runner_up
        The next best plan, and what it lacks in words.
    probe, probe_why
        The cheapest short experiment that would tell most about which plan is best, and what it would tell;
        None where nothing that is at stake would pay for one.
    """

    plan: ResourcePlan
    proposal: str | None
    candidate: Candidate | None
    baseline: Candidate | None
    why: str
    binding: tuple[str, ...] = ()
    marginals: tuple[Marginal, ...] = ()
    evidence: tuple[Measured, ...] = ()
    flip: BreakEven | None = None
    runner_up: Candidate | None = None
    runner_up_why: str = ""
    probe: Candidate | None = None
    probe_why: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a node wrote: by logging, or to its standard output or error (`level` stdout, stderr)."""

    at_s: float
    node: str
    level: str
    text: str
