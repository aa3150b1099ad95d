"""The life of one simulated job: the behavior of a job master and its nodes, without nodes.

It takes the place of `runtime.master.JobMaster` below a controller: the same events in the same order, the
same properties for the snapshot. Between two changes the speed is constant, so progress is a product and the
job is touched only when something happens or nodes report.

Deliberate simplifications: shards are counted, not granted; an interrupted batch costs nothing; a lost PS
causes a pause and loses no progress (flash checkpoint); evaluation takes no time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.simulator.one_job.mitigation import SimMitigations
from dlrover_nb.core.simulator.one_job.progress import Progress
from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode, SimNodes
from dlrover_nb.core.simulator.one_job.snapshot_source import SnapshotSource
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission, Migration
from dlrover_nb.core.structs.plan.budget import per_hour
from dlrover_nb.core.structs.plan.capacity import fits, plan_needs
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.plan.queued_jobs import HELD
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.views.events import (
    CostChanged,
    Event,
    NodeLeft,
    NodeOutOfMemory,
    NodeStarted,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    RoomChanged,
    Ticked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from dlrover_nb.core.simulator.cluster import SimCluster
    from dlrover_nb.core.simulator.description import SimulatedJob, WorldSettings
    from dlrover_nb.core.simulator.engine import Engine
    from dlrover_nb.core.simulator.faults import Faults
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(slots=True)
class Change:
    """A change of plan in progress.

    Attributes
    ----------
    replaces
        PS or sizes change: the new nodes take over together; else workers come and go one by one.
    is_restart
        The old nodes have left, and the new ones read what they saved.
    is_fallback
        The previous plan is restored: an unrequested change.
    is_paused
        The new nodes take over: nothing trains.
    pause_s
        Seconds without training so far.
    """

    replaces: bool
    is_restart: bool = False
    is_fallback: bool = False
    is_paused: bool = False
    pause_s: float = 0.0


def replaces_nodes(serving: ResourcePlan | None, plan: ResourcePlan) -> bool:
    """Whether more changes than the number of workers; `serving` is what training runs on, None: nothing."""
    if serving is None or serving.ps != plan.ps:
        return True
    now, then = serving.worker, plan.worker
    return (now.cpu, now.memory_mib) != (then.cpu, then.memory_mib)


def restarts_now(change: Change, nodes: SimNodes, cluster: SimCluster, migration: Migration) -> bool:
    """Whether the old nodes leave now, so that the new ones can start.

    They do by choice of `migration`, and where both do not find room at once; but they train on until the new
    ones are sure of that room: a change that is given up has to find its old plan at work.
    """
    if not change.replaces or change.is_restart:
        return False
    if migration is Migration.SEAMLESS and not nodes.unplaced:
        return False
    old = [node.place for node in nodes.unwanted if node.place is not None]
    return cluster.has_room(nodes.waiting_needs, instead_of=old)


class FaultListener(Protocol):
    """Receiver of faults."""

    def lose(self, node: SimNode, why: str) -> None:
        """Handle the loss of a node."""
        ...

    def change_speed(self, node: SimNode, factor: float) -> None:
        """Handle a change of a node's speed."""
        ...


class Losses:
    """Counts nodes lost in a row, without a sample trained between."""

    def __init__(self) -> None:
        self._n, self._n_done = 0, -1.0

    def count(self, n_done: float) -> int:
        """Count a loss at `n_done` samples; return the number of losses at this point."""
        self._n, self._n_done = (self._n + 1 if n_done == self._n_done else 1), n_done
        return self._n


