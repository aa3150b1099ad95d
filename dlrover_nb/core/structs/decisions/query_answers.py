"""Answers to queries about a job beside its snapshot: what-if, explanation, and log lines."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.decisions.decisions import BreakEven
from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Weighed:
    """The prediction for a plan in place of the current one.

    Parameters
    ----------
    plan
        The plan in question.
    candidate
        Its predicted gain and cost; None while no prediction is possible.
    refusal
        Why a decision for it would be refused now (which bound, what is possible); empty: not refused.
    caution
        What to know before a decision for it, which is not refused for that; empty: nothing.
    """

    plan: ResourcePlan
    candidate: Candidate | None
    refusal: str = ""
    caution: str = ""


@dataclass(frozen=True, slots=True)
class Marginal:
    """The effect of the next step along one axis, all else as in the explained plan.

    Parameters
    ----------
    what
        The step in words: ``1 more worker``, ``0.5 instead of 0.25 cpu per PS``, ``1 fewer PS``.
    weighed
        The plan after the step.
    samples_per_s
        Predicted change of throughput; None: unknown.
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
    """Why a plan is recommended (or why none is), and what would change that.

    Parameters
    ----------
    plan, proposal
        The plan that is explained, and the id of its proposal; None: it is the one that runs.
    candidate, baseline
        Its prediction, and that of the running plan; None: unknown.
    why
        The reason in words.
    binding
        The active constraints as text: ``workers: 3, the most that the job's bounds allow``.
    marginals
        One step along each axis, up and down, where there is one.
    evidence
        The measured plans behind the prediction, nearest to `plan` first.
    flip
        The nearest change of one quantity that alters the recommendation.
    runner_up
        The next best plan, and what it lacks.
    probe, probe_why
        The short experiment with the most information for its cost, and that information; None where none is
        worth its cost.
    bottleneck
        What limits the running plan, with its numbers, in one sentence; empty: not known yet.
    min_gain, min_saving
        The least gain of speed, and the least saving at the same speed, that a change must bring; None: of a
        master that does not say.
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
    bottleneck: str = ""
    min_gain: float | None = None
    min_saving: float | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a node wrote: by logging, or to its standard output or error (`level` stdout, stderr)."""

    at_s: float
    node: str
    level: str
    text: str
