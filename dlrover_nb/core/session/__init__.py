"""The session: one driver loop per job in the master, handles and clusters for clients."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.ray.head import running_head
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from dlrover_nb.core.session.cluster import Cluster

KINDS = ("ray", "sim")
LATER = ("kubernetes", "k8s")  # named by users, and not built yet


def connect(
    kind: str = "ray",
    address: str | None = None,
    *,
    cpus: float | None = None,
    start: bool = True,
    machines: int | None = None,
    speed: float | None = None,
) -> Cluster:
    """Connect to a place where jobs run.

    Parameters
    ----------
    kind
        One of `KINDS`.
    address
        Of an existing cluster; None for one of our own on this machine, started when there is none.
    cpus
        Cores that a cluster of our own offers; all by default.
    start
        Whether one of our own may be started when none runs.
    machines, speed
        Of a simulated cluster: how many, and how many of its seconds pass in a real one.

    Raises
    ------
    InvalidValueError
        For an unknown kind, or an option that the kind does not have.
    BackendError
        When it cannot be reached or started.
    NotFoundError
        When there is none of our own and none may be started.
    """
    _check_options(kind, ray=(address, cpus), sim=(machines, speed))
    if kind == "sim":
        from dlrover_nb.core.session.imagined import simulate  # noqa: PLC0415 - it reads data, Ray does not need it

        return simulate(machines=machines, speed=speed, at_s=SystemClock().now_s())
    if kind in LATER:
        raise InvalidValueError(
            "jobs cannot be started on Kubernetes yet; use `connect ray` here, and export a plan for kubectl"
        )
    if kind != "ray":
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KINDS)}"
        raise InvalidValueError(f"cannot connect to {kind!r}; {hint}")
    if (
        address is None and not start and running_head() is None
    ):  # asked before Ray is imported: it takes seconds
        raise NotFoundError("no local Ray of ours runs, so no job does; `connect ray` starts one")
    from dlrover_nb.core.backends.ray.cluster import connect_ray  # noqa: PLC0415 - Ray takes a second to import

    return connect_ray(address, cpus=cpus)


def _check_options(kind: str, *, ray: tuple[object, ...], sim: tuple[object, ...]) -> None:
    if kind == "sim" and any(value is not None for value in ray):
        raise InvalidValueError("a simulated cluster takes no address and no cpus; use machines and speed")
    if kind == "ray" and any(value is not None for value in sim):
        raise InvalidValueError(
            "machines and speed are of a simulated cluster; connect sim, or leave them out"
        )
