"""`dlrover_nb.connect`: from the name of a kind of cluster and its options to the cluster."""

from __future__ import annotations

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.core.connect import connect as connect_core


@shown_waits("the cluster")
def connect(  # noqa: PLR0913 - each kind of cluster has its two options, and help() shows them
    kind: str = "ray",
    address: str | None = None,
    *,
    cpus: float | None = None,
    start: bool = True,
    machines: int | None = None,
    speed: float | None = None,
    context: str | None = None,
    namespace: str | None = None,
) -> Cluster:
    """Connect to a cluster.

    Parameters
    ----------
    kind
        ``"ray"``, ``"kubernetes"``, ``"local"`` for processes of this machine without Ray, or ``"sim"`` for a
        simulated cluster in this process, of which nothing is real.
    address
        ``host:port`` of an existing Ray; None for one of our own on this machine, started when there is none.
    cpus
        Cores that a Ray of our own, or a job of local processes, may use; all by default.
    start
        Whether one of our own may be started when none runs.
    machines, speed
        Of a simulated cluster: how many, and how many of its seconds pass in a real one.
    context, namespace
        Of Kubernetes: a context of the kubeconfig, and the namespace where jobs go; each the current one by
        default. Without a kubeconfig, in a pod, the cluster around it is meant.

    Returns
    -------
    Cluster
        To submit jobs to, and to find them again on.

    Raises
    ------
    InvalidValueError
        For an unknown kind, or an option that the kind does not have.
    BackendError
        When it cannot be reached or started.
    NotFoundError
        When there is none of our own and none may be started.

    Examples
    --------
    >>> cluster = dlrover_nb.connect("sim", machines=4, speed=600)
    >>> job = cluster.submit("name: ads-ctr", epochs=100)
    """
    core = connect_core(
        kind,
        address,
        start=start,
        cpus=cpus,
        machines=machines,
        speed=speed,
        context=context,
        namespace=namespace,
    )
    return Cluster(core)
