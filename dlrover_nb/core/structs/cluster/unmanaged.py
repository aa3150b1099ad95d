"""A job on a cluster of ours that is not ours: other tools started it and manage it, and it is only read.

It has no master, no plan and no rows, so it is no `JobSummary`; nothing of it is made up to look like one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnmanagedJob:
    """One such job, as its own system shows it.

    Parameters
    ----------
    name
        As its system finds it.
    kind
        What it is, such as ``Ray job``.
    state
        In the words of its system.
    is_final
        Whether it has ended.
    entrypoint
        The command that it runs.
    started_at_s, ended_at_s
        By the clock of its system; None: not yet, or not known.
    message
        What its system says about the state.
    facts
        What else is known, as names and values.
    ended_by
        The command that ends it, for a shell.
    """

    name: str
    kind: str
    state: str
    is_final: bool = False
    entrypoint: str = ""
    started_at_s: float | None = None
    ended_at_s: float | None = None
    message: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    ended_by: str = ""

    @property
    def refusal(self) -> str:
        """Why it is not changed from here, and what does that."""
        ends = f"; to end it: {self.ended_by}" if self.ended_by and not self.is_final else ""
        return (
            f"{self.name} is a {self.kind} that others run ({self.state}); you can look at it with status, "
            f"attach and logs, but not change it here{ends}"
        )
