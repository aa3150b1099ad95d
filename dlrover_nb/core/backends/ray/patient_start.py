"""Ray's own command line, whose `start` waits for its raylet for as long as that lives.

Ray gives its raylet 30 s to register, which no setting changes, and asks for it in a loop without a pause,
which takes the core that the raylet needs. On a busy machine the imports of the raylet's agents alone take
longer than that. Nor does Ray pass the port of its dashboard agent on to the raylet, which then aborts where
the agent is not up within 15 s. To try `ray start` again was rejected: each try begins with the same imports.

Run as ``python -m dlrover_nb.core.backends.ray.patient_start start --head ...``.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import psutil
from ray._private import ray_constants, services
from ray.scripts import scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

POLL_S = 0.1
LISTEN_PORT = "--dashboard-agent-listen-port="


def until_registered(get_node: Callable[..., Any], lives: Callable[[], bool]) -> Callable[..., Any]:
    """Wrap Ray's question for a node: ask again, with pauses, until it is answered or the raylet is gone."""

    def retried(*args: object, **named: object) -> Any:  # noqa: ANN401 - Ray's answer, which has no type
        while True:
            try:
                return get_node(*args, **named)
            except RuntimeError:
                time.sleep(POLL_S)  # Ray's own loop has no pause, and nothing tells of a registration
                if not lives():
                    raise

    return retried


def raylet_lives() -> bool:
    """Whether a raylet that this process started is alive."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while we looked
            if child.name() == "raylet" and child.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def with_listen_port(start: Callable[..., Any], arguments: Sequence[str]) -> Callable[..., Any]:
    """Wrap Ray's start of a process: the raylet gets the dashboard agent's port, which `arguments` name."""
    ports = [a.removeprefix(LISTEN_PORT) for a in arguments if a.startswith(LISTEN_PORT)]
    flags = [f"--dashboard_agent_listen_port={port}" for port in ports]

    def started(command: Sequence[str], kind: str, *args: object, **named: object) -> Any:  # noqa: ANN401 - as above
        more = flags if kind == ray_constants.PROCESS_TYPE_RAYLET else []
        return start([*command, *more], kind, *args, **named)

    return started


if __name__ == "__main__":
    services.get_node = until_registered(services.get_node, raylet_lives)
    services.start_ray_process = with_listen_port(services.start_ray_process, sys.argv)
    scripts.main()
