"""The fitted resource-performance model as clients see it: its numbers, and its curves."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions.candidates import Prediction


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One term of the fitted model: its value, standard error, and whether the data determines it."""

    term: str
    value: float
    std_error: float
    identified: bool


@dataclass(frozen=True, slots=True)
class FormWeight:
    """A form of T_iter that was fitted: its weight in the prediction, and its error on left-out plans.

    `cv_error` is the RMSLE of plans predicted without them; None while there are too few to leave any out.
    """

    name: str
    weight: float
    cv_error: float | None


@dataclass(frozen=True, slots=True)
class FitReport:
    """The fitted resource-performance model in numbers.

    `rmsle` and `mape` are in-sample. `rmsle_cv` is the RMSLE of plans predicted without them, and
    `latest_error` predicted over measured throughput minus 1 of the latest plan, fitted without it; both are
    None while too few plans were measured.
    """

    coefficients: tuple[Coefficient, ...]
    n_sample: int
    n_plan: int  # distinct plans among the samples
    rmsle: float
    mape: float
    note: str  # text: which coefficients the data determine
    forms: tuple[FormWeight, ...] = ()  # heaviest first
    rmsle_cv: float | None = None
    latest_error: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Predicted throughput along one axis of the plan space, all else as now.

    `axis` is one of workers, ps, worker_cpu, ps_cpu. The points of `measured_*` are steady samples of
    plans that differ from the current one on this axis at most.
    """

    axis: str
    at: float  # where the current plan lies
    x: tuple[float, ...]
    predictions: tuple[Prediction, ...]
    measured_x: tuple[float, ...]
    measured_samples_per_s: tuple[float, ...]
