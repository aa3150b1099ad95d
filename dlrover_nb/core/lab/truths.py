"""True speeds of jobs in the lab, which no policy sees and no model of ours fits exactly.

A policy that plans by a model would look better than it is, if the jobs of a comparison obeyed that model. So
the truth of a job is one of three:

- speeds that were measured over workers and PS (`measured_speeds.TableTruth`);
- a machine whose parts overlap (`OverlapTruth`): the slowest part bounds a step, where the fitted forms add
  parts up, and cores saturate, where the forms divide by them;
- a job of one's own by its last fit (`FittedTruth`), bent by as much as that fit was wrong between plans.

Rejected: Eqs. 1-6 with drawn coefficients, as the simulator has them. They are the family that is fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.perf.terms import COMPUTED, TERMS, WAITED, axes_of
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.samples import TimeSplit

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.past_jobs import FitSummary

N_WAVE = 8  # of which a bent surface is made
LEAST_BEND = 0.05  # standard deviation of log speed: no fit is better than that on plans that never ran
TYPICAL_BATCH = 512


class LabTruth(Protocol):
    """The speed of a job as a function of its plan, and what its nodes use."""

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        """Return samples per second of the whole job under a plan, without noise; > 0."""
        ...

    def speed_served(self, plan: ResourcePlan, batch_size: int, times: float) -> float:
        """Return samples per second while what a step waits for at its PS takes so many times as long."""
        ...

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        """Return the parts of T_iter; they sum to w*m/speed."""
        ...

    def used_cores(self, plan: ResourcePlan, batch_size: int) -> tuple[float, float]:
        """Return the cores that a worker and a PS keep busy."""
        ...


def speed_waiting(truth: LabTruth, plan: ResourcePlan, batch_size: int, times: float) -> float:
    """Return samples per second where parts of a step add up, and waits for PS take so many times as long."""
    split = truth.split(plan, batch_size)
    longer_s = (times - 1) * (split.lookup_s + split.update_s)
    return truth.speed(plan, batch_size) * split.total_s / (split.total_s + longer_s)


@dataclass(frozen=True, slots=True)
class OverlapTruth:
    """Workers compute while parameters travel: the slowest of three parts bounds a step.

    Parameters
    ----------
    grad_s
        Core seconds of a worker for one sample.
    serve_s
        Core seconds of a PS for the rows and gradients of one sample.
    link_s
        Seconds that the dense parameters of one worker's step take on the link of one PS.
    constant_s
        What no part shortens; it grows by a quarter with each doubling of the workers.
    half_cores
        Cores at which a node uses half of what it has (NEARCHUS, Figs. 3 and 4: 80).
    sharpness
        1: parts add up, as in Eqs. 1-6. Infinite: only the slowest counts.
    hot
        How much more than its even share the fullest PS holds.
    """

    grad_s: float
    serve_s: float
    link_s: float
    constant_s: float
    half_cores: float = 80.0
    sharpness: float = 4.0
    hot: float = 0.05

    def __post_init__(self) -> None:
        for name in ("grad_s", "serve_s", "link_s", "constant_s", "hot"):
            _check.at_least(name, getattr(self, name), 0)
        _check.above_zero("grad_s + constant_s", self.grad_s + self.constant_s)
        _check.above_zero("half_cores", self.half_cores)
        _check.at_least("sharpness", self.sharpness, 1)

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        """Return samples per second (Eq. 1)."""
        return plan.worker.count * batch_size / self._iter_s(plan, batch_size)

    def speed_served(self, plan: ResourcePlan, batch_size: int, times: float) -> float:
        """Return samples per second with slower serving, as far as computing does not hide it."""
        return replace(self, serve_s=self.serve_s * times).speed(plan, batch_size)

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        """Return the parts as a worker measures them: what it computes, and what it waits beyond that."""
        compute_s, serve_s, link_s = self._parts_s(plan, batch_size)
        waited_s = self._joined_s(plan, batch_size) - compute_s
        remote_s = serve_s + link_s
        share = serve_s / remote_s if remote_s > 0 else 0.0
        return TimeSplit(
            compute_s=compute_s,
            lookup_s=waited_s * share,
            update_s=waited_s * (1 - share),
            other_s=self._constant_s(plan),
        )

    def used_cores(self, plan: ResourcePlan, batch_size: int) -> tuple[float, float]:
        """Return the cores that a worker and a PS keep busy, of those that they can use at all."""
        compute_s, serve_s, _ = self._parts_s(plan, batch_size)
        iter_s = self._iter_s(plan, batch_size)
        worker, ps = self._usable(plan.worker.cpu), self._usable(plan.ps.cpu)
        return worker * compute_s / iter_s, ps * serve_s / iter_s

    def _usable(self, cores: float) -> float:
        return cores / (1 + cores / self.half_cores)

    def _parts_s(self, plan: ResourcePlan, batch_size: int) -> tuple[float, float, float]:
        w, p, m = plan.worker.count, plan.ps.count, batch_size
        share = 1.0 if p == 1 else (1 + self.hot) / p
        compute_s = self.grad_s * m / self._usable(plan.worker.cpu)
        serve_s = self.serve_s * m * w * share / self._usable(plan.ps.cpu)
        return compute_s, serve_s, self.link_s * w * share

    def _joined_s(self, plan: ResourcePlan, batch_size: int) -> float:
        parts = self._parts_s(plan, batch_size)
        longest = max(parts)
        if longest == 0:
            return 0.0
        total = math.fsum((part / longest) ** self.sharpness for part in parts)
        return float(longest * total ** (1 / self.sharpness))

    def _constant_s(self, plan: ResourcePlan) -> float:
        return self.constant_s * (1 + math.log2(plan.worker.count) / 4)

    def _iter_s(self, plan: ResourcePlan, batch_size: int) -> float:
        return self._joined_s(plan, batch_size) + self._constant_s(plan)


def drawn_overlap(rng: np.random.Generator, *, spread: float = 0.5) -> OverlapTruth:
    """Draw a machine around that of a click model.

    Parameters
    ----------
    spread
        Standard deviation of the logarithm of each coefficient.

    Notes
    -----
    With 8 workers and 2 PS of 4 cores, computing takes 0.2 s of a step, serving 0.15 s and the link 0.1 s
    if each were alone, near the shares that DLRover-RM reports (section 2).
    """
    compute_s, serve_s, link_s, constant_s = np.array([0.2, 0.15, 0.1, 0.02]) * rng.lognormal(0, spread, 4)
    usable, share = 4 / (1 + 4 / 80), 1.05 / 2
    return OverlapTruth(
        grad_s=float(compute_s) * usable / TYPICAL_BATCH,
        serve_s=float(serve_s) * usable / (TYPICAL_BATCH * 8 * share),
        link_s=float(link_s) / (8 * share),
        constant_s=float(constant_s),
    )


def relative_of(truth: OverlapTruth, rng: np.random.Generator, *, kinship: float) -> OverlapTruth:
    """Draw a job of the same kind: each coefficient is near that of the kind.

    Parameters
    ----------
    kinship
        Standard deviation of the logarithm of each coefficient.
    """
    grad, serve, link, constant = rng.lognormal(0, kinship, 4)
    return replace(
        truth,
        grad_s=truth.grad_s * float(grad),
        serve_s=truth.serve_s * float(serve),
        link_s=truth.link_s * float(link),
        constant_s=truth.constant_s * float(constant),
    )


class FittedTruth:
    """A job by the last fit of its run, bent by the error that the fit had between plans.

    Parameters
    ----------
    fit
        The summary in the history.
    rng
        Draws the bend: a smooth surface over the logarithms of the four axes, the same in each call.
    """

    def __init__(self, fit: FitSummary, rng: np.random.Generator) -> None:
        self._model = ThroughputModel(
            dense_bytes=max(fit.dense_bytes, 1.0), embedding_dim=max(fit.embedding_dim, 1), prior=fit
        ).fit(())
        self._bend = max(fit.log_error, LEAST_BEND) * math.sqrt(2 / N_WAVE)
        self._slopes = rng.normal(0, 1.0, (N_WAVE, 4))
        self._phases = rng.uniform(0, 2 * math.pi, N_WAVE)

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        """Return samples per second by the fit, and the bend."""
        return plan.worker.count * batch_size / float(self._terms_s(plan, batch_size).sum())

    def speed_served(self, plan: ResourcePlan, batch_size: int, times: float) -> float:
        """Return samples per second with longer waits for PS."""
        return speed_waiting(self, plan, batch_size, times)

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        """Return the parts as the terms of the fit name them."""
        seconds = dict(zip(TERMS, self._terms_s(plan, batch_size).tolist(), strict=True))
        compute_s = sum(seconds[term] for term in COMPUTED)
        waited_s = sum(seconds[term] for term in WAITED)
        rest_s = sum(seconds.values()) - compute_s - waited_s
        return TimeSplit(compute_s=compute_s, lookup_s=waited_s, other_s=rest_s)

    def used_cores(self, plan: ResourcePlan, batch_size: int) -> tuple[float, float]:
        """Return the cores busy: of a worker while it computes, of a PS while workers wait for it."""
        parts = self.split(plan, batch_size)
        total_s = parts.total_s
        return (
            plan.worker.cpu * parts.compute_s / total_s,
            plan.ps.cpu * min(parts.lookup_s / total_s, 1.0),
        )

    def _terms_s(self, plan: ResourcePlan, batch_size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        axes = axes_of([plan])
        seconds = self._model.columns(axes, batch_size)[0] * self._model.coefficients_
        waves = np.cos(self._slopes @ np.log(axes[0]) + self._phases)
        return np.asarray(seconds * math.exp(self._bend * float(waves.sum())))
