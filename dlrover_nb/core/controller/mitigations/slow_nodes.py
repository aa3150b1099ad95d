"""The nodes of a job for the answer to stragglers: which are there, which are slow, how much each does.

Facts come from node reports while a plan is steady (during a change all nodes are slow for other reasons),
and from events on nodes. All times are those of events, on the master's clock: the clocks of nodes may be
hours apart. Where no event says that a node has left, as in the journal of an earlier release, the nodes that
were silent for longest are dropped beyond those that the plan has.

A node that was found slow stays slow until reviews have not found it for half a short window: what lasts is
found now and then only, where times scatter, and would be told as a recovery each time. `recent` are those
that the last review found itself: a node is restarted for no older finding.

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
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.straggler.rules import Rule
    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
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
    rule
        What finds slow nodes.

    Attributes
    ----------
    findings
        Who was slow at the last review, or within half a short window before it.
    recent
        The nodes that the last review found.
    own_sizes
        Of nodes that do not have the size of their role.
    """

    def __init__(self, settings: ControllerSettings, spec: JobSpec, rule: Rule) -> None:
        self._settings, self._spec = settings, spec
        self._monitor = Monitor(MonitorSettings.of(spec), rule)
        self._review_s, self._reviewed_s = max(spec.straggler_window_s / 10, LEAST_REVIEW_S), 0.0
        self._plan: ResourcePlan | None = None  # the last one that was steady
        self._heard_s: dict[Role, dict[str, float]] = {role: {} for role in Role}
        self._n_iter: dict[str, int | None] = {}  # of workers; None: none yet
        self._sizes: dict[str, int] = {}  # mini-batches that are not the job's
        self._mean_rows: float | None = None  # of an update, by the last sizes set; None: the job's batch
        self._times: dict[str, int] = {}  # mini-batches of one update, where it is not one
        self._costs: dict[str, BatchCost] = {}  # of mini-batches, by worker, where that was measured
        self._rates: dict[str, float] = {}
        self._n_backup = 0
        self._relieved: set[str] = set()
        self.own_sizes: Mapping[str, SetSize] = {}
        self.findings: tuple[Straggler, ...] = ()
        self.recent: frozenset[str] = frozenset()
        self._recurring: dict[tuple[str, Pace], tuple[float, Straggler]] = {}  # when last

    # facts

    def reported(self, event: NodeReported) -> None:
        """Take a report, if the plan is steady."""
        if event.plan is None:
            return
        sample, self._plan = event.sample, event.plan
        self._heard_s[sample.role][sample.node] = event.at_s
        if sample.batch_cost is not None:
            self._costs[sample.node] = sample.batch_cost
        is_first = sample.role is Role.WORKER and not self._n_iter.get(sample.node)
        if sample.role is Role.WORKER:
            self._n_iter[sample.node] = (self._n_iter.get(sample.node) or 0) + sample.n_iter
        if not is_first:  # no report has the time of a first iteration, in which a model may be compiled
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
        before = self._shares_set()
        self._sizes, self._times = dict(event.sizes), dict(event.accumulate)
        now = self._shares_set()
        is_back = any(node in self._n_iter for node in before.keys() - now.keys())
        if is_back or not now.items() <= before.items():
            rows = [self._size(node) * self._times.get(node, 1) for node in self._heard_s[Role.WORKER]]
            self._mean_rows = sum(rows) / len(rows) if rows else None

    def in_effect(self, action: Action) -> None:
        """Take an action that is in effect."""
        match action:
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
        findings = self._findings(at_s)
        self.recent = frozenset(each.node for each in findings)
        since_s = at_s - self._spec.straggler_window_s / 2
        lasting = {key: each for key, each in self._recurring.items() if each[0] > since_s}
        self._recurring = lasting | {(each.node, each.pace): (at_s, each) for each in findings}
        self.findings = tuple(sorted((each for _, each in self._recurring.values()), key=_order))

    def _findings(self, at_s: float) -> tuple[Straggler, ...]:
        """Return who is slow, and in step who has been for long behind a batch that was made smaller."""
        findings = self._monitor.findings(at_s)
        if self._sync is not Sync.BSP:
            return findings
        slow = {(each.node, each.pace) for each in findings}
        levelled = self._monitor.levelled(at_s)
        return (*findings, *(each for each in levelled if (each.node, each.pace) not in slow))

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
        since_s = {each.node: each.since_s for each in self.findings if each.node in self.recent}
        times = self._monitor.times(Role.WORKER, at_s, since_s)
        speeds = {each.node: each.samples_per_s for each in times}
        workers = self._names(Role.WORKER)
        return Situation(
            sync=self._sync,
            workers=tuple(self._worker(node, speeds.get(node) or None) for node in workers),
            ps=self._names(Role.PS),
            relieved_ps=frozenset(self._relieved),
            is_busy=self._is_busy(at_s),
            n_backup=self._n_backup,
            exchange_s=sum(each.exchange_s for each in times) / len(times) if times else None,
            spread=self._monitor.spread(at_s),
            global_batch=self._global_batch(len(workers)),
            tuning=self._spec.tuning.antdt,
            is_fixed=self._spec.deterministic,
        )

    @property
    def _sync(self) -> Sync:
        """How workers keep in step; those of an elastic job always do."""
        foreign = self._spec.foreign
        is_elastic = foreign is not None and foreign.framework is Framework.DDP
        return Sync.BSP if is_elastic else self._spec.sync

    def _worker(self, node: str, samples_per_s: float | None) -> WorkerState:
        times, rate = self._times.get(node, 1), self._rates.get(node, 1.0)
        worker = WorkerState(node, self._size(node), samples_per_s, times=times, rate=rate)
        is_full = self._spec.stragglers == SolutionName.ANTDT_DD
        return worker.with_cost(self._costs.get(node), is_full=is_full)

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
        workers = self._names(Role.WORKER)
        match action:
            case AdjustBatches():
                sizes = tuple((node, self._size(node)) for node in workers)
                times = tuple((node, self._times[node]) for node in workers if node in self._times)
                return AdjustBatches(sizes, times)
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
        if self._spec.shared_batch is not None:
            return self._spec.shared_batch
        mean = self._spec.batch_of(n_worker) if self._mean_rows is None else self._mean_rows
        return round(mean * n_worker) or None

    def _is_busy(self, at_s: float) -> bool:
        pending_s = self._monitor.pending_s(Pace.PERSISTENT, at_s)
        return pending_s is not None and pending_s > self._settings.busy_pending_s

    def _shares_set(self) -> dict[str, tuple[int, int]]:
        """Return the mini-batches that were set, each with how many of them make one update."""
        return {node: (size, self._times.get(node, 1)) for node, size in self._sizes.items()}

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
        of_node = (self._n_iter, self._sizes, self._times, self._costs, self._rates)
        for by_node in (self._heard_s[role], *of_node):
            by_node.pop(node, None)
        self._relieved.discard(node)
        self._monitor.forget(node)
        self._recurring = {key: each for key, each in self._recurring.items() if key[0] != node}
        self.findings = tuple(each for each in self.findings if each.node != node)


def _order(straggler: Straggler) -> tuple[int, int, int, str]:
    name = straggler.node
    return list(Role).index(straggler.role), list(Pace).index(straggler.pace), len(name), name
