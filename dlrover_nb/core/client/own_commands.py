"""The command service of a client on its user's own account: it audits to the history that the user names.

The cluster itself bounds what this account may do, so its person holds every role, and a team's rules are
those of the team's server. The audit is opened by the first command: those who only read a job load no
database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.clock import SystemClock

if TYPE_CHECKING:
    from dlrover_nb.core.commands.service import AuditLog, CommandService


def own_service(*, simulated: bool) -> CommandService:
    """Return the service of this account; of a simulated job it keeps the audit in memory."""
    from dlrover_nb.core.commands.service import CommandService  # noqa: PLC0415 - on demand, as the audit

    return CommandService(_in_memory if simulated else _in_the_history, SystemClock().now_s)


def _in_the_history() -> AuditLog:
    from dlrover_nb.core.history.audit.trail import AuditStore  # noqa: PLC0415 - the database takes a while to import

    return AuditStore()


def _in_memory() -> AuditLog:
    from dlrover_nb.core.commands.memory_audit import MemoryAudit  # noqa: PLC0415 - as the other

    return MemoryAudit()
