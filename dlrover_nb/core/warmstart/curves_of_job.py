"""Which curves of quality a new job plans with: its own, and those of similar jobs.

What a stale gradient costs depends on the model, the optimizer, its learning rate, the batch and the data. So
a curve counts only where its model and optimizer are the same; among those it counts by the similarity of the
jobs (`similarity`), which has data, batch and sizes, and by how near the learning rates are.

A curve of a job of the same name is the job's own where data, batch and learning rate are the same too: the
newest rehearsal of each way of applying gradients, or runs of its own. Of other jobs the most similar ones
count, as similar: their bands are wider (`staleness.curves.TRANSFER`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.quality import CurveOrigin
from dlrover_nb.core.warmstart.similarity import similarities

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.views.past_jobs import JobCurve, JobTraits

LEAST_SIMILARITY = 0.4  # as for a start plan: below it a job is not similar
MOST_SIMILAR = 3  # jobs, of each way


def curves_of_job(spec: JobSpec, traits: JobTraits, past: Sequence[JobCurve]) -> tuple[QualityCurve, ...]:
    """Return the curves that count for a job; `past` are those of the history."""
    model = spec.model
    alike = similar_curves(traits, optimizer=model.optimizer, learning_rate=model.learning_rate, curves=past)
    own = [each for each, _ in alike if _is_own(each, spec, traits)]
    others = [each for each, _ in alike if not _is_own(each, spec, traits)]
    return (*_newest(own), *_nearest(others))


def _is_own(past: JobCurve, spec: JobSpec, traits: JobTraits) -> bool:
    same = (past.traits.data_hash, past.traits.batch_size) == (traits.data_hash, traits.batch_size)
    return same and past.job == spec.name and past.curve.learning_rate == spec.model.learning_rate


def _newest(own: Sequence[JobCurve]) -> Iterator[QualityCurve]:
    """Yield the newest curve of each way and origin."""
    newest = {}
    for each in sorted(own, key=lambda each: each.at_s):
        newest[each.curve.way, each.curve.origin] = each.curve
    yield from (newest[key] for key in sorted(newest))


def _nearest(others: Sequence[JobCurve]) -> Iterator[QualityCurve]:
    """Yield the curves of the most similar jobs, which come first, as those of similar jobs."""
    n_of_way: Counter[str] = Counter()
    for each in others:
        if n_of_way[each.curve.way] < MOST_SIMILAR:
            n_of_way[each.curve.way] += 1
            yield replace(each.curve, origin=CurveOrigin.SIMILAR)


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
