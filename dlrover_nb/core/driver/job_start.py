"""Facts of a job at its start that its master and controller do not have."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.planner.policies.nearchus import small_start
from dlrover_nb.core.planner.policies.stages import warm_start
from dlrover_nb.core.structs.views.events import JobSubmitted
from dlrover_nb.core.structs.views.past_jobs import JobTraits
from dlrover_nb.core.structs.wire.pod_contract import outlives_node
from dlrover_nb.core.usercode import identity
from dlrover_nb.core.warmstart.start_plan import usual_pauses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.past_jobs import FitSummary, PastJob

FLOAT_BYTES = 4


def traits_of(
    spec: JobSpec, features: FeatureSpec, folder: Path | None = None, *, cluster: str = ""
) -> JobTraits:
    """Return what is known of a job before it runs, with M of Eq. 4 and D of Eq. 5.

    `folder` is the run folder, where the user's own code lies, if it has any; `cluster` is where it runs.
    """
    n_categorical, n_numeric = len(features.categorical), len(features.numeric)
    return JobTraits(
        model=spec.model.name,
        n_table=features.n_lookup,
        embedding_dim=features.n_lookup * spec.model.row_width,
        n_table_row=features.n_table_row,
        dense_bytes=FLOAT_BYTES * dense_parameter_count(spec.model, n_categorical, n_numeric),
        batch_size=spec.batch_size,
        n_sample=features.n_train * spec.n_epoch,
        owner=spec.owner,
        name=spec.name,
        code_hash=identity(spec.model.code or f"built-in:{spec.model.name}", folder),
        data_hash=_data_hash(features),
        cluster=cluster,
    )


def _data_hash(features: FeatureSpec) -> str:
    """Return an identity of the columns: their names and kinds, not how many ids or rows there are."""
    columns = (
        features.label,
        *sorted(f"number {column.name}" for column in features.numeric),
        *sorted(
            f"{'sequence' if column.sequence else 'category'} {column.name}"
            for column in features.categorical
        ),
    )
    return hashlib.sha256("\n".join(columns).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class InitialPlan:
    """A job with its first plan; `prior` is the fitted speed of similar jobs, `pauses` are usual here."""

    spec: JobSpec
    traits: JobTraits
    prior: FitSummary | None
    why: str
    pauses: tuple[tuple[str, float], ...] = ()


def initial_plan(
    spec: JobSpec, traits: JobTraits, capacity: Capacity, past: Sequence[PastJob]
) -> InitialPlan:
    """Derive from past jobs a prior of its speed, and the first plan where its user left that to us."""
    start = warm_start(spec, capacity, traits, past)
    pauses = usual_pauses(past, traits.cluster)
    if not spec.warm_start:
        small = small_start(spec, capacity)
        if small is None:
            return InitialPlan(spec, traits, start.prior, "", pauses)
        why = f"Starts with {small.short}, a part of its quota, and grows while its nodes use their cores."
        return InitialPlan(replace(spec, plan=small), traits, start.prior, why, pauses)
    return InitialPlan(replace(spec, plan=start.plan), traits, start.prior, start.why, pauses)


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
        pauses=begun.pauses,
        defers=True,
    )
