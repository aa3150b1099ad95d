"""What can be asked of a job: a record for each command, which every face fills in and none repeats.

The fields of a record, with their bounds and descriptions, are the arguments of the command everywhere: the
words of a verb, the fields of a form, the body of an HTTP request, the parameters of an agent's tool. From a
record and the job as it is now comes the `Command`, in one way for all of them; `table.COMMANDS` says who may
ask for it and how it reads in a help text. Records hold plain values and no author, id or time: those come
from the entry and from the job's master, never from who asks.

Bounds are checked where a record is decoded. Python code builds one without them, and the records of the plan
check what it holds. An empty id stands for the one that is open now: faces that cannot show a job first
(HTTP, forms, agents) must name what their user saw.

Rejected: `Decision` itself as the body of a request. A field added to it could then be sent by every client.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import Struct

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.commands import fields as f
from dlrover_nb.core.errors import InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.commands import Action, Command, choose
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


class Request(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is asked of a job; `why` is the reason, for the audit."""

    action: ClassVar[Action]
    needs_job: ClassVar[bool] = False  # whether its command depends on the job as it is now
    why: f.Why = ""

    def command(
        self, job: str, now: JobSnapshot | None = None, *, version: str = "", key: str = ""
    ) -> Command:
        """Return the command.

        Parameters
        ----------
        job
            Its name.
        now
            The job; None: without what it alone knows, as for the check of a right.
        version
            Of the plan that the user saw (`JobSnapshot.version`); empty: whichever it is now.
        key
            Idempotency key.

        Raises
        ------
        InvalidValueError
            When the request does not fit the job.
        NotFoundError
            When it names nothing, and nothing is open.
        StaleDecisionError
            When what it is about no longer stands.
        """
        raise NotImplementedError


class Decides(Request, frozen=True, kw_only=True, tag_field="verdict"):
    """What becomes a decision of the job's controller."""

    needs_job: ClassVar[bool] = True

    def command(
        self, job: str, now: JobSnapshot | None = None, *, version: str = "", key: str = ""
    ) -> Command:
        """Return the command to make the decision."""
        decision = replace(self.as_decision(now), why=self.why, seen=version)
        return Command(self.action, job, decision=decision, why=decision.why, key=key)

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision, without reason and version."""
        raise NotImplementedError


class Accept(Decides, frozen=True, tag="accept"):
    """Accept a proposal (``p1``), or an action against stragglers (``m1``)."""

    action = Action.ACCEPT
    proposal: f.AnsweredId

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the answer."""
        return Decision(Verdict.ACCEPT, "", 0.0, self.proposal or _open_one(now))


class Reject(Decides, frozen=True, tag="reject"):
    """Reject a proposal (``p1``), or an action against stragglers (``m1``)."""

    action = Action.REJECT
    proposal: f.AnsweredId

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the answer."""
        return Decision(Verdict.REJECT, "", 0.0, self.proposal or _open_one(now))


class Sized(Decides, frozen=True, kw_only=True):
    """What changes sizes of a plan; null leaves a part as it is."""

    workers: f.Workers | None = None
    ps: f.Ps | None = None
    worker_cpu: f.WorkerCpu | None = None
    ps_cpu: f.PsCpu | None = None
    worker_memory_mib: f.WorkerMemory | None = None
    ps_memory_mib: f.PsMemory | None = None

    @property
    def sizes(self) -> Pins:
        """The parts that are given; `InvalidValueError` where one is none that a node can have."""
        return sizes_of(self)

    @classmethod
    def to(cls, plan: ResourcePlan, *values: object, why: str = "") -> Self:
        """Return the request for all of a plan; `values` are the fields without a default."""
        return cls(*values, **asdict(Pins.of(plan)), why=why)


class Replans(Sized, frozen=True, kw_only=True):
    """What sets another plan: the whole of it, or some of its sizes."""

    plan: f.PlanBody | None = None

    def planned(self, now: JobSnapshot | None) -> ResourcePlan | None:
        """Return the plan; None: the job, whose plan has the other sizes, is not known."""
        sizes = self.sizes
        if self.plan is not None:
            return sizes.applied(self.plan.plan())
        check_given(sizes)
        return sizes.plan if now is None else sizes.applied(now.target)


class Override(Replans, frozen=True, tag="override"):
    """Answer a proposal with another plan, which is applied instead."""

    action = Action.OVERRIDE
    proposal: f.ProposalId

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the answer."""
        answered = self.proposal or _open_proposal(now)
        return Decision(Verdict.OVERRIDE, "", 0.0, answered, self.planned(now))


class Scale(Replans, frozen=True, tag="scale"):
    """Change the running job to a plan, whether or not anything was proposed."""

    action = Action.SCALE

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision."""
        return Decision(Verdict.SCALE, "", 0.0, plan=self.planned(now))


class Undo(Decides, frozen=True, tag="undo"):
    """Take back the latest change by any user: of plan, mode, pins, batch sizes, learning rates.

    A change of plan that is still under way is cancelled: the plan before it runs on, or is restored. An undo
    is a change too: undoing it is a redo. A rejection changed nothing and is skipped. An undone plan is not
    proposed again, nor set by auto mode, until its prediction has changed materially.

    `decision` must still be the latest change. `cancels`: its user saw it being applied and wants to cancel
    that; a change that is in place by now is not taken back.
    """

    action = Action.UNDO
    decision: f.DecisionId
    cancels: f.Cancels = False

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision that takes it back."""
        if now is None:
            return Decision(Verdict.SCALE, "", 0.0, undoes=self.decision)
        job, latest = now.spec.name, now.undo
        if latest is None and self.decision:
            raise StaleDecisionError(
                f"{self.decision} cannot be undone any more: no change of job {job} can; look at it"
            )
        if latest is None:
            raise NotFoundError(
                f"job {job} has nothing to undo: none of its decisions changed anything that can be undone"
            )
        named = self.decision or latest.undoes
        if self.cancels and named != now.under_way:
            raise StaleDecisionError(
                f"{named} is no longer being applied to job {job}, so there is nothing to cancel; look at "
                "the job as it is now"
            )
        return replace(latest, undoes=named)


