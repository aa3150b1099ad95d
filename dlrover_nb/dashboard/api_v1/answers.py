"""What requests are answered with, beside records of the core that are sent as they are."""

from __future__ import annotations

from msgspec import Struct

from dlrover_nb.core.structs.decisions.commands import Action, AuditRow, Command, Entry, SecondRequest
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Proposal
from dlrover_nb.core.structs.decisions.people import AccessRole
from dlrover_nb.core.structs.decisions.query_answers import LogLine, Weighed
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
from dlrover_nb.core.structs.views.summary import JobSummary


class ClusterAnswer(Struct, frozen=True):
    """A cluster that this server watches, and what the caller is there."""

    key: str
    namespace: str
    role: AccessRole
    is_simulated: bool
    error: str  # of the last attempt to list its jobs; empty: it answered


class ClustersAnswer(Struct, frozen=True):
    """The clusters that the caller may see."""

    clusters: tuple[ClusterAnswer, ...]


class JobAnswer(Struct, frozen=True):
    """One job in a list."""

    cluster: str
    job: JobSummary


class JobsAnswer(Struct, frozen=True):
    """The jobs that the caller may see; `away` names clusters whose list is old, with the reason."""

    jobs: tuple[JobAnswer, ...]
    away: dict[str, str]


class SeriesAnswer(Struct, frozen=True):
    """Rows of telemetry since a cursor, as columns of equal length; null: not measured."""

    cursor: int
    job: dict[str, list[float | None]]
    node: dict[str, list[float | str | None]]
    lost: int


class ProposalsAnswer(Struct, frozen=True):
    """The proposals of a job, oldest first; `version` is what a decision about it was made on."""

    version: str
    proposals: tuple[Proposal, ...]


class MitigationsAnswer(Struct, frozen=True):
    """The actions against stragglers of a job, oldest first, who is slow now, and errors of late."""

    version: str
    mitigations: tuple[Mitigation, ...]
    stragglers: tuple[Straggler, ...]
    node_errors: tuple[NodeErrors, ...]


class LogsAnswer(Struct, frozen=True):
    """Log lines, the newest last."""

    lines: tuple[LogLine, ...]


class WeighedAnswer(Struct, frozen=True):
    """For each plan its predicted effect, and why a decision for it would be refused now."""

    weighed: tuple[Weighed, ...]


class CommandAnswer(Struct, frozen=True):
    """A command that was carried out; `decision` is null where it is none (stop, finish)."""

    cluster: str
    job: str
    action: Action
    decision: Decision | None


class AuditLineAnswer(Struct, frozen=True):
    """One row of the audit with its place in the chain."""

    seq: int
    row: AuditRow
    hash: str


class AuditAnswer(Struct, frozen=True):
    """Rows of the audit, newest first; ask with ``before`` = `next` for older ones (null: none)."""

    rows: tuple[AuditLineAnswer, ...]
    next: int | None


class RequestAnswer(Struct, frozen=True):
    """A command that waits for a second person."""

    id: str
    job: str
    words: str
    command: Command
    first: str
    entry: Entry
    at_s: float
    expires_at_s: float
    rule: str
    namespace: str
    cost_per_hour: float | None

    @classmethod
    def of(cls, request: SecondRequest) -> RequestAnswer:
        """Return the answer for a request."""
        return cls(
            request.id,
            request.command.job,
            request.command.words,
            request.command,
            request.first,
            request.entry,
            request.at_s,
            request.expires_at_s,
            request.rule,
            request.namespace,
            request.cost_per_hour,
        )


class RequestsAnswer(Struct, frozen=True):
    """The commands that wait, oldest first."""

    requests: tuple[RequestAnswer, ...]


class RefusedAnswer(Struct, frozen=True):
    """A request that was closed without being carried out."""

    id: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a request was not carried out (RFC 9457), as what was expected, what came, and what to do."""

    type: str
    title: str
    status: int
    detail: str
    expected: str = ""
    got: str = ""
    what_to_do: str = ""
    story: tuple[str, ...] = ()  # what happened since the caller looked, oldest first
