"""What a fit knows and what it does not, in numbers and a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf import solve
from dlrover_nb.core.perf.smooth import refit
from dlrover_nb.core.perf.terms import PAPER_TERMS, TERMS
from dlrover_nb.core.structs.past import FitSummary, TermKnowledge
from dlrover_nb.core.structs.snapshot import Coefficient, FitReport, FormWeight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.forms import Weighed
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.perf.windows import Windows

    Array = NDArray[np.float64]

IDENTIFIED_SD = 0.2  # of a term's share: above it the data does not tell the share
FELT_SHARE = 0.02  # of an iteration: a further term below it is not named
_AXIS_WORDS = ("the number of workers", "the number of PS", "CPU per worker", "CPU per PS")


def chosen_terms(shares: Array) -> tuple[str, ...]:
    """Return the paper's terms and those further ones that take a part of the iteration that is felt."""
    felt = zip(TERMS, shares, strict=True)
    return tuple(term for term, share in felt if term in PAPER_TERMS or share >= FELT_SHARE)


def identified_terms(weighed: Sequence[Weighed], error: Array) -> NDArray[np.bool_]:
    """Return which of `TERMS` the data determines: known in the forms that have it, by their weight."""
    known, present = np.zeros(len(TERMS)), np.zeros(len(TERMS))
    for form in weighed:
        sure = solve.share_errors(form.solved.rows, error) < IDENTIFIED_SD
        known[form.form.index] += form.weight * sure
        present[form.form.index] += form.weight
    return np.asarray(known > present / 2)


def report(model: ThroughputModel, windows: Windows) -> FitReport:
    """Return a fitted model's report."""
    evidence = model.evidence_
    off = _in_sample(model, windows)
    return FitReport(
        coefficients=_coefficients(model),
        n_sample=len(windows),
        n_plan=len(evidence),
        rmsle=float(np.sqrt(np.mean(off**2))) if len(off) else 0.0,
        mape=float(np.mean(np.abs(np.expm1(-off)))) if len(off) else 0.0,
        note=_note(model),
        forms=tuple(FormWeight(f.name, f.weight, f.cv_error) for f in model.forms_),
        rmsle_cv=_left_out_error(model),
        latest_error=_latest_error(model),
    )


def summarise(model: ThroughputModel, at_s: float) -> FitSummary:
    """Return what is worth keeping of a fitted model."""
    batch = model.evidence_.batch_size
    if not len(batch) and model.prior is not None:
        return model.prior
    return FitSummary(
        at_s=at_s,
        terms=tuple(
            TermKnowledge(c.term, c.value, c.std_error, c.identified) for c in model.report_.coefficients
        ),
        log_error=model.error_,
        n_plan=model.report_.n_plan,
        n_sample=model.report_.n_sample,
        dense_bytes=model.dense_bytes,
        embedding_dim=round(model.embedding_dim),
        batch_size=round(float(np.median(batch))),
    )


def _coefficients(model: ThroughputModel) -> tuple[Coefficient, ...]:
    spread = model.draws_.std(axis=0)
    rows = zip(TERMS, model.coefficients_, spread, model.identified_, strict=True)
    return tuple(
        Coefficient(term, float(value), float(sd), bool(known))
        for term, value, sd, known in rows
        if term in model.terms_
    )


def _in_sample(model: ThroughputModel, windows: Windows) -> Array:
    """Return predicted minus measured log T_iter of each window, by the model and not by the measurement."""
    if not len(windows):
        return np.zeros(0)
    evidence = model.evidence_
    predicted = model.log_draws(evidence.axes, evidence.batch_size).mean(axis=1)
    which = evidence.index_of(windows.axes, windows.batch_size)
    return np.asarray(predicted[which] - windows.log_iter)


def _left_out_error(model: ThroughputModel) -> float | None:
    """Return the RMSLE of configurations predicted without them; None while there are too few."""
    off = model.held_out_
    if not len(off):
        return None
    if model.smooth_ is not None:
        off, _ = model.smooth_.leave_one_out(-off)
    return float(np.sqrt(np.mean(off**2)))


def _latest_error(model: ThroughputModel) -> float | None:
    """Return predicted over measured throughput minus 1 of the latest configuration, fitted without it."""
    evidence = model.evidence_
    if len(evidence) < 2:
        return None
    out = np.arange(len(evidence)) == evidence.latest
    found = [_without(form, out) for form in model.forms_]
    off = np.sum([form.weight * f for form, f in zip(model.forms_, found, strict=True)], axis=0)
    here = float(off[out][0])
    if model.smooth_ is not None:
        rest = refit(model.smooth_, evidence.axes[~out], -off[~out])
        here += float(rest.at(evidence.axes[out], rest.weights(-off[~out]))[0][0])
    return float(np.expm1(np.clip(-here, -50, 50)))


def _without(form: Weighed, out: NDArray[np.bool_]) -> Array:
    """Return predicted minus measured log T_iter of all configurations, fitted without some."""
    shares = solve.shares_without(form.solved, out)
    return np.log(np.maximum(form.solved.rows @ shares, solve.TINY))


def _note(model: ThroughputModel) -> str:
    evidence = model.evidence_
    if not len(evidence):
        return "No plan was measured yet; what is predicted is what similar finished jobs did."
    if len(evidence) == 1:
        return (
            f"One plan was measured, so only its own iteration time is known "
            f"({np.exp(evidence.log_iter[0]) * 1e3:.3g} ms); how others would do is a range."
        )
    return f"{len(evidence)} plans were measured; {_known(model)}{_together(model)}{_beyond_paper(model)}"


def _known(model: ThroughputModel) -> str:
    known = dict(zip(TERMS, model.identified_, strict=True))
    unknown = [term for term in model.terms_ if not known[term]]
    if not unknown:
        return "they determine all terms of the iteration."
    return f"they do not yet tell the share of {_join(unknown)}{_because(model.evidence_)}."


def _because(evidence: Evidence) -> str:
    constant = [
        word for word, column in zip(_AXIS_WORDS, evidence.axes.T, strict=True) if np.ptp(column) == 0
    ]
    return f", because {_join(constant)} never varied" if constant else ", too few plans were tried"


def _together(model: ThroughputModel) -> str:
    """Say which terms the plans tried change in one proportion, so that only their sum is known."""
    groups: dict[bytes, list[str]] = {}
    for term in model.terms_:
        column = model.columns_[:, TERMS.index(term)]
        largest = column.max()
        if largest > 0:
            groups.setdefault(np.round(column / largest, 9).tobytes(), []).append(term)
    found = [_join(terms) for terms in groups.values() if len(terms) > 1]
    return f" Only the sum is known of {'; and of '.join(found)}." if found else ""


def _beyond_paper(model: ThroughputModel) -> str:
    further = [term for term in model.terms_ if term not in PAPER_TERMS]
    if not further or not len(model.held_out_):
        return ""
    best = model.forms_[0]
    return (
        f" Beyond Eqs. 1-6 of DLRover-RM the data ask for {_join(further)} "
        f"(most weight: {best.form.name}, {best.weight:.0%})."
    )


def _join(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
