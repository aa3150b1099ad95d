"""Drift: the plan that is wanted, what runs, and what a file says, side by side. Pure.

A file is one that was exported, and has maybe been edited or applied elsewhere since. It is kept as the
person has given it, and compared anew with each look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.api.imports import differences
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Paragraph, Table, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

KIND = "file"
MOST_FILE = 200_000  # letters
_NAMES = {"count": "nodes", "cpu": "cores each", "memory_mib": "MiB each"}  # of a plan; no plan varies GPUs


def file_text(content: bytes) -> str:
    """Return the text of a file that was sent.

    Raises
    ------
    InvalidValueError
        When it is empty, too long, no text, or no export.
    """
    if not 0 < len(content) <= MOST_FILE:
        raise InvalidValueError(
            f"a file must have 1 to {MOST_FILE:,} bytes, got {len(content):,}; send another"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError("a file must be text in UTF-8, got something else; send the YAML") from error
    read_export(text)
    return text


def running_rows(snapshot: JobSnapshot) -> Iterable[tuple[str, str, str, str]]:
    """Yield (what, wanted, runs, whether they differ) for each part of the plan."""
    for role in Role:
        nodes = [n for n in snapshot.nodes if n.role is role and n.phase is NodePhase.READY]
        plan = snapshot.target.role(role)
        for name, words in _NAMES.items():
            wanted = f"{getattr(plan, name):g}"
            if name == "count":
                runs = f"{len(nodes)}"
            else:
                runs = ", ".join(sorted({f"{getattr(n, name):g}" for n in nodes})) or units.MISSING
            yield f"{role}: {words}", wanted, runs, "" if wanted == runs else "differs"


def drift_blocks(snapshot: JobSnapshot, file: str | None) -> tuple[Block, ...]:
    """Return the comparison with what runs, and with a file; None: none was given.

    Raises
    ------
    InvalidValueError
        When the file is no export.
    """
    rows = tuple(running_rows(snapshot))
    n_off = sum(bool(row[3]) for row in rows)
    head = ("", "plan", "runs", "")
    summary = "What runs is the plan." if not n_off else f"{n_off} of {len(rows)} parts differ from the plan."
    if snapshot.phase.is_final:
        return (
            Paragraph(f"The job has {snapshot.phase}; no nodes are running."),
            *file_blocks(snapshot, file),
        )
    tone = Tone.WARNING if n_off else Tone.PLAIN
    return (Paragraph(summary, tone), Table("Plan and what runs", head, rows), *file_blocks(snapshot, file))


def file_blocks(snapshot: JobSnapshot, file: str | None) -> tuple[Block, ...]:
    """Return what a file has otherwise than the job as it is wanted."""
    if file is None:
        return (Paragraph("No file was given to compare with: choose an exported one below."),)
    imported = read_export(file)
    rows = tuple(differences(imported, snapshot))
    if not rows:
        return (Paragraph("The file says exactly what the job is."),)
    summary = (
        f"The file of job {imported.name or 'without a name'} differs in {units.counted(len(rows), 'part')}."
    )
    return (Paragraph(summary, Tone.WARNING), Table("File and job", ("", "in the file", "now"), rows))
