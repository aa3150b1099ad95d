"""The audit as a view: one line per command, what was asked and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Table, Tone, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions.audited import AuditedCommand
    from dlrover_nb.core.structs.decisions.commands import AuditRow

NOTHING = "No commands are recorded yet. Each command about a job is recorded here."


def audit_view(commands: Sequence[AuditedCommand]) -> View:
    """Return commands, newest first."""
    if not commands:
        return View("Audit", (Paragraph(NOTHING, Tone.HINT, ("%dlrover apply",)),))
    head = ("row", "asked", "by", "job", "command", "why", "predicted", "outcome")
    title = f"{units.counted(len(commands), 'command')}, newest first"
    hint = Paragraph("Check that they are unchanged with:", Tone.HINT, ("%dlrover history --audit verify",))
    return View("Audit", (Table(title, head, tuple(map(_row, commands))), hint))


def _row(command: AuditedCommand) -> tuple[str, ...]:
    row = command.asked
    return (
        f"{command.seq}",
        units.clock(row.at_s),
        who(row),
        row.job,
        what(row),
        row.why,
        predicted(row),
        command.outcome,
    )


def who(row: AuditRow) -> str:
    """Return who asked and through what, and who asked first where a second person has approved."""
    first = f", asked first by {row.first}" if row.first else ""
    return f"{row.person}, {row.entry}{first}"


def what(row: AuditRow) -> str:
    """Return what was asked for, with the plans or the action against stragglers that it changes."""
    plans = f": {row.plan_before} → {row.plan_after}" if row.plan_before != row.plan_after else ""
    action = f": {row.mitigation}" if row.mitigation else ""
    return " ".join(filter(None, (str(row.action), row.subject))) + plans + action


def predicted(row: AuditRow) -> str:
    """Return the prediction that the plan was asked for with, and its 90 % band."""
    if row.predicted_samples_per_s is None:
        return units.MISSING
    band = "" if row.low is None or row.high is None else f" ({units.interval(row.low, row.high)})"
    return f"{units.rate(row.predicted_samples_per_s)}{band}"
