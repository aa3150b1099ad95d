"""The orders of a `PodReconciler` to the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc


@dataclass(frozen=True, slots=True)
class Create:
    """Create the pod of a node."""

    node: str
    pod: Doc


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the pod of this name and uid."""

    pod: str
    uid: str
    grace_s: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Change what the container of a node's pod may use, in place."""

    node: str
    pod: str
    container: str
    cpu: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Point:
    """Write the master's endpoint to a pod."""

    pod: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class LookFor:
    """Look up a pod that was created and is not observed."""

    node: str
    pod: str


@dataclass(frozen=True, slots=True)
class AskWhy:
    """Query the events of a pod whose container takes long: only they say why."""

    node: str
    pod: str


Action: TypeAlias = Create | Delete | Resize | Point | LookFor | AskWhy
