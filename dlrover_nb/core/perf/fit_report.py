"""What a fit determines and what it does not, in numbers and a few sentences.

The report is made from `Fitted`, the learned values of a model, and not from the model: so the model imports
this module, and this module does not import the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.perf import coefficients
from dlrover_nb.core.perf.smooth import refit
from dlrover_nb.core.perf.terms import TERMS
from dlrover_nb.core.structs.views.fit import Coefficient, FitReport, FormWeight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.fit_input import Windows
    from dlrover_nb.core.perf.forms import Family, FittedForm
    from dlrover_nb.core.perf.smooth import Smooth

    Array = NDArray[np.float64]

IDENTIFIED_SD = 0.2  # of a term's share: above it the data does not determine the share
FELT_SHARE = 0.02  # of a step: a further term below it is not named
_FURTHER_WORDS = {
    "contention": "workers wait for what they share, such as cores and the network",
    "barrier": "workers wait for the slowest of them",
    "dense": "a PS needs time for dense parameters, whatever the batch",
    "connections": "each further PS costs a worker time",
    "gather": "workers gather the embedding rows of the others",
}
_AXIS_WORDS = ("the number of workers", "the number of PS", "CPU per worker", "CPU per PS")


@dataclass(frozen=True, slots=True)
class Fitted:
    """The learned values of a fit; fields as the attributes of `ThroughputModel` of the same names.

    Parameters
    ----------
    log_iter
        ndarray of shape (n_plan,): log T_iter of the measured configurations by the model alone.
    held_out
        ndarray of shape (n_plan,): predicted minus measured log T_iter of each configuration left out; empty
        for fewer than four.
    """

    evidence: Evidence
    columns: Array
    family: Family
    forms: tuple[FittedForm, ...]
    terms: tuple[str, ...]
    coefficients: Array
    draws: Array
    identified: NDArray[np.bool_]
    smooth: Smooth | None
    log_iter: Array
    held_out: Array


def chosen_terms(shares: Array, family: Family) -> tuple[str, ...]:
    """Return the family's terms and those further ones whose share of the iteration is not negligible."""
    felt = zip(TERMS, shares, strict=True)
    return tuple(term for term, share in felt if term in family.terms or share >= FELT_SHARE)


def identified_terms(forms: Sequence[FittedForm], error: Array) -> NDArray[np.bool_]:
    """Return which of `TERMS` the data determines: known in the forms that have it, by their weight."""
    sure_weight, present = np.zeros(len(TERMS)), np.zeros(len(TERMS))
    for form in forms:
        sure = coefficients.share_errors(form.solved, error) < IDENTIFIED_SD
        sure_weight[form.form.index] += form.weight * sure
        present[form.form.index] += form.weight
    return np.asarray(sure_weight > present / 2)


def report(fit: Fitted, windows: Windows) -> FitReport:
    """Return the report of a fit to these windows."""
    off = _in_sample(fit, windows)
    return FitReport(
        coefficients=_coefficients(fit),
        n_sample=int(windows.n_window.sum()),
        n_plan=len(fit.evidence),
        rmsle=float(np.sqrt(np.mean(off**2))) if len(off) else 0.0,
        mape=float(np.mean(np.abs(np.expm1(-off)))) if len(off) else 0.0,
        note=_note(fit),
        forms=tuple(FormWeight(f.name, f.weight, f.cv_error) for f in fit.forms),
        rmsle_cv=_left_out_error(fit),
        latest_error=_latest_error(fit),
    )


def _coefficients(fit: Fitted) -> tuple[Coefficient, ...]:
    spread = fit.draws.std(axis=0)
    rows = zip(TERMS, fit.coefficients, spread, fit.identified, strict=True)
    return tuple(
        Coefficient(term, float(value), float(sd), bool(identified))
        for term, value, sd, identified in rows
        if term in fit.terms
    )


def _in_sample(fit: Fitted, windows: Windows) -> Array:
    """Return predicted minus measured log T_iter of each window, by the model and not by the measurement."""
    if not len(windows):
        return np.zeros(0)
    evidence = fit.evidence
    which = evidence.index_of(windows.axes, windows.batch_size)
    return np.asarray(fit.log_iter[which] - windows.log_iter)


def _left_out_error(fit: Fitted) -> float | None:
    """Return the RMSLE of configurations predicted without them; None while there are too few."""
    off = fit.held_out
    if not len(off):
        return None
    if fit.smooth is not None:
        off, _ = fit.smooth.leave_one_out(-off)
    return float(np.sqrt(np.mean(off**2)))


def _latest_error(fit: Fitted) -> float | None:
    """Return predicted over measured throughput minus 1 of the latest configuration, fitted without it."""
    evidence = fit.evidence
    if len(evidence) < 2:
        return None
    out = np.arange(len(evidence)) == evidence.latest
    offs = [_without(form, out) for form in fit.forms]
    off = np.sum([form.weight * f for form, f in zip(fit.forms, offs, strict=True)], axis=0)
    here = float(off[out][0])
    if fit.smooth is not None:
        rest = refit(fit.smooth, evidence.axes[~out], -off[~out])
        here += float(rest.at(evidence.axes[out], rest.weights(-off[~out]))[0][0])
    return float(np.expm1(np.clip(-here, -50, 50)))


def _without(form: FittedForm, out: NDArray[np.bool_]) -> Array:
    """Return predicted minus measured log T_iter of all configurations, fitted without some."""
    shares = coefficients.shares_without(form.solved, out)
    return np.log(np.maximum(form.solved.rows @ shares, coefficients.TINY))


def _note(fit: Fitted) -> str:
    evidence = fit.evidence
    if not len(evidence):
        return "No plan was measured yet; the predictions come from similar finished jobs."
    if len(evidence) == 1:
        return (
            f"We have measured one plan, so we know only its own step time "
            f"({np.exp(evidence.log_iter[0]) * 1e3:.3g} ms); the predictions for other plans are wide ranges."
        )
    return f"We have measured {len(evidence)} plans; {_known(fit)}{_together(fit)}{_beyond_first(fit)}"


def _known(fit: Fitted) -> str:
    is_identified = dict(zip(TERMS, fit.identified, strict=True))
    unknown = [term for term in fit.terms if not is_identified[term]]
    if not unknown:
        return "they show how long each part of a step takes."
    return (
        f"they do not show yet how long {and_list(unknown)} take{'s' * (len(unknown) == 1)}{_because(fit)}."
    )


def _because(fit: Fitted) -> str:
    axes = fit.evidence.axes.T
    constant = [_AXIS_WORDS[i] for i in fit.family.axes if np.ptp(axes[i]) == 0]
    return f", because {and_list(constant)} never varied" if constant else ", too few plans were tried"


def _together(fit: Fitted) -> str:
    """Say which terms vary in proportion over the tried plans, so that only their sum is known."""
    groups: dict[bytes, list[str]] = {}
    for term in fit.terms:
        column = fit.columns[:, TERMS.index(term)]
        largest = column.max()
        if largest > 0:
            groups.setdefault(np.round(column / largest, 9).tobytes(), []).append(term)
    sums = [and_list(terms) for terms in groups.values() if len(terms) > 1]
    return f" We can only measure {' together, and '.join(sums)} together." if sums else ""


def _beyond_first(fit: Fitted) -> str:
    further = [term for term in fit.terms if term not in fit.family.terms]
    if not further or not len(fit.held_out):
        return ""
    return f" The speeds also show that {and_list([_FURTHER_WORDS[term] for term in further])}."
