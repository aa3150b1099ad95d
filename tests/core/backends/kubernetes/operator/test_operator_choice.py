"""Which operator of DLRover a cluster has, whether a job runs under it, and whose ElasticJob it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Conflict,
    Forbidden,
    NotThere,
    Operation,
    Status,
)
from dlrover_nb.core.backends.kubernetes.operator.operator_jobs import (
    Operator,
    create,
    operator_of,
    refuse_operator,
    settled,
)
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import CRD, ELASTIC_JOB, Kind
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc

RUN = ExternalRole(("run",))
TENSORFLOW = ExternalSpec(RUN, 1000, ps=RUN)
TORCH = ExternalSpec(RUN, 1000, framework=Framework.TORCH)


def definition(*fields: str, served: bool = True) -> Doc:
    """Return the definition of ElasticJobs whose specs have these fields."""
    spec = {"properties": {field: {} for field in fields}}
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    return {"spec": {"versions": [{"served": served, "schema": schema}]}}


class Server:
    """An API server that serves some kinds; asked for the definition, it answers with that or an error."""

    def __init__(self, *kinds: Kind, answer: Doc | Exception | None = None) -> None:
        self.kinds, self.answer = kinds, answer

    def has(self, kind: Kind) -> bool:
        return kind in self.kinds

    def get(self, kind: Kind, name: str) -> Any:
        assert (kind, name) == (CRD, f"{ELASTIC_JOB.plural}.{ELASTIC_JOB.group}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def refusal(error: type[Forbidden | NotThere]) -> Exception:
    return error("no", Status(403, "Forbidden", "no"), Operation("get", CRD))


@pytest.mark.parametrize(
    ("server", "operator"),
    [
        (Server(), Operator.NONE),
        (Server(ELASTIC_JOB, answer=definition("enableElasticScheduling")), Operator.OLDER),
        (Server(ELASTIC_JOB, answer=definition("replicaSpecs")), Operator.PRESENT),
        (Server(ELASTIC_JOB, answer=definition("enableElasticScheduling", served=False)), Operator.PRESENT),
        (Server(ELASTIC_JOB, answer=refusal(Forbidden)), Operator.PRESENT),
        (Server(ELASTIC_JOB, answer=refusal(NotThere)), Operator.PRESENT),
    ],
)
def test_the_schema_tells_the_operator_and_who_may_not_read_it_gets_the_present_one(
    server: Any, operator: Operator
) -> None:
    assert operator_of(server) is operator


def wanted(operator: str, foreign: ExternalSpec | None = TENSORFLOW) -> JobSpec:
    return replace(JobSpec("clicks"), foreign=foreign, kubernetes=KubernetesSpec(operator=operator))


@pytest.mark.parametrize("server", [Server(), Server(ELASTIC_JOB, answer=definition())])
def test_without_the_users_wish_a_job_has_its_own_master(server: Any) -> None:
    for spec in (wanted(""), wanted("none"), wanted("dlrover", None), wanted("auto", TORCH)):
        assert settled(spec, server).kubernetes.operator == "none"


def test_a_job_runs_under_the_operator_where_its_user_says_so_and_it_is_there(error_words) -> None:
    there: Any = Server(ELASTIC_JOB, answer=definition())
    absent: Any = Server()
    assert settled(wanted("auto"), there).kubernetes.operator == "dlrover"
    assert settled(wanted("dlrover"), there) == wanted("dlrover")
    assert settled(wanted("auto"), absent).kubernetes.operator == "none"
    with pytest.raises(NotFoundError, match=r"leave kubernetes\.operator out"):
        settled(wanted("dlrover"), absent)
    with error_words(InvalidValueError):
        settled(wanted("dlrover", TORCH), there)


def test_a_job_of_the_queue_has_its_own_master_as_the_operator_starts_pods_at_once(error_words) -> None:
    there: Any = Server(ELASTIC_JOB, answer=definition())
    queued = replace(wanted("auto"), admission=Admission.QUEUE)
    assert settled(queued, there).kubernetes.operator == "none"
    with error_words(InvalidValueError):
        settled(replace(wanted("dlrover"), admission=Admission.QUEUE), there)


def test_a_job_of_our_own_runtime_runs_its_own_pods() -> None:
    with pytest.raises(InvalidValueError, match="image and a command"):
        refuse_operator(wanted("dlrover", None))
    refuse_operator(wanted("auto", None))
    refuse_operator(wanted("dlrover"))


class Taken(Server):
    """A server on which the name of the job's ElasticJob is taken by one with these labels."""

    namespace = "team"

    def __init__(self, labels: dict[str, str]) -> None:
        super().__init__(ELASTIC_JOB, answer=definition())
        self.there: Doc | None = {"metadata": {"uid": "1-2-3", "labels": labels}}

    def get(self, kind: Kind, name: str) -> Any:
        return self.there if kind is ELASTIC_JOB else super().get(kind, name)

    def create(self, kind: Kind, document: Doc) -> Doc:
        if self.there is not None:
            raise Conflict("there is one", Status(409, "AlreadyExists"), Operation("create", kind))
        self.there = document
        return document

    def delete(self, kind: Kind, name: str, *, propagation: str, uid: str) -> None:
        assert (kind, name, propagation, uid) == (ELASTIC_JOB, "clicks", "Background", "1-2-3")
        self.there = None


def created(server: Any) -> Doc:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "clicks", "uid": "4-5-6"}}
    return create(server, PodJob(wanted("dlrover"), None, "0a1b2c3d", "public", "secret", "token"), owner)


def test_an_elasticjob_of_others_is_left_alone(error_words) -> None:
    server = Taken({"app": "theirs"})
    before = server.there
    with error_words(InvalidValueError):
        created(server)
    assert server.there is before


def test_the_elasticjob_of_an_earlier_run_makes_way() -> None:
    server = Taken({JOB_LABEL: "clicks"})
    assert server.there is not created(server)
    assert server.there is not None
    assert server.there["metadata"]["ownerReferences"][0]["uid"] == "4-5-6"
