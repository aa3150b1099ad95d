"""The part *As this one, but …*: the job as lines and as a file, to be changed and submitted elsewhere. Pure.

A dashboard starts no jobs: it would need the rights and the data of whoever submits. It has the whole
description though, and so writes what a shell or a notebook needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.submit_again import can_be_written, short_file, submit_command

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec

MOST_NAME = 50  # letters that are kept of the name


@dataclass(frozen=True, slots=True)
class CopyText:
    """Text to be copied: where it goes, an id, and the text."""

    title: str
    id: str
    text: str


def copies(spec: JobSpec) -> tuple[CopyText, ...]:
    """Return how to submit such a job under another name; nothing where it cannot be written out."""
    other = replace(spec, name=f"{_plain(spec.name)[:MOST_NAME]}-2", owner="")
    if not can_be_written(other):
        return ()
    line = submit_command(other)
    return (
        CopyText("In a shell", "again-shell", f"dlrover-nb {line}"),
        CopyText("In a notebook", "again-notebook", f"%dlrover {line}"),
        CopyText("As a job file, for submit --file", "again-file", short_file(other).rstrip()),
    )


def _plain(name: str) -> str:
    """Return what a name may have of it: a master may say anything."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "job"
