"""Nodes as pods: calls change the desired state, and one thread reconciles the cluster with it.

The master's loop never waits for the API server: its calls change and read a `PodReconciler`. The worker
passes it the pods of the informer whenever something changed, carries out its orders, and retries after each
failure with a growing delay. An API server that is unreachable for minutes delays changes by as much; running
nodes are not affected.

All orders are computed from the pods that there are. So a second backend takes over with no more than the
names of the nodes (`adopt`), and an order that is carried out twice changes nothing.

Where the master may use ``pods/resize`` pods are resized in place (`pod_sizes`), elsewhere replaced.
"""

from __future__ import annotations

import copy
import logging
import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Inadmissible,
    NotThere,
    OverQuota,
    Unauthorized,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.client.informer import Informer
from dlrover_nb.core.backends.kubernetes.nodes.disruption_budget import DisruptionBudget
from dlrover_nb.core.backends.kubernetes.nodes.host_wishes import HostWishes
from dlrover_nb.core.backends.kubernetes.nodes.missing_rights import Refusals, is_refusal, needed
from dlrover_nb.core.backends.kubernetes.nodes.orders import AskWhy, Create, Delete, LookFor, Point, Resize
from dlrover_nb.core.backends.kubernetes.nodes.own_secrets import OwnSecrets
from dlrover_nb.core.backends.kubernetes.nodes.pod_reconciler import PodReconciler
from dlrover_nb.core.backends.kubernetes.nodes.pod_status import trouble
from dlrover_nb.core.backends.kubernetes.nodes.refused_sizes import PodSizes, RefusedSizes
from dlrover_nb.core.backends.kubernetes.room.capacity_informer import CapacityInformer
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Tenant, requests_of
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError
from dlrover_nb.core.manifests.kinds import EVENT, POD
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, NODE_LABEL, RUN_LABEL, owned_by
from dlrover_nb.core.manifests.pods import MASTER_NOTE, PodNode, node_pod, node_selector, pod_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.backends.kubernetes.nodes.orders import Action
    from dlrover_nb.core.backends.kubernetes.nodes.site import Site
    from dlrover_nb.core.driver.backend import NodeAllotted, NodeExited
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.cluster.host_wish import HostWish
    from dlrover_nb.core.structs.cluster.queue_quota import QueueQuota
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, Size
    from dlrover_nb.core.structs.wire.node_config import NodeConfig
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0  # between checks for due work, where nothing changed
QUOTA_RETRY_S = 15.0  # until a pod is asked for again that a quota had no room for
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0  # before an API server that does not answer is asked again
CLOSE_LIMIT_S = 30.0


