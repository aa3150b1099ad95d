"""Where the pods of a job are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc


@dataclass(frozen=True, slots=True)
class Site:
    """Where a job's pods are made.

    Parameters
    ----------
    api
        In the job's namespace.
    owner
        The job's Job, with which all goes; None: nothing owns the pods, and `close` alone removes them.
    address
        Where the master's pod is reached by the others: the IP and the port, ``10.1.2.3:7070``; without a
        port any free one is taken.
    """

    api: Api
    owner: Doc | None
    address: str