class FaultSchedule:
    """Random faults of the nodes of one job."""

    def __init__(
        self, faults: Faults, *, engine: Engine, rng: np.random.Generator, listener: FaultListener
    ) -> None:
        self._faults, self._engine, self._rng, self._listener = faults, engine, rng, listener

    def expect(self, node: SimNode) -> None:
        """Draw the faults of a node that has just started."""
        self._engine.after(self._faults.until_failure_s(self._rng), lambda: self._fail(node))
        self._engine.after(self._faults.until_slow_s(self._rng), lambda: self._slow(node))

    def _fail(self, node: SimNode) -> None:
        if not node.is_gone:
            self._listener.lose(node, "its machine failed")

    def _slow(self, node: SimNode) -> None:
        if node.is_gone:
            return
        factor, length_s = self._faults.episode(self._rng)
        self._engine.after(length_s, lambda: self._recover(node))
        self._listener.change_speed(node, factor)

    def _recover(self, node: SimNode) -> None:
        if node.is_gone:
            return
        self._engine.after(self._faults.until_slow_s(self._rng), lambda: self._slow(node))
        self._listener.change_speed(node, 1.0)


class CapacityWatch:
    """Periodic check of the cluster for one job.

    Parameters
    ----------
    spec
        Of the job: capacity beyond the nodes of its largest plan is not reported.
    settings
        Interval of checks, and the relative change of cores in reach that is reported.

    Attributes
    ----------
    known
        The capacity that was reported last.
    """

    def __init__(self, cluster: SimCluster, spec: JobSpec, settings: WorldSettings) -> None:
        self._cluster, self._settings = cluster, settings
        most = sum(completed(spec.bounds, cluster.capacity, spec.plan, most_workers=spec.step_batches).counts)
        self._n_node = max(most, spec.plan.worker.count + spec.plan.ps.count)
        self._checked_s, self._seen = -math.inf, -1
        self.known = cluster.capacity

    def check(self, nodes: Iterable[SimNode], at_s: float, *, must: bool = False) -> Capacity | None:
        """Return the capacity if it changed materially, else None; `must` ignores the interval."""
        if self._cluster.n_change == self._seen:
            return None
        if not must and at_s < self._checked_s + self._settings.room_every_s:
            return None
        is_first = self._seen < 0
        self._checked_s, self._seen = at_s, self._cluster.n_change
        room = self._cluster.room_for((n.place for n in nodes if n.place is not None), self._n_node)
        cores = self.known.total_cpu
        if not is_first and abs(room.total_cpu - cores) <= self._settings.room_change * cores:
            return None
        self.known = room
        return room


