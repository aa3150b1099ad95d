"""Connect to a cluster by its kind; `kinds` holds the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.connect.kinds import Place, check_options, kind_of

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
        The name of one of `kinds.kinds`, or an alias.
    address
        Of an existing cluster, for kinds that have addresses; None for our own on this machine.
    start
        Whether our own may be started when none runs.
    **options
        Options of the kind: `kinds.Options`.

    Raises
    ------
    InvalidValueError
        For an unknown kind, or an option that the kind does not have.
    BackendError
        When it cannot be reached or started.
    NotFoundError
        When our own does not run and must not be started.
    """
    chosen = kind_of(kind)
    check_options(chosen, address, options)
    return chosen.connect(Place(address, start, options))
