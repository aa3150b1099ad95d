"""The exporters: how the documents of each kind are made, checked and read back.

A new kind is a module with a function of the signature `Make`, its schema beside the others, and a line here.
Another package adds a kind by an entry point of the group ``dlrover_nb.exporters``, which names an
`Exporter`. It is looked up on request, and does not replace one of these.
Where the resource has replicas, the module also locates them, so that an import reads edits of them;
otherwise an import reads the annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.documents import elasticjob, jobset, kubeflow, rayjob, read_trainjob
from dlrover_nb.core.export.documents.plain_pods import pods
from dlrover_nb.core.export.documents.scaleplan import scaleplan
from dlrover_nb.core.export.documents.trainjob import trainjob
from dlrover_nb.core.export.groups import Group, Replicas, replicas_under
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

Documents = tuple[dict[str, object], ...]
Make = Callable[[JobSpec, ResourcePlan, Provenance, Options], Documents]
_SCHEMAS = resources.files("dlrover_nb.core.export").joinpath("schemas")  # `schemas` itself imports this


@dataclass(frozen=True, slots=True)
class Exporter:
    """One kind of export; calling it makes the documents.

    Parameters
    ----------
    make
        Makes the documents of a job and a plan; raises `InvalidValueError` where the kind cannot run the job.
    resource
        Kind of the resource that holds the plan, as its ``kind`` says.
    schema
        File with the JSON schema of the resource. None where `schemas` derives it from another one; the
        resource of another package is then not validated.
    replicas
        Yields the replicas of the resource; None where an import does not read them.
    """

    make: Make
    resource: str
    schema: Traversable | None = None
    replicas: Callable[[Group], Iterator[Replicas]] | None = None

    def __call__(
        self, job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
    ) -> Documents:
        """Return the documents of a job with a plan, those that it needs first."""
        return self.make(job, plan, provenance, options)


def _schema(name: str) -> Traversable:
    return _SCHEMAS.joinpath(f"{name}.schema.json")


_ELASTIC = replicas_under("replicaSpecs")
EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "elasticjob": Exporter(elasticjob.present, "ElasticJob", _schema("elasticjob"), _ELASTIC),
        "elasticjob-0": Exporter(elasticjob.older, "ElasticJob", _schema("elasticjob-0"), _ELASTIC),
        "scaleplan": Exporter(scaleplan, "ScalePlan", _schema("scaleplan")),
        "tfjob": Exporter(kubeflow.tfjob, "TFJob", _schema("tfjob"), replicas_under("tfReplicaSpecs")),
        "pytorchjob": Exporter(
            kubeflow.pytorchjob, "PyTorchJob", _schema("pytorchjob"), replicas_under("pytorchReplicaSpecs")
        ),
        "trainjob": Exporter(trainjob, "TrainJob", _schema("trainjob"), read_trainjob.replicas),
        "rayjob": Exporter(rayjob.rayjob, "RayJob", _schema("rayjob"), rayjob.replicas),
        "jobset": Exporter(jobset.jobset, "JobSet", _schema("jobset"), jobset.replicas),
        "pods": Exporter(pods, "Job"),
    }
)
BY_RESOURCE: Mapping[
    str, tuple[str, ...]
] = {  # the kinds that a resource may come from, the most common first
    each.resource: tuple(kind for kind, other in EXPORTERS.items() if other.resource == each.resource)
    for each in EXPORTERS.values()
}
READERS: Mapping[str, Callable[[Group], Iterator[Replicas]]] = {
    exporter.resource: exporter.replicas for exporter in EXPORTERS.values() if exporter.replicas is not None
}


GROUP = "dlrover_nb.exporters"


def find_exporter(kind: str) -> Exporter:
    """Return the exporter of a kind, ours or that of an installed package.

    Raises
    ------
    InvalidValueError
        When there is none, with the nearest kind, or the package that adds it is broken.
    """
    exporter = extensions.find(GROUP, kind, EXPORTERS)
    if not isinstance(exporter, Exporter):
        raise InvalidValueError(f"exporter {kind} must be an Exporter, got {type(exporter).__name__}")
    return exporter
