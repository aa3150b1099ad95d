"""The start plan of a new job, from similar jobs (DLRover-RM section 4.3, Algorithm 1).

Two methods over the same similarity: `StartMethod.PAPER` is exactly Algorithm 1, the k most similar jobs
smoothed by Eq. 10. `StartMethod.INTERPOLATE`, the default, also fits from all past jobs how needs grow with
the size of a job (`smoothing.interpolate`); with too few past jobs for that it is Algorithm 1. On simulated
histories it is 3 to 10 points more accurate (`benchmarks/warmstart.py`).

A start is only given where at least one past job is similar enough; a plan from dissimilar jobs would be
worse than the safe default, because it would look well founded.

The prior of its coefficients is one summary of similar jobs' fits, whose width includes their spread. A
coefficient is per unit of its column (Eqs. 2-5), so it is valid for a job with another batch or another
embedding width; that is why coefficients are averaged and not times. T_iter is linear in them: with a term
that a fit did not use counting as zero, the mean coefficients predict the mean of the fits' predictions. A
standard error combines the fits' errors and the variance between them: two precise fits that differ give a
wide prior. A term counts as identified where it is identified in fits of at least half the weight.

How long training stands still for other PS depends on disks, networks and how fast nodes start, which no
constant knows. Each job keeps the pauses that it measured (`FitSummary.pauses`); a new job on that cluster
expects their median until it has measured its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.tuning import SimilarJobs, StartMethod
from dlrover_nb.core.structs.views.past_jobs import FitSummary, TermKnowledge, TransitionKind
from dlrover_nb.core.warmstart.rounding import numbers_of, plan_of
from dlrover_nb.core.warmstart.similarity import WEIGHTS, differences, features, log_numbers, similarities
from dlrover_nb.core.warmstart.smoothing import Relatives, exponential, interpolate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob
    from dlrover_nb.core.warmstart.rounding import Into

    Array = NDArray[np.float64]

USUAL = SimilarJobs()
MIN_PAST = 8  # jobs from which on the change of needs with size is fitted
LEAP = np.log(2.0)  # limit of the extrapolation beyond past jobs' numbers: a factor of 2
MAX_PAST = 300  # the most similar ones; more only add computing time


KNOWN_SHARE = 0.5  # of the weight of all fits, to call a term identified


Pauses = tuple[tuple[str, float], ...]


def usual_pauses(past: Sequence[PastJob], cluster: str) -> Pauses:
    """Return the seconds to expect of each kind of change that a job on the cluster made.

    Each job counts once, by the median of its own: one that changes its plan all day outweighs no other.
    """
    fits = [job.fit for job in past if job.fit is not None and job.traits.cluster == cluster]
    usual = []
    for kind in TransitionKind:
        pauses = [[seconds for change, seconds in fit.pauses if change == kind] for fit in fits]
        if medians := [median(own) for own in pauses if own]:
            usual.append((str(kind), median(medians)))
    return tuple(usual)


def combine(fits: Sequence[tuple[float, FitSummary]]) -> FitSummary | None:
    """Combine fits, each with its weight > 0, to one; None where there are none, or none has a coefficient.

    M, D and m are those of the fit that weighs most: a coefficient has the same meaning as there.
    """
    if not fits:
        return None
    total = sum(weight for weight, _ in fits)
    shares = [(weight / total, fit) for weight, fit in fits]
    closest = max(shares, key=lambda pair: pair[0])[1]
    names = dict.fromkeys(t.term for _, fit in shares for t in fit.terms)
    terms = tuple(_term(name, shares) for name in names)
    if not any(term.value > 0 for term in terms):
        return None
    return FitSummary(
        at_s=max(fit.at_s for _, fit in shares),
        terms=terms,
        log_error=math.sqrt(sum(share * fit.log_error**2 for share, fit in shares)),
        n_plan=max(fit.n_plan for _, fit in shares),
        n_sample=sum(fit.n_sample for _, fit in shares),
        dense_bytes=closest.dense_bytes,
        embedding_dim=closest.embedding_dim,
        batch_size=closest.batch_size,
    )


def _term(name: str, shares: Sequence[tuple[float, FitSummary]]) -> TermKnowledge:
    """Return one term's weighted mean, and its error within and between the fits."""
    used = [(share, term) for share, fit in shares for term in fit.terms if term.term == name]
    mean = sum(share * term.value for share, term in used)
    within = sum(share * term.std_error**2 for share, term in used)
    between = sum(share * (term.value - mean) ** 2 for share, term in used)
    between += (1 - sum(share for share, _ in used)) * mean**2  # it is zero in fits without it
    identified = sum(share for share, term in used if term.identified) >= KNOWN_SHARE
    return TermKnowledge(name, mean, math.sqrt(within + max(between, 0.0)), identified)


