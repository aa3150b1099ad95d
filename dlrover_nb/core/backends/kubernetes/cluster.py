"""Client side of a namespace of a Kubernetes cluster: submit, list, find and delete jobs.

Only jobs run there, no service, so everyone with read access to the namespace finds all of them. A list of
our jobs costs four requests, and one per master that answers; those of others two more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError, Forbidden, NotThere
from dlrover_nb.core.backends.kubernetes.client.contexts import kubernetes_address
from dlrover_nb.core.backends.kubernetes.jobs.access import history_url, role_of_user, standing, user_of
from dlrover_nb.core.backends.kubernetes.jobs.dryrun import DryRunResult, judge
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_of
from dlrover_nb.core.backends.kubernetes.jobs.link import KubernetesLink, SecretGoneError, link_of
from dlrover_nb.core.backends.kubernetes.jobs.load import kubernetes_load
from dlrover_nb.core.backends.kubernetes.jobs.master_status import (
    Answering,
    Beginning,
    Over,
    end_of_job,
    has_begun,
    master_status,
)
from dlrover_nb.core.backends.kubernetes.jobs.ray_jobs import SeesRayJobs
from dlrover_nb.core.backends.kubernetes.jobs.strays import left_on_volume, remove_all, strays
from dlrover_nb.core.backends.kubernetes.jobs.submission import (
    create,
    delete_job,
    make_room,
    namespaced,
    new_pod_job,
    owner_of,
    prepared,
)
from dlrover_nb.core.backends.kubernetes.operator.operator_jobs import (
    operator_facts,
    refuse_operator,
    settled,
)
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Looked, Tenant, assumed, capacity_of
from dlrover_nb.core.backends.kubernetes.room.kueue_reader import KueueReader
from dlrover_nb.core.backends.kubernetes.room.queue_waits import queue_waits
from dlrover_nb.core.client.cluster import no_job, still_runs
from dlrover_nb.core.client.handle import JobHandle, user_name
from dlrover_nb.core.client.past.history_queries import past_jobs
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.driver.past.finished_job import FinishedJob
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError, WireError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, ELASTIC_JOB, JOB, NODE, OWNERS, POD, QUOTA
from dlrover_nb.core.manifests.objects import OWNER_NOTE
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, MASTER_ROLE, ROLE_LABEL, end_name, run_of
from dlrover_nb.core.manifests.pods import node_selector
from dlrover_nb.core.structs.job.fixed_roles import check_job_fits
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc, Kind
    from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.cluster.waits import QueueWait
    from dlrover_nb.core.structs.decisions.people import AccessRole, Person
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity

logger = logging.getLogger(__name__)

CONNECT_LIMIT_S = 3.0  # for the first answer of an API server
ANSWER_LIMIT_S = 2.0  # a training master answers in milliseconds
N_AT_ONCE = 16


class FoundJob:
    """A Job or an ElasticJob of ours with its master's location."""

    def __init__(self, job: Doc, masters: Iterable[Doc]) -> None:
        self.job = job
        self.name, self.run = name_of(job), run_of(job)
        mine = (pod for pod in masters if run_of(pod) == self.run)
        self.where = master_status(job, mine, run=self.run)

    def summary(self, phase: JobPhase, message: str) -> JobSummary:
        """Return its line when its master does not answer."""
        head = self.job["metadata"]
        began_s = datetime.fromisoformat(head["creationTimestamp"]).timestamp()
        owner = head.get("annotations", {}).get(OWNER_NOTE, "")
        return JobSummary(
            self.name,
            phase,
            owner,
            began_s,
            None,
            0.0,
            None,
            None,
            live=False,
            at_s=max(time.time(), began_s),  # the API server's clock may be ahead of ours
            message=message,
        )


def name_of(document: Doc) -> str:
    """Return an object's name."""
    return str(document["metadata"]["name"])


