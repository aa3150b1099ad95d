"""`ThroughputModel`: Eqs. 1-6 of DLRover-RM, further terms that the data supports, and calibrated bands.

A prediction is the mean logarithm over coefficient sets of several forms of T_iter (`forms`, `draws`),
corrected near measured plans by the residuals of the forms there (`smooth`), and, at a measured plan, its own
windows.

Four rules determine the bands. A configuration that was measured is predicted by its own windows, not by the
model. Any other gets the spread over all coefficient sets that fit equally well, widened by the error between
configurations, by the windows' noise, and beyond what was tried by the drift that left-out extremes show
(`calibrate`). The whole is scaled by the errors of left-out configurations over their claimed bands. And no
unmeasured configuration gets a narrower band than a measured one.

More CPU per worker or per PS never makes an unmeasured plan slower; in workers and PS speed may fall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import Z_90
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf import calibrate, coefficients, forms
from dlrover_nb.core.perf.calibrate import Errors, draw_all
from dlrover_nb.core.perf.evidence import condense
from dlrover_nb.core.perf.fit_input import read
from dlrover_nb.core.perf.fit_report import Fitted, chosen_terms, identified_terms, report
from dlrover_nb.core.perf.predictions import Predictions
from dlrover_nb.core.perf.prior import prior_of
from dlrover_nb.core.perf.smooth import smooth
from dlrover_nb.core.perf.terms import TERMS, all_columns, axes_of
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.views.past_jobs import FitSummary, TermKnowledge

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.fit_input import Samples
    from dlrover_nb.core.perf.forms import Family, FittedForm
    from dlrover_nb.core.perf.prior import Prior
    from dlrover_nb.core.perf.smooth import Smooth
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.fit import FitReport

    Array = NDArray[np.float64]

BLOCK = 4096  # plans predicted at a time: bounds memory at n_draw numbers each
LEAST = 1e-6  # of the fastest measured iteration: no draw predicts less
PARAMETERS = (
    "dense_bytes", "embedding_dim", "n_draw", "seed", "prior", "prior_weight", "exchange", "mini_batch",
)  # fmt: skip


class ThroughputModel:
    """Resource-performance model of one job.

    Parameters
    ----------
    dense_bytes
        M of Eq. 4, > 0.
    embedding_dim
        D of Eq. 5, > 0.
    n_draw
        Coefficient sets behind a band, >= 40, even.
    seed
        Of the draws. The same samples give the same bands.
    prior
        The fit of a similar finished job; None: no prior.
    prior_weight
        How many measured configurations the prior counts for, > 0.
    exchange
        How workers exchange gradients: which forms are fitted.
    mini_batch
        Rows of the mini-batches in which workers share a global batch; None: each computes m of Eq. 1.

    Attributes
    ----------
    coefficients_
        ndarray of shape (12,): coefficients of `terms.TERMS` in seconds per unit of their column, the
        weighted mean over forms.
    draws_
        ndarray of shape (n_draw, 12): coefficient sets that fit equally well.
    identified_
        ndarray of shape (12,): whether the data determines the coefficient.
    forms_
        The fitted forms with their weights, heaviest first; empty when there is a prior and no sample.
    terms_
        The terms of T_iter that the fit uses: the paper's, and further ones that are not negligible.
    columns_
        ndarray of shape (n_plan, 12): `terms.all_columns` of the measured configurations.
    smooth_
        Correction near measured plans; None while too few are measured.
    error_
        Between-configuration error of log T_iter.
    widening_
        Factor on the claimed standard deviations, by left-out configurations; 1 while there are too few.
    drift_
        Error of log T_iter per doubling beyond what was tried.
    evidence_
        The measured configurations.
    report_
        The fit in numbers and words.

    Examples
    --------
    >>> model = ThroughputModel(dense_bytes=1e6, embedding_dim=16)
    >>> model.get_params()["n_draw"]
    200
    """

    def __init__(  # noqa: PLR0913 - scikit-learn's: each parameter by its name
        self,
        *,
        dense_bytes: float,
        embedding_dim: float,
        n_draw: int = 200,
        seed: int = 0,
        prior: FitSummary | None = None,
        prior_weight: float = 1.0,
        exchange: forms.Exchange = forms.Exchange.PS,
        mini_batch: int | None = None,
    ) -> None:
        self.dense_bytes = dense_bytes
        self.embedding_dim = embedding_dim
        self.n_draw, self.seed = n_draw, seed
        self.prior = prior
        self.prior_weight = prior_weight
        self.exchange, self.mini_batch = exchange, mini_batch

    def get_params(self, *, deep: bool = True) -> dict[str, object]:  # noqa: ARG002 - scikit-learn's
        """Return the constructor's arguments by name, as scikit-learn's `clone` requires."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def fit(self, samples: Samples) -> Self:
        """Fit the model to steady windows and return self.

        Parameters
        ----------
        samples
            Records, or a DataFrame with the columns workers, ps, worker_cpu, ps_cpu, batch_size,
            samples_per_s and optionally at_s. No sample at all is allowed only with a prior.

        Raises
        ------
        InvalidValueError
            When there is no sample and no prior, a column is missing, or a value is not a number above zero.

        Notes
        -----
        Eqs. 1-6 of DLRover-RM; windows are condensed to configurations first (`perf.evidence`).
        """
        self._check_parameters()
        windows = read(samples)
        prior = prior_of(self.prior, self.prior_weight) if self.prior is not None else None
        if not len(windows) and prior is None:
            raise InvalidValueError(
                "a fit needs >= 1 steady sample, got 0; wait until the job trains steadily"
            )
        self.evidence_: Evidence = condense(windows)
        self.columns_: Array = self.columns(self.evidence_.axes, self.evidence_.batch_size)
        self.smooth_: Smooth | None = None
        self.widening_, self.drift_ = 1.0, calibrate.PRIOR_DRIFT
        if len(windows):
            self._learn(prior)
        elif prior is not None:
            self._adopt(prior)
        self.report_: FitReport = report(self._fitted(), windows)
        return self

    def predict(self, axes: Array, batch_size: Array | float) -> Predictions:
        """Predict throughput (Eq. 1) with 90 % bands.

        Parameters
        ----------
        axes
            ndarray of shape (n_plans, 4), rows of `terms.axes_of`.
        batch_size
            m: one for all plans, or ndarray of shape (n_plans,).
        """
        self._check_fitted()
        batch = np.broadcast_to(np.asarray(batch_size, dtype=np.float64), len(axes))
        parts = [self._bands(axes[i : i + BLOCK], batch[i : i + BLOCK]) for i in range(0, len(axes), BLOCK)]
        log_iter, down, up, mean_down, mean_up = np.hstack(parts) if parts else np.zeros((5, 0))
        log_iter = self.evidence_.ordered_by_cpu(axes, batch, log_iter)
        rows = self.evidence_.index_of(axes, batch)
        is_measured, index = rows >= 0, rows[rows >= 0]
        log_iter[is_measured] = self.evidence_.log_iter[index]
        down[is_measured] = up[is_measured] = self.evidence_.half_width[index]
        mean_down[is_measured] = mean_up[is_measured] = self.evidence_.mean_half_width[index]
        speed = np.log(axes[:, 0]) + np.log(batch) - log_iter  # (eq. 1)
        bands = (np.exp(speed + by) for by in (-down, up, -mean_down, mean_up))
        low, high, mean_low, mean_high = bands
        return Predictions(np.exp(speed), low, high, self._outside(axes, batch), mean_low, mean_high)

    def predict_plan(self, plan: ResourcePlan, batch_size: float) -> Prediction:
        """Predict one plan."""
        return self.predict(axes_of([plan]), batch_size)[0]

    def log_draws(self, axes: Array, batch_size: Array | float) -> Array:
        """Return log T_iter of each plan under each coefficient set: shape (n_plans, n_draw)."""
        self._check_fitted()
        return self._log_times(axes, batch_size)[0]

    def term_seconds(self, axes: Array, batch_size: Array | float) -> Array:
        """Return the seconds of each of `terms_` at plans by the coefficients: shape (n_plans, n_term).

        Their sum is T_iter by the equations alone: neither a measurement nor the correction near measured
        plans is in it (`planner.predictions.iteration_parts` says what they leave unexplained).
        """
        self._check_fitted()
        index = [TERMS.index(term) for term in self.terms_]
        return np.asarray((self.columns(axes, batch_size) * self.coefficients_)[:, index])

    def columns(self, axes: Array, batch_size: Array | float) -> Array:
        """Return the columns of `TERMS` of plans: ndarray of shape (n_plans, 12)."""
        sizes = {name: getattr(self, name) for name in ("dense_bytes", "embedding_dim", "mini_batch")}
        return all_columns(axes, batch_size, **sizes)

    def is_measured(self, plan: ResourcePlan, batch_size: float) -> bool:
        """Whether steady windows of this configuration are behind the fit."""
        self._check_fitted()
        return bool(
            self.evidence_.index_of(axes_of([plan]), np.array([batch_size], dtype=np.float64))[0] >= 0
        )

    def summary(self, at_s: float) -> FitSummary:
        """Return a summary of the fit, small enough to keep permanently and to be a similar job's prior."""
        self._check_fitted()
        evidence, fit = self.evidence_, self.report_
        if not len(evidence) and self.prior is not None:
            return self.prior
        coefficients = fit.coefficients
        return FitSummary(
            at_s=at_s,
            terms=tuple(TermKnowledge(c.term, c.value, c.std_error, c.identified) for c in coefficients),
            log_error=self.error_,
            n_plan=fit.n_plan,
            n_sample=fit.n_sample,
            dense_bytes=self.dense_bytes,
            embedding_dim=round(self.embedding_dim),
            batch_size=round(float(np.median(evidence.batch_size))),
        )

    def _fitted(self) -> Fitted:
        return Fitted(
            self.evidence_,
            self.columns_,
            self._family,
            self.forms_,
            self.terms_,
            self.coefficients_,
            self.draws_,
            self.identified_,
            self.smooth_,
            self.log_draws(self.evidence_.axes, self.evidence_.batch_size).mean(axis=1),
            self.held_out_,
        )

    def _learn(self, prior: Prior | None) -> None:
        evidence = self.evidence_
        columns, more = self.columns_, evidence.axes + np.array([1, 0, 0, 0])
        both = forms.Columns(columns, self.columns(more, evidence.batch_size))
        self.forms_: tuple[FittedForm, ...] = forms.weigh(evidence, both, self._family, prior)
        self.error_, freedom = self._form_error()
        errors = Errors(np.hypot(self.error_, evidence.std_error), freedom)
        self.draws_: Array = draw_all(self.forms_, errors, n_draw=self.n_draw, seed=self.seed, prior=prior)
        self.coefficients_: Array = np.sum([f.weight * f.coefficients for f in self.forms_], axis=0)
        self.identified_: NDArray[np.bool_] = identified_terms(self.forms_, errors.each)
        seconds = columns * self.coefficients_
        seconds /= seconds.sum(axis=1, keepdims=True)
        self.terms_ = chosen_terms(seconds.mean(axis=0), self._family)
        self.drift_ = calibrate.drift(evidence, self.forms_, self.error_)
        if len(evidence) >= forms.N_CHOICE:
            self._smooth_and_calibrate()

    def _smooth_and_calibrate(self) -> None:
        """Correct the forms near measured plans, and scale the bands by the errors of left-out plans."""
        evidence = self.evidence_
        times = self._forms_log(evidence.axes, evidence.batch_size)
        errors, variance = -self.held_out_, np.full(len(evidence), self.error_**2)
        self.smooth_ = smooth(evidence.axes, evidence.log_iter - times.mean(axis=1))
        if self.smooth_ is not None:
            self._corrections: Array = self.smooth_.weights(evidence.log_iter[:, None] - times)
            self.error_ = self.smooth_.error
            errors, variance = self.smooth_.leave_one_out(errors)
        claimed = np.sqrt(variance + times.var(axis=1) + evidence.std_error**2)
        self.widening_ = calibrate.widening(errors, claimed)
        self.evidence_ = evidence.bounded(self.error_, coefficients.N_PRIOR_PLAN + len(evidence))

    def _adopt(self, prior: Prior) -> None:
        """Use the prior alone: there are no samples."""
        self.forms_ = ()
        self.error_ = max(prior.log_error, coefficients.ASSUMED_ERROR)
        self.coefficients_ = prior.coefficients
        self.draws_ = prior.draw(self.n_draw, self.seed)
        self.identified_ = np.zeros(len(TERMS), dtype=np.bool_)
        self.terms_ = chosen_terms((prior.coefficients > 0).astype(np.float64), self._family)

    def _form_error(self) -> tuple[float, float]:
        """Return the error of the forms between configurations and the degrees of freedom behind it."""
        if not len(self.forms_[0].held_out):
            errors = [coefficients.residual_error(f.solved) for f in self.forms_]
            error, freedom = np.array(errors).T @ np.array([f.weight for f in self.forms_])
            return float(error), float(freedom)
        off = self.held_out_
        freedom = coefficients.N_PRIOR_PLAN + len(off)
        squares = coefficients.N_PRIOR_PLAN * coefficients.ASSUMED_ERROR**2 + float(off @ off)
        return float(np.sqrt(squares / freedom)), freedom

    @property
    def held_out_(self) -> Array:
        """Predicted minus measured log T_iter of each configuration, left out; empty for fewer than four."""
        off = [f.weight * f.held_out for f in self.forms_]
        return np.asarray(np.sum(off, axis=0)) if off else np.zeros(0)

    def _forms_log(self, axes: Array, batch_size: Array | float) -> Array:
        """Return log T_iter of each plan under each draw by its form alone."""
        times = self.columns(axes, batch_size) @ self.draws_.T
        fastest = np.exp(self.evidence_.log_iter.min()) if len(self.evidence_) else coefficients.TINY
        np.maximum(times, LEAST * fastest, out=times)
        return np.asarray(np.log(times, out=times))

    def _bands(self, axes: Array, batch: Array) -> Array:
        """Return log T_iter, and the half-widths of log throughput: shape (5, n_plans).

        They are those below and above of a window, and those below and above of the mean.
        """
        times, variance = self._log_times(axes, batch)
        centre = times.mean(axis=1)
        if not len(self.evidence_):  # the prior alone; its draws are mirrored around it
            centre = np.log(np.maximum(self.columns(axes, batch) @ self.coefficients_, coefficients.TINY))
        ordered = np.sort(times, axis=1)  # ten times faster than partitioning at two ranks
        rank, evidence = int(0.05 * (self.n_draw - 1)), self.evidence_
        slow, fast = ordered[:, -1 - rank] - centre, centre - ordered[:, rank]
        sides = np.maximum(slow, 0), np.maximum(fast, 0)
        spreads = (evidence.noise, evidence.half_width), (0.0, evidence.mean_half_width)
        widths = [self._half_widths(sides, self._noise(axes, variance, n), least) for n, least in spreads]
        return np.vstack((centre, *widths[0], *widths[1]))

    def _half_widths(self, sides: tuple[Array, Array], noise: Array, measured: Array) -> list[Array]:
        """Return the half-widths below and above; none is narrower than that of a measured configuration."""
        least = measured.max(initial=0.0)
        return [np.maximum(np.hypot(self.widening_ * side, noise), least) for side in sides]

    def _log_times(self, axes: Array, batch: Array | float) -> tuple[Array, Array]:
        """Return log T_iter under each draw, corrected, and its variance between configurations."""
        times = self._forms_log(axes, batch)
        if self.smooth_ is None:
            return times, np.full(len(axes), self.error_**2)
        correction, variance = self.smooth_.at(axes, self._corrections)
        return np.asarray(times + correction), variance

    def _noise(self, axes: Array, variance: Array, of_windows: float) -> Array:
        """Return half of the 90 % band of log T_iter that remains when the coefficients are known."""
        drifted = self.drift_ * calibrate.beyond(self.evidence_, axes)
        own = variance + of_windows**2
        return np.asarray(Z_90 * np.sqrt(self.widening_**2 * own + drifted**2))

    def _outside(self, axes: Array, batch: Array) -> NDArray[np.bool_]:
        if not len(self.evidence_):
            return np.ones(len(axes), dtype=np.bool_)
        measured = np.column_stack((self.evidence_.axes, self.evidence_.batch_size))
        here = np.column_stack((axes, batch))
        return np.asarray(((here < measured.min(axis=0)) | (here > measured.max(axis=0))).any(axis=1))

    @property
    def _family(self) -> Family:
        return forms.FAMILIES[self.exchange]

    def _check_fitted(self) -> None:
        if not hasattr(self, "draws_"):
            raise InvalidValueError("the model needs samples, got none; call fit first")

    def _check_parameters(self) -> None:
        for name in ("dense_bytes", "embedding_dim", "prior_weight"):
            _check.above_zero(name, getattr(self, name))
        _check.at_least("n_draw", self.n_draw, 40)
        if self.n_draw % 2:
            raise InvalidValueError(f"n_draw must be even, got {self.n_draw}; each draw has a mirrored twin")