@dataclass(frozen=True, slots=True)
class WarmStartSettings:
    """Settings of a warm start.

    Parameters
    ----------
    k, mu
        Of Algorithm 1: number of similar jobs, and the weight of each against all less similar ones (Eq. 10).
    least_similarity
        Below it a past job is not similar, in [0, 1).
    weights
        Of the features in the similarity.
    """

    method: StartMethod = USUAL.method
    k: int = USUAL.k
    mu: float = USUAL.mu
    least_similarity: float = 0.4
    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)

    def __post_init__(self) -> None:
        SimilarJobs(self.method, self.k, self.mu)  # checks them
        _check.fraction("least_similarity", self.least_similarity)

    @classmethod
    def of(cls, tuning: SimilarJobs) -> WarmStartSettings:
        """Return the settings of a job."""
        return cls(tuning.method, tuning.k, tuning.mu)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A plan to start on, and its origin.

    Parameters
    ----------
    plan
        Within the space that `warm_start` was given.
    similar
        The most similar past jobs with their similarity, most similar first.
    prior
        The prior from their fits; None where none of them has a fit.
    why
        One sentence for the user.
    """

    plan: ResourcePlan
    similar: tuple[tuple[PastJob, float], ...]
    prior: FitSummary | None
    why: str


def warm_start(
    traits: JobTraits,
    past: Sequence[PastJob],
    *,
    into: Into = lambda plan: plan,
    settings: WarmStartSettings | None = None,
) -> WarmStart | None:
    """Make a start plan from similar past jobs; None where there are none, or no such plan may run.

    Parameters
    ----------
    into
        Moves a plan into what this job may be given, as `rounding.into_space` makes it.
    """
    s = settings or WarmStartSettings()
    alike = similarities([traits], [job.traits for job in past], s.weights)[0]
    order = np.argsort(-alike, kind="stable")[:MAX_PAST]
    top = [(past[i], float(alike[i])) for i in order[: s.k] if alike[i] >= s.least_similarity]
    if not top:
        return None
    scaled = s.method is StartMethod.INTERPOLATE and len(order) >= MIN_PAST
    numbers = _interpolated(traits, [past[i] for i in order]) if scaled else _smoothed(top, s)
    plan = into(plan_of(numbers))
    if plan is None:
        return None
    prior = combine([(similar, job.fit) for job, similar in top if job.fit is not None])
    return WarmStart(plan, tuple(top), prior, _why(traits, top, len(order), scaled=scaled))


def accuracy(start: float, final: float) -> float:
    """Return 1 - |start - final|/final: DLRover-RM's measure (section 6.2) of one number of a plan."""
    _check.above_zero("final", final)
    return 1 - abs(start - final) / final


def _smoothed(top: Sequence[tuple[PastJob, float]], settings: WarmStartSettings) -> Array:
    rows = np.array([numbers_of(job.final) for job, _ in reversed(top)])  # least similar first
    return exponential(rows, settings.mu)


def _interpolated(traits: JobTraits, past: Sequence[PastJob]) -> Array:
    """Return the numbers interpolated from all past jobs, within half and twice the range of past plans."""
    targets = np.log([numbers_of(job.final) for job in past])
    everyone = [*(job.traits for job in past), traits]
    shared = features(everyone, everyone)
    relatives = Relatives(
        targets=targets,
        family=shared["code_hash"] * shared["model"] * shared["name"],
        owner=shared["owner"],
        model=shared["model"],
        traits=log_numbers(everyone),
    )
    expected, _ = interpolate(relatives)
    least, most = targets.min(axis=0) - LEAP, targets.max(axis=0) + LEAP
    return np.asarray(np.exp(np.clip(expected, least, most)))


def _why(traits: JobTraits, top: Sequence[tuple[PastJob, float]], n_past: int, *, scaled: bool) -> str:
    closest, similar = top[0]
    name = closest.traits.name or closest.traits.model
    others = f" and {len(top) - 1} more" if len(top) > 1 else ""
    sized = f", sized from {n_past} past jobs" if scaled else ""
    differs = ", ".join(differences(traits, closest.traits))
    alike = f"{name} ({int(100 * similar)} % similar{f': {differs}' * bool(differs)}){others}"
    return f"Starts like {alike}, which ended on {closest.final.short}{sized}."
