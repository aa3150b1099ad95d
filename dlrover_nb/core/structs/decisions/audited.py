"""Commands as the audit is read: both rows of one as one line, and what a reader asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.commands import Stage

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.commands import Action, AuditRow, Entry


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which commands are looked for; what is None is not asked.

    Parameters
    ----------
    stage
        How far they came in the end: `Stage.ASKED` are those whose end is not known.
    since_s
        The time from which on they were asked, in seconds since 1970.
    """

    job: str | None = None
    person: str | None = None
    entry: Entry | None = None
    action: Action | None = None
    stage: Stage | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class AuditedCommand:
    """One command: the row that it was asked, and the one that says what became of it.

    Parameters
    ----------
    seq
        Number of its first row.
    asked
        Its first row; of a command that was refused at once, or that waits for a second person, the only one.
    ended
        What became of it; None: nothing more is known.
    """

    seq: int
    asked: AuditRow
    ended: AuditRow | None = None

    @property
    def last(self) -> AuditRow:
        """The newest row about it."""
        return self.ended or self.asked

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        row = self.last
        if row.stage is Stage.ASKED:
            return "asked; no outcome is on record: the process that carried it out may have ended before"
        return f"{row.stage}: {row.answer}" if row.answer else str(row.stage)