class SetMode(Decides, frozen=True, tag="mode"):
    """Set who decides from now on: the user (manual, suggest) or the optimizer (auto)."""

    action = Action.MODE
    mode: f.ModeName

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision."""
        if self.mode not in tuple(Mode):
            raise InvalidValueError(
                f"mode must be one of {', '.join(Mode)}, got {shown(self.mode)}; choose one"
            )
        return Decision(Verdict.MODE, "", 0.0, mode=Mode(self.mode))


class Pin(Sized, frozen=True, tag="pin"):
    """Fix parts of every plan from now on.

    `pins` are all that hold from now on; sizes are fixed beside those that are fixed already, or with `clear`
    in place of them.
    """

    action = Action.PIN
    pins: f.PinsBody | None = None
    clear: f.Clear = False

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision, with all pins."""
        sizes = self.sizes
        if self.pins is None and not self.clear:
            check_given(sizes)
        if self.pins is not None:
            pins = sizes_of(self.pins)
        elif self.clear:
            pins = Pins()
        elif now is not None:
            pins = now.pins
        else:
            return Decision(Verdict.PIN, "", 0.0)
        given = {name: size for name in SIZES if (size := getattr(sizes, name)) is not None}
        return Decision(Verdict.PIN, "", 0.0, pins=replace(pins, **given))


class SetBudget(Decides, frozen=True, tag="budget"):
    """Set the most that the job may spend in total, with what it has spent; null for no limit."""

    action = Action.BUDGET
    budget_total: f.Money | None

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision."""
        return Decision(Verdict.BUDGET, "", 0.0, budget_total=self.budget_total)


class Chooses(Request, frozen=True, kw_only=True):
    """What the job's master does at once, without its controller."""

    def command(
        self, job: str, now: JobSnapshot | None = None, *, version: str = "", key: str = ""
    ) -> Command:
        """Return the command to apply the choice."""
        return choose(self.choice(), job, key=key)

    def choice(self) -> UserChoice:
        """Return the choice."""
        raise NotImplementedError


class RetryShard(Chooses, frozen=True):
    """Train a shard in quarantine again, after its rows were repaired."""

    action = Action.RETRY_SHARD
    shard: f.Shard

    def choice(self) -> UserChoice:
        """Return the choice."""
        return ShardChoice(self.shard, ShardAction.RETRY, "", self.why)


class SkipShard(Chooses, frozen=True):
    """Go on without a shard in quarantine."""

    action = Action.SKIP_SHARD
    shard: f.Shard

    def choice(self) -> UserChoice:
        """Return the choice."""
        return ShardChoice(self.shard, ShardAction.SKIP, "", self.why)


class SetBatches(Chooses, frozen=True):
    """Set batch sizes of workers by name, from one step on."""

    action = Action.BATCHES
    sizes: f.Batches

    def choice(self) -> UserChoice:
        """Return the choice."""
        return BatchChoice(tuple(sorted(self.sizes.items())), "", self.why)


class Finish(Chooses, frozen=True):
    """Train no more rows: the shards at hand are completed, the model is evaluated, the job succeeds."""

    action = Action.FINISH

    def choice(self) -> UserChoice:
        """Return the choice."""
        return FinishChoice("", self.why)


class Stop(Request, frozen=True):
    """Stop a job: its state is saved, and its nodes end."""

    action = Action.STOP

    def command(
        self, job: str, now: JobSnapshot | None = None, *, version: str = "", key: str = ""
    ) -> Command:
        """Return the command; it needs nothing of the job, whose master may be gone."""
        return Command(self.action, job, why=self.why, key=key)


SIZES = Pins.__slots__  # names of the parts of a plan


def path_of_size(name: str) -> str:
    """Return the path of a size in a job file: ``plan.worker.count`` of ``workers``."""
    role, _, size = name.partition("_")
    return f"plan.{role.removesuffix('s') if role == 'workers' else role}.{size or 'count'}"


def sizes_of(record: Sized | f.PinsBody) -> Pins:
    """Return the sizes that a record gives."""
    return Pins(*(getattr(record, name) for name in SIZES))


def check_given(sizes: Pins, names: tuple[str, ...] = SIZES) -> None:
    """Refuse sizes of which none is given; `names` are their names in the user's input."""
    if not sizes:
        raise InvalidValueError(f"nothing to change; give at least one of {', '.join(names)}")


def _open_one(now: JobSnapshot | None) -> str:
    """Return the id of what waits for an answer: a proposal, or an action against stragglers."""
    if now is None:
        return ""
    proposal, mitigation = now.open_proposal, now.open_mitigation
    if mitigation is None:
        return _open_proposal(now)
    if proposal is None:
        return mitigation.id
    raise InvalidValueError(
        f"job {now.spec.name} has two that wait for an answer: {proposal.id} "
        f"({proposal.candidate.plan.short}) and {mitigation.id} ({mitigation.words}); name one of them"
    )


def _open_proposal(now: JobSnapshot | None) -> str:
    if now is None:
        return ""
    if now.open_proposal is None:
        last = now.proposals[-1] if now.proposals else None
        detail = f"the last one, {last.id}, is {last.status}" if last else "there was none yet"
        raise NotFoundError(
            f"job {now.spec.name} has no open proposal ({detail}); use apply --workers to set a plan yourself"
        )
    return now.open_proposal.id
