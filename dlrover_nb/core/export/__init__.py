"""Documents for other systems: one pure function from a job and a plan per kind, and the way back.

A new kind is a function of the signature `Exporter` in a file of its own, a line in `EXPORTERS`, and its
schema beside the others. Files are written on request alone (`write`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from dlrover_nb.core.export import elasticjob
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.jobset import jobset
from dlrover_nb.core.export.kubeflow import pytorchjob, tfjob
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.pods import pods
from dlrover_nb.core.export.provenance import Provenance, provenance_of
from dlrover_nb.core.export.rayjob import rayjob
from dlrover_nb.core.export.reading import Imported, read_export
from dlrover_nb.core.export.scaleplan import scaleplan
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.files import write
from dlrover_nb.core.structs.job import JobSpec
from dlrover_nb.core.structs.resources import ResourcePlan
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EXPORTERS",
    "Exporter",
    "Imported",
    "Options",
    "Provenance",
    "check",
    "documents_in",
    "provenance_of",
    "read_export",
    "to_yaml",
    "write",
]

Exporter = Callable[[JobSpec, ResourcePlan, Provenance, Options], tuple[dict[str, object], ...]]
EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "elasticjob": elasticjob.present,
        "elasticjob-0": elasticjob.older,
        "scaleplan": scaleplan,
        "tfjob": tfjob,
        "pytorchjob": pytorchjob,
        "rayjob": rayjob,
        "jobset": jobset,
        "pods": pods,
    }
)
