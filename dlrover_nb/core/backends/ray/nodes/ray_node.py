"""The actor of one node of our own jobs: a process that imports what its role needs, and runs the node.

It imports in a thread from its first moment on, so that Ray's own steps until `run` (it is registered, its
master learns its address) take no time of their own. Its master may also request it before it knows all of
the node's configuration (`RayBackend.prepare`); an actor that is never told to run ends by itself. A spare
(`nodes.spares`) is one that its master keeps until there is a worker for it to be.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace

import psutil
import ray

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.runtime.process.lasting_imports import lasting_imports
from dlrover_nb.core.runtime.process.limits import thread_variables
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig

LEFT_ALONE_S = 30.0  # after its end, for a master to observe it
NOT_RUN_LIMIT_S = 600.0  # until its master has prepared the job: a second, on an overloaded machine minutes
ENDED = "ended by itself"
RAYS_OWN = "OMP_NUM_THREADS"  # Ray sets it by what an actor holds: 1 for a spare
KEEP_S = 10.0  # between two calls by which a master keeps its spare
SPARE_S = 30.0  # after the last of them a spare ends
SPARE_MIB = 320  # of an idle one, with torch
FREE_MIB = 2048  # of its machine beyond it, or there is none


class RayNode:
    """One node process, whose main thread is the node's loop until it ends.

    Calls are answered in sequence, so the answer to `end` comes after `run`: it reports the node's end to a
    master that did not start it.

    Parameters
    ----------
    role, cpu
        Of the node that it will be told to run.
    is_spare
        Whether it waits for that as a spare.
    """

    def __init__(self, role: str, cpu: float, *, is_spare: bool = False) -> None:
        self._end = "it had not started when its master died"
        self._unused = _end_process_in(SPARE_S if is_spare else NOT_RUN_LIMIT_S)
        if is_spare and RAYS_OWN not in psutil.Process().environ():  # that it was started with
            os.environ.pop(RAYS_OWN, None)
        for name, value in thread_variables(cpu).items():
            os.environ.setdefault(name, value)
        self._is_useless = is_spare and psutil.virtual_memory().available >> 20 < SPARE_MIB + FREE_MIB
        if not self._is_useless:
            threading.Thread(target=_import_early, args=(Role(role),), name="imports", daemon=True).start()

    def run(self, config_json: bytes) -> None:
        """Run the node to its end; what it raises reaches the master through Ray."""
        from dlrover_nb.core.runtime.node import node  # noqa: PLC0415 - in the actor's process alone

        self._unused.cancel()
        config = from_json(config_json, NodeConfig)
        if config.listen != "ipc":
            config = replace(config, listen=f"tcp://{ray.util.get_node_ip_address()}")
        try:
            node.run(config)
            self._end = ENDED
        except Exception as error:
            self._end = f"the node's program failed: {error}"
            raise
        finally:
            _end_process_in(LEFT_ALONE_S)

    def keep(self) -> None:
        """Wait as a spare for some time more; end where memory is short."""
        if self._is_useless:
            ray.actor.exit_actor()
        self._unused.cancel()
        self._unused = _end_process_in(SPARE_S)

    def end(self) -> str:
        """Return why the node has ended."""
        return self._end


def _import_early(role: Role) -> None:
    with contextlib.suppress(Exception), lasting_imports():  # `run` imports the same, and its error is told
        from dlrover_nb.core.runtime.node.node import import_for  # noqa: PLC0415 - as above

        import_for(role)


def _end_process_in(seconds: float) -> threading.Timer:
    """End this process later and free its resources, unless a master does so before."""
    timer = threading.Timer(seconds, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    return timer
