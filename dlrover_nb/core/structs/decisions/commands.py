"""Commands about jobs, the same through every entry, and the row that each leaves in the audit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import BareReason
from dlrover_nb.core.structs.decisions.decisions import Decision
from dlrover_nb.core.structs.decisions.people import Person
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.shards import UserChoice


class Entry(StrEnum):
    """Where a command comes in."""

    NOTEBOOK = "notebook"  # magics, and live views in a cell
    PYTHON = "python"
    COMMAND_LINE = "command line"
    DASHBOARD = "dashboard"
    APPROVE = "approve page"  # the plain page that alerts link to
    API = "api"  # /api/v1
    AGENT = "agent"  # the MCP server: it proposes, and never applies
    AUTO = "auto mode"


class Action(StrEnum):
    """What is asked for; a decision is asked for by its verdict."""

    VIEW = "view"
    ACCEPT = "accept"
    REJECT = "reject"
    OVERRIDE = "override"
    SCALE = "scale"
    UNDO = "undo"
    MODE = "mode"
    PIN = "pin"
    BUDGET = "budget"
    MITIGATE = "mitigate"  # order an action against stragglers
    RETRY_SHARD = "retry shard"
    SKIP_SHARD = "skip shard"
    BATCHES = "set batches"
    PROPOSE = "propose"  # ask others to decide about a plan
    SUBMIT = "submit"
    FINISH = "finish"
    STOP = "stop"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and through which entry."""

    person: Person
    entry: Entry

    def __str__(self) -> str:
        return f"{self.person.name} ({self.entry})"


@dataclass(frozen=True, slots=True)
class Command(BareReason):
    """One command about one job.

    Parameters
    ----------
    action, job
        What is asked for, and of which job.
    decision
        Of `ACCEPT` to `MITIGATE`: the decision, whose author the command service sets.
    shard, batches, finish
        Of those actions.
    why
        The reason given, with a placeholder for each credential in it.
    key
        Idempotency key: a second command with it is not carried out, but answered as the first one was.
        Empty: every call is a command of its own.
    run
        Id of the run that it is about; empty: the one that there is. A job that is started anew under its
        name counts proposals and versions from the start again: a late command would mean other ones.
    """

    action: Action
    job: str
    decision: Decision | None = None
    shard: ShardChoice | None = None
    batches: BatchChoice | None = None
    finish: FinishChoice | None = None
    why: str = ""
    key: str = ""
    run: str = ""

    @property
    def subject(self) -> str:
        """Return the id of what it is about: proposal, mitigation, decision, shard; empty: the job."""
        if self.decision is not None:
            return self.decision.undoes or self.decision.proposal or ""
        return f"shard {self.shard.shard}" if self.shard is not None else ""

    @property
    def words(self) -> str:
        """Return it as words: ``scale to 2w x 0.5 + 1p x 0.25``."""
        if self.decision is not None:
            return self.decision.words
        return " ".join(filter(None, (str(self.action), self.subject)))


def decide(decision: Decision, job: str, *, key: str = "") -> Command:
    """Return the command to make a decision."""
    action = Action.UNDO if decision.undoes else Action(decision.verdict)
    return Command(action, job, decision=decision, why=decision.why, key=key)


def choose(choice: UserChoice, job: str, *, key: str = "") -> Command:
    """Return the command to apply a choice about a shard, batch sizes or an early end."""
    match choice:
        case ShardChoice():
            is_retry = choice.action is ShardAction.RETRY
            action = Action.RETRY_SHARD if is_retry else Action.SKIP_SHARD
            return Command(action, job, shard=choice, why=choice.why, key=key)
        case BatchChoice():
            return Command(Action.BATCHES, job, batches=choice, why=choice.why, key=key)
        case FinishChoice():
            return Command(Action.FINISH, job, finish=choice, why=choice.why, key=key)


class Stage(StrEnum):
    """How far a command has come."""

    ASKED = "asked"  # it is being carried out; a row of its own, so that a crash leaves a trace
    DONE = "done"
    REFUSED = "refused"  # nothing was changed
    FAILED = "failed"  # the answer was lost or an error came: what became of it is not known
    WAITING = "waiting"  # for a second person


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of the audit: who asked for what, when and why, and what became of it.

    Parameters
    ----------
    at_s
        Time of the process that carries the command out, in seconds since 1970.
    person, entry, action, job
        Who asked for what, through which entry.
    stage, answer
        What became of it; the id of the decision made, or why it was refused.
    namespace, run
        Of the job; the run is ``job@seconds`` as in the history.
    subject
        Id of the proposal, mitigation, decision or shard that it is about.
    why
        The reason given.
    plan_before, plan_after
        Plans as text; the same where no plan changes.
    predicted_samples_per_s, low, high
        Prediction for the plan after, with its 90 % band; None: not known.
    cost_per_hour
        Of the plan after; None: a price is not known.
    key
        Idempotency key; the rows of one command share it.
    first
        Who asked first, where a second person has approved; `person` is the second one.
    cost_before_per_hour, currency
        Of the plan before; of both costs.
    mitigation
        The action against stragglers that is ordered or answered, in words; empty: it is about none.
    """

    at_s: float
    person: str
    entry: Entry
    action: Action
    job: str
    stage: Stage
    answer: str = ""
    namespace: str = ""
    run: str = ""
    subject: str = ""
    why: str = ""
    plan_before: str = ""
    plan_after: str = ""
    predicted_samples_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    cost_per_hour: float | None = None
    key: str = ""
    first: str = ""
    cost_before_per_hour: float | None = None
    currency: str = ""
    mitigation: str = ""


@dataclass(frozen=True, slots=True)
class ChainedRow:
    """A row of the audit with its place in the chain, from 1 on, and the hash over it and the one before."""

    seq: int
    row: AuditRow
    hash: str


@dataclass(frozen=True, slots=True)
class SecondRequest:
    """A command that waits for a second person; `id` (``r1``, ``r2``, …) is unique in its database.

    A decision in it names the version that the first person saw, so that it still must stand when the
    second one approves.
    """

    id: str
    command: Command
    first: str  # who asked
    entry: Entry
    at_s: float
    expires_at_s: float
    rule: str  # why a second person is needed, as text
    namespace: str = ""
    cost_per_hour: float | None = None
    cluster: str = ""  # its key at the server that was asked; empty: asked where clusters have no keys
