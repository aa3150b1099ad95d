"""The audit: who asked for what about which job, when and why, and what became of it.

It is in the history's database: the user's own, or the team's where the variable ``DLROVER_NB_HISTORY`` names
it. No cluster is needed, and nothing is created by reading.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Note, Shown
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import AuditBrokenError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.audited import AuditFilter
from dlrover_nb.widgets.past import audit as drawn
from dlrover_nb.widgets.rows.tables import Columns, fields, listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.history.audit.trail import AuditStore
    from dlrover_nb.core.structs.decisions.audited import AuditedCommand
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.rows.tables import Tables

_COMMANDS: Columns[AuditedCommand] = Columns(
    fields(
        "row=seq at_s=asked.at_s person=asked.person entry=asked.entry job=asked.job "
        "action=asked.action subject=asked.subject why=asked.why plan_before=asked.plan_before "
        "plan_after=asked.plan_after mitigation=asked.mitigation "
        "predicted_samples_per_s=asked.predicted_samples_per_s low=asked.low high=asked.high "
        "stage=last.stage answer=last.answer first=asked.first"
    )
)
N_DIGIT = 12  # of a hash, at the least, to be compared


@dataclass(frozen=True, slots=True, repr=False)
class AuditView(Shown):
    """Commands in the audit, newest first."""

    commands: tuple[AuditedCommand, ...]

    def __iter__(self) -> Iterator[AuditedCommand]:
        return iter(self.commands)

    def __len__(self) -> int:
        return len(self.commands)

    def view(self) -> View:
        """Return the content."""
        return drawn.audit_view(self.commands)

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("commands", _COMMANDS, self.commands)


def audit(job: str | None = None, *, since: str | None = None, n: int = 50) -> AuditView:
    """Return the newest commands in the audit, newest first.

    Parameters
    ----------
    job
        A job's name; None: all jobs.
    since
        An age such as ``24h`` or ``7d``, or a date; None: all.
    n
        How many at the most.

    Raises
    ------
    InvalidValueError
        When `since` is no moment, or `n` is below 1.
    BackendError
        When the history exists but cannot be read.

    Examples
    --------
    >>> dlrover_nb.api.audit.audit("ads-ctr", since="24h")
    """
    _check.at_least("number of lines", n, 1)
    where = AuditFilter(job=job, since_s=_since(since))
    with _reading() as store:
        return AuditView(store.search(where, n_command=n) if store else ())


def verify(anchor: str | None = None) -> Note:
    """Check the whole chain of the audit, and return how far it reaches.

    Parameters
    ----------
    anchor
        A hash that an export, a log or an earlier check told, or its first digits; it must be in the chain.

    Raises
    ------
    AuditBrokenError
        When a row was changed, removed, added or moved: one line for each.
    InvalidValueError
        When `anchor` is too short to tell two rows apart.

    Examples
    --------
    >>> dlrover_nb.api.audit.verify()
    """
    from dlrover_nb.core.history.audit.chain import verified  # noqa: PLC0415 - see the package

    if anchor is not None and len(anchor) < N_DIGIT:
        raise InvalidValueError(f"anchor must be a hash or its first {N_DIGIT} digits, got {anchor!r}")
    with _reading() as store:
        if store is None:
            if anchor is not None:
                raise AuditBrokenError(
                    "there is no audit here, but the anchor is the hash of a row: the audit was removed"
                )
            return Note("The audit is empty", "It begins with the first command about a job.")
        check, wrong = verified(store, anchor=anchor or "")
    if wrong:
        raise AuditBrokenError("\n".join(wrong))
    text = f"{check.seq:,} rows are as they were written; write down the hash of the last one: {check.hash}"
    return Note("The audit is sound", text)


def export(
    path: Path | str,
    *,
    job: str | None = None,
    since: str | None = None,
    form: str = "jsonl",
    force: bool = False,
) -> Note:
    """Write the audit to a file, all of it or that of one job, row by row.

    Parameters
    ----------
    form
        ``jsonl``: each row as it is hashed; ``csv``: for a spreadsheet.
    force
        Overwrite an existing file.

    Raises
    ------
    NotFoundError
        When there is no audit.
    InvalidValueError
        When the file cannot be written, or a value is none of those that are known.
    """
    from dlrover_nb.core.commands.audit_export import ExportFormat, exported  # noqa: PLC0415 - see the package
    from dlrover_nb.core.disk.files import write  # noqa: PLC0415 - as above

    if form not in {*ExportFormat}:
        raise InvalidValueError(f"format must be one of {', '.join(ExportFormat)}, got {form!r}")
    with _reading() as store:
        if store is None:
            raise NotFoundError(
                "there is no audit to export yet; it begins with the first command about a job"
            )
        rows = store.rows(job=job, since_s=_since(since))
        written = write(path, exported(rows, store.head, ExportFormat(form)), force=force)
        seq, digest = store.head()
    return Note(
        f"The audit as {form}", f"written to {written}; row {seq} has the hash {digest}", str(written)
    )


def _since(text: str | None) -> float | None:
    from dlrover_nb.core.commands.since import parse_since  # noqa: PLC0415 - see the package

    return None if text is None else parse_since(text, SystemClock().now_s())


@contextmanager
def _reading() -> Iterator[AuditStore | None]:
    """Open the audit while it is read; None where no history was begun."""
    from dlrover_nb.core.history.audit.trail import AuditStore  # noqa: PLC0415 - the database takes a while to import
    from dlrover_nb.core.history.database import default_url, is_there  # noqa: PLC0415 - as above

    store = AuditStore() if is_there(default_url()) else None
    try:
        yield store
    finally:
        if store is not None:
            store.close()
