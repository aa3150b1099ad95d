"""One sentence on what a fit knows and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf.terms import TERMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence

_AXIS_WORDS = ("the number of workers", "the number of PS", "CPU per worker", "CPU per PS")


def fit_note(evidence: Evidence, identified: NDArray[np.bool_]) -> str:
    """Say which terms the data determines, and why not the others."""
    n_plan = len(evidence.log_iter)
    if n_plan == 1:
        return (
            f"One plan was measured, so only its own iteration time is known "
            f"({np.exp(evidence.log_iter[0]) * 1e3:.3g} ms); how others would do is a range."
        )
    open_terms = [term for term, known in zip(TERMS, identified, strict=True) if not known]
    if not open_terms:
        return f"{n_plan} plans were measured; they determine all terms of the iteration."
    constant = [
        word for word, column in zip(_AXIS_WORDS, evidence.axes.T, strict=True) if np.ptp(column) == 0
    ]
    because = f", because {_join(constant)} never varied" if constant else ", too few plans were tried"
    return f"{n_plan} plans were measured; they do not yet tell the share of {_join(open_terms)}{because}."


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
