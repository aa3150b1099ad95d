"""Which curves of quality a new job plans with: its own, and those of similar jobs.

A curve of a job of the same name is the job's own where model, data, batch, optimizer and learning rate are
the same: the newest rehearsal of each way of applying gradients, or runs of its own. Of other jobs the most
similar ones count, as similar: their bands are wider (`staleness.curves.TRANSFER`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.quality import CurveOrigin
from dlrover_nb.core.warmstart.similar_curves import similar_curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.views.past_jobs import JobCurve, JobTraits

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
