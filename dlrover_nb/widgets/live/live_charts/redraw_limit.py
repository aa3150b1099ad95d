"""Limits how often a chart with many reports is drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import SeriesChunk


class Throttle:
    """Decides when a chart of telemetry is due: with few reports each second, with 100,000 less often.

    Sixty thousand reports take 50 ms to sort into buckets of half a minute, in which a second changes next to
    nothing. The newest reports are always drawn once no more arrive.
    """

    ROWS_PER_S = 5000  # rows for which a chart waits a second longer

    def __init__(self) -> None:
        self._seen = self._drawn = -1
        self._newest_s = -math.inf

    def is_due(self, series: SeriesChunk | None) -> bool:
        """Return whether to draw these rows now; the caller then draws them."""
        at_s = series.node.get("at_s", ()) if series else ()
        cursor = series.cursor if series else 0
        newest_s = float(at_s[-1]) if at_s else -math.inf
        rests, self._seen = cursor == self._seen and cursor != self._drawn, cursor
        waits = newest_s - self._newest_s < len(at_s) // self.ROWS_PER_S and newest_s >= self._newest_s
        if waits and not rests:
            return False
        self._drawn, self._newest_s = cursor, newest_s
        return True
