"""Which terms a job needs: a few forms, weighted by how well they predict left-out configurations.

No single form suits all jobs: Eqs. 1-6 as written lose to Optimus on most synchronous PS jobs of the DL2
testbed, Optimus loses to Eqs. 1-6 with a term in w, and with little data the choice between them is
arbitrary. So all are fitted, each predicts the configurations of folds that were left out, and the logarithms
of their predictions are averaged with weights exp(-n/4 log(mean squared error)), where n is the number of
configurations beyond the number of terms of a form. That is the weight by cross-validated likelihood with a
Gaussian error, pseudo-BMA (Yao, Vehtari, Simpson and Gelman, "Using stacking to average Bayesian predictive
distributions", 2018), at half its exponent: errors of neighboring plans are correlated, so n plans are not n
independent observations. The variance of the noise is added, so that below it no form is better than another.

Jobs whose workers sum gradients around a ring have forms of their own (`FAMILIES`). The forms for PS have a
cost in w alone; of a ring most of the cost is reached with the first few workers, so that on measured jobs
(`benchmarks/ring.py`) those forms are several times as far off beyond the numbers of workers that were tried.

The further forms are physical effects that a PS job may have (`perf.terms`), each a superset of Eqs. 1-6
except two published or measured alternatives, which must be able to omit one of the paper's terms. Rejected:
all terms at once (extrapolates worst of all: a cost per server fitted on few servers diverges), a stepwise
choice of one form (discards the information of the others), trees (need hundreds of plans).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf import coefficients
from dlrover_nb.core.perf.prior import DOUBT
from dlrover_nb.core.perf.terms import COMPUTED, PAPER_TERMS, RING_TERMS, TERMS, WAITED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.coefficients import Solved
    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.prior import Prior

    Array = NDArray[np.float64]

N_LEAVE = 4  # configurations from which on some can be left out
N_CHOICE = 8  # configurations from which on they can distinguish more than two forms
N_FOLD = 10
TEMPER = 0.25  # of the spare configurations in the exponent of the weights
N_TERM = 6  # of a form, about
LEAST_WEIGHT = 0.01  # of a form that is kept


class Exchange(StrEnum):
    """How the workers of a job exchange gradients."""

    PS = "ps"
    RING = "ring"  # all-reduce


@dataclass(frozen=True, slots=True)
class Form:
    """A sum of terms; it differs from the others only where the axes in `varied` change."""

    name: str
    terms: tuple[str, ...]
    varied: tuple[str, ...] = ()

    @property
    def index(self) -> NDArray[np.intp]:
        """Return the indices of its terms in `TERMS`."""
        return np.array([TERMS.index(term) for term in self.terms], dtype=np.intp)


EQUATIONS = Form("Eqs. 1-6", PAPER_TERMS)
CONTENTION = Form("Eqs. 1-6 + contention", (*PAPER_TERMS, "contention"))
FORMS = (
    EQUATIONS,
    CONTENTION,
    Form("Eqs. 1-6 + barrier", (*PAPER_TERMS, "barrier"), ("workers",)),
    Form("Eqs. 1-6 + contention + dense", (*PAPER_TERMS, "contention", "dense"), ("ps", "batch")),
    Form(
        "Eqs. 1-4 + contention + dense",
        ("gradients", "updates", "sync", "constant", "contention", "dense"),
        ("ps", "batch"),  # with one m, dense equals the embeddings' column
    ),
    Form("Optimus", ("gradients", "updates", "constant", "contention", "connections"), ("workers", "ps")),
)
RING = Form("ring", RING_TERMS)
BANDWIDTH = Form("ring without latency", ("gradients", "ring", "constant"))


@dataclass(frozen=True, slots=True)
class Family:
    """The forms of jobs that exchange gradients in one way.

    Parameters
    ----------
    name
        The first form, as texts call it.
    terms
        Its terms; they are always told.
    forms
        All forms; with few configurations the first two.
    axes
        Columns of `terms.AXES` that matter.
    """

    name: str
    terms: tuple[str, ...]
    forms: tuple[Form, ...]
    axes: tuple[int, ...]


FAMILIES: Mapping[Exchange, Family] = {
    Exchange.PS: Family("Eqs. 1-6 of DLRover-RM", PAPER_TERMS, FORMS, (0, 1, 2, 3)),
    Exchange.RING: Family(
        "a ring",
        RING_TERMS,
        (
            RING,
            BANDWIDTH,
            Form("ring + barrier", (*RING_TERMS, "barrier"), ("workers",)),
            Form("ring + gather", (*RING_TERMS, "gather"), ("workers", "batch")),
        ),
        (0, 2),
    ),
}


@dataclass(frozen=True, slots=True)
class FittedForm:
    """A fitted form, its weight, and predicted minus measured log T_iter of left-out configurations.

    `held_out` is empty while there are too few configurations to leave any out. `led` says whether a similar
    job's coefficients were its prior belief.
    """

    form: Form
    solved: Solved
    weight: float
    held_out: Array
    led: bool = False

    @property
    def name(self) -> str:
        """Return the form's name for display."""
        return f"{self.form.name}, with a prior from a similar job" if self.led else self.form.name

    @property
    def coefficients(self) -> Array:
        """Coefficients of all `TERMS` in seconds per unit of their column."""
        full = np.zeros(len(TERMS))
        full[self.form.index] = self.solved.shares / self.solved.scale
        return full

    @property
    def cv_error(self) -> float | None:
        """RMSLE of left-out configurations."""
        return float(np.sqrt(np.mean(self.held_out**2))) if len(self.held_out) else None


