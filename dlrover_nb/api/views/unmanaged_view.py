"""Jobs that other tools manage: beside ours in the list, and each by itself, with nothing that changes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown, TextView
from dlrover_nb.core.client.unmanaged import unmanaged_job, unmanaged_jobs, unmanaged_log
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs import _check
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table, Tone, Verbatim, View
from dlrover_nb.widgets.rows.tables import Columns, fields, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob
    from dlrover_nb.widgets.blocks import Block
    from dlrover_nb.widgets.rows.tables import Tables

_UNMANAGED: Columns[UnmanagedJob] = Columns(
    fields("job=name kind state ended=is_final entrypoint started_at_s ended_at_s message ended_by")
)


MOST_LETTERS = 60  # of an entrypoint in the list


def unmanaged_blocks(jobs: Sequence[UnmanagedJob], silent: str = "") -> tuple[Block, ...]:
    """Return the list of them; `silent`: why it is not known."""
    notes = (Paragraph(f"Jobs of others are not known: {silent}", Tone.WARNING),) if silent else ()
    if not jobs:
        return notes
    head = ("job", "kind", "state", "started", "ended", "entrypoint")
    note = "You can look at them with status NAME and logs NAME, but not change them here."
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
            "Others run it; you can look at it, but not change it here. Its output:",
            Tone.HINT,
            (f"%dlrover show {job.name} --logs",),
        )
    )
    if job.ended_by and not job.is_final:
        blocks.append(Paragraph(f"To end it, in a shell: {job.ended_by}"))
    return View(f"{job.kind} {job.name}: {job.state}", tuple(blocks))


@dataclass(frozen=True, slots=True, repr=False)
class UnmanagedJobView(Shown):
    """One job of others, as its own system told it."""

    job: UnmanagedJob
    read: Callable[[UnmanagedJob, int], tuple[str, ...]]

    def logs(self, *, n: int = 100) -> TextView:
        """Return the last lines that it wrote.

        Raises
        ------
        NotFoundError
            When they are not kept where they can be read from here; it says where they are.
        InvalidValueError
            When `n` is below 1.

        Examples
        --------
        >>> cluster.unmanaged_job("raysubmit_x7").logs(n=20)
        """
        _check.at_least("number of lines", n, 1)
        return TextView(f"Output of {self.job.name}", "\n".join(self.read(self.job, n)))

    def view(self) -> View:
        """Return the content."""
        return unmanaged_view(self.job)

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("unmanaged", _UNMANAGED, (self.job,))


def unmanaged_job_view(cluster: Cluster, name: str) -> UnmanagedJobView:
    """Return one of them; see `dlrover_nb.api.cluster.Cluster.unmanaged_job`."""
    return UnmanagedJobView(unmanaged_job(cluster, name), partial(unmanaged_log, cluster))


def others_blocks(cluster: Cluster) -> tuple[Block, ...]:
    """Return the list of all of them, or why it is not known."""
    try:
        return unmanaged_blocks(unmanaged_jobs(cluster))
    except BackendError as error:
        return unmanaged_blocks((), str(error))
