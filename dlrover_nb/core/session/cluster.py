"""Where jobs run, as clients see it: the protocol `Cluster`, and the line of each job in its list."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.structs.job import JobPhase  # noqa: TC001 - a summary is decoded by its annotations
from dlrover_nb.core.structs.resources import ResourcePlan  # noqa: TC001 - as above
from dlrover_nb.core.structs.snapshot import NodePhase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dlrover_nb.core.session.client import JobHandle
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import Capacity
    from dlrover_nb.core.structs.shards import ShardCounts
    from dlrover_nb.core.structs.snapshot import JobSnapshot, NodeView
    from dlrover_nb.core.structs.standing import Standing


class Cluster(Protocol):
    """Where jobs run."""

    @property
    def simulated(self) -> bool:
        """Whether nothing here is real."""
        ...

    @property
    def description(self) -> str:
        """One line: what it is, where, and what it offers."""
        ...

    def capacity(self) -> Capacity:
        """Return what jobs may use."""
        ...

    def standing(self) -> Standing:
        """Return what who is connected is told beside capacity: facts, and what he may do."""
        ...

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once.

        Parameters
        ----------
        model
            The user's own model instead of that of `spec`: a class or function as `dlrover_nb.trainable`
            describes, or its name ``package.module:name``.
        data
            The user's own rows instead of those of `spec`: an object with ``n_row`` and ``read(start, stop)``
            or ``rows(start)``, a class or function that makes one, or its name; see `core.data.own`.

        Raises
        ------
        InvalidValueError
            When a job of that name is there, the data is not what the specification says, or the user's own
            code does not do on a few rows what it should.
        CapacityError
            When the plan does not fit.
        """
        ...

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: running ones, and those the history knows."""
        ...

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs that a master answers for, at a price that a view of all can pay each second.

        A master that does not answer at once is left out. Raises `BackendError` when the cluster is gone.
        """
        ...

    def job(self, name: str) -> JobHandle:
        """Find a job by name; `NotFoundError` names the nearest ones."""
        ...

    def delete(self, name: str, *, force: bool = False) -> str:
        """Remove a job and what it left, all but its history, and say what was done.

        Raises
        ------
        InvalidValueError
            When it runs and `force` is not given, or where jobs leave nothing.
        NotFoundError
            When there is no such job.
        """
        ...

    def shutdown(self, *, force: bool = False) -> str:
        """End the cluster if this product started it, and say what was done; else only let go of it."""
        ...


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One line of the list of jobs."""

    name: str
    phase: JobPhase
    owner: str
    started_at_s: float
    plan: ResourcePlan | None
    samples_per_s: float
    done: float  # share of the training samples, 0 to 1
    open_proposal: str | None
    live: bool  # False: known from the history alone
    simulated: bool = False
    at_s: float = 0.0  # when it was so, by the clock of the job's master
    message: str = ""  # what there is to say about the phase
    left_s: float | None = None  # to the end of the training, at the speed now; None: not known
    cpu: float = 0.0  # cores that its nodes hold
    memory_mib: int = 0  # memory that they hold
    memory_needs: tuple[str, ...] = ()  # why nodes are likely to be killed for want of memory


def summarize(snapshot: JobSnapshot) -> JobSummary:
    """Return the one line that the list of jobs shows."""
    train, nodes = snapshot.train, holding(snapshot.nodes)
    return JobSummary(
        name=snapshot.spec.name,
        phase=snapshot.phase,
        owner=snapshot.spec.owner,
        started_at_s=snapshot.started_at_s,
        plan=snapshot.target,
        samples_per_s=snapshot.samples_per_s,
        done=share_done(train),
        open_proposal=snapshot.open_proposal.id if snapshot.open_proposal else None,
        live=True,
        simulated=snapshot.simulated,
        at_s=snapshot.at_s,
        message=snapshot.message,
        left_s=left_s(snapshot.phase, train, snapshot.samples_per_s),
        cpu=sum(node.cpu for node in nodes),
        memory_mib=sum(node.memory_mib for node in nodes),
        memory_needs=snapshot.memory_needs,
    )


def holding(nodes: Iterable[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes that hold cores and memory: one that is only asked for holds none."""
    return tuple(node for node in nodes if node.phase is not NodePhase.PENDING)


def share_done(train: ShardCounts) -> float:
    """Return the share of the training samples that is done, 0 to 1."""
    return train.n_sample_done / train.n_sample_total if train.n_sample_total else 0.0


def left_s(phase: JobPhase, train: ShardCounts, samples_per_s: float) -> float | None:
    """Return the seconds to the end of the training at the speed now; None while nothing is trained."""
    if phase.is_final or samples_per_s <= 0:
        return None
    return (train.n_sample_total - train.n_sample_done) / samples_per_s


def still_runs(name: str, phase: JobPhase) -> str:
    """Say that a job which runs is not deleted."""
    return f"job {name} runs ({phase}); stop {name} first, or delete {name} --force"


def no_job(name: str, where: str, names: Collection[str], past: Collection[str] = ()) -> str:
    """Say that no master of a job is there (``at here:1``), and which job may have been meant."""
    if name in past:
        return f"job {name} is over and its master is gone; `%dlrover history {name}` shows what it did"
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name, past, n=1)
    hint = f"did you mean {near[0]}?" if near else f"jobs here: {', '.join(sorted(names)) or 'none'}"
    return f"no job {name!r} {where}; {hint}"
