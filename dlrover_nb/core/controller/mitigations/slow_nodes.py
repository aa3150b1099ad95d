"""The nodes of a job for the answer to stragglers: which are there, which are slow, how much each does.

Facts come from node reports while a plan is steady (during a change all nodes are slow for other reasons),
and from events on nodes. All times are those of events, on the master's clock: the clocks of nodes may be
hours apart. Where no event says that a node has left, as in the journal of an earlier release, the nodes that
were silent for longest are dropped beyond those that the plan has.

A report costs some microseconds beside those of the monitor; all else is done when a review is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.straggler.arbiter import Facts
from dlrover_nb.core.straggler.monitor import Monitor, MonitorSettings
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    MoveBuckets,
    SetSize,
)
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
    from dlrover_nb.core.structs.views.events import (
        BatchSizesSet,
        NodeLeft,
        NodeReported,
        NodeSizesSet,
        NodeStarted,
    )

LEAST_REVIEW_S = 1.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a job by name, in the order of their numbers, and how many workers are left out."""

    workers: tuple[str, ...]
    ps: tuple[str, ...]
    n_backup: int = 0


class SlowNodes:
    """Collects facts about the nodes of one job.

    Parameters
    ----------
    settings
        From which mean wait on the cluster is busy.
    spec
        The job: its windows, its batch, how workers keep in step.

    Attributes
    ----------
    findings
        Who was slow at the last review.
    own_sizes
        Of nodes that do not have the size of their role.
    """

    def __init__(self, settings: ControllerSettings, spec: JobSpec) -> None:
        self._settings, self._spec = settings, spec
        short_s = spec.straggler_window_s
        self._monitor = Monitor(MonitorSettings(short_s=short_s, long_s=2 * short_s))
        self._review_s, self._reviewed_s = max(short_s / 10, LEAST_REVIEW_S), 0.0
        self._plan: ResourcePlan | None = None  # the last one that was steady
        self._heard_s: dict[Role, dict[str, float]] = {role: {} for role in Role}
        self._n_iter: dict[str, int | None] = {}  # of workers; None: none yet
        self._sizes: dict[str, int] = {}  # mini-batches that are not the job's
        self._mean_size: float | None = None  # of all workers, by the last sizes set; None: the job's
        self._adjusted: AdjustBatches | None = None  # the last one in effect: it knows what is accumulated
        self._rates: dict[str, float] = {}
        self._n_backup = 0
        self._relieved: set[str] = set()
        self.own_sizes: Mapping[str, SetSize] = {}
        self.findings: tuple[Straggler, ...] = ()

    # facts

    def reported(self, event: NodeReported) -> None:
        """Take a report, if the plan is steady."""
        if event.plan is None:
            return
        sample, self._plan = event.sample, event.plan
        self._heard_s[sample.role][sample.node] = event.at_s
        if sample.role is Role.WORKER:
            self._n_iter[sample.node] = (self._n_iter.get(sample.node) or 0) + sample.n_iter
        self._monitor.observe(sample, event.at_s)

    def started(self, event: NodeStarted) -> None:
        """Take a node that is up."""
        self._heard_s[event.role].setdefault(event.node, event.at_s)
        if event.role is Role.WORKER:
            self._n_iter.setdefault(event.node, None)
        self._monitor.note_pending(max(event.pending_s, 0.0), event.at_s)

    def left(self, event: NodeLeft) -> None:
        """Drop a node; its error counts on."""
        self._forget(event.role, event.node)
        if event.error:
            self._monitor.note_error(event.node, event.role, event.at_s, is_retryable=event.is_retryable)

    def sizes_set(self, event: BatchSizesSet) -> None:
        """Take the mini-batches of workers.

        Where only sizes of nodes that have left are missing, no decision has set any: the mean stays that of
        before, and so does the global batch that the next sizes have to sum to.
        """
        before, self._sizes = self._sizes, dict(event.sizes)
        is_back = any(node in self._n_iter for node in before.keys() - self._sizes.keys())
        if is_back or not self._sizes.items() <= before.items():
            sizes = [self._size(node) for node in self._heard_s[Role.WORKER]]
            self._mean_size = sum(sizes) / len(sizes) if sizes else None

    def in_effect(self, action: Action) -> None:
        """Take an action that is in effect."""
        match action:
            case AdjustBatches():
                self._adjusted = action
            case AdjustRates():
                self._rates |= dict(action.factors)
            case BackupWorkers():
                self._n_backup = action.n
            case MoveBuckets():
                self._relieved.add(action.ps)

    def plan_applied(self, plan: ResourcePlan) -> None:
        """Note that a plan is in place: with other PS, parameters were placed anew."""
        if self._plan is not None and plan.ps != self._plan.ps:
            self._relieved.clear()

    def node_sizes_set(self, event: NodeSizesSet) -> None:
        """Take the sizes of all nodes that do not have their role's."""
        self.own_sizes = {each.node: each for each in event.sizes}

    # reviews

    def is_due(self, at_s: float) -> bool:
        """Whether a review is due."""
        return at_s >= self._reviewed_s + self._review_s

    def review(self, at_s: float) -> None:
        """Find which nodes are slow."""
        self._reviewed_s = at_s
        for role in Role:
            self._drop_lost(role, at_s)
        self.findings = self._monitor.findings(at_s)

    def errors(self, at_s: float) -> tuple[NodeErrors, ...]:
        """Return the errors of nodes within the long window, also of those that have left."""
        return self._monitor.errors(at_s)

    @property
    def slow(self) -> frozenset[str]:
        """Who was slow at the last review."""
        return frozenset(each.node for each in self.findings)

    @property
    def plan(self) -> ResourcePlan | None:
        """The last plan that was steady."""
        return self._plan

    @property
    def nodes(self) -> Nodes:
        """The nodes that are there."""
        return Nodes(self._names(Role.WORKER), self._names(Role.PS), self._n_backup)

    def situation(self, at_s: float) -> Situation:
        """Return what a solution knows beside the findings."""
        times = self._monitor.times(Role.WORKER, at_s)
        speeds = {each.node: each.samples_per_s for each in times}
        workers, accumulated = self._names(Role.WORKER), self._times()
        return Situation(
            sync=self._spec.sync,
            workers=tuple(
                WorkerState(
                    node,
                    self._size(node),
                    speeds.get(node) or None,
                    times=accumulated.get(node, 1),
                    rate=self._rates.get(node, 1.0),
                )
                for node in workers
            ),
            ps=self._names(Role.PS),
            relieved_ps=frozenset(self._relieved),
            is_busy=self._is_busy(at_s),
            n_backup=self._n_backup,
            exchange_s=sum(each.exchange_s for each in times) / len(times) if times else None,
            spread=self._monitor.spread(at_s),
            global_batch=self._global_batch(len(workers)),
        )

    def facts(
        self, at_s: float, situation: Situation, running: tuple[Action, ...], last_at_s: Mapping[str, float]
    ) -> Facts:
        """Return what the arbiter knows."""
        return Facts(
            at_s=at_s,
            iterations={each.node: self._n_iter.get(each.node) for each in situation.workers},
            ps=situation.ps,
            global_batch=situation.total,
            findings=self.findings,
            relieved_ps=frozenset(self._relieved),
            running=running,
            last_at_s=last_at_s,
            is_busy=situation.is_busy,
        )

    def inverse(self, action: Action) -> Action | None:
        """Return the action that leads back to what is now; None where none does."""
        workers, times = self._names(Role.WORKER), self._times()
        match action:
            case AdjustBatches():
                sizes = tuple((node, self._size(node)) for node in workers)
                return AdjustBatches(sizes, tuple((node, times[node]) for node in workers if node in times))
            case AdjustRates():
                return AdjustRates(tuple((node, self._rates.get(node, 1.0)) for node in workers))
            case BackupWorkers():
                return BackupWorkers(self._n_backup)
            case SetSize(node=node, role=role) if self._plan is not None:
                plan = self._plan.role(role)
                return self.own_sizes.get(node) or SetSize(node, role, plan.cpu, plan.memory_mib)
        return None

    def _global_batch(self, n_worker: int) -> int | None:
        """Return the samples of one iteration of so many workers, whichever were replaced meanwhile."""
        if self._spec.global_batch is not None:
            return self._spec.global_batch
        mean = self._spec.batch_size if self._mean_size is None else self._mean_size
        return round(mean * n_worker) or None

    def _is_busy(self, at_s: float) -> bool:
        pending_s = self._monitor.pending_s(Pace.PERSISTENT, at_s)
        return pending_s is not None and pending_s > self._settings.busy_pending_s

    def _times(self) -> dict[str, int]:
        """Return how many mini-batches each worker accumulates, while sizes are those that came with it."""
        if self._adjusted is None or any(self._size(node) != size for node, size in self._adjusted.sizes):
            return {}
        return dict(self._adjusted.accumulate)

    def _size(self, node: str) -> int:
        """Return the mini-batch of a worker: the job's where no other was set."""
        n_worker = max(len(self._heard_s[Role.WORKER]), 1)
        return self._sizes.get(node) or self._spec.batch_of(n_worker)

    def _names(self, role: Role) -> tuple[str, ...]:
        return tuple(sorted(self._heard_s[role], key=lambda name: (len(name), name)))

    def _drop_lost(self, role: Role, at_s: float) -> None:
        """Drop nodes beyond those of the plan that were silent for long: no event said that they left."""
        heard_s, silent_s = self._heard_s[role], at_s - self._spec.straggler_window_s / 2
        n_more = 0 if self._plan is None else len(heard_s) - self._plan.role(role).count
        silent = [node for node in heard_s if heard_s[node] < silent_s] if n_more > 0 else []
        for node in sorted(silent, key=heard_s.__getitem__)[:n_more]:
            self._forget(role, node)

    def _forget(self, role: Role, node: str) -> None:
        for by_node in (self._heard_s[role], self._n_iter, self._sizes, self._rates):
            by_node.pop(node, None)
        self._relieved.discard(node)
        self._monitor.forget(node)
        self.findings = tuple(each for each in self.findings if each.node != node)
