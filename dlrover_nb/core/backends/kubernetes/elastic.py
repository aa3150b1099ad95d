"""Jobs of DLRover's operator on a cluster that has it: made, followed, and taken to accepted plans.

Whether it is there is asked of the API's own discovery, and which generation of its schema of the definition
itself where the account may read it; where it may not, the document is written in the fields that both have.

A plan is applied as a ScalePlan, once: it is named after its decision, so that applying it again finds it
there. It is owned by the ElasticJob from the beginning, so that whoever deletes the job deletes it too, and
it names the pods that stay and get other resources as they are called now.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from dlrover_nb.core.backends.kubernetes.answers import Conflict, Forbidden, NotThere
from dlrover_nb.core.backends.kubernetes.elastic_state import (
    JOB_LABEL,
    Applied,
    ElasticView,
    alive,
    applied,
    misfits,
    view,
)
from dlrover_nb.core.backends.kubernetes.kinds import CRD, ELASTIC_JOB, POD, SCALE_PLAN
from dlrover_nb.core.backends.kubernetes.watch import Mirror
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.export import EXPORTERS, Options, Provenance
from dlrover_nb.core.export.nodes import labels_of
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.api import Api
    from dlrover_nb.core.backends.kubernetes.kinds import Doc
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan

LIST_LIMIT_S = 20.0
_SWITCH = "enableElasticScheduling"  # of the older schema alone
_DEFINITION = f"{ELASTIC_JOB.plural}.{ELASTIC_JOB.group}"


class Operator(StrEnum):
    """Which operator a cluster has, by the schema of its jobs; the values are kinds of export."""

    NONE = ""
    PRESENT = "elasticjob"
    OLDER = "elasticjob-0"


def operator_of(api: Api) -> Operator:
    """Return which operator a cluster has; without one jobs are plain pods."""
    if not api.has(ELASTIC_JOB):
        return Operator.NONE
    try:
        definition = api.get(CRD, _DEFINITION)
    except (Forbidden, NotThere):
        return Operator.PRESENT
    versions = definition["spec"]["versions"]
    schemas = [each["schema"]["openAPIV3Schema"]["properties"]["spec"] for each in versions if each["served"]]
    return Operator.OLDER if any(_SWITCH in each["properties"] for each in schemas) else Operator.PRESENT


def operator_facts(api: Api) -> tuple[tuple[str, str], ...]:
    """Return what a user is told of the operator when he connects; nothing where there is none."""
    kind = operator_of(api)
    if kind is Operator.NONE:
        return ()
    plans = "takes ScalePlans" if api.has(SCALE_PLAN) else "takes no ScalePlans"
    return (("DLRover's operator", f"is there and {plans}; export --kind {kind} fits it"),)


def create(api: Api, job: JobSpec, provenance: Provenance | None = None, *, image: str = "") -> Doc:
    """Create the ElasticJob of a job on its plan, and return it as it is stored.

    Raises
    ------
    NotFoundError
        When the cluster has no operator.
    InvalidValueError
        When there is an ElasticJob of that name, or the job is one that needs our own master.
    """
    kind = operator_of(api)
    if kind is Operator.NONE:
        raise NotFoundError(
            f"no operator of DLRover serves {_DEFINITION} on this cluster; submit the job as plain pods"
        )
    if job.foreign is None:
        raise InvalidValueError(
            f"job {job.name} trains with our own runtime, whose master makes its pods; DLRover's operator "
            "runs jobs whose roles are an image and a command (foreign:)"
        )
    (document,) = EXPORTERS[kind](job, job.plan, provenance or Provenance(), Options(image=image))
    head = _head(document)
    try:
        return api.create(ELASTIC_JOB, {**document, "metadata": {**head, "labels": labels_of(job)}})
    except Conflict as error:
        raise InvalidValueError(
            f"an ElasticJob {job.name} is there already in namespace {api.namespace}; delete it, or choose "
            "another name"
        ) from error


def _head(document: dict[str, object]) -> Doc:
    head = document["metadata"]
    assert isinstance(head, dict)
    return head


@dataclass(frozen=True, slots=True)
class Scaled:
    """A plan that was applied: the ScalePlan's name, and how far it has come."""

    name: str
    plan: ResourcePlan
    state: Applied
    why: str = ""


