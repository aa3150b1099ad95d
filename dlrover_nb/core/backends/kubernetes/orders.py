"""What a job's book orders of the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc


@dataclass(frozen=True, slots=True)
class Create:
    """Make the pod of a node."""

    node: str
    pod: Doc


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a pod, that very one."""

    pod: str
    uid: str
    grace_s: int


@dataclass(frozen=True, slots=True)
class Point:
    """Write into a pod where the master is."""

    pod: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class LookFor:
    """Ask for a pod that was made and is not seen."""

    node: str
    pod: str


@dataclass(frozen=True, slots=True)
class AskWhy:
    """Ask for the events of a pod: its machine takes long to make its container, and only they say why."""

    node: str
    pod: str


Action: TypeAlias = Create | Delete | Point | LookFor | AskWhy