def candidates(evidence: Evidence, family: Family) -> tuple[Form, ...]:
    """Return the forms that these configurations can distinguish.

    With few of them only the first two: the data could not weight the others.
    """
    if len(evidence) < N_CHOICE:
        return family.forms[:2]
    varied = {
        name
        for name, column in zip(
            ("workers", "ps", "batch"), (*evidence.axes.T[:2], evidence.batch_size), strict=True
        )
        if np.ptp(column) > 0
    }
    return tuple(form for form in family.forms if varied.issuperset(form.varied))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the measured configurations.

    Parameters
    ----------
    here
        ndarray of shape (n_plan, 12): `terms.all_columns` of them.
    more
        The same with one more worker each: the size of terms that none of them has, as a ring of one.
    """

    here: Array
    more: Array

    def of(self, form: Form) -> tuple[Array, Array]:
        """Return those of a form's terms."""
        return self.here[:, form.index], self.more[:, form.index]


def weigh(
    evidence: Evidence, columns: Columns, family: Family, prior: Prior | None = None
) -> tuple[FittedForm, ...]:
    """Fit and weight each form, heaviest first.

    Parameters
    ----------
    family
        The forms of its kind of job.
    prior
        A similar job's fit. Each form is then fitted with it and without; left-out configurations decide.
    """
    fitted = [_fit(form, evidence, columns, None) for form in candidates(evidence, family)]
    masses = [1.0] * len(fitted)
    if prior is not None:
        masses = [DOUBT] * len(fitted) + [1 - DOUBT] * len(fitted)
        fitted += [_fit(w.form, evidence, columns, prior) for w in fitted]
    if len(evidence) >= N_LEAVE:
        folds = _folds(len(evidence))
        fitted = [replace(w, held_out=coefficients.held_out(w.solved, folds)) for w in fitted]
    weights = _weights(fitted, np.array(masses), float(np.mean(evidence.std_error**2)))
    weighted = [
        replace(w, weight=float(weight)) for w, weight in zip(fitted, weights, strict=True) if weight > 0
    ]
    return tuple(sorted(weighted, key=lambda w: -w.weight))


def _fit(form: Form, evidence: Evidence, columns: Columns, prior: Prior | None) -> FittedForm:
    belief, (here, more) = coefficients.no_belief(len(form.terms)), columns.of(form)
    if prior is not None:
        belief = prior.belief(form.index, here, evidence.log_iter)
    groups = np.array([[term in group for term in form.terms] for group in (COMPUTED, WAITED)])
    parts = coefficients.Parts(groups, evidence.shares)
    measured = coefficients.Measurements(here, more, evidence.log_iter, evidence.std_error)
    solved = coefficients.solve(measured, belief, parts)
    return FittedForm(form, solved, 0.0, np.zeros(0), prior is not None)


def _weights(fitted: Sequence[FittedForm], masses: Array, floor: float) -> Array:
    """Return weights that sum to 1; negligible ones are 0."""
    weights, n = masses, len(fitted[0].held_out)
    if n:
        squares = np.array([float(np.mean(w.held_out**2)) for w in fitted]) + floor
        spare = max(n - N_TERM, n / 2)  # the errors of few plans over many terms are uncertain themselves
        weights = masses * (squares / squares.min()) ** (-TEMPER * spare)
    weights = np.where(weights < LEAST_WEIGHT * weights.sum(), 0.0, weights)
    return np.asarray(weights / weights.sum())


def _folds(n: int) -> Array:
    """Return the fold of each configuration: the same for the same number of them."""
    folds = np.empty(n)
    folds[np.random.default_rng(0).permutation(n)] = np.arange(n) % min(N_FOLD, n)
    return folds