class SimJob(SnapshotSource):
    """One job on a virtual clock.

    Parameters
    ----------
    job
        Its specification and its hidden truth.
    engine, cluster
        Virtual time and machines, shared by all jobs.
    settings
        Rates and times of the simulated world.
    rng
        Generator of this job only, so that jobs do not influence each other's draws.
    emit
        Called with each event.

    Attributes
    ----------
    progress
        Progress so far: samples, core seconds, GiB seconds.
    started_at_s, ended_at_s
        When it was submitted and when it ended; None while it has not.
    """

    def __init__(
        self,
        job: SimulatedJob,
        *,
        engine: Engine,
        cluster: SimCluster,
        settings: WorldSettings,
        rng: np.random.Generator,
        emit: Callable[[Event], None],
    ) -> None:
        self.job, self._engine, self._cluster, self._settings = job, engine, cluster, settings
        self._rng, self._emit = rng, emit
        self._sim_nodes = SimNodes(job.spec.name)
        self._change: Change | None = None
        self.ran: ResourcePlan | None = None  # the plan that runs, or ran last
        self._serving: ResourcePlan | None = None  # sizes and number of PS in use
        self._steady_since_s: float | None = None
        self._is_held = False  # whether it waits in the queue to be admitted
        self._n_version, self._losses = 0, Losses()
        self._next_tick_s = math.inf
        self._fault_schedule = FaultSchedule(settings.faults, engine=engine, rng=rng, listener=self)
        self._capacity = CapacityWatch(cluster, job.spec, settings)
        self.progress = Progress(job, self._sim_nodes, faults=settings.faults, rng=rng, at_s=engine.now_s)
        self.phase, self.message = JobPhase.STARTING, ""
        self.target = job.spec.plan
        self.started_at_s = engine.now_s
        self.ended_at_s: float | None = None
        self._cost_per_hour = 0.0  # as its controller was told last
        self._mitigations = SimMitigations(
            job.spec, settings.transition, self._sim_nodes, progress=self.progress, engine=engine, emit=emit
        )

    def start(self) -> None:
        """Emit the submission, and request the first nodes unless the job waits to be admitted."""
        now_s = self.started_at_s = self._engine.now_s
        self._advance()  # it was submitted before it arrived, and has reserved nothing until now
        self._is_held = self.job.spec.admission is Admission.QUEUE
        if not self._is_held:
            self._first_plan(self.target)
        capacity = self._capacity.check(self._sim_nodes.nodes, now_s) or self._capacity.known
        self._emit(self.job.submitted(now_s, capacity))
        self._emit(PhaseChanged(now_s, JobPhase.STARTING, HELD if self._is_held else ""))
        self._tick_later()
        self._settle()

    def _first_plan(self, plan: ResourcePlan) -> None:
        self.target = self._serving = plan
        self._is_held, self._change = False, Change(replaces=False)
        self._sim_nodes.set_target(plan, self._engine.now_s)
        self._place_nodes()

    def set_target(self, plan: ResourcePlan) -> None:
        """Set the target plan; a change of plan in progress is given up."""
        now_s = self._engine.now_s
        if self.phase.is_final:
            self._emit(PlanFailed(now_s, plan, f"the job has {self.phase}"))
            return
        if not fits(self._cluster.capacity, plan_needs(plan)):
            self._emit(PlanFailed(now_s, plan, "it exceeds all machines together; choose a smaller plan"))
            return
        if self._is_held:
            self._first_plan(plan)
            self._settle()
            return
        if self.ran is not None and self._change is not None and not self._change.is_fallback:
            if plan == self.target:
                return
            self._emit(PlanFailed(now_s, self.target, "a newer decision replaced it"))
        self._advance()
        self._mitigations.give_up("a change of plan came first")
        self._aim(plan)
        self._settle()

    def mitigate(self, choice: MitigationChoice) -> None:
        """Carry out an action against stragglers; one that is impossible has ended with its reason."""
        self._advance()
        self._mitigations.begin(choice, self.phase, self._mitigated)
        self._settle()

    def _mitigated(self) -> None:
        self._advance()
        for node in self._sim_nodes.unwanted:
            self._retire(node)
        self._settle()

    def stop(self, phase: JobPhase, why: str) -> None:
        """End the job now, in a final phase; an ended job is unchanged."""
        if not self.phase.is_final:
            self._advance()
            self._end(phase, why)

    def retry_placement(self) -> None:
        """Try to place waiting nodes again, after capacity was released."""
        if not self.phase.is_final and self._sim_nodes.unplaced:
            self._advance()
            self._settle()

    def _aim(self, plan: ResourcePlan, *, is_fallback: bool = False) -> None:
        now_s = self._engine.now_s
        self.target = plan
        self._sim_nodes.set_target(plan, now_s)
        replaces = self.ran is not None and replaces_nodes(self._serving, plan)
        if self.ran is None:
            self._serving = plan
        self._begin(Change(replaces, replaces and self._serving is None, is_fallback))
        for node in self._sim_nodes.unwanted:
            if not replaces or not node.is_active:
                self._retire(node)
        if not replaces:
            self._sim_nodes.activate(now_s)

    def _begin(self, change: Change) -> None:
        self._change = change
        self._engine.after(self._settings.transition.plan_limit_s, partial(self._check_plan, change))

    def _make_room(self) -> None:
        """Let the old nodes leave before the new ones start, where a change has to go that way."""
        change, nodes, migration = self._change, self._sim_nodes, self._settings.transition.migration
        if change is None or not restarts_now(change, nodes, self._cluster, migration):
            return
        self._report()
        for node in nodes.unwanted:
            self._retire(node)
        nodes.deactivate()
        self._serving = None
        self._begin(replace(change, is_restart=True))
        self._place_nodes()

    def _check_plan(self, change: Change) -> None:
        """Give up a change that exceeds its limit of time; without a plan to fall back to, wait on."""
        if change is not self._change or self.phase.is_final or self.ran is None or change.is_fallback:
            return
        self._advance()
        lack = "no room was found" if self._sim_nodes.unplaced else "its nodes did not start"
        why = f"{lack} within {self._settings.transition.plan_limit_s:g} s; choose a smaller plan"
        self._emit(PlanFailed(self._engine.now_s, self.target, why))
        self._aim(self.ran, is_fallback=True)
        self._settle()

    def _take_over(self, change: Change) -> None:
        """Let the new nodes train, once all are up and restored."""
        if change is not self._change or self.phase.is_final:
            return
        self._advance()
        change.is_paused = False
        if self._sim_nodes.all_up:
            for node in self._sim_nodes.unwanted:
                self._retire(node)
            self._serving, change.replaces = self.target, False
            self._sim_nodes.activate(self._engine.now_s)
        self._settle()

    def _place_nodes(self) -> None:
        for node in self._sim_nodes.place_nodes(self._cluster):
            self._engine.after(self._settings.pending.draw_s(self._rng), partial(self._up, node))

    def _up(self, node: SimNode) -> None:
        if node.is_gone:
            return
        self._advance()
        now_s = self._engine.now_s
        self._emit(NodeStarted(now_s, node.id, node.role, now_s - node.since_s))
        node.is_up, node.since_s, node.reported_s = True, now_s, now_s
        self._note_cost()
        self._fault_schedule.expect(node)
        joins = self._change is None or not self._change.replaces
        if joins and node.role is Role.PS and self.progress.n_done > 0:  # it loads its part first
            self._engine.after(self._settings.transition.restore_s, partial(self._join, node))
        else:
            self._join(node)

    def _join(self, node: SimNode) -> None:
        """Activate a node that is ready, unless it has to wait for others."""
        if node.is_gone:
            return
        self._advance()
        if self._change is None or not self._change.replaces:
            node.activate(self._engine.now_s)
        self._mitigations.joined(node, self._retire)
        self._settle()

    def change_speed(self, node: SimNode, factor: float) -> None:
        """Change the speed of a node."""
        self._advance()
        node.factor = factor
        self._mitigations.speed_changed(node)
        self._settle()

    def lose(self, node: SimNode, why: str) -> None:
        """Replace a lost node, unless too many are lost without progress between."""
        self._advance()
        n_lost = self._losses.count(self.progress.n_done)
        self.message = f"{node.id} was lost: {why}"
        self._retire(node, has_report=False, error=why)
        if n_lost > self._settings.max_lost:
            self._end(JobPhase.FAILED, f"{node.role} nodes keep failing, {node.id} last: {why}")
            return
        if node.is_wanted:
            new = self._sim_nodes.ask(node.role, self.target.role(node.role), self._engine.now_s)
            self._mitigations.replaced(node, new)
        self._settle()

    def _retire(self, node: SimNode, *, has_report: bool = True, error: str = "") -> None:
        was_up = node.is_up
        last = self.progress.last_report(node) if has_report else None
        if last is not None:
            self._emit(last)
        self._sim_nodes.remove(node)
        if node.place is not None:
            self._cluster.release((node.place,))
        if was_up:
            self._emit(NodeLeft(self._engine.now_s, node.id, node.role, error))
            self._mitigations.left(node)

    # time

    def _advance(self) -> None:
        still_s = self.progress.advance(self._engine.now_s)
        if self._change is not None:
            self._change.pause_s += still_s

    def _tick_later(self) -> None:
        self._next_tick_s = self._engine.now_s + self._settings.report_s
        self._engine.at(self._next_tick_s, self._tick)

    def _tick(self) -> None:
        """Report, and draw new noise."""
        if self.phase.is_final:
            return
        self._advance()
        if self.progress.due() == (self._engine.now_s, None):  # its last report is this one
            self._finish()
            return
        self._report()
        self._check_capacity()
        self._emit(Ticked(self._engine.now_s))
        self.progress.redraw()
        self._tick_later()
        self._settle()

    def _report(self) -> None:
        for event in self.progress.events(self.running, self._steady_since_s):
            self._emit(event)

    def _settle(self) -> None:
        """Update everything that follows from the state, and schedule the next due event."""
        if self.phase.is_final:
            return
        self._place_nodes()
        self._make_room()
        self._note_cost()
        change = self._change
        if change is not None and change.replaces and not change.is_paused and self._sim_nodes.all_up:
            change.is_paused = True
            pause_s = self._settings.transition.pause_s(is_restart=change.is_restart)
            self._engine.after(pause_s, partial(self._take_over, change))
        self.progress.refresh(self._serving, is_paused=change is not None and change.is_paused)
        self._update_plan()
        self._update_phase()
        self._expect_due()

    def _expect_due(self) -> None:
        """Schedule the end or an out-of-memory event if it comes before the next report."""
        self._n_version += 1
        at_s, node = self.progress.due()
        if at_s <= self._next_tick_s:
            self._engine.at(at_s, partial(self._due, self._n_version, node))

    def _due(self, version: int, node: SimNode | None) -> None:
        if version != self._n_version or self.phase.is_final:
            return
        self._advance()
        if node is not None:
            now_s, held_mib = self._engine.now_s, self.progress.memory_mib(node)
            self._emit(NodeOutOfMemory(now_s, node.id, node.role, held_mib))
            self.lose(node, f"it used {held_mib:,.0f} MiB and may use {node.memory_mib}")
        else:
            self._finish()

    def _finish(self) -> None:
        self.progress.finish()
        self._end(JobPhase.SUCCEEDED, "trained; evaluation is not simulated")

    def _update_plan(self) -> None:
        """Update whether the target runs; emit `PlanApplied` once."""
        now_s, change = self._engine.now_s, self._change
        if not self._sim_nodes.in_place or self.progress.speed == 0:
            self._steady_since_s = None
            return
        self._steady_since_s = now_s if self._steady_since_s is None else self._steady_since_s
        if change is None:
            return
        if not change.is_fallback:
            pause_s = change.pause_s if self.ran else 0.0  # the first start interrupts no training
            self._emit(PlanApplied(now_s, self.target, pause_s))
            self._steady_since_s = now_s
        if self.ran is None:
            self._check_capacity(must=True)
        self.ran, self._serving, self._change = self.target, self.target, None

    def _update_phase(self) -> None:
        phase, message = JobPhase.TRAINING, ""
        if self.ran is not None and self._change is not None:
            phase, message = JobPhase.RESCALING, f"changing to {self.target.short}"
        elif self.progress.speed == 0:
            phase, message = JobPhase.STARTING, self._sim_nodes.lack or self.message
        if phase is not self.phase:
            self.phase, self.message = phase, message
            self._emit(PhaseChanged(self._engine.now_s, phase, message))
        elif message:
            self.message = message

    def _note_cost(self) -> None:
        """Tell what the nodes that are up cost, where that has changed; nothing while a price is unknown."""
        cost = per_hour(self.job.spec.prices, self._sim_nodes.needs)
        if cost is not None and cost != self._cost_per_hour:
            self._cost_per_hour = cost
            self._emit(CostChanged(self._engine.now_s, cost))

    def _check_capacity(self, *, must: bool = False) -> None:
        room = self._capacity.check(self._sim_nodes.nodes, self._engine.now_s, must=must)
        if room is not None:
            self._emit(RoomChanged(self._engine.now_s, room))

    def _end(self, phase: JobPhase, why: str) -> None:
        self._report()
        self._mitigations.give_up(f"the job has {phase}")
        for node in list(self._sim_nodes.nodes):
            self._retire(node, has_report=False)
        self._note_cost()
        self.progress.refresh(None, is_paused=True)
        now_s = self._engine.now_s
        self.phase, self.message, self.ended_at_s = phase, why, now_s
        self._steady_since_s, self._change = None, None
        self._emit(PhaseChanged(now_s, phase, why))
