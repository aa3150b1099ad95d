"""The session: one driver loop per job in the master, handles and clusters for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.backends.ray.head import running_head
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.connect.kinds import check_options, kind_of
from dlrover_nb.core.errors import NotFoundError

if TYPE_CHECKING:
    from typing import Unpack

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.connect.kinds import Options


def connect(
    kind: str = "ray", address: str | None = None, *, start: bool = True, **options: Unpack[Options]
) -> Cluster:
    """Connect to a place where jobs run.

    Parameters
    ----------
    kind
        One of `place.KINDS`.
    address
        Of an existing Ray; None for one of our own on this machine, started when there is none.
    start
        Whether one of our own may be started when none runs.
    **options
        What the kind takes beside it: `place.Options`.

    Raises
    ------
    InvalidValueError
        For an unknown kind, or an option that the kind does not have.
    BackendError
        When it cannot be reached or started.
    NotFoundError
        When there is none of our own and none may be started.
    """
    kind = kind_of(kind)
    check_options(kind, address, options)
    if kind == "sim":
        from dlrover_nb.core.backends.simulated.assumptions import simulate  # noqa: PLC0415 - it reads data, Ray does not need it

        machines, speed = options.get("machines"), options.get("speed")
        return simulate(machines=machines, speed=speed, at_s=SystemClock().now_s())
    if kind == "kubernetes":
        from dlrover_nb.core.backends.kubernetes.cluster import connect_kubernetes  # noqa: PLC0415 - of an extra

        return connect_kubernetes(options.get("context"), options.get("namespace"))
    if (
        address is None and not start and running_head() is None
    ):  # asked before Ray is imported: it takes seconds
        raise NotFoundError("no local Ray of ours runs, so no job does; `connect ray` starts one")
    from dlrover_nb.core.backends.ray.cluster import connect_ray  # noqa: PLC0415 - Ray takes a second to import

    return connect_ray(address, cpus=options.get("cpus"))
