"""Nodes as Ray actors: started, stopped and observed through Ray; messages use our own wire.

The actors are detached: they survive a killed master, and the restarted one finds them by their names,
``JOB/NODE``. They end by themselves when the master stays away. A node's CPU and memory are requested from
Ray's scheduler (placement); the node itself enforces its CPU share (`core.runtime.process.limits`). A job's
minimal set of nodes is placed together (`gang`): they are requested when Ray has room for all of them, and
the others after them. Where there are several machines, one is preferred for each node by the load of all
(`host_wishes`). While a job trains, one process that has imported all waits to become its next worker
(`nodes.spares`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from operator import ge
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray._private import state
from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dlrover_nb.core.backends.ray.gang import MIB, Gang, remove_gangs, remove_request
from dlrover_nb.core.backends.ray.host_wishes import HostWishes
from dlrover_nb.core.backends.ray.load import free_need, ray_capacity
from dlrover_nb.core.backends.ray.nodes.ray_node import ENDED, RayNode
from dlrover_nb.core.backends.ray.nodes.reservation import machines_with_room, release, reserved
from dlrover_nb.core.backends.ray.nodes.spares import Spares
from dlrover_nb.core.backends.ray.reach import NAMESPACE, ask_ray
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.runtime.process.limits import was_out_of_memory
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Need, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dlrover_nb.core.structs.cluster.host_wish import HostWish
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

logger = logging.getLogger(__name__)

NAME_LIMIT_S = 10.0  # until the name of an ended node is free
NAME_POLL_S = 0.02
SCHEDULING_S = 3.0  # a node may be unplaced for so long only because its process is starting
_NODE_DIED = "its node has died"  # in Ray's words of an actor's end


class UnplacedNode(NamedTuple):
    """A node requested from Ray."""

    actor: Any
    need: Need
    at_s: float


class Deferred(NamedTuple):
    """A node that is requested from Ray together with others, and since when."""

    config: NodeConfig
    at_s: float


class Prepared(NamedTuple):
    """A node requested from Ray that is not told yet which it is."""

    actor: Any
    need: Need


class RayBackend:
    """Backend for the Ray that this process is connected to.

    Parameters
    ----------
    job
        The job's name: nodes are named actors ``JOB/NODE``.
    one_host
        Whether all nodes share one machine, so that they can talk over ipc.
    keeps_spare
        Whether a spare process waits for the next worker while the job trains.
    """

    def __init__(self, job: str, *, one_host: bool, keeps_spare: bool = False) -> None:
        self._spares, self._keeps_spare = Spares(job, self._start_spare), keeps_spare
        self._last_worker: NodeConfig | None = None
        self._in_room: set[str] = set()  # nodes that were spares
        self._job, self._gang, self._wishes = job, Gang(job), HostWishes(job)
        self._is_new = True
        self._n_first = 0  # nodes of the first plan
        self._deferred: dict[str, Deferred] = {}
        self._prepared: dict[str, Prepared] = {}
        self._are_prepared = False
        self._listen = "ipc" if one_host else f"tcp://{ray.util.get_node_ip_address()}"
        self._actors: dict[str, Any] = {}
        self._refs: dict[Any, str] = {}
        self._node_names: set[str] = set()
        self._unplaced: dict[str, UnplacedNode] = {}
        self._needs: dict[str, Need] = {}
        self._closed = False
        self._gone: list[NodeExited] = []

    def capacity(self) -> Capacity:
        """Return the shapes of the cluster's machines."""
        return ray_capacity()

    def room(self) -> Capacity:
        """Return each machine's resources that are free or held by this job."""
        try:
            free = ask_ray(state.available_resources_per_node)
            room = {
                machine: [f.get("CPU", 0.0), f.get("memory", 0.0) / MIB, f.get("GPU", 0.0)]
                for machine, f in free.items()
            }
            for machine, need in self._allocated():
                if machine in room:
                    room[machine] = [has + own for has, own in zip(room[machine], need, strict=True)]
        except (RayError, ConnectionError) as error:
            raise BackendError(f"Ray cannot be reached: {error}; connect again") from error
        shapes = [
            NodeShape(round(cpu, 2), int(mib), gpu=int(gpu))
            for cpu, mib, gpu in room.values()
            if cpu > 0 and mib >= 1
        ]
        return Capacity(tuple(sorted(shapes, key=lambda s: (s.cpu, s.memory_mib), reverse=True)))

    def _allocated(self) -> list[tuple[str, Need]]:
        """Return the machine and the size of all that this job holds: bundles, and other nodes."""
        placed = self._actors.keys() - self._unplaced.keys()
        return self._gang.bundles() + [(machine_of(self._actors[n]), self._needs[n]) for n in placed]

    def listen(self) -> str:
        """Return ``ipc`` on one machine, else this machine's address."""
        return self._listen

    def prepare(self, plan: ResourcePlan) -> None:
        """Request a new job's minimal set of nodes while its master prepares the job: both take a second.

        They are what the master is about to start if it keeps this plan; others are ended at the next `poll`.
        A client has requested them already where it could, before it read the job's data.
        Where Ray has no room for them now, or a request fails, all nodes are requested as without it; so are
        they among several machines, of which one is wished for by what is known of each node.
        """
        try:
            if sum(shape.count for shape in self.capacity().shapes) > 1:
                return
            remove_request(self._job)  # of an earlier process of this master, which had begun no job
            nodes, there = dict(_minimal_set(plan)), _nodes_of(self._job)
            if not nodes.keys() <= there.keys():
                if not machines_with_room(_total(plan)):
                    return
                self._open(plan)
                if not self._gang.is_placed:
                    return
            self._n_first, self._is_new = plan.worker.count + plan.ps.count, False
            for node, role in nodes.items():
                need = plan.role(role).need
                options = self._options(node, need) | {"get_if_exists": True}  # as above
                self._prepared[node] = Prepared(there.get(node) or _new_actor(role, options), need)
            self._gang.close()
            self._are_prepared = True
        except (BackendError, RayError, ValueError, ConnectionError) as error:
            logger.warning("job %s starts its nodes later: %s", self._job, error)

    def _open(self, plan: ResourcePlan) -> None:
        """Request room for the minimal set of the first plan."""
        self._n_first = plan.worker.count + plan.ps.count
        self._gang.open(plan)
        self._is_new = False

    def start_node(self, config: NodeConfig) -> None:
        """Request the node: at once, or with the job's first nodes when Ray has room for them."""
        if self._closed:
            raise BackendError(f"the Ray backend of job {self._job} is closed: no node can be started")
        if config.node in self._node_names:
            raise InvalidValueError(f"node {config.node} was started before; use a new id")
        self._node_names.add(config.node)
        self._needs[config.node] = config.need
        try:
            if self._is_new:
                self._open(config.spec.plan)
            if self._runs_prepared(config):
                return
            if self._gang.covers(config.need) or self._comes_after_prepared():
                self._deferred[config.node] = Deferred(config, time.monotonic())
            elif not self._runs_spare(config):
                self._wish((config,))
                self._request(config)
        except (RayError, ValueError, ConnectionError) as error:
            raise BackendError(f"Ray did not accept node {config.node}: {error}") from error
        if len(self._deferred) == self._n_first:  # else a later `poll` does it
            self._try_deferred()

    def _runs_prepared(self, config: NodeConfig) -> bool:
        """Let a prepared node run; whether there is one, and it is of the right size."""
        prepared = self._prepared.pop(config.node, None)
        if prepared is None:
            return False
        if prepared.need != config.need:
            self._end_prepared(config.node, prepared)
            return False
        self._refs[prepared.actor.run.remote(to_json(config))] = config.node
        self._note(config, prepared.actor)
        return True

    def _runs_spare(self, config: NodeConfig) -> bool:
        """Let the spare be a node, if it was made for that and stands where the node had better be."""
        if config.node != self._spares.node:
            return False
        self._wish((config,))
        actor = self._spares.take(config.need, self._wishes.machine(config.node))
        if actor is None:
            self._await_name(config.node)
            return False
        self._in_room.add(config.node)
        self._refs[actor.run.remote(to_json(config))] = config.node
        self._note(config, actor)
        return True

    def _mind_spare(self) -> None:
        """Keep a spare for the next worker, once those that were started have had time to come up."""
        if not self._keeps_spare or self._deferred:
            return
        workers = {int(n.rpartition("-")[2]): n for n in self._node_names if n.startswith(f"{Role.WORKER}-")}
        if workers and (need := self._needs.get(workers[max(workers)])) is not None:
            self._spares.mind(f"{Role.WORKER}-{max(workers) + 1}", need)

    def _start_spare(self, node: str, need: Need) -> Any:  # noqa: ANN401 - Ray's handle has no public type
        """Start the process of a worker that is to come, where there is room for it; None: there is none."""
        try:
            machines = machines_with_room(need)
            if not machines or need.gpu or self._still_unplaced():
                return None
            if self._last_worker is not None:
                self._wish((replace(self._last_worker, node=node, avoid=()),))
            where = NodeAffinitySchedulingStrategy(self._wishes.machine(node) or machines[0], soft=True)
            holds_nothing = {"num_cpus": 0, "memory": 0, "scheduling_strategy": where}
            options = self._options(node, need) | holds_nothing
            return ray.remote(RayNode).options(**options).remote(str(Role.WORKER), need.cpu, is_spare=True)
        except (RayError, ValueError, ConnectionError) as error:
            logger.warning("job %s has no spare worker now: %s", self._job, error)
            return None

    def _comes_after_prepared(self) -> bool:
        """Whether a node is one of the first ones, and waits until those that were prepared are placed."""
        return self._are_prepared and len(self._node_names) <= self._n_first

    def _end_prepared(self, node: str, prepared: Prepared) -> None:
        """End a prepared node, and wait until its name is free: another node may be about to take it."""
        with contextlib.suppress(RayError, ValueError):
            ray.kill(prepared.actor)
        self._await_name(node)

    def _await_name(self, node: str) -> None:
        """Wait until the name of a node that was ended is free."""
        end_s = time.monotonic() + NAME_LIMIT_S
        while node in _nodes_of(self._job) and time.monotonic() < end_s:
            time.sleep(NAME_POLL_S)

    def _end_unused(self) -> None:
        """End prepared nodes that the first orders of the master did not start."""
        while self._prepared:
            self._end_prepared(*self._prepared.popitem())

    def _wish(self, configs: Iterable[NodeConfig]) -> None:
        """Choose machines for nodes that are about to be requested together."""
        unplaced = {node: each.need for node, each in self._unplaced.items()}
        self._wishes.make(configs, unplaced=unplaced, reserved=self._gang.bundles)

    def _request(self, config: NodeConfig) -> None:
        """Create the actor; Ray places it when there is room."""
        self._note(config, self._begin(config, self._options(config.node, config.need)))

    def _note(self, config: NodeConfig, actor: Any) -> None:  # noqa: ANN401 - Ray's handle has no public type
        """Note a node that was requested."""
        if config.role is Role.WORKER:
            self._last_worker = config
        self._spares.settle()
        self._actors[config.node] = actor
        self._unplaced[config.node] = UnplacedNode(actor, config.need, time.monotonic())

    def _options(self, node: str, need: Need) -> dict[str, Any]:
        """Return the options of a node's actor."""
        return {
            "num_cpus": need.cpu,
            "memory": need.memory_mib * MIB,
            "name": f"{self._job}/{node}",
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "max_restarts": 0,
            **({"num_gpus": need.gpu} if need.gpu else {}),
            **self._wishes.options(node),
        }

    def _begin(self, config: NodeConfig, options: dict[str, Any]) -> Any:  # noqa: ANN401 - Ray's handle has no public type
        """Create the actor of a node, and expect its end."""
        actor = _new_actor(config.role, options)
        self._refs[actor.run.remote(to_json(config))] = config.node
        return actor

    def _await_end(self, node: str, actor: Any) -> None:  # noqa: ANN401 - as above
        """Expect the end of an adopted node."""
        self._refs[actor.end.remote()] = node

    def _try_deferred(self) -> None:
        """Request the first nodes if Ray has room; where it cannot be asked now, the next `poll` does it."""
        try:
            self._start_deferred()
        except (RayError, ValueError, ConnectionError) as error:
            logger.warning("Ray did not accept the first nodes of job %s now: %s", self._job, error)

    def _start_deferred(self) -> None:
        """Request the gang's nodes once Ray has room for all of them; the others once these are placed."""
        if not self._deferred:
            return
        if self._gang.is_placed:
            self._request_deferred(self._gang.members(each.config for each in self._deferred.values()))
            self._gang.close()
        elif not self._gang.is_open and not self._still_unplaced():
            self._request_deferred(tuple(self._deferred))

    def _request_deferred(self, nodes: Sequence[str]) -> None:
        self._wish(self._deferred[node].config for node in nodes)
        for node in nodes:
            self._request(self._deferred[node].config)
            del self._deferred[node]

    def _still_unplaced(self) -> dict[str, UnplacedNode]:
        """Return the nodes that Ray has not placed yet."""
        for node in [node for node, each in self._unplaced.items() if _is_placed(each.actor)]:
            del self._unplaced[node]
        return self._unplaced

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Find the actors of an earlier master by their names."""
        self._node_names.update(nodes)
        self._is_new = False
        remove_request(self._job)
        self._actors = _nodes_of(self._job)
        for node in set(self._actors).difference(nodes):
            self.stop_node(node)
            del self._actors[node]
        self._needs |= nodes
        for node, actor in self._actors.items():
            self._await_end(node, actor)
        gone = [node for node in nodes if node not in self._actors]
        self._in_room = reserved(self._job)
        for node in self._in_room.difference(self._actors):
            release(self._job, node)
        self._spares.settle()
        self._gone += [NodeExited(node, "it ended while its master was away") for node in gone]

    def stop_node(self, node: str) -> None:
        """Kill the actor's process; `poll` reports its end."""
        if self._deferred.pop(node, None) is not None:
            self._gone.append(NodeExited(node, "it was no longer needed before it started"))
            if not self._deferred:
                self._gang.close()
        self._kill(node)

    def _kill(self, node: str) -> None:
        if (actor := self._actors.get(node)) is not None:
            with contextlib.suppress(RayError, ValueError):
                ray.kill(actor)

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes whose run has ended."""
        self._end_unused()
        self._try_deferred()
        self._mind_spare()
        gone, self._gone = self._gone, []
        if not self._refs:
            return tuple(gone)
        ended, _ = ray.wait(list(self._refs), num_returns=len(self._refs), timeout=0)
        return (*gone, *(self._ended(ref) for ref in ended))

    def set_master_endpoint(self, endpoint: str) -> None:
        """Do nothing: a restarted master on the same machine has the same endpoint."""

    def waiting(self) -> Mapping[str, str]:
        """Return the unplaced nodes that no machine has room for now; Ray gives no other reason."""
        late_s = time.monotonic() - SCHEDULING_S
        together = self._deferred if self._gang.is_open else {}
        deferred = [node for node, each in together.items() if each.at_s < late_s]
        try:
            needs = {n: each.need for n, each in self._still_unplaced().items() if each.at_s < late_s}
            room = _room() if needs else []
        except (RayError, ConnectionError) as error:
            logger.warning("job %s cannot read the free capacity of Ray: %s", self._job, error)
            return {}
        alone = [n for n, need in needs.items() if not any(all(map(ge, has, need)) for has in room)]
        return dict.fromkeys([*deferred, *alone], "")

    def host_wishes(self) -> Mapping[str, HostWish]:
        """Return the machines that were preferred for the nodes."""
        wishes = self._wishes.by_node(self._stands_on)
        return {node: wish for node, wish in wishes.items() if node in self._node_names}

    def _stands_on(self, node: str) -> str:
        """Return Ray's id of a node's machine; empty while it has none."""
        if node in self._unplaced or node not in self._actors:
            return ""
        try:
            return machine_of(self._actors[node])
        except (RayError, ConnectionError):
            return ""

    def denied(self) -> str:
        """Return nothing: Ray knows no rights."""
        return ""

    def close(self) -> None:
        """Kill all actors that still run."""
        self._closed = True
        self._end_unused()
        self._spares.end()
        for node in self._actors:
            self._kill(node)
        self._gang.close()
        _remove_groups(self._job)
        self._deferred.clear()
        self._actors.clear()
        self._unplaced.clear()
        self._refs.clear()

    def _ended(self, ref: Any) -> NodeExited:  # noqa: ANN401 - Ray's reference has no public type
        node = self._refs.pop(ref)
        exited = self._exit_of(node, ref)
        self._kill(node)  # a run that returned leaves its actor idle
        self._forget(node)
        return exited

    def _exit_of(self, node: str, ref: Any) -> NodeExited:  # noqa: ANN401 - as above
        """Return how a node ended, from the call that ended with it."""
        why, was_killed, failed = _cause(ref)
        if was_killed and (_says_memory(why) or was_out_of_memory(f"{self._job}-{node}")):
            return NodeExited(node, f"out of memory: {why}", was_killed=True, out_of_memory=True)
        return NodeExited(node, why, was_killed=was_killed, failed=failed)

    def _forget(self, node: str) -> None:
        self._actors.pop(node, None)
        self._unplaced.pop(node, None)
        self._wishes.forget(node)
        if node in self._in_room:
            release(self._job, node)


def _minimal_set(plan: ResourcePlan) -> Iterator[tuple[str, Role]]:
    """Yield the names that a master gives to the nodes that a gang is of, and their roles."""
    yield from ((f"{Role.PS}-{i}", Role.PS) for i in range(plan.ps.count))
    yield f"{Role.WORKER}-0", Role.WORKER


def _total(plan: ResourcePlan) -> Need:
    """Return what the minimal set holds together."""
    ps, worker, n = plan.ps, plan.worker, plan.ps.count
    return Need(n * ps.cpu + worker.cpu, n * ps.memory_mib + worker.memory_mib, n * ps.gpu + worker.gpu)


def _new_actor(role: Role, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Ray's handle has no public type
    return ray.remote(RayNode).options(**options).remote(str(role), options["num_cpus"])


def clear_left(job: str) -> None:
    """Remove what a job without a master left: its nodes and its placement groups."""
    for actor in _nodes_of(job).values():
        with contextlib.suppress(RayError, ValueError):
            ray.kill(actor)
    _remove_groups(job)


def _remove_groups(job: str) -> None:
    """Give back all that a job reserved."""
    remove_gangs(job)
    with contextlib.suppress(RayError, ConnectionError):
        for node in reserved(job):
            release(job, node)


def _nodes_of(job: str) -> dict[str, Any]:
    """Return the actors of a job's nodes, by the names of the nodes."""
    there = ask_ray(lambda: ray.util.list_named_actors(all_namespaces=True))
    names = [each["name"] for each in there if each["namespace"] == NAMESPACE]
    actors = {}
    for name in names:
        owner, slash, node = name.partition("/")
        if owner == job and slash:
            with contextlib.suppress(ValueError, RayError):  # gone since it was listed
                actors[node] = ray.get_actor(name, namespace=NAMESPACE)
    return actors


