"""Submits a job to a namespace, all of it or nothing.

The name of the Job decides between concurrent clients. It owns all other objects, and is created paused
and released when all exist. So a failure is undone by deleting the Job, and a Job that stays paused was
left by a client that died.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotThere,
    OverQuota,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.jobs import strays
from dlrover_nb.core.backends.kubernetes.jobs.access import check_access
from dlrover_nb.core.backends.kubernetes.jobs.master_status import end_of_job, is_paused
from dlrover_nb.core.backends.kubernetes.operator import operator_jobs
from dlrover_nb.core.backends.kubernetes.room.kueue import queue_of
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError
from dlrover_nb.core.manifests.kinds import (
    CONFIG_MAP,
    JOB,
    OWNERS,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
)
from dlrover_nb.core.manifests.objects import (
    DEFAULTS,
    DEFAULTS_KEY,
    companions,
    master_job,
    with_defaults,
    with_owner,
)
from dlrover_nb.core.manifests.pod_parts import (
    JOB_LABEL,
    MASTER_ROLE,
    ROLE_LABEL,
    end_name,
    is_operated,
    run_of,
)
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.manifests.role_rules import BUDGETS, OF_KUEUE, RESIZE
from dlrover_nb.core.master.external.submitted import checked
from dlrover_nb.core.rundir.origin import trained_encoding
from dlrover_nb.core.runtime.exchange.sockets import new_keys
from dlrover_nb.core.runtime.pod.staging import sees_rows, send, send_first
from dlrover_nb.core.structs.job.secrets import check_complete
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob, run_name, storage_advice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.manifests.role_rules import Right
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.schema import DataSchema
    from dlrover_nb.core.usercode import Packed

logger = logging.getLogger(__name__)

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (JOB, SECRET, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CONFIG_MAP)
}
GIVEN_UP_S = 120.0  # after which the client of a Job that is still paused counts as dead
TOKEN_LIMIT_S, TOKEN_EVERY_S = 30.0, 0.1  # for a controller to create the token of a new service account
GONE_LIMIT_S = 30.0
GONE_EVERY_S = 0.1


def namespaced(spec: JobSpec, api: Api) -> JobSpec:
    """Return the job with its namespace's settings for all jobs."""
    try:
        text = api.get(CONFIG_MAP, DEFAULTS).get("data", {}).get(DEFAULTS_KEY, "")
    except NotThere:
        return spec
    except Forbidden as error:
        logger.info("the defaults of namespace %s are not read: %s", api.namespace, error)
        return spec
    return replace(spec, kubernetes=with_defaults(spec.kubernetes, text))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job as its pods get it.

    Parameters
    ----------
    spec, features, schema
        The job with what its data determine; None: only pods reach them, and the master inspects them.
    packed
        The user's own code.
    first
        The parameters that a module of the user has already; None: they are made.
    """

    spec: JobSpec
    features: FeatureSpec | None = None
    schema: DataSchema | None = None
    packed: tuple[Packed, ...] = ()
    first: ParameterStore | None = None


def prepared(spec: JobSpec, *, model: object, data: object) -> Prepared:
    """Return the job with what its data and its code determine, as far as this client reads them."""
    if spec.foreign is not None:
        return Prepared(checked(spec, model=model, data=data))
    check_complete(spec)
    _check_start(spec)
    from dlrover_nb.core.runtime.node.preflight import pack_job, validate_job  # noqa: PLC0415 - it loads pyarrow

    if data is None and not sees_rows(spec):
        if spec.sync is Sync.ALLREDUCE:
            raise InvalidValueError(
                f"a job with sync allreduce needs rows that this client can read, got {spec.data.place}, "
                "which only pods reach; submit it from a pod of the cluster, or choose sync bsp"
            )
        spec, packed, first = pack_job(spec, model=model)
        return Prepared(spec, packed=packed, first=first)
    job = validate_job(spec, model=model, data=data, trained=_trained(spec))
    if spec.sync is Sync.ALLREDUCE:
        from dlrover_nb.core.runtime.allreduce.job import with_workers  # noqa: PLC0415 - few jobs are

        python = spec.kubernetes.python or "python3"
        job = replace(job, spec=with_workers(job.spec, job.features, python=python))
    return Prepared(job.spec, job.features, job.schema, job.packed, job.first)


def _trained(spec: JobSpec) -> FeatureSpec | None:
    """Return the encoding of what the job begins from, where this client reads it; its master checks it."""
    try:
        return trained_encoding(spec)
    except DlroverError as error:
        logger.info("what job %s begins from is not read here: %s", spec.name, error)
        return None


def _check_start(spec: JobSpec) -> None:
    """Refuse to begin from a run on this machine, whose folder no pod can read."""
    start = spec.start_from
    if start is not None and "://" not in start.source and not start.source.startswith("/"):
        raise InvalidValueError(
            f"pods cannot read run {start.source!r} of this machine; give start_from the URL of its "
            "checkpoints (checkpoint_url/RUN), or their folder on a volume of the pods"
        )


def new_pod_job(job: Prepared, capacity: Capacity | None) -> tuple[PodJob, Mapping[str, bytes]]:
    """Return a new run of a job, and the files of its code."""
    spec, run, keys = job.spec, secrets.token_hex(4), new_keys()
    delivery = send(job.packed, url=spec.kubernetes.code_url, run=run_name(spec.name, run))
    first = None if job.first is None else send_first(job.first.export(), spec, run=run_name(spec.name, run))
    access = secrets.token_urlsafe(32)
    if spec.foreign is None and (advice := storage_advice(spec)):
        logger.warning("job %s: %s", spec.name, advice)
    pod_job = PodJob(
        spec, job.features, run, keys.public, keys.secret, access, delivery.url, capacity, first=first
    )
    return pod_job, delivery.files


def owner_of(api: Api, kind: Kind, name: str) -> Doc | None:
    """Return the Job or ElasticJob of a name that keeps a master's pod; None where there is none.

    The ElasticJob of an external job belongs to its Job, and DLRover's own master runs it.
    """
    try:
        document = api.get(kind, name)
    except NotThere:
        return None
    except Forbidden:
        if kind is JOB:
            raise
        return None  # rights to it are optional
    is_ours = kind is JOB or document["metadata"].get("labels", {}).get(ROLE_LABEL) == MASTER_ROLE
    return document if is_ours else None


def make_room(api: Api, name: str) -> None:
    """Refuse a name that is taken; delete what an ended job, or a client that died, left under it.

    Raises
    ------
    InvalidValueError
        When a job of that name runs, also without its Job, or another object has its name.
    """
    for kind in OWNERS.values():
        _make_room(api, kind, name)
    if left := strays.strays(api, name):
        raise InvalidValueError(
            f"{len(left)} pod(s) of an earlier run of job {name} still run without its Job; "
            f"delete {name} --force removes them, or choose another name"
        )


def _make_room(api: Api, kind: Kind, name: str) -> None:
    there = owner_of(api, kind, name)
    if there is None:
        return
    if there["metadata"].get("labels", {}).get(JOB_LABEL) != name:
        raise InvalidValueError(
            f"namespace {api.namespace} has {kind.name} {name} that was not created by this product; "
            "choose another name"
        )
    if (
        end_of_job(there) is None
        and not _was_given_up(there, api.date_s)
        and not _has_told_its_end(api, there)
    ):
        raise InvalidValueError(
            f"a job named {name} exists already; attach {name}, stop {name}, or choose another name"
        )
    delete_job(api, there)
    _await_gone(api, there)


def create(api: Api, job: PodJob, code: Mapping[str, bytes]) -> Doc:
    """Create all objects of a job, release its master, and return the Job.

    Raises
    ------
    InvalidValueError
        When another client submitted a job of that name at the same moment.
    ApiError
        When the cluster rejects an object; then none of them stays.
    """
    name = job.spec.name
    try:
        owner = api.create(JOB, master_job(job, namespace=api.namespace))
    except Conflict as error:
        raise InvalidValueError(
            f"a job named {name} was submitted at the same moment; choose another name"
        ) from error
    try:
        granted = _may_grant(api, OF_KUEUE if queue_of(job.spec.kubernetes) else ())
        needed = companions(
            job,
            code=code,
            namespace=api.namespace,
            has_budget=BUDGETS in granted,
            may_resize=RESIZE in granted,
            sees_queue=set(OF_KUEUE) <= set(granted),
        )
        for document in needed:
            _create_anew(api, with_owner(document, owner))
        _try_pods(api, job, owner)
        if is_operated(job.spec):
            operator_jobs.create(api, job, owner)
        return api.patch(JOB, name, {"spec": {"parallelism": 1}})
    except BaseException:
        delete_job(api, owner)
        raise


def _may_grant(api: Api, more: tuple[Right, ...]) -> tuple[Right, ...]:
    """Return the optional rights that the user may grant a master; Roles of older installations lack them."""
    try:
        checked = check_access(api, (BUDGETS, RESIZE, *more)).checked
    except ApiError as error:
        logger.info("whether masters may have optional rights is not known: %s", error)
        return ()
    for each in checked:
        if each.missing:
            logger.info("masters cannot be given the right to %s: to %s", each.right.resource, each.right.why)
    return tuple(each.right for each in checked if not each.missing)


def delete_job(api: Api, job: Doc) -> None:
    """Delete a Job or an ElasticJob, that very one; the cluster deletes all that belongs to it."""
    head = job["metadata"]
    kind = OWNERS[job.get("kind", JOB.name)]
    api.delete(kind, head["name"], propagation="Background", uid=head["uid"])


def _create_anew(api: Api, document: Doc) -> None:
    """Create an object in place of one that an earlier run left and the cluster has not deleted yet."""
    kind, name = KINDS[document["kind"]], document["metadata"]["name"]
    try:
        api.create(kind, document)
    except Conflict:
        api.delete(kind, name)
        api.create(kind, document)


def _try_pods(api: Api, job: PodJob, owner: Doc) -> None:
    """Dry-run the pods that will be created, so that a refusal is known at submission.

    An exhausted quota is no error: pods wait for it.
    """
    pods = [_of_template(owner)]
    roles = () if is_operated(job.spec) else Role
    plans = [(role, job.spec.plan.role(role)) for role in roles]
    plans += [(each.role, each.plan) for each in (job.spec.foreign.roles if job.spec.foreign else ())]
    for role, plan in plans:
        pods.append(node_pod(job, PodNode(f"{role}-0", role, plan.cpu, plan.memory_mib), master=""))
    for pod in pods:
        try:
            _try_pod(api, pod)
        except OverQuota as error:
            logger.info("job %s will wait: %s", job.spec.name, error)


def _try_pod(api: Api, pod: Doc) -> None:
    """Dry-run one pod; until 1.24 a service account that was just created lacks its token."""
    end_s = time.monotonic() + TOKEN_LIMIT_S
    while True:
        try:
            api.create(POD, pod, dry_run=True)
        except Unreachable as error:
            if time.monotonic() > end_s or not error.status:  # it did not answer at all
                raise
            time.sleep(TOKEN_EVERY_S)
        else:
            return


def _of_template(job: Doc) -> Doc:
    template = job["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"] | {"name": f"{job['metadata']['name']}-try"},
        "spec": template["spec"],
    }


def _was_given_up(job: Doc, date_s: float) -> bool:
    """Whether the client of a Job is dead, by the server's clock: ours may be hours ahead."""
    made = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    return is_paused(job) and date_s - made.timestamp() > GIVEN_UP_S


def _has_told_its_end(api: Api, job: Doc) -> bool:
    """Whether the job is over and only its master lingers."""
    try:
        end = api.get(CONFIG_MAP, end_name(job["metadata"]["name"]))
    except NotThere:
        return False
    return run_of(end) == run_of(job)


def _await_gone(api: Api, job: Doc) -> None:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    kind = OWNERS[job.get("kind", JOB.name)]
    for _ in range(round(GONE_LIMIT_S / GONE_EVERY_S)):
        try:
            if api.get(kind, name)["metadata"]["uid"] != uid:
                return  # another client was faster: the name decides
        except NotThere:
            return
        time.sleep(GONE_EVERY_S)
    raise BackendError(f"the ended Job {name} could not be removed; choose another name")
