"""Which jobs a person has muted, and until when: theirs alone, in their notes.

Muting takes a job's alerts out of what that person is shown. It ends no alert and holds none back from the
team's webhook: one person's quiet must not be everybody's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.history.stores.notes import Note

if TYPE_CHECKING:
    from dlrover_nb.core.history.stores.notes import NoteStore
    from dlrover_nb.core.structs.views.alerts import Alert

KIND = "muted job"
HOURS = (1, 8, 24, 168)


@dataclass(frozen=True, slots=True)
class Muted:
    """One muted job."""

    cluster: str
    job: str
    until_s: float


def mute(notes: NoteStore, person: str, cluster: str, job: str, *, hours: str, at_s: float) -> None:
    """Mute a job for one of `HOURS`; ``0`` ends it.

    Raises
    ------
    InvalidValueError
        When the hours are none of these.
    """
    if hours == "0":
        notes.drop(person, KIND, _name(cluster, job))
        return
    if hours not in map(str, HOURS):
        choices = ", ".join(map(str, HOURS))
        raise InvalidValueError(f"hours must be one of {choices}, got {shown(hours)}")
    until = Muted(cluster, job, at_s + float(hours) * 3600)
    notes.keep(Note(person, KIND, _name(cluster, job), at_s, to_json(until).decode()))


def muted_by(notes: NoteStore, person: str, at_s: float) -> dict[tuple[str, str], Muted]:
    """Return the jobs that are muted now, by cluster and name."""
    muted = (from_json(note.text, Muted) for note in notes.find(person, KIND))
    return {(each.cluster, each.job): each for each in muted if each.until_s > at_s}


def is_muted(alert: Alert, muted: dict[tuple[str, str], Muted]) -> bool:
    """Whether the job of an alert is muted."""
    return (alert.about.cluster, alert.about.job) in muted


def _name(cluster: str, job: str) -> str:
    """Return the name of a note: a hash, as the key of a cluster may be long."""
    return hashlib.sha256(f"{cluster}\n{job}".encode()).hexdigest()
