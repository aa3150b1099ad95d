"""What has happened to a job since a person last looked at it. Pure.

Looks that follow each other within minutes are one: loading the page again must not empty the list. All times
are by the clock of the job's master, as a simulated job has a time of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table

if TYPE_CHECKING:
    from dlrover_nb.core.history.stores.notes import Note
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

KIND = "looked"
ONE_LOOK_S = 1800.0  # looks that are closer are one
N_LINE = 40
_LINE = re.compile(r"([-+][\d.]+) s  (.*)", re.DOTALL)
_OUT_OF_MEMORY = "was killed for lack of memory"


@dataclass(frozen=True, slots=True)
class Look:
    """A person's look at a job: since when they want to know, and when they looked, by the job's clock."""

    since_s: float | None
    at_s: float

    @property
    def text(self) -> str:
        """The look as it is kept in a note."""
        return f"{'' if self.since_s is None else self.since_s} {self.at_s}"


def look_of(note: Note | None, now_s: float, job_at_s: float) -> Look:
    """Return the present look, by the note of the one before; None: there was none.

    Parameters
    ----------
    now_s, job_at_s
        The time by our clock, and by that of the job's master.
    """
    before = _read(note.text) if note is not None else None
    if note is None or before is None or before.at_s > job_at_s:
        return Look(None, job_at_s)  # the first one, or the first of a job of the same name
    is_same = now_s - note.at_s < ONE_LOOK_S
    return Look(before.since_s if is_same else before.at_s, job_at_s)


def _read(text: str) -> Look | None:
    since, _, at = text.partition(" ")
    try:
        return Look(float(since) if since else None, float(at))
    except ValueError:
        return None  # of another release


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the job's story, with its time."""

    at_s: float
    text: str


def events_since(snapshot: JobSnapshot, since_s: float | None) -> tuple[Event, ...]:
    """Return the lines of a job's story from a time on, oldest first; None: all."""
    matches = (_LINE.fullmatch(line) for line in snapshot.story)
    events = (Event(snapshot.started_at_s + float(line[1]), line[2]) for line in matches if line)
    return tuple(event for event in events if since_s is None or event.at_s > since_s)


def since_blocks(snapshot: JobSnapshot, since_s: float | None) -> tuple[Block, ...]:
    """Return what has happened, as a few facts and the lines of the story."""
    events = events_since(snapshot, since_s)
    when = "You have not looked at this job before." if since_s is None else ""
    if not events:
        return (Paragraph(when or f"Nothing has happened since {units.clock(since_s)}."),)
    rows = tuple((units.unbroken(units.clock(event.at_s)), event.text) for event in events[-N_LINE:])
    left_out = len(events) - len(rows)
    note = f"{left_out:,} earlier lines are left out." if left_out else ""
    title = "What has happened" if since_s is None else f"Since {units.clock(since_s)}"
    facts = Facts(_facts(snapshot, since_s, events))
    return (*((Paragraph(when),) if when else ()), facts, Table(title, ("when", "what"), rows[::-1], note))


def _facts(
    snapshot: JobSnapshot, since_s: float | None, events: tuple[Event, ...]
) -> tuple[tuple[str, str], ...]:
    start_s = snapshot.started_at_s if since_s is None else since_s
    decided = [decision for decision in snapshot.decisions if decision.at_s > start_s]
    restarts = [marker for marker in snapshot.markers[1:] if marker.at_s > start_s]
    memory = [event.text for event in events if _OUT_OF_MEMORY in event.text]
    return (
        ("changes", "; ".join(f"{d.id} {d.words} by {d.by}" for d in decided) or "none was decided"),
        ("out of memory", "; ".join(memory) or "no node"),
        (
            "new plans",
            "; ".join(f"{m.plan.short} after {units.duration(m.pause_s)}" for m in restarts) or "none",
        ),
        ("now", f"{snapshot.phase}{snapshot.message and ': ' + snapshot.message}"),
    )
