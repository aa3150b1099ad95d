"""External programs in pods of DLRover's operator: fits `driver.operator_managed_job.OperatorManagedBackend`.

The job's ElasticJob is created with the job, and owned by it. From then on the desired state is the plan. It
is repeatedly compared with the last request to the operator (the newest ScalePlan, or else the ElasticJob
itself), and a ScalePlan is created where they differ. So a restarted master requests nothing twice, and a
deleted ScalePlan is created again. Their numbers grow, since DLRover acts on each name once and a job may
return to an earlier plan.

Pods are observed, never created or deleted. An annotation gives them the address to which they report steps.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError, Conflict, Forbidden, Unreachable
from dlrover_nb.core.backends.kubernetes.client.informer import Informer
from dlrover_nb.core.backends.kubernetes.nodes.missing_rights import is_refusal, needed
from dlrover_nb.core.backends.kubernetes.nodes.pod_logs import PodLogs
from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import (
    latest,
    numbered,
    requested_plan,
    scale_plan,
)
from dlrover_nb.core.backends.kubernetes.operator.elastic_observed import (
    JOB_LABEL,
    Applied,
    applied,
    node_name,
    view,
)
from dlrover_nb.core.backends.kubernetes.room.capacity_informer import CapacityInformer
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Tenant
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, POD, SCALE_PLAN, Doc
from dlrover_nb.core.manifests.pod_parts import RUN_LABEL
from dlrover_nb.core.manifests.pods import MASTER_NOTE
from dlrover_nb.core.master.external.operator_managed_master import OperatorManagedJob
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.backends.kubernetes.nodes.site import Site
    from dlrover_nb.core.driver.backend import NodeExited
    from dlrover_nb.core.structs.job.external import Written
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan
    from dlrover_nb.core.structs.wire.node_config import NodeConfig
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

BEGINNING: Doc = {  # as if a ScalePlan had requested the ElasticJob's first plan
    "metadata": {},
    "spec": {"replicaResourceSpecs": {str(role): {} for role in Role}},
}

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
CLOSE_TRIES, CLOSE_EVERY_S = 20, 1.0  # to end the ElasticJob, while the API server is unreachable


class OperatorManagedPods:
    """Backend for one run of an external job under DLRover's operator.

    Parameters
    ----------
    job
        From its Secret; its ElasticJob exists.
    site
        Where.
    url
        To which programs report their steps, as reached from their pods.
    """

    def __init__(self, job: PodJob, site: Site, url: str) -> None:
        self._job, self._api, self._address, self._url = job, site.api, site.address, url
        self._name, self._first = job.spec.name, job.spec.plan
        api, of_job = site.api, f"{JOB_LABEL}={self._name}"
        self._jobs = Informer(api, ELASTIC_JOB, f"{RUN_LABEL}={job.run}")
        self._scales = Informer(api, SCALE_PLAN, of_job) if api.has(SCALE_PLAN) else None
        self._pod_informer = Informer(api, POD, of_job)
        spec = job.spec
        tenant = Tenant(self._name, api.namespace, spec.kubernetes, spec.plan.total_gpu)
        self._capacity_informer = CapacityInformer(api, tenant, job.capacity, self._mine)
        self._pod_logs = PodLogs(api)
        self._wish: tuple[ResourcePlan, str] | None = None
        self._refused: tuple[ResourcePlan, str] | None = None
        self._denied = ""
        self._annotations: dict[str, str] = {}  # by uid of a pod: what its annotation was set to
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"operated-{self._name}", daemon=True)
        self._thread.start()

    # for the master's loop

    def capacity(self) -> Capacity:
        """Return the capacity that machines and the namespace's quota give the job."""
        return self._capacity_informer.latest().capacity

    def room(self) -> Capacity:
        """Return the part of it that is free or held by the job."""
        return self._capacity_informer.latest().room

    def listen(self) -> str:
        """Return ``tcp`` at the address of the master's pod."""
        return f"tcp://{self._address}"

    def apply_plan(self, plan: ResourcePlan, decision: str) -> None:
        """Set the job's desired plan."""
        self._wish = plan, decision

    def observed(self) -> OperatorManagedJob | None:
        """Return the job's state from its ElasticJob, the newest ScalePlan and its pods."""
        scales = self._scales
        if not (self._jobs.is_synced and self._pod_informer.is_synced) or (scales and not scales.is_synced):
            return None
        job, pods = self._jobs.items().get(self._name), list(self._pods().values())
        state, scale = view(job, [pod for pod in pods if not _has_failed(pod)]), self._latest()
        plan = requested_plan(scale, self._first)
        progress = applied(scale or BEGINNING, plan, pods)
        refused = (plan, "its ScalePlan failed") if progress is Applied.REFUSED else self._refused
        is_there = state.phase is JobPhase.TRAINING and progress is Applied.DONE
        return OperatorManagedJob(state.phase, state.why, state.nodes, plan if is_there else None, refused)

    def node_of(self, pod: str) -> str:
        """Return which node a pod is, by its name."""
        return node_name(self._name, pod)

    def waiting(self) -> Mapping[str, str]:
        """Return the nodes without a machine or an image, and the cluster's reason."""
        job = self.observed()
        nodes = job.nodes if job else ()
        return {node.id: node.waits_for for node in nodes if node.waits_for}

    def denied(self) -> str:
        """Return which right of the job's account is missing now, and what to do; empty: none."""
        errors = (each.error for each in (self._jobs, self._pod_informer, self._scales) if each is not None)
        refused = (needed(self._job.spec, error) for error in errors if error and is_refusal(error))
        return next(refused, self._denied)

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Begin to read what the pods' programs write."""
        self._pod_logs.begin(since_ns)

    def written(self) -> tuple[Written, ...]:
        """Return the lines that were written since the last call."""
        return self._pod_logs.take()

    def close(self) -> None:
        """End the ElasticJob, unless it has ended: then it stays with its job, for inspection."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        job = self.observed()
        if job is None or not job.phase.is_final:
            self._end_job()
        for informer in (self._jobs, self._pod_informer, *filter(None, [self._scales])):
            informer.close()
        self._pod_logs.close()
        self._capacity_informer.close()

    # left to the operator

    def start_node(self, config: NodeConfig) -> None:
        """Refuse: the operator creates pods."""
        raise BackendError(f"DLRover's operator starts the pods of {self._name}, not {config.node} alone")

    def stop_node(self, node: str) -> None:
        """Leave it to the operator, which ends a job's pods with the job."""

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Do nothing: the pods are the operator's."""

    def poll(self) -> tuple[NodeExited, ...]:
        """Return nothing: the operator replaces ended nodes."""
        return ()

    def set_master_endpoint(self, endpoint: str) -> None:
        """Do nothing: the pods read their annotation."""

    def addresses(self) -> Mapping[str, str]:
        """Return nothing: programs get their peers from the operator."""
        return {}

    def send_environment(self, node: str, text: str) -> None:
        """Do nothing: programs get their peers from the operator."""

    # the worker's thread

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            try:
                self._update_pods()
                self._ask()
                self._denied = ""
            except Unreachable as error:
                logger.debug("job %s: later, for now: %s", self._name, error)
            except Forbidden as error:  # the programs need no rights of ours: it is tried again
                self._denied = needed(self._job.spec, error)
            except ApiError as error:
                logger.warning("job %s: %s", self._name, error)

    def _update_pods(self) -> None:
        for name, pod in self._pods().items():
            uid, node = pod["metadata"]["uid"], self.node_of(name)
            if (pod.get("status") or {}).get("phase") in {"Running", "Succeeded", "Failed"}:
                self._pod_logs.see(node, pod)
            annotation = (pod["metadata"].get("annotations") or {}).get(MASTER_NOTE)
            if self._url not in {annotation, self._annotations.get(uid)}:
                self._api.patch(POD, name, {"metadata": {"annotations": {MASTER_NOTE: self._url}}})
                self._annotations[uid] = self._url

    def _ask(self) -> None:
        """Create a ScalePlan where the desired plan differs from the last request."""
        wish, job = self._wish, self.observed()
        if wish is None or job is None or job.phase.is_final:
            return
        plan, decision = wish
        if plan == requested_plan(self._latest(), self._first):
            self._refused = None if self._refused is None or self._refused[0] == plan else self._refused
            return
        owner = self._jobs.items().get(self._name)
        if owner is None or (self._refused and self._refused[0] == plan):
            return
        if self._scales is None:
            self._refused = (
                plan,
                "ScalePlans are not installed here; ask the cluster's administrator for their definition",
            )
            return
        spec, number = self._job.spec, self._last_number() + 1
        pods = self._pods().values()
        document = scale_plan(spec, plan, decision, owner, pods=pods, number=number)
        try:
            self._api.create(SCALE_PLAN, document)
        except (Unreachable, Forbidden):
            raise
        except Conflict:
            return  # it was just created, and is not observed yet
        except ApiError as error:
            self._refused = plan, str(error)

    def _latest(self) -> Doc | None:
        return latest(self._scales.items().values() if self._scales else (), self._owner_uid())

    def _last_number(self) -> int:
        scales = self._scales.items().values() if self._scales else ()
        return max(numbered(scales, self._owner_uid()), default=0)

    def _owner_uid(self) -> str:
        job = self._jobs.items().get(self._name)
        return str(job["metadata"]["uid"]) if job else ""

    def _pods(self) -> dict[str, Doc]:
        """Return the pods of this ElasticJob: older ones are of an earlier run."""
        job = self._jobs.items().get(self._name)
        since = job["metadata"]["creationTimestamp"] if job else ""
        return {
            name: pod
            for name, pod in self._pod_informer.items().items()
            if pod["metadata"]["creationTimestamp"] >= since
        }

    def _mine(self) -> tuple[Doc, ...] | None:
        return tuple(self._pod_informer.items().values()) if self._pod_informer.is_synced else None

    def _end_job(self) -> None:
        """Delete the ElasticJob; the operator's pods go with it."""
        for _ in range(CLOSE_TRIES):
            try:
                self._api.delete(ELASTIC_JOB, self._name, propagation="Background")
            except (Unreachable, Forbidden):
                threading.Event().wait(CLOSE_EVERY_S)
            except ApiError as error:
                logger.warning("the ElasticJob %s remains: %s; it is deleted with its Job", self._name, error)
                return
            else:
                return


def _has_failed(pod: Doc) -> bool:
    """Whether a pod failed: the operator puts another one in its place."""
    return (pod.get("status") or {}).get("phase") == "Failed"
