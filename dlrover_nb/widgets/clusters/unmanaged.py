"""Jobs that other tools manage: beside ours in the list, and each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table, Tone, Verbatim, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob

MOST_LETTERS = 60  # of an entrypoint in the list


def unmanaged_blocks(jobs: Sequence[UnmanagedJob], silent: str = "") -> tuple[Block, ...]:
    """Return the list of them; `silent`: why it is not known."""
    notes = (Paragraph(f"Jobs of others are not known: {silent}", Tone.WARNING),) if silent else ()
    if not jobs:
        return notes
    head = ("job", "kind", "state", "started", "ended", "entrypoint")
    note = "They are only read here: status NAME and logs NAME show them, and nothing here changes them."
    return (Table("Jobs of others", head, tuple(map(_row, jobs)), note), *notes)


def _row(job: UnmanagedJob) -> tuple[str, ...]:
    entrypoint = job.entrypoint
    if len(entrypoint) > MOST_LETTERS:
        entrypoint = f"{entrypoint[: MOST_LETTERS - 1]}…"
    return (
        job.name,
        job.kind,
        job.state,
        units.clock(job.started_at_s),
        units.clock(job.ended_at_s),
        entrypoint,
    )


def unmanaged_view(job: UnmanagedJob) -> View:
    """Return the state of one of them."""
    rows = (
        ("state", f"{job.state}{': ' + job.message if job.message else ''}"),
        ("started", units.clock(job.started_at_s)),
        ("ended", units.clock(job.ended_at_s)),
        *job.facts,
    )
    blocks: list[Block] = [Facts(rows), Verbatim(job.entrypoint)]
    blocks.append(
        Paragraph(
            "It is of others, and only read here. Its output:", Tone.HINT, (f"%dlrover logs {job.name}",)
        )
    )
    if job.ended_by and not job.is_final:
        blocks.append(Paragraph(f"To end it, in a shell: {job.ended_by}"))
    return View(f"{job.kind} {job.name}: {job.state}", tuple(blocks))
