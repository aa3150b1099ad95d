"""Round numbers for axes: steps of 1, 2 or 5 times a power of ten; for time, clock units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

N_TIME_TICKS = 8  # at most
_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


def padded(low: float, high: float, share: float) -> tuple[float, float]:
    """Return the range widened by `share` on both sides; never empty."""
    if high <= low:
        half = abs(low) * 0.5 or 0.5
        return low - half, high + half
    room = (high - low) * share
    return low - room, high + room


def step(span: float, n: int) -> float:
    """Return the round step that cuts `span` into at most about `n` parts."""
    raw = span / max(n, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)


def ticks(low: float, high: float, n: int) -> list[tuple[float, str]]:
    """Return positions and labels of about `n` ticks inside [low, high]."""
    size = step(high - low, n)
    first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
    return [(i * size, label(i * size, size)) for i in range(first, last + 1)]


def label(value: float, size: float) -> str:
    """Return a tick's label, with as many digits as its step needs."""
    if abs(value) >= 10_000 and size >= 100:
        digits = 0 if size >= 1000 else 1
        return f"{value / 1000:,.{digits}f}k"
    digits = max(0, -math.floor(math.log10(size) + 1e-9))
    return f"{value:,.{digits}f}"


def values(at: Iterable[float]) -> list[tuple[float, str]]:
    """Return ticks at values, with as many digits as tell them apart."""
    at = [*at]
    digits = next((n for n in range(6, 17) if len({f"{x:.{n}g}" for x in at}) == len(set(at))), 17)
    return [(x, f"{x:.{digits}g}") for x in at]


def time_ticks(low_s: float, high_s: float, n: int = N_TIME_TICKS) -> list[tuple[float, str]]:
    """Return `n` ticks of a time axis at most, in the unit that suits their step."""
    span = high_s - low_s
    size = next((s for s in _TIME_STEPS_S if span / s <= n), None)
    if size is None:
        size = int(86400 * step(span / 86400, n))
    first, last = math.ceil(low_s / size - 1e-9), math.floor(high_s / size + 1e-9)
    return [(float(i * size), _time_label(i * size, size)) for i in range(first, last + 1)]


def _time_label(at_s: int, size: int) -> str:
    if size < 60 and abs(at_s) < 600:
        return f"{at_s} s"
    minutes, seconds = divmod(abs(at_s), 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if at_s < 0 else ""
    if size < 60:
        return f"{sign}{hours * 60 + minutes}:{seconds:02d}"
    return f"{sign}{hours}:{minutes:02d} h" if hours or size >= 3600 else f"{sign}{minutes} min"
