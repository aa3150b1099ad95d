"""Facts of a job at its start that its master and controller do not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.models.table import dense_parameter_count
from dlrover_nb.core.planner.stages import warm_start
from dlrover_nb.core.structs.events import JobSubmitted
from dlrover_nb.core.structs.past import JobTraits
from dlrover_nb.core.structs.pods import outlives_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
    from dlrover_nb.core.structs.past import FitSummary, PastJob

FLOAT_BYTES = 4


def traits_of(spec: JobSpec, features: FeatureSpec) -> JobTraits:
    """Return what is known of a job before it runs, with M of Eq. 4 and D of Eq. 5."""
    n_categorical, n_numeric = len(features.categorical), len(features.numeric)
    return JobTraits(
        model=spec.model.name,
        n_table=n_categorical,
        embedding_dim=n_categorical * spec.model.row_width,
        n_table_row=features.n_table_row,
        dense_bytes=FLOAT_BYTES * dense_parameter_count(spec.model, n_categorical, n_numeric),
        batch_size=spec.batch_size,
        n_sample=features.n_train * spec.n_epoch,
        owner=spec.owner,
        name=spec.name,
    )


@dataclass(frozen=True, slots=True)
class InitialPlan:
    """A job with its first plan; `prior` is the fitted speed of similar jobs."""

    spec: JobSpec
    traits: JobTraits
    prior: FitSummary | None
    why: str


def initial_plan(
    spec: JobSpec, traits: JobTraits, capacity: Capacity, past: Sequence[PastJob]
) -> InitialPlan:
    """Derive from past jobs a prior of its speed, and the first plan where its user requested that."""
    start = warm_start(spec, capacity, traits, past)
    if not spec.warm_start:
        return InitialPlan(spec, traits, start.prior, "")
    return InitialPlan(replace(spec, plan=start.plan), traits, start.prior, start.why)


def submitted(begun: InitialPlan, capacity: Capacity, at_s: float, *, folder: str) -> JobSubmitted:
    """Return the first fact of a job; `folder` is its run folder."""
    traits = begun.traits
    return JobSubmitted(
        at_s=at_s,
        spec=begun.spec,
        capacity=capacity,
        n_sample_total=traits.n_sample,
        dense_bytes=traits.dense_bytes,
        embedding_dim=traits.embedding_dim,
        traits=traits,
        prior=begun.prior,
        why=begun.why,
        must_move=not outlives_node(begun.spec, folder),
    )
