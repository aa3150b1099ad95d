"""Parts of a document: groups and lists in it, and the replicas of a job's resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.yamltext import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Group = dict[str, Any]
Replicas = tuple[str, Group, Group]  # name, replica (``replicas``: how many pods) and pod template


def replicas_under(key: str) -> Callable[[Group], Iterator[Replicas]]:
    """Return a function that yields the replicas in a map of the spec, by name."""

    def replicas(document: Group) -> Iterator[Replicas]:
        by_name = child(child(document, "spec"), key)
        for name in by_name:
            replica = child(by_name, name)
            yield str(name), replica, child(replica, "template")

    return replicas


def child(parent: Group, key: str) -> Group:
    """Return a group in a group; empty where there is none."""
    value = parent.get(key)
    return {} if value is None else group(value, key)


def group(value: object, where: str) -> Group:
    """Return a value that must be a group; `where` begins the error."""
    if not isinstance(value, dict):
        raise InvalidValueError(f"{where} must be a group of keys and values, got {named(value)}")
    return value


def items(parent: Group, key: str) -> list[Any]:
    """Return a list in a group; empty where there is none."""
    value = parent.get(key)
    if not isinstance(value, list | None):
        raise InvalidValueError(f"{key} must be a list, got {named(value)}")
    return value or []
