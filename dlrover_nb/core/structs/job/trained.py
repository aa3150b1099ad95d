"""What a checkpoint was trained as: the description with which another job can load it."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec


@dataclass(frozen=True, slots=True)
class Trained:
    """Model, data (its path without credentials) and encoding of a checkpoint's parameters."""

    model: ModelSpec
    data: DataSpec
    features: FeatureSpec