class ElasticJob:
    """An ElasticJob that is followed until `close`; close it, or use it in a ``with``.

    Parameters
    ----------
    api
        In its namespace.
    job
        As it was submitted.
    """

    def __init__(self, api: Api, job: JobSpec) -> None:
        self._api, self._job = api, job
        self._jobs = Mirror(api, ELASTIC_JOB, f"{_part_of(job)}")
        self._pods = Mirror(api, POD, f"{JOB_LABEL}={job.name}")
        self._plans: dict[str, ResourcePlan] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Follow no longer; the job goes on."""
        self._jobs.close()
        self._pods.close()

    def view(self) -> ElasticView:
        """Return the job as it is now.

        Raises
        ------
        BackendError
            When the cluster never answered.
        """
        job = self._jobs.wait(LIST_LIMIT_S).get(self._job.name)
        pods = list(self._pods.wait(LIST_LIMIT_S).values())
        scaling = [each for each in self.scaled() if each.state in {Applied.WAITING, Applied.SCALING}]
        return view(job, pods, [{"name": each.name} for each in scaling])

    def apply(self, plan: ResourcePlan, provenance: Provenance) -> Scaled:
        """Take the job to a plan; a plan of a decision that was applied before is not applied again.

        Raises
        ------
        BackendError
            When the operator here takes no ScalePlans.
        NotFoundError
            When the ElasticJob is gone.
        """
        if not self._api.has(SCALE_PLAN):
            raise BackendError(
                f"DLRover's operator here serves no {SCALE_PLAN.plural}, by which a job is scaled; ask who "
                "runs the cluster to install their definition"
            )
        try:
            owner = self._api.get(ELASTIC_JOB, self._job.name)
        except NotThere as error:
            raise NotFoundError(
                f"no ElasticJob {self._job.name} in namespace {self._api.namespace}; it was deleted"
            ) from error
        (document,) = EXPORTERS["scaleplan"](self._job, plan, provenance, Options())
        document = self._owned(document, owner, plan)
        name = str(_head(document)["name"])
        try:
            self._api.create(SCALE_PLAN, document)
        except Conflict:
            found = self._api.get(SCALE_PLAN, name)
            if found["spec"].get("replicaResourceSpecs") != _spec(document)["replicaResourceSpecs"]:
                raise InvalidValueError(
                    f"a ScalePlan {name} is there already and asks for something else; decide again"
                ) from None
        self._plans[name] = plan
        return next(each for each in self.scaled() if each.name == name)

    def scaled(self) -> tuple[Scaled, ...]:
        """Return the plans that were applied here, the oldest first; only the last one can still be open."""
        pods = list(self._pods.wait(LIST_LIMIT_S).values())
        last = next(reversed(self._plans), None)
        return tuple(
            self._one(name, plan, pods) if name == last else Scaled(name, plan, Applied.DONE)
            for name, plan in self._plans.items()
        )

    def _one(self, name: str, plan: ResourcePlan, pods: list[Doc]) -> Scaled:
        try:
            document = self._api.get(SCALE_PLAN, name)
        except NotThere:
            return Scaled(name, plan, Applied.REFUSED, "its ScalePlan was deleted")
        return Scaled(name, plan, applied(document, plan, pods))

    def _owned(self, document: dict[str, object], owner: Doc, plan: ResourcePlan) -> Doc:
        """Return a ScalePlan that goes with its job and names the pods of now.

        The reference blocks nothing: by one that does, DLRover's master is known to have taken it up.
        """
        head = owner["metadata"]
        reference = {
            "apiVersion": ELASTIC_JOB.api_version,
            "kind": ELASTIC_JOB.name,
            "name": head["name"],
            "uid": head["uid"],
        }
        metadata = {**_head(document), "ownerReferences": [reference]}
        spec = {key: value for key, value in _spec(document).items() if key != "migratePods"}
        if moved := self._moved(plan):
            spec["migratePods"] = moved
        return {**document, "metadata": metadata, "spec": spec}

    def _moved(self, plan: ResourcePlan) -> list[Doc]:
        pods = alive(self._pods.wait(LIST_LIMIT_S).values())
        return [
            {"name": pod["metadata"]["name"], "resource": resources_of(plan.role(role))}
            for role in (Role.PS, Role.WORKER)
            for pod in misfits(plan.role(role), pods[role][: plan.role(role).count])
        ]


def _spec(document: dict[str, object]) -> Doc:
    spec = document["spec"]
    assert isinstance(spec, dict)
    return spec


def _part_of(job: JobSpec) -> str:
    (pair,) = (f"{key}={value}" for key, value in labels_of(job).items() if key.startswith("dlrover-nb/"))
    return pair


def delete(api: Api, name: str) -> None:
    """Delete an ElasticJob with all that belongs to it; one that is gone is fine."""
    api.delete(ELASTIC_JOB, name, propagation="Background")
