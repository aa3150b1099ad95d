"""The spare of a job on Ray: an actor that has imported what a worker needs, and becomes the next worker.

A new actor takes two seconds of CPU time until it trains: half a second for Ray, the rest for torch and what
reads data. While a job trains one spare has done that. It holds nothing that Ray counts, and some `SPARE_MIB`
of memory: there is none where its machine has not `FREE_MIB` more. It stands where the next worker would, and
bears its name, by which a master that replaces a killed one finds it as a node; unless it has become that
node, it is ended then.

A spare ends `SPARE_S` after its master has last asked for it, so it outlives no job. One that is gone, with
its machine or alone, is replaced. One that does not fit the worker that comes (other threads, a full machine,
another one preferred) is ended, and the worker starts as without it.

Rejected: a process per machine with all imports done that forks nodes. Ray's own threads do not survive a
fork, so a fork is no actor, and each needs another one that watches it; the kernel's limits, logs, and a kill
would all have two ends.
"""

from __future__ import annotations

import contextlib
import time
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray._private import state
from ray.exceptions import RayError

from dlrover_nb.core.backends.ray.nodes.ray_node import KEEP_S
from dlrover_nb.core.backends.ray.nodes.reservation import reserve
from dlrover_nb.core.runtime.process.limits import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.plan.resources import Need

SETTLED_S = 10.0  # after the start of a node: a spare must not take the cores that the node starts with
LOST_S = 60.0  # after the end of a spare: its machine may be short of memory


class Spare(NamedTuple):
    """A spare, the worker that it becomes, and the threads that its libraries were started with."""

    node: str
    actor: Any
    n_thread: int


class Spares:
    """The spare of one job, if there is one.

    Parameters
    ----------
    job
        The job's name.
    start
        Starts the actor of a worker with so many cores that holds nothing; None: it would be of no use now.
    """

    def __init__(self, job: str, start: Callable[[str, Need], Any]) -> None:
        self._job, self._start = job, start
        self._spare: Spare | None = None
        self._due_s = inf
        self._answer: Any = None

    @property
    def node(self) -> str:
        """The worker that it becomes; empty: there is none."""
        return self._spare.node if self._spare is not None else ""

    def settle(self) -> None:
        """Let nodes that were started just now come up before the next spare."""
        self._due_s = time.monotonic() + SETTLED_S

    def mind(self, node: str, need: Need) -> None:
        """Keep one for a worker of this name and size; ask for it every few seconds."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + KEEP_S
        if self._spare is None:
            if (actor := self._start(node, need)) is not None:
                self._spare = Spare(node, actor, thread_count(need.cpu))
                self._answer = actor.keep.remote()
        elif not self._lives():
            self.end()
            self._due_s = now_s + LOST_S
        elif self._spare.node != node:  # the next call starts another
            self.end()
        elif self._answer is None:
            self._answer = self._spare.actor.keep.remote()

    def take(self, need: Need, machine: str) -> Any:  # noqa: ANN401 - Ray's handle has no public type
        """Return the actor that is the worker of its name from now on, with room for it; None: it is no use.

        Parameters
        ----------
        machine
            The one preferred for the worker; empty: none is.
        """
        spare, self._spare, self._answer = self._spare, None, None
        if spare is None:
            return None
        try:
            row = state.actors(spare.actor._actor_id.hex())  # noqa: SLF001 - the one way to an actor's row
            stands_on = str(row["Address"]["NodeID"]) if row and row["State"] == "ALIVE" else ""
            fits = not need.gpu and spare.n_thread == thread_count(need.cpu) and machine in ("", stands_on)
            if stands_on and fits and reserve(self._job, spare.node, need, stands_on):
                return spare.actor
        except (RayError, ConnectionError):
            pass
        _end(spare)
        return None

    def end(self) -> None:
        """End it."""
        spare, self._spare, self._answer = self._spare, None, None
        if spare is not None:
            _end(spare)

    def _lives(self) -> bool:
        """Whether it has not ended, as far as is known."""
        if self._answer is None or not ray.wait([self._answer], timeout=0)[0]:
            return True
        answer, self._answer = self._answer, None
        try:
            ray.get(answer)
        except (RayError, ConnectionError):
            return False
        return True


def _end(spare: Spare) -> None:
    with contextlib.suppress(RayError, ValueError):
        ray.kill(spare.actor)
