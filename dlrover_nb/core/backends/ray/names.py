"""The masters of jobs by name: detached actors in one namespace, as are nodes, which are named JOB/NODE."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray._private import state
from ray.exceptions import RayError

from dlrover_nb.core.backends.ray.reach import NAMESPACE, ask_ray
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import BackendError, NotFoundError


def job_names() -> list[str]:
    """Return the names of all jobs with a master."""
    try:
        actors = ask_ray(lambda: ray.util.list_named_actors(all_namespaces=True))
    except (RayError, ConnectionError) as error:
        raise BackendError(f"Ray cannot be reached ({error}); connect again") from error
    return sorted(a["name"] for a in actors if a["namespace"] == NAMESPACE and "/" not in a["name"])


def master_of(name: str) -> Any:  # noqa: ANN401 - Ray's handle has no public type
    """Return the master of a job; raises `NotFoundError` when it is gone."""
    try:
        return ask_ray(lambda: ray.get_actor(name, namespace=NAMESPACE))
    except ValueError as error:
        raise NotFoundError(f"job {name} is gone") from error


def began_at_s(master: Any) -> float:  # noqa: ANN401 - as above
    """Return since when a master runs; where Ray does not know it yet, now."""
    row = state.actors(master._actor_id.hex())  # noqa: SLF001 - the one way to an actor's row in the table
    return (row or {}).get("StartTime", 0) / 1000 or SystemClock().now_s()


def await_name_free(name: str, timeout_s: float = 10.0) -> None:
    """Wait until the name of an ended master may be used again."""
    end = time.monotonic() + timeout_s
    while name in job_names():
        if time.monotonic() > end:
            raise BackendError(
                f"the master of the ended job {name} could not be removed; choose another name"
            )
        time.sleep(0.02)