class KubernetesBackend:
    """Backend for one run of a job.

    Parameters
    ----------
    job
        The record that its pods read: it must be in the job's Secret before nodes start.
    site
        Where.
    """

    def __init__(self, job: PodJob, site: Site) -> None:
        self._job, self._site = job, site
        self._name = job.spec.name
        self._reconciler, self._lock = PodReconciler(), threading.Lock()
        self._sizes = PodSizes(site.api, self._lock)
        self._informer = Informer(site.api, POD, node_selector(self._name, job.run))
        spec = job.spec
        tenant = Tenant(self._name, site.api.namespace, spec.kubernetes, spec.plan.total_gpu)
        self._capacity_informer = CapacityInformer(site.api, tenant, job.capacity, self._mine)
        self._wishes = HostWishes(
            self._capacity_informer.hosts,
            is_on=job.spec.kubernetes.spread,
            cpu_weight=job.spec.tuning.qore.cpu_weight,
        )
        self._pause_s, self._chance = 0.0, random.Random()  # noqa: S311 - spreads requests, hides nothing
        self._refusals, self._n_refused = Refusals(job.spec), 0
        self._sizes_refused = RefusedSizes()
        self._budget = site.owner and DisruptionBudget(site.api, job, site.owner)
        self._secrets, self._has_nodes = site.owner and OwnSecrets(site.api, job), False
        self._closed, self._given_up = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pods-{self._name}", daemon=True)
        self._thread.start()

    # for the master's loop

    def capacity(self) -> Capacity:
        """Return the capacity that machines and the namespace's quota give the job, as of the last minute."""
        return self._within_limits(self._capacity_informer.latest().capacity)

    def room(self) -> Capacity:
        """Return the part of it that is free or held by the job."""
        return self._within_limits(self._capacity_informer.latest().room)

    def _within_limits(self, capacity: Capacity) -> Capacity:
        with self._lock:
            return replace(capacity, node_limits=self._sizes_refused.limits(time.monotonic()))

    def listen(self) -> str:
        """Return ``tcp`` at the address of the master's pod."""
        return f"tcp://{self._site.address}"

    def start_node(self, config: NodeConfig) -> None:
        """Desire a pod."""
        if self._closed.is_set():
            raise BackendError(f"the backend of job {self._name} is closed: {config.node} cannot be started")
        if self._reconciler.knows(config.node):
            raise InvalidValueError(f"node ids must be new, got {config.node} again; use the next number")
        try:
            node = PodNode(config.node, config.role, config.cpu, config.memory_mib)
            pod = node_pod(self._job, node, master=config.master)
        except DlroverError as error:
            with self._lock:
                self._reconciler.add_failed(config.node, str(error))
            return
        if self._site.owner is not None:
            pod["metadata"]["ownerReferences"] = owned_by(self._site.owner)
        with self._lock:
            self._wishes.avoid(config.node, config.avoid)
            self._reconciler.add_node(config.node, pod)
            self._has_nodes = True
            self._reconciler.set_master_endpoint(config.master)
        self._wake()

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Take over the run's pods of these nodes; all others of the run go."""
        with self._lock:
            names = {node: pod_name(self._name, self._job.run, node) for node in nodes}
            self._reconciler.adopt(names, time.monotonic())
            self._has_nodes = bool(names)
        self._wake()

    def set_master_endpoint(self, endpoint: str) -> None:
        """Set the pods' annotation, which their nodes read."""
        with self._lock:
            self._reconciler.set_master_endpoint(endpoint)
        self._wake()

    def stop_node(self, node: str) -> None:
        """Stop a node's pod."""
        with self._lock:
            self._reconciler.remove_node(node)
            self._sizes.resizer.forget(node)
        self._wake()

    def resizes_in_place(self) -> bool | None:
        """Return whether the API server resizes pods for this master; None: it was not asked yet."""
        return self._sizes.is_offered

    def resize_node(self, node: str, need: Size) -> None:
        """Desire another size of a node's pod."""
        with self._lock:
            self._sizes.resizer.want(node, pod_name(self._name, self._job.run, node), need)
        self._wake()

    def allotted(self) -> tuple[NodeAllotted, ...]:
        """Return the nodes that were resized, or why they were not."""
        with self._lock:
            return self._sizes.resizer.allotted()

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended."""
        with self._lock:
            return self._reconciler.exits()

    def waiting(self) -> Mapping[str, str]:
        """Return the nodes that wait for a machine, an image or quota, and the cluster's reason."""
        with self._lock:
            return self._reconciler.waiting(time.monotonic())

    def host_wishes(self) -> Mapping[str, HostWish]:
        """Return the machines that were preferred for the pods."""
        return self._wishes.by_node(self._informer.items().values())

    def queue(self) -> QueueQuota | None:
        """Return what the job's queue admits."""
        return self._capacity_informer.queue()

    def denied(self) -> str:
        """Return which right of the job's account is missing now, and what to do; empty: none."""
        with self._lock:
            return self._refusals.now(time.monotonic())

    def close(self) -> None:
        """Delete all pods of the run and wait until none runs."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            self._reconciler.close()
        self._wake()
        self._thread.join(CLOSE_LIMIT_S)
        if self._thread.is_alive():
            why = self._informer.error or f"they did not end within {CLOSE_LIMIT_S:g} s"
            logger.warning("pods of job %s remain: %s; they are deleted with its Job", self._name, why)
            self._given_up.set()
        self._informer.close()
        self._capacity_informer.close()

    # the worker's thread

    def _run(self) -> None:
        while not (self._given_up.is_set() or self._is_over()):
            self._informer.changed.wait(LOOK_EVERY_S)
            self._informer.changed.clear()
            self._check_rights()
            if self._informer.is_synced:
                self._sizes.find_out()
                self._bring()
                if self._budget and not self._closed.is_set():
                    self._budget.follow(self._informer.items().values(), time.monotonic())
            else:
                self._check_silent_nodes()
        if self._budget:
            self._budget.end()

    def _is_over(self) -> bool:
        with self._lock:
            return self._reconciler.is_done and self._informer.is_synced

    def _bring(self) -> None:
        """Carry out due orders; failed ones are due again."""
        with self._lock:
            pods, at_s = self._informer.items(), time.monotonic()
            actions = self._wishes.placed(self._reconciler.reconcile(pods, at_s), pods)
            actions += self._sizes.resizer.reconcile(pods, at_s)
        if self._secrets and self._has_nodes and not self._closed.is_set():
            self._secrets.follow(at_s, makes_pods=any(isinstance(action, Create) for action in actions))
        for action in actions:
            try:
                if not self._do(action):
                    return
            except (Unreachable, Unauthorized) as error:
                self._back_off(action, error)
                return
            except Forbidden as error:
                self._refused(type(action).__name__, error)
            except ApiError as error:
                logger.warning("job %s: %s", self._name, error)
        if actions:
            self._pause_s = 0.0

    def _do(self, action: Action) -> bool:
        """Carry out one order; return whether to go on with the next."""
        api = self._site.api
        match action:
            case Create():
                return self._create(action)
            case Delete(pod, uid, grace_s):
                api.delete(POD, pod, grace_s=grace_s, uid=uid)
            case Resize():
                self._sizes.send(action)
            case Point(pod, endpoint):
                api.patch(POD, pod, {"metadata": {"annotations": {MASTER_NOTE: endpoint}}})
            case LookFor(node, pod):
                self._look_for(node, pod)
            case AskWhy(node, pod):
                self._ask_why(node, pod)
            case _ as never:
                assert_never(never)
        return True

    def _create(self, order: Create) -> bool:
        try:
            self._site.api.create(POD, copy.deepcopy(order.pod))
        except OverQuota as error:
            self._hold(order.node, error.message, QUOTA_RETRY_S)
            return False
        except Conflict as error:
            return self._is_there(order, error)
        except Forbidden as error:
            return self._forbidden(order, error)
        except (Unreachable, Unauthorized):
            raise
        except Inadmissible as error:
            with self._lock:
                limits = self._sizes_refused.refused(_need(order.pod), error.message, time.monotonic())
                self._reconciler.pod_refused(order.node, str(error), limits)
            return True
        except ApiError as error:
            self._refuse(order.node, str(error))
            return True
        self._n_refused = 0
        with self._lock:
            self._sizes_refused.made(_need(order.pod))
            self._refusals.allowed(Create.__name__)
            self._reconciler.pod_created(order.node, time.monotonic())
        return True

    def _is_there(self, order: Create, error: Conflict) -> bool:
        """Check whether a pod of that name is ours: created by an earlier try whose answer was lost."""
        name = order.pod["metadata"]["name"]
        if error.reason != "AlreadyExists":
            self._hold(order.node, error.message, FIRST_PAUSE_S)
            return False
        labels = self._site.api.get(POD, name)["metadata"].get("labels") or {}
        own = order.pod["metadata"]["labels"]
        if any(labels.get(key) != own[key] for key in (JOB_LABEL, RUN_LABEL, NODE_LABEL)):
            why = f"a pod {name} exists that does not belong to this job; delete it, or rename the job"
            self._refuse(order.node, why)
            return True
        with self._lock:
            self._reconciler.pod_created(order.node, time.monotonic())
        return True

    def _forbidden(self, order: Create, error: Forbidden) -> bool:
        """Wait for the right, which may just have been granted, or taken away by mistake; see `Refusals`."""
        why, is_over = self._refused(Create.__name__, error)
        if is_over:
            self._refuse(order.node, why)
            return True
        self._hold(order.node, why, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._n_refused))
        self._n_refused += 1
        return False

    def _refused(self, what: str, error: BackendError) -> tuple[str, bool]:
        """Note a refusal; return what is missing, and whether that is the end of the job."""
        with self._lock:
            before, now_s = self._refusals.now(time.monotonic()), time.monotonic()
            why = self._refusals.refused(what, error, now_s)
            is_over = self._refusals.end_job(now_s, runs=self._reconciler.runs())
        if why not in before:
            logger.warning("job %s: %s", self._name, why)
        return why, is_over

    def _look_for(self, node: str, pod: str) -> None:
        try:
            self._site.api.get(POD, pod)
        except NotThere:
            with self._lock:
                self._reconciler.pod_missing(node)

    def _ask_why(self, node: str, pod: str) -> None:
        about = f"involvedObject.kind=Pod,involvedObject.name={pod}"
        try:
            why = trouble(self._site.api.list(EVENT, fields=about).items)
        except Forbidden:
            return  # it takes long all the same
        with self._lock:
            self._reconciler.pod_explained(node, why)

    def _hold(self, node: str, why: str, pause_s: float) -> None:
        with self._lock:
            self._reconciler.pod_delayed(node, why, until_s=time.monotonic() + pause_s)

    def _refuse(self, node: str, why: str) -> None:
        with self._lock:
            self._reconciler.pod_refused(node, why)

    def _back_off(self, action: Action, error: ApiError) -> None:
        """Back off from a server that does not answer: each pause is longer."""
        longer_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        why = needed(self._job.spec, error)
        if self._pause_s == 0.0:
            logger.warning("job %s waits for the API server: %s", self._name, why)
        self._pause_s = longer_s
        if isinstance(action, Create):
            self._hold(action.node, why, longer_s)
        longest_s = FIRST_PAUSE_S if self._closed.is_set() else longer_s
        self._given_up.wait(self._chance.uniform(0.5, 1.0) * longest_s)

    def _check_rights(self) -> None:
        """Note whether pods may be followed; a job none of whose pods runs cannot go on for long without."""
        error = self._informer.error
        if error is None or not is_refusal(error):
            with self._lock:
                self._refusals.allowed(POD.plural)
            return
        why, is_over = self._refused(POD.plural, error)
        if is_over:
            with self._lock:
                self._reconciler.refuse_all_pods(why)

    def _check_silent_nodes(self) -> None:
        """Report why desired nodes wait while pods cannot be listed."""
        if (error := self._informer.error) is not None:
            self._hold("", self.denied() or str(error), 0.0)

    def _mine(self) -> tuple[Doc, ...] | None:
        return tuple(self._informer.items().values()) if self._informer.is_synced else None

    def _wake(self) -> None:
        self._informer.changed.set()


def _need(pod: Doc) -> Size:
    cpu, memory_mib = requests_of(pod)
    return round(cpu, 2), round(memory_mib)
