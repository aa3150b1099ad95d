"""How often a caller may ask: a token bucket per name, in bounded memory, decided from the time alone.

A bucket that is full again says nothing, so it is forgotten: memory holds those who asked of late. Where more
than `most` did, those who asked least recently are forgotten first, which forgives them; a flood of names
thus weakens the limit of quiet names, never that of the busiest.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, and so many per second for long."""

    burst: float
    per_s: float


class Recent:
    """Names that were seen of late, in bounded memory; for one thread."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._names: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Remember a name, and forget the one that was seen least recently where there are too many."""
        self._names[name] = None
        self._names.move_to_end(name)
        while len(self._names) > self._most:
            self._names.popitem(last=False)

    def discard(self, name: str) -> None:
        """Forget a name."""
        self._names.pop(name, None)


class Buckets:
    """Buckets of one rate by name; safe from several threads."""

    def __init__(self, rate: Rate, *, most: int = 10_000) -> None:
        self._rate, self._most = rate, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name: (left, as of)
        self._lock = threading.Lock()

    def wait_s(self, name: str, now_s: float) -> float:
        """Return the seconds until this name may ask again; 0: it may now."""
        with self._lock:
            return max(0.0, (1.0 - self._now(name, now_s)) / self._rate.per_s)

    def take(self, name: str, now_s: float) -> float:
        """Take one from a bucket and return 0; where it is empty, return the seconds to wait."""
        with self._lock:
            left = self._now(name, now_s)
            if left < 1.0:
                return (1.0 - left) / self._rate.per_s
            self._left[name] = (left - 1.0, now_s)
            self._left.move_to_end(name)
            self._forget(now_s)
            return 0.0

    def __len__(self) -> int:
        return len(self._left)

    def _now(self, name: str, now_s: float) -> float:
        left, as_of_s = self._left.get(name, (self._rate.burst, now_s))
        return min(self._rate.burst, left + max(0.0, now_s - as_of_s) * self._rate.per_s)

    def _forget(self, now_s: float) -> None:
        """Forget the oldest that are full again, and whatever is too many."""
        while self._left:
            oldest = next(iter(self._left))
            if len(self._left) <= self._most and self._now(oldest, now_s) < self._rate.burst:
                return
            del self._left[oldest]
