"""The actor of one node of our own jobs: a process that imports what its role needs, and runs the node.

It imports in a thread from its first moment on, so that Ray's own steps until `run` (it is registered, its
master learns its address) take no time of their own. Its master may also request it before it knows all of
the node's configuration (`RayBackend.prepare`); an actor that is never told to run ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace

import ray

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.runtime.process.lasting_imports import lasting_imports
from dlrover_nb.core.runtime.process.limits import thread_variables
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig

LEFT_ALONE_S = 30.0  # after its end, for a master to observe it
NOT_RUN_LIMIT_S = 600.0  # until its master has prepared the job: a second, on an overloaded machine minutes
ENDED = "ended by itself"


class RayNode:
    """One node process, whose main thread is the node's loop until it ends.

    Calls are answered in sequence, so the answer to `end` comes after `run`: it reports the node's end to a
    master that did not start it.

    Parameters
    ----------
    role, cpu
        Of the node that it will be told to run.
    """

    def __init__(self, role: str, cpu: float) -> None:
        self._end = "it had not started when its master died"
        self._unused = _end_process_in(NOT_RUN_LIMIT_S)
        for name, value in thread_variables(cpu).items():
            os.environ.setdefault(name, value)
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
