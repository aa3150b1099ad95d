"""Programs of external jobs on Ray: fits `core.driver.backend.ExternalBackend`.

An actor per node, placed as those of our own nodes, runs the program as its child process: Ray's limits of
placement hold, and a program never outlives its actor. The actor survives a killed master, and the program
with it. Each gets a free port of its machine, since programs of one job share machines.

No call on an actor waits for its program, and the master waits for no call: one request per node is under way
at a time, which brings the address, the new lines and the exit. It names the last line that the master got,
so that a master that replaces another gets each line once. Where a program has ended, its actor stays until
the master has certainly saved that: a restarted one asks again.

Ray has no rules of who runs with whom. In a job with such rules (`together_with`, `apart_from`) each node
gets its machine here, one after the other, once Ray says where the ones before are.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray._private import state
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dlrover_nb.core.backends.programs.running import Observed, RunningProgram
from dlrover_nb.core.backends.programs.supervisor import GRACE_S
from dlrover_nb.core.backends.ray.backend import RayBackend, machine_of
from dlrover_nb.core.backends.ray.load import free_need
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.calls.http_server import LOOPBACK
from dlrover_nb.core.master.external.launch.collocation import place
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.backends.programs.running import ProgramSetup
    from dlrover_nb.core.structs.job.external import Written
    from dlrover_nb.core.structs.plan.resources import Need

logger = logging.getLogger(__name__)

POLL_S = 0.05
MORE_S = 10.0  # beyond the grace time, for an actor that does not answer
N_SAVED = (
    8  # polls after which an exit is saved: there are at most four a second, and the state is kept each one
)


class Placing(NamedTuple):
    """A node whose role has a place beside others, or apart from them, and why it has none yet."""

    config: NodeConfig
    why: str = ""


class RayProgram:
    """The actor of one node."""

    def __init__(self, config_json: bytes, setup: ProgramSetup) -> None:
        host = LOOPBACK if setup.is_here else ray.util.get_node_ip_address()
        self._program = RunningProgram(from_json(config_json, NodeConfig), setup, host)

    def observe(self, after_ns: int | None) -> bytes:
        """Return what is new, as JSON; see `RunningProgram.observe`."""
        return to_json(self._program.observe(after_ns))

    def set_variables(self, text: str) -> None:
        """Let the program run with these variables."""
        self._program.set_variables(text)

    def set_master(self, url: str) -> None:
        """Set where the program reports to."""
        self._program.set_master(url)

    def stop(self) -> None:
        """Ask the program to end."""
        self._program.stop()

    def leave(self) -> None:
        """Delete the program's files, and end this process."""
        self._program.remove()
        ray.actor.exit_actor()


