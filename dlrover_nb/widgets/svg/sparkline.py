"""Numbers over time as one line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return the last `width` values as bars from zero to their largest."""
    recent = list(values)[-width:]
    top = max(recent, default=0.0)
    if top <= 0:
        return ""
    return "".join(BARS[min(int(v / top * len(BARS)), len(BARS) - 1)] for v in recent)
