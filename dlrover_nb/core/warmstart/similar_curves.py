"""Which curves of quality are of jobs like another one, and how like they are.

What a stale gradient costs depends on the model, the optimizer, its learning rate, the batch and the data. So
a curve counts only where its model and optimizer are the same; among those it counts by the similarity of the
jobs (`similarity`), which has data, batch and sizes, and by how near the learning rates are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.warmstart.similarity import similarities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.views.past_jobs import JobCurve, JobTraits

LEAST_SIMILARITY = 0.4  # as for a start plan: below it a job is not similar


def similar_curves(
    traits: JobTraits,
    *,
    optimizer: str,
    learning_rate: float,
    curves: Sequence[JobCurve],
    least: float = LEAST_SIMILARITY,
) -> tuple[tuple[JobCurve, float], ...]:
    """Return the curves of jobs like one, each with its similarity in (0, 1], the most similar first.

    Parameters
    ----------
    traits, optimizer, learning_rate
        Of the job.
    curves
        Those of the history, of all ways.
    least
        The least similarity that counts.
    """
    alike = [
        each
        for each in curves
        if each.curve.optimizer == optimizer
        and (each.traits.model, each.traits.code_hash) == (traits.model, traits.code_hash)
    ]
    if not alike:
        return ()
    of_jobs = similarities([traits], [each.traits for each in alike])[0]
    scored = [
        (each, float(of_job) * _nearness(each.curve.learning_rate, learning_rate))
        for each, of_job in zip(alike, of_jobs, strict=True)
    ]
    return tuple(sorted((pair for pair in scored if pair[1] >= least), key=lambda pair: -pair[1]))


def _nearness(a: float, b: float) -> float:
    """Return the ratio of the smaller to the larger."""
    return min(a, b) / max(a, b)
