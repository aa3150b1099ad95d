"""What advice says of the quality that a plan costs, and of ways not to pay it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import fraction
from dlrover_nb.core.structs.decisions.candidates import with_band

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Candidate, QualityChange
    from dlrover_nb.core.structs.job.job import JobSpec

LEAST_NAMED = 0.00005  # of AUC: the last digit that is shown


def quality_words(candidate: Candidate, spec: JobSpec) -> str:
    """Return what a plan costs, or gains, of AUC as a sentence after others; empty: nothing, or not known."""
    change = candidate.quality
    if change is None or change.is_none:
        return ""
    return f" {_own(change)}{_ways(change, spec)}"


def _own(change: QualityChange) -> str:
    if abs(change.auc) < LEAST_NAMED:
        band = f"({with_band(change.auc, change.auc_low, change.auc_high)})"
        return f"We expect the same AUC {band}, measured {change.source}."
    if change.auc > 0:
        return f"It gains {change.words} of AUC, measured {change.source}."
    loss, least, most = (fraction(-x) for x in (change.auc, change.auc_high, change.auc_low))
    return f"It costs {loss} of AUC ({least} to {most}), measured {change.source}."


def _ways(change: QualityChange, spec: JobSpec) -> str:
    """Name the ways of applying gradients that would cost less, for the next run.

    Workers wait in none of them, so the plan is about as fast in each; with a global batch, the batches of a
    worker differ between ways, and so do speeds.
    """
    better = [way for way in change.ways if way.auc > change.auc + LEAST_NAMED]
    if not better:
        return ""
    each = "; ".join(f"with {way.way}: {with_band(way.auc, way.low, way.high)}" for way in better)
    speed = "" if spec.global_batch else ", about as fast"
    return f" The next run could apply gradients in another way{speed} ({each})."
