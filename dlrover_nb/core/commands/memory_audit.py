"""An audit in memory: of simulated jobs, which leave nothing on this machine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.history.audit.chain import START, chained_hash, link_of
from dlrover_nb.core.structs.decisions.commands import AuditRow, ChainedRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.history.audit.chain import Link


class MemoryAudit:
    """Rows of the audit while this process lives; fits `core.commands.service.AuditLog`."""

    def __init__(self) -> None:
        self._rows: list[ChainedRow] = []
        self._lock = threading.Lock()

    def append(self, row: AuditRow) -> ChainedRow:
        """Add a row at the end of the chain."""
        with self._lock:
            return self._append(row)

    def claim(self, row: AuditRow) -> AuditRow | None:
        """Add the first row of a command; where its key is taken, return the newest row with it instead."""
        with self._lock:
            if row.key and (earlier := self._newest_with(row.key)) is not None:
                return earlier
            self._append(row)
            return None

    def find(self, key: str) -> AuditRow | None:
        """Return the newest row with the key of a command, if there is one."""
        with self._lock:
            return self._newest_with(key)

    def rows(
        self, *, after: int = 0, job: str | None = None, since_s: float | None = None
    ) -> Iterator[ChainedRow]:
        """Yield rows in their order: of one job, from a time on, after a number; all by default."""
        for each in list(self._rows)[after:]:
            if job in {None, each.row.job} and (since_s is None or each.row.at_s >= since_s):
                yield each

    def newest(
        self, n_row: int, *, job: str | None = None, before: int | None = None
    ) -> tuple[ChainedRow, ...]:
        """Return the newest rows, newest first: of one job, before a number."""
        rows = [each for each in self.rows(job=job) if before is None or each.seq < before]
        return tuple(rows[: -n_row - 1 : -1])

    def links(self, *, after: int = 0) -> Iterator[Link]:
        """Yield the rows as they are stored, by their number, for a check of the chain."""
        return (link_of(each) for each in list(self._rows)[after:])

    def head(self) -> tuple[int, str]:
        """Return number and hash of the last row."""
        return (self._rows[-1].seq, self._rows[-1].hash) if self._rows else (0, START)

    def _newest_with(self, key: str) -> AuditRow | None:
        return next((each.row for each in reversed(self._rows) if each.row.key == key), None)

    def _append(self, row: AuditRow) -> ChainedRow:
        seq, before = self.head()
        self._rows.append(ChainedRow(seq + 1, row, chained_hash(before, seq + 1, row)))
        return self._rows[-1]