def _cause(ref: Any) -> tuple[str, bool, bool]:  # noqa: ANN401 - as above
    """Return why a run ended, whether its process was ended by force, and whether its program failed."""
    try:
        return ray.get(ref) or ENDED, False, False
    except RayTaskError as error:
        is_oom = isinstance(error.cause, MemoryError)
        return f"the node's program failed: {error.cause}", is_oom, not is_oom
    except RayActorError as error:
        is_lost = getattr(error, "preempted", False) or _NODE_DIED in str(error)
        return f"its process died: {_first_line(str(error))}", not is_lost, False
    except RayError as error:
        return f"Ray: {_first_line(str(error))}", isinstance(error, OutOfMemoryError), False


def _says_memory(why: str) -> bool:
    """Whether Ray's memory monitor, or its program, reports out of memory; Ray tells by text alone."""
    return any(words in why.lower() for words in ("out of memory", "memory pressure", "memoryerror", "(oom)"))


def _is_placed(actor: Any) -> bool:  # noqa: ANN401 - Ray's handle has no public type
    """Whether the actor has a process, or had one; the public API for this needs Ray's dashboard."""
    row = state.actors(actor._actor_id.hex())  # noqa: SLF001 - the one way to an actor's row in the table
    return bool(row) and (row["State"] in {"ALIVE", "DEAD"} or row["Address"]["Port"] != 0)


def machine_of(actor: Any) -> str:  # noqa: ANN401 - as above
    """Return the id of an actor's machine; empty while it has none."""
    row = state.actors(actor._actor_id.hex())  # noqa: SLF001 - as above
    return str(row["Address"]["NodeID"]) if row else ""


def _room() -> list[Need]:
    """Return what is free of each machine."""
    return [free_need(free) for free in state.available_resources_per_node().values()]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason given"