class RayPrograms(RayBackend):
    """Backend for one run of an external job; see `RayBackend`.

    Parameters
    ----------
    job
        The job's name.
    setup
        How its programs are run.
    """

    def __init__(self, job: str, setup: ProgramSetup) -> None:
        super().__init__(job, one_host=setup.is_here)
        self._setup = setup
        self._addresses: dict[str, str] = {}  # of programs that may have begun; empty: not known yet
        self._observations: dict[Any, str] = {}
        self._given_ns: dict[str, int] = {}
        self._lines: list[Written] = []
        self._exits: list[NodeExited] = []
        self._ends_at_s: dict[str, float] = {}
        self._n_poll = 0
        self._placing: dict[str, Placing] = {}
        self._machines: dict[str, str] = {}  # of nodes that are requested next
        self._over: list[tuple[int, Any]] = []  # actors whose programs ended, each after this many polls

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Find the actors of an earlier master."""
        super().adopt(nodes)
        self._addresses = dict.fromkeys(self._actors, "")

    def addresses(self) -> Mapping[str, str]:
        """Return where programs are to listen."""
        return {node: address for node, address in self._addresses.items() if address}

    def set_master_endpoint(self, endpoint: str) -> None:
        """Send to all programs where they report to."""
        for actor in self._actors.values():
            actor.set_master.remote(endpoint)

    def send_environment(self, node: str, text: str) -> None:
        """Send variables to a node's actor."""
        if node in self._actors:
            self._actors[node].set_variables.remote(text)

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Begin to observe adopted programs, after these lines."""
        self._given_ns |= since_ns
        for node, actor in self._actors.items():
            self._observe(node, actor)

    def written(self) -> tuple[Written, ...]:
        """Return the lines that have arrived since the last call."""
        self._collect()
        lines, self._lines = self._lines, []
        return tuple(lines)

    def stop_node(self, node: str) -> None:
        """Ask the program to end; an actor that has none yet, or does not answer in time, is killed."""
        if self._placing.pop(node, None) is not None:
            self._exits.append(NodeExited(node, "it was no longer needed before it started"))
        elif node not in self._addresses:
            super().stop_node(node)
        elif node not in self._ends_at_s:
            self._ends_at_s[node] = time.monotonic() + GRACE_S + MORE_S
            self._actors[node].stop.remote()

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended, whose last lines have arrived; kill actors that do not answer."""
        self._collect()
        for node, at_s in self._ends_at_s.items():
            if time.monotonic() > at_s:
                self._kill(node)
        self._n_poll += 1
        self._release(self._n_poll - N_SAVED)
        self._place()
        exits, self._exits = self._exits, []
        return (*super().poll(), *exits)

    def close(self) -> None:
        """Ask all programs to end, and end them by force after a while."""
        self._placing.clear()
        for node in tuple(self._actors):
            self.stop_node(node)
        last_s = time.monotonic() + GRACE_S + MORE_S
        while self._actors and time.monotonic() < last_s:
            self._collect()
            time.sleep(POLL_S)
        self._release(self._n_poll)
        super().close()

    def waiting(self) -> Mapping[str, str]:
        """Return the nodes without a machine, and why."""
        return {**super().waiting(), **{node: each.why for node, each in self._placing.items() if each.why}}

    def _wish(self, configs: Iterable[NodeConfig]) -> None:
        """Wish for no machine where the rules of the job choose it."""
        super()._wish(config for config in configs if not self._is_ruled(config))

    def _is_ruled(self, config: NodeConfig) -> bool:
        assert config.spec.foreign is not None
        return bool(config.spec.foreign.placed) and not self._setup.is_here

    def _request(self, config: NodeConfig) -> None:
        if self._is_ruled(config):
            self._placing[config.node] = Placing(config)
        else:
            super()._request(config)

    def _place(self) -> None:
        """Give nodes their machines, as far as it is known where the others are."""
        if not self._placing:
            return
        try:
            for node, (config, _) in tuple(self._placing.items()):
                if self._still_unplaced():
                    return
                why = self._placed_now(config)
                if why:
                    self._placing[node] = Placing(config, why)
                else:
                    del self._placing[node]
        except (RayError, ValueError, ConnectionError) as error:
            logger.warning("nodes of job %s get no machine now: %s", self._job, error)

    def _placed_now(self, config: NodeConfig) -> str:
        """Request a node where its role may run; return why that is not possible now."""
        assert config.spec.foreign is not None
        there: dict[str, set[str]] = {}
        for node, actor in self._actors.items():
            there.setdefault(machine_of(actor), set()).add(node.rpartition("-")[0])
        free = state.available_resources_per_node().items()
        room = {machine: free_need(f) for machine, f in free}
        placement = place(config.spec.foreign, config.role, config.need, room=room, there=there)
        if placement.machine:
            self._machines[config.node] = placement.machine
            super()._request(config)
        return placement.why

    def _begin(self, config: NodeConfig, options: dict[str, Any]) -> Any:  # noqa: ANN401 - Ray's handle has no public type
        if machine := self._machines.pop(config.node, ""):
            options |= {"scheduling_strategy": NodeAffinitySchedulingStrategy(machine, soft=False)}
        actor = ray.remote(RayProgram).options(**options).remote(to_json(config), self._setup)
        self._observe(config.node, actor)
        return actor

    def _await_end(self, node: str, actor: Any) -> None:  # noqa: ANN401 - as above
        """Do nothing: the exit comes with what is observed."""

    def _observe(self, node: str, actor: Any) -> None:  # noqa: ANN401 - as above
        self._observations[actor.observe.remote(self._given_ns.get(node))] = node

    def _collect(self) -> None:
        """Take the answers that have arrived, and ask again."""
        if not self._observations:
            return
        answered, _ = ray.wait(list(self._observations), num_returns=len(self._observations), timeout=0)
        for ref in answered:
            node = self._observations.pop(ref)
            try:
                self._take(node, from_json(ray.get(ref), Observed))
            except RayError:
                self._finish(self._exit_of(node, ref))

    def _take(self, node: str, observed: Observed) -> None:
        self._addresses[node] = observed.address
        if observed.lines:
            self._lines += observed.lines
            self._given_ns[node] = observed.lines[-1].at_ns
        if observed.exited is None:
            self._observe(node, self._actors[node])
        else:
            self._over.append((self._n_poll, self._actors[node]))
            self._finish(observed.exited)

    def _finish(self, exited: NodeExited) -> None:
        self._exits.append(exited)
        for by_node in (self._addresses, self._given_ns, self._ends_at_s):
            by_node.pop(exited.node, None)
        self._forget(exited.node)

    def _release(self, until_poll: int) -> None:
        """Let the actors go whose programs had ended by then."""
        for _, actor in (each for each in self._over if each[0] <= until_poll):
            actor.leave.remote()
        self._over = [each for each in self._over if each[0] > until_poll]
