"""What a view says once: that prices are assumed.

Each amount of money names it, since it may stand alone. In a view of several blocks only the first of them
does. Rejected: that each view knows which of its blocks is the first; the next one added would say it again.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.structs.plan.prices import ARE_ASSUMED, ASSUMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    T = TypeVar("T")

_SAYINGS = (f" {ARE_ASSUMED}", ARE_ASSUMED, f", {ASSUMED}")  # a longer one first


def said_once(blocks: Iterable[T], verbatim: type) -> Iterator[T]:
    """Yield blocks of which the first alone says that prices are assumed; verbatim text stays as it is."""
    is_said = False
    for block in blocks:
        says = not isinstance(block, verbatim) and _says(block)
        yield _without(block) if says and is_said else block
        is_said = is_said or says


def _says(value: object) -> bool:
    """Whether a block, or a part of one, says it; few do, and a table may have thousands of rows."""
    if isinstance(value, str):
        return any(saying in value for saying in _SAYINGS)
    if isinstance(value, tuple):
        return any(map(_says, value))
    if is_dataclass(value):
        return any(_says(getattr(value, each.name)) for each in fields(value))
    return False


def _without(value: T) -> T:
    """Return a block, or a part of one, that does not say it."""
    if isinstance(value, str):
        text: str = value
        for saying in _SAYINGS:
            text = text.replace(saying, "")
        return text  # type: ignore[return-value]  # a text stays one
    if isinstance(value, tuple):
        return tuple(map(_without, value))  # type: ignore[return-value]  # blocks have plain tuples
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _without(getattr(value, each.name)) for each in fields(value)}
        return replace(value, **parts)
    return value
