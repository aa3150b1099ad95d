"""The parameters that a job has saved, as one array each, however many servers they were on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.checkpoints import PartSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec


def parameters_in(
    files: Iterable[tuple[str, str]], spec: JobSpec, features: FeatureSpec
) -> tuple[np.ndarray, ...]:
    """Return ids, their rows, and the dense parameters of a checkpoint, each with the optimizer's numbers."""
    n_dense = dense_parameter_count(spec.model, len(features.categorical), len(features.numeric))
    sources = [PartSource(path, sha256) for path, sha256 in files]

    def new_store() -> ParameterStore:
        return ParameterStore(spec.model, features.n_table_row, n_dense)

    part = ps_checkpoint.fill(new_store, sources, np.ones(N_BUCKET, np.bool_)).store.export()
    order = np.argsort(part.ids)
    return part.ids[order], part.table[order], part.dense
