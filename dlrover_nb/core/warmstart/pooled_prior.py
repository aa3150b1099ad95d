"""Prior of a new job's coefficients from similar jobs' fits: one summary, whose width includes their spread.

A coefficient is per unit of its column (Eqs. 2-5), so it is valid for a job with another batch or another
embedding width; that is why coefficients are averaged and not times. T_iter is linear in them: with a term
that a fit did not use counting as zero, the mean coefficients predict the mean of the fits' predictions. A
standard error combines the fits' errors and the variance between them: two precise fits that differ give a
wide prior. A term counts as identified where it is identified in fits of at least half the weight.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.views.past_jobs import FitSummary, TermKnowledge

if TYPE_CHECKING:
    from collections.abc import Sequence

KNOWN_SHARE = 0.5  # of the weight of all fits, to call a term identified


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
