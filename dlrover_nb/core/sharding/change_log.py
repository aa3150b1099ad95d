"""The changes of a ledger, recorded as lines of text for the write-ahead log of the job master.

A line names a call of `ShardLedger` and its arguments. The state of a ledger depends on its calls alone, so
the same calls on the same record give the same grants, owners and counts (`changes`). The log does not refer
to a ledger: a ledger owns its log, and the replay uses both.
"""

from __future__ import annotations


class ChangeLog:
    """The changes of one ledger since the last `drain`; nothing is recorded before `keep`."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether changes are recorded."""
        return self._lines is not None

    def keep(self) -> None:
        """Record every change from now on."""
        self._lines = []

    def note(self, line: str) -> None:
        """Record a change."""
        if self._lines is not None:
            self._lines.append(line)

    def drain(self) -> bytes:
        """Return the changes since the last call, one line each, and remove them from the log."""
        if not self._lines:
            return b""
        lines, self._lines = self._lines, []
        return ("\n".join(lines) + "\n").encode()
