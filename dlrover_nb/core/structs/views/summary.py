"""The summary of a job in a list of jobs, made from its snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobPhase, run_name
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan
from dlrover_nb.core.structs.training.shards import QuarantinedShard
from dlrover_nb.core.structs.views.snapshot import Evaluation, MemoryLine, NodePhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import Mitigation, Proposal
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.budget import BudgetOutlook
    from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.training.shards import ShardCounts
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

LIKELY = 0.05  # probability to run out of memory, from which on it is shown


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """The open proposal of a job, as far as a list of jobs shows it; `before` is of the plan now."""

    kind: ProposalKind
    plan: ResourcePlan
    samples_per_s: float
    before_samples_per_s: float
    cost_per_hour: float | None  # None: a price is unknown
    before_cost_per_hour: float | None
    created_at_s: float
    why: str = ""
    transition_s: float = 0.0  # without training, for the change
    finish_s: float | None = None  # seconds to the end of the job; None: not known
    before_finish_s: float | None = None
    before: ResourcePlan | None = None  # None: of masters before 0.2
    least: float | None = None  # times as fast as now, with 9 chances in 10; None: not known
    most: float | None = None
    extrapolates: bool = False


@dataclass(frozen=True, slots=True)
class ProposedAction:
    """The open action against stragglers of a job, as far as a list of jobs shows it; `words` say what."""

    id: str
    words: str
    why: str
    cost: str
    created_at_s: float
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class JobOutlook:
    """What is known of a job beside its present state; every default means that it is not known.

    Parameters
    ----------
    mode
        Who decides.
    predicted
        Throughput of the plan of the summary, by the newest fit.
    memory_left
        Share of its limit that the fullest role has left.
    full_in_s
        Seconds until the first role is full, where that is before the end.
    cost_per_hour
        Of the plan of the summary, while it runs; None where a price is unknown.
    currency, prices_assumed
        Of the prices.
    proposed
        The open proposal.
    n_waiting
        Nodes whose start waits for something.
    in_time
        Probability to finish by the deadline.
    version
        `JobSnapshot.version`: an answer to the proposal names it.
    mitigation
        The open action against stragglers.
    spent, budget_total
        Money so far, and the limit of a job that has one.
    wanted
        The plan that the job is being changed to; None: to none.
    full
        The role that runs out of memory first, without the points of its forecast.
    in_question, n_in_question
        The first shard that waits for a person, and how many do.
    host
        What other work on its hosts means for the job; empty: it is not felt.
    loss, evaluation
        The newest loss, and the quality on the held-out rows.
    """

    mode: Mode | None = None
    predicted: Prediction | None = None
    memory_left: float | None = None
    full_in_s: float | None = None
    cost_per_hour: float | None = None
    currency: str = ""
    prices_assumed: bool = False
    proposed: ProposedChange | None = None
    n_waiting: int = 0
    in_time: float | None = None
    version: str = ""
    mitigation: ProposedAction | None = None
    spent: float | None = None
    budget_total: float | None = None
    wanted: ResourcePlan | None = None
    full: MemoryLine | None = None
    in_question: QuarantinedShard | None = None
    n_in_question: int = 0
    host: str = ""
    loss: float | None = None
    evaluation: Evaluation | None = None

    @property
    def spent_share(self) -> float | None:
        """The share of the total budget that is spent; None without a limit."""
        return None if self.spent is None or not self.budget_total else self.spent / self.budget_total


UNKNOWN = JobOutlook()


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One line of the list of jobs."""

    name: str
    phase: JobPhase
    owner: str
    started_at_s: float
    plan: ResourcePlan | None  # that runs, or ran last; before the first one ran, the wanted one
    samples_per_s: float
    done: float | None  # share of the training samples, 0 to 1; None: not known
    open_proposal: str | None
    live: bool  # False: known from the history alone
    simulated: bool = False
    at_s: float = 0.0  # time of the summary by the clock of the job's master
    message: str = ""  # message about the phase
    left_s: float | None = None  # to the end of training at the current speed; None: unknown
    cpu: float = 0.0  # cores that its nodes hold
    memory_mib: int = 0  # memory that they hold
    memory_needs: tuple[str, ...] = ()  # why nodes are likely to run out of memory
    outlook: JobOutlook = UNKNOWN  # of masters before 0.2
    ended_at_s: float | None = None
    tags: tuple[str, ...] = ()

    @property
    def run(self) -> str:
        """Id of the run, which tells the job from others of its name."""
        return run_name(self.name, self.started_at_s)

    @property
    def open_mitigation(self) -> str | None:
        """Id of the action against stragglers that waits for an answer."""
        return self.outlook.mitigation.id if self.outlook.mitigation is not None else None

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of all that waits for an answer: the proposal, the action against stragglers."""
        return tuple(each for each in (self.open_proposal, self.open_mitigation) if each is not None)


def summarize(snapshot: JobSnapshot) -> JobSummary:
    """Return the one line that the list of jobs shows."""
    train, nodes = snapshot.train, holding(snapshot.nodes)
    return JobSummary(
        name=snapshot.spec.name,
        phase=snapshot.phase,
        owner=snapshot.spec.owner,
        started_at_s=snapshot.started_at_s,
        plan=snapshot.ran or snapshot.target,
        samples_per_s=snapshot.samples_per_s,
        done=share_done(train),
        open_proposal=snapshot.open_proposal.id if snapshot.open_proposal else None,
        live=True,
        simulated=snapshot.simulated,
        at_s=snapshot.at_s,
        message=snapshot.message,
        left_s=left_of(snapshot),
        cpu=sum(node.cpu for node in nodes),
        memory_mib=sum(node.memory_mib for node in nodes),
        memory_needs=snapshot.memory_needs,
        outlook=outlook_of(
            snapshot.ran or snapshot.target,
            snapshot.spec.prices,
            mode=snapshot.mode,
            current=snapshot.front.current if snapshot.front else None,
            opened=snapshot.open_proposal,
            memory=snapshot.memory,
            nodes=snapshot.nodes,
            deadline=snapshot.deadline,
            version=snapshot.version,
            mitigation=snapshot.open_mitigation,
            budget=snapshot.budget,
            target=snapshot.target,
            quarantined=snapshot.quarantined,
            host="" if snapshot.host is None else snapshot.host.words,
            loss=snapshot.loss,
            evaluation=snapshot.evaluation,
        ),
        ended_at_s=snapshot.ended_at_s,
        tags=snapshot.spec.tags,
    )


def outlook_of(  # noqa: PLR0913 - several sources, all by keyword
    plan: ResourcePlan,
    prices: PriceTable,
    *,
    mode: Mode,
    current: Candidate | None,
    opened: Proposal | None,
    memory: tuple[MemoryLine, ...],
    nodes: tuple[NodeView, ...],
    deadline: DeadlineOutlook | None,
    version: str,
    mitigation: Mitigation | None = None,
    budget: BudgetOutlook | None = None,
    target: ResourcePlan | None = None,
    quarantined: tuple[QuarantinedShard, ...] = (),
    host: str = "",
    loss: float | None = None,
    evaluation: Evaluation | None = None,
) -> JobOutlook:
    """Return the outlook of a job with a plan.

    Parameters
    ----------
    current
        The plan of the newest fit; its prediction is told only of that plan.
    """
    fulls = [line.full_in_s for line in memory if line.full_in_s is not None]
    return JobOutlook(
        mode=mode,
        predicted=current.prediction if current is not None and current.plan == plan else None,
        memory_left=min((1 - line.now_mib / line.limit_mib for line in memory), default=None),
        full_in_s=min(fulls, default=None),
        cost_per_hour=prices.per_hour(plan.total_cpu, plan.total_memory_mib),
        currency=prices.currency,
        prices_assumed=prices.assumed,
        proposed=None if opened is None else proposed_change(opened),
        n_waiting=sum(bool(node.waits_for) for node in nodes),
        in_time=None if deadline is None else deadline.in_time,
        spent=None if budget is None else budget.spent,
        budget_total=None if budget is None else budget.limit,
        version=version,
        mitigation=None if mitigation is None else _action(mitigation),
        wanted=None if target == plan else target,
        full=next((replace(line, fan=()) for line in running_out(memory)), None),
        in_question=quarantined[0] if quarantined else None,
        n_in_question=len(quarantined),
        host=host,
        loss=loss,
        evaluation=evaluation,
    )


def running_out(memory: Iterable[MemoryLine]) -> tuple[MemoryLine, ...]:
    """Return the roles that will, or are likely to, run out of memory before the end; soonest first."""
    at_risk = filter(is_at_risk, memory)
    return tuple(sorted(at_risk, key=lambda m: inf if m.full_in_s is None else m.full_in_s))


def is_at_risk(line: MemoryLine) -> bool:
    """Whether a role is likely to run out of memory: by its chance, so that no title speaks against that."""
    return line.full_in_s is not None if line.oom_probability is None else line.oom_probability >= LIKELY


def _action(opened: Mitigation) -> ProposedAction:
    return ProposedAction(
        opened.id, opened.words, opened.why, opened.cost, opened.created_at_s, gain=opened.gain
    )


def proposed_change(opened: Proposal) -> ProposedChange:
    """Return what a proposal changes."""
    new, old = opened.candidate, opened.baseline
    is_compared = min(old.prediction.low, new.prediction.low) > 0
    return ProposedChange(
        opened.kind,
        new.plan,
        new.prediction.samples_per_s,
        old.prediction.samples_per_s,
        new.cost_per_hour,
        old.cost_per_hour,
        opened.created_at_s,
        why=opened.why,
        transition_s=new.transition_s,
        finish_s=new.finish_s,
        before_finish_s=old.finish_s,
        before=old.plan,
        least=new.prediction.surely_over(old.prediction) if is_compared else None,
        most=new.prediction.possibly_over(old.prediction) if is_compared else None,
        extrapolates=new.prediction.extrapolates,
    )


def holding(nodes: Iterable[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes that hold cores and memory; pending ones hold none."""
    return tuple(node for node in nodes if node.phase is not NodePhase.PENDING)


def need_of(node: NodeView, spec: JobSpec) -> Need:
    """Return what a node holds of a machine."""
    return Need(node.cpu, node.memory_mib, spec.gpu_of(node.role))


def share_done(train: ShardCounts) -> float | None:
    """Return the share of the training samples that is done, 0 to 1; None: their number is not known."""
    return train.n_sample_done / train.n_sample_total if train.n_sample_total else None


def left_of(snapshot: JobSnapshot) -> float | None:
    """Return the seconds to the end of the training: as the program itself reports them, if it does."""
    status = snapshot.reported
    if status is None or status.remaining_s is None or snapshot.phase.is_final:
        return left_s(snapshot.phase, snapshot.train, snapshot.samples_per_s)
    return max(0.0, status.remaining_s - max(0.0, snapshot.at_s - status.at_s))


def left_s(phase: JobPhase, train: ShardCounts, samples_per_s: float) -> float | None:
    """Return the seconds to the end of the training at the current speed; None without progress."""
    if phase.is_final or samples_per_s <= 0:
        return None
    return (train.n_sample_total - train.n_sample_done) / samples_per_s
