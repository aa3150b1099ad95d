"""Lists in sentences, as all texts write them: ``a, b and c``; for all screens and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def and_list(names: Iterable[object], *, most: int | None = None) -> str:
    """Return names in a sentence; beyond the first `most` only how many more there are."""
    words = [str(name) for name in names]
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    *first, last = words or [""]
    return f"{', '.join(first)} and {last}" if first else last
