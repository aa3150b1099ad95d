"""A job as lines and as a file, to be changed and submitted again: as it was, or from where it stopped. Pure.

Views start no jobs: a dashboard would need the rights and the data of the person who submits, and a press in
a notebook would leave no line that its next reader can run. They have the whole description though, and so
write what a shell or a notebook needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.submit_again import can_be_written, short_file, submit_command
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.views.summary import share_done
from dlrover_nb.widgets.blocks import Heading, Paragraph, Verbatim

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.blocks import Block

MOST_NAME = 50  # letters that are kept of the name
GO_ON, RUN_AGAIN = "Go on…", "Run again…"
NOT_WRITTEN = (
    "This job cannot be shown as a complete file, because its code or its secrets exist only where it was "
    "defined; submit it again from there."
)


@dataclass(frozen=True, slots=True)
class CopyText:
    """Text to be copied: where it goes, an id, and the text."""

    title: str
    id: str
    text: str


def copies(spec: JobSpec) -> tuple[CopyText, ...]:
    """Return how to submit such a job under another name; nothing where it cannot be written out."""
    other = _renamed(spec)
    if not can_be_written(other):
        return ()
    line = submit_command(other)
    return (
        CopyText("In a shell", "again-shell", f"dlrover-nb {line}"),
        CopyText("In a notebook", "again-notebook", f"%dlrover {line}"),
        CopyText("As a job file, for submit --file", "again-file", short_file(other).rstrip()),
    )


def goes_on(snapshot: JobSnapshot) -> bool:
    """Whether an ended job left rows untrained, so that another can go on where it stopped."""
    has_ended_early = snapshot.phase in {JobPhase.FAILED, JobPhase.STOPPED}
    return has_ended_early and snapshot.spec.foreign is None and share_done(snapshot.train) != 1


def again_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the lines that go on with a job, that run it again, and that write it to a file."""
    spec = snapshot.spec
    other = _renamed(spec)
    if not can_be_written(other):
        return (Paragraph(NOT_WRITTEN),)
    resumed = replace(other, start_from=StartFrom(spec.name, rows=True))
    on = (Heading("Go on from its last checkpoint"), Verbatim(f"%dlrover {submit_command(resumed)}"))
    return (
        *(on if goes_on(snapshot) else ()),
        Heading("Run it again"),
        Verbatim(f"%dlrover {submit_command(other)}"),
        Heading("Change it, and submit it under its new name"),
        Verbatim(f"%%dlrover submit\n{short_file(other).rstrip()}"),
    )


def _renamed(spec: JobSpec) -> JobSpec:
    return replace(spec, name=f"{_plain(spec.name)[:MOST_NAME]}-2", owner="")


def _plain(name: str) -> str:
    """Return what a name may have of it: a master may say anything."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "job"