class KubernetesCluster(SeesRayJobs):
    """Jobs in one namespace; fits `core.client.cluster.Cluster`.

    Parameters
    ----------
    api
        The API server, at that namespace.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self._links: dict[tuple[str, str], KubernetesLink] = {}
        self._pool = ThreadPoolExecutor(N_AT_ONCE, thread_name_prefix="roll-call")

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return False

    @cached_property
    def user(self) -> str:
        """The user as the API server knows it: the author of decisions, and the owner of jobs."""
        return user_of(self.api)

    def acting_as(self, person: Person) -> KubernetesCluster:
        """Return the same namespace as a person sees it: the API server decides what they may.

        Raises
        ------
        BackendError
            When the person's name is one that Kubernetes reserves.
        """
        return KubernetesCluster(self.api.acting_as(person.name, person.groups))

    def role_of_user(self) -> AccessRole | None:
        """Return what the user of this connection is to the jobs here; None: they may not see them."""
        return role_of_user(self.api)

    @property
    def namespace(self) -> str:
        """The namespace where jobs run."""
        return self.api.namespace

    @property
    def address(self) -> str:
        """The word for this context and namespace, also where both were the current ones."""
        return kubernetes_address(self.api.context, self.api.namespace)

    @property
    def description(self) -> str:
        """One line: kind, place and capacity."""
        api = self.api
        return (
            f"Kubernetes {api.version()} at {api.host}, namespace {api.namespace} (context {api.context}): "
            f"{self._offer()}"
        )

    def capacity(self) -> Capacity:
        """Return the capacity for jobs, as far as this user may read it.

        Raises
        ------
        BackendError
            When the user may read neither machines nor a quota.
        """
        capacity = self._read_capacity(KubernetesSpec())
        if capacity is None:
            raise BackendError(
                f"neither machines nor a quota are visible from namespace {self.api.namespace}: jobs plan "
                "within their own bounds, and pods wait until there is room"
            )
        return capacity

    def load(self) -> ClusterLoad:
        """Return what each machine has, who holds it, and what is used; see `Cluster.load`."""
        return kubernetes_load(self.api)

    def queue_waits(self) -> tuple[QueueWait, ...]:
        """Return the jobs that a queue of the cluster holds back; fits `core.client.cluster.HasQueues`."""
        return queue_waits(self.api)

    def history_url(self) -> str | None:
        """Return what the namespace's Secret names; fits `core.client.cluster.NamesHistory`."""
        return history_url(self.api)

    def judge(self, documents: Iterable[Doc]) -> tuple[DryRunResult, ...]:
        """Return the result of the API server's dry run of documents."""
        return judge(self.api, documents)

    def standing(self) -> ClusterAccess:
        """Return the place, the namespace's quota, and this user's rights there."""
        access = standing(self.api)
        return replace(access, facts=(*access.facts, *operator_facts(self.api)))

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once; see `Cluster.submit`."""
        refuse_operator(spec)
        if spec.owner in {"", user_name()}:  # no other user was named
            spec = replace(spec, owner=self.user)
        spec = settled(namespaced(spec, self.api), self.api)
        own = prepared(spec, model=model, data=data)
        spec = own.spec
        capacity = self._read_capacity(spec.kubernetes)
        if capacity is not None:
            check_job_fits(spec, capacity)
        make_room(self.api, spec.name)
        capacity = capacity or assumed(spec)
        job, code = new_pod_job(own, capacity)
        create(self.api, job, code)
        link = self._links[spec.name, job.run] = KubernetesLink(self.api, job)
        bounds = completed(spec.bounds, capacity, spec.plan, most_workers=spec.step_batches)
        return JobHandle(
            spec.name, link, schema=own.schema, bounds=bounds, user=self.user, namespace=self.api.namespace
        )

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first; deleted ones too, where the environment names a team's history."""
        here = self._here()
        ends = {name_of(end): end for end in self._list(CONFIG_MAP)}
        answers = {summary.name: summary for summary in self._answers(here)}
        all_jobs = [answers.get(name) or self._without_answer(each, ends) for name, each in here.items()]
        past = past_jobs() if os.environ.get(HISTORY_VAR) else []
        gone = [summary for summary in past if summary.name not in here]
        return tuple(sorted([*all_jobs, *gone], key=lambda s: s.started_at_s, reverse=True))

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs whose masters answer at once, newest first."""
        return tuple(sorted(self._answers(self._here()), key=lambda s: s.started_at_s, reverse=True))

    def job(self, name: str) -> JobHandle:
        """Find a job by name; `NotFoundError` names the nearest ones."""
        document = self._job(name)
        return JobHandle(name, self._link(document), user=self.user, namespace=self.api.namespace)

    def delete(self, name: str, *, force: bool = False) -> str:
        """Delete a job with all its objects; see `Cluster.delete`."""
        try:
            document = self._job(name)
        except NotFoundError:
            return self._delete_strays(name, force=force)
        if not force and not (phase := self._phase(document)).is_final:  # a broken job can be forced
            raise InvalidValueError(still_runs(name, phase))
        pods = self.api.list(POD, selector=f"{JOB_LABEL}={name}").items
        delete_job(self.api, document)
        done = (
            f"job {name} is deleted from namespace {self.api.namespace}, and with it {len(pods)} pod(s) and "
            "its Secrets, service account and last snapshot; the cluster removes them within a minute"
        )
        return "; ".join(
            filter(None, (done, left_on_volume(document, run_of(document)), self._left(name, force=force)))
        )

    def _left(self, name: str, *, force: bool) -> str:
        """Return what became of the pods of earlier runs."""
        left = strays(self.api, name)
        if left and not force:
            return f"{len(left)} pod(s) of an earlier run still run; delete {name} --force ends them"
        return remove_all(self.api, name) if left else ""

    def _delete_strays(self, name: str, *, force: bool) -> str:
        """Delete what a job left whose Job is gone; raises the error of a job that is not there."""
        left = strays(self.api, name)
        if not left:
            self._job(name)
        if not force:
            raise InvalidValueError(
                f"{len(left)} pod(s) of job {name} still run without its Job; delete {name} --force ends them"
            )
        return remove_all(self.api, name)

    def shutdown(self, *, force: bool = False) -> str:
        """Close connections; the cluster itself is never ours."""
        del force
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.api.close()
        return f"disconnected from {self.api.host}; the cluster and its jobs keep running"

    def _phase(self, job: Doc) -> JobPhase:
        """Return the phase of a job from its Secret, its master or its last snapshot.

        Raises
        ------
        SecretGoneError
            When that is all that would tell, and the job may train.
        """
        try:
            return self._link(job).snapshot().phase
        except SecretGoneError:
            if end_of_job(job) is None and (has_begun(job) or self._has_nodes(job)):
                raise
        except (NotThere, NotFoundError):
            pass
        return JobPhase.FAILED  # its submission was never completed

    def _has_nodes(self, job: Doc) -> bool:
        return bool(self.api.list(POD, selector=node_selector(name_of(job), run_of(job))).items)

    def _offer(self) -> str:
        try:
            capacity = self.capacity()
        except BackendError:
            return "neither its machines nor a quota are visible"
        n_machine = sum(shape.count for shape in capacity.shapes)
        return (
            f"{n_machine} machine{'s' * (n_machine != 1)}, {capacity.total_cpu:g} cores, "
            f"{capacity.total_memory_mib / 1024:.1f} GiB"
        )

    def _read_capacity(self, spec: KubernetesSpec) -> Capacity | None:
        try:
            return self._capacity(spec)
        except ApiError:
            raise
        except BackendError:
            return None

    def _capacity(self, spec: KubernetesSpec) -> Capacity:
        api = self.api
        nodes = _visible(lambda: api.list(NODE).items)
        quotas = _visible(lambda: api.list(QUOTA).items)
        running = "status.phase!=Succeeded,status.phase!=Failed"
        pods = _visible(lambda: api.within("").list(POD, fields=running).items) if nodes is not None else None
        queue = KueueReader(api, spec).read(())
        looked = Looked(nodes, quotas or (), pods, queue=queue)
        return capacity_of(looked, Tenant("", api.namespace, spec), None)

    def _list(self, kind: Kind, *, role: str = "") -> list[Doc]:
        selector = f"app.kubernetes.io/managed-by=dlrover-nb,{JOB_LABEL}"
        return self.api.list(kind, selector=f"{selector},{ROLE_LABEL}={role}" if role else selector).items

    def _here(self) -> dict[str, FoundJob]:
        """Return the Jobs and ElasticJobs of the namespace with their masters' pods, by name."""
        masters = self._list(POD, role=MASTER_ROLE)
        return {name_of(job): FoundJob(job, masters) for job in self._owners()}

    def _owners(self) -> list[Doc]:
        """Return what keeps masters' pods: Jobs, and ElasticJobs where the cluster and the user have them."""
        owners = self._list(JOB)
        with contextlib.suppress(NotThere, Forbidden):
            owners += self._list(ELASTIC_JOB, role=MASTER_ROLE)
        return owners

    def _answers(self, here: dict[str, FoundJob]) -> list[JobSummary]:
        """Query all masters in parallel; those that do not answer in time are left out."""
        futures = [
            self._pool.submit(self._summary, job, job.where.pod)
            for job in here.values()
            if isinstance(job.where, Answering)
        ]
        done, late = wait_for(futures, timeout=ANSWER_LIMIT_S)
        for future in late:
            future.cancel()
        return [summary for future in futures if future in done and (summary := future.result()) is not None]

    def _summary(self, job: FoundJob, pod: str) -> JobSummary | None:
        name = job.name
        try:
            return self._link(job.job).ask_summary(pod, timeout_s=ANSWER_LIMIT_S)
        except SecretGoneError as error:
            return job.summary(JobPhase.TRAINING, str(error))
        except (BackendError, NotFoundError, WireError) as error:
            logger.info("job %s does not answer: %s", name, error)
            return None

    def _without_answer(self, job: FoundJob, ends: dict[str, Doc]) -> JobSummary:
        """Return the line of a job whose master does not answer: it starts, restarts, or is gone."""
        name, where = job.name, job.where
        end = ends.get(end_name(name))
        if end is not None and run_of(end) == job.run:
            try:
                return FinishedJob(end_of(end)).summary()
            except WireError as error:
                return job.summary(JobPhase.FAILED, str(error))
        if isinstance(where, Over):
            return job.summary(JobPhase.FAILED, where.why or "its master recorded no reason for its end")
        why = where.why if isinstance(where, Beginning) else "its master does not answer"
        return job.summary(JobPhase.STARTING, why)

    def _link(self, document: Doc) -> KubernetesLink:
        name, run = name_of(document), run_of(document)
        link = self._links.get((name, run)) or link_of(self.api, document)
        if link.lasts:
            self._links[name, run] = link
        return link

    def _job(self, name: str) -> Doc:
        for kind in OWNERS.values():
            document = owner_of(self.api, kind, name)
            if document is not None and document["metadata"].get("labels", {}).get(JOB_LABEL) == name:
                return document
        names = [name_of(job) for job in self._owners()]
        past = {job.name for job in past_jobs()} if os.environ.get(HISTORY_VAR) else set()
        raise NotFoundError(no_job(name, f"in namespace {self.api.namespace}", names, past))


def connect_kubernetes(context: str | None = None, namespace: str | None = None) -> KubernetesCluster:
    """Return a namespace of a cluster, from the user's kubeconfig or this pod's account.

    Parameters
    ----------
    context
        In the kubeconfig; None: its current one.
    namespace
        None: the context's.

    Raises
    ------
    BackendError
        When there is no configuration, or the API server does not answer or rejects the user.
    """
    api = connect_api(context, namespace)
    api.with_short_timeout(CONNECT_LIMIT_S).version()
    return KubernetesCluster(api)


def _visible(look: Callable[[], list[Doc]]) -> tuple[Doc, ...] | None:
    """Return the objects; None where listing is forbidden."""
    try:
        return tuple(look())
    except Forbidden:
        return None
