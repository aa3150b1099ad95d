"""What the simulated world does about stragglers, as far as its physics go.

A restarted node is another one on another machine, so it has normal speed: it starts beside the slow one,
which leaves when it is ready. Sizes and backups change how the workers of a job are paced together, and moved
parameters how the PS are. Learning rates change no speed, so there is nothing to simulate; and all nodes of a
role have one size.

Sizes that were agreed on hold for the workers that agreed: when one leaves, all have the job's batch again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    OwnAction,
    SetSize,
)
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.views.events import BatchSizesSet, MitigationEnded

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.simulator.description import Transition
    from dlrover_nb.core.simulator.engine import Engine
    from dlrover_nb.core.simulator.one_job.progress import Progress
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode, SimNodes
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.views.events import Event


@dataclass(slots=True)
class Restart:
    """A node that another one takes the place of."""

    decision: str
    old: SimNode
    new: SimNode


class SimMitigations:
    """Carries out actions against stragglers in one simulated job.

    Parameters
    ----------
    spec, transition
        The job, and what its changes cost.
    nodes, progress, engine
        Its nodes, its progress, and virtual time.
    emit
        Called with each event.
    """

    def __init__(
        self,
        spec: JobSpec,
        transition: Transition,
        nodes: SimNodes,
        *,
        progress: Progress,
        engine: Engine,
        emit: Callable[[Event], None],
    ) -> None:
        self._spec, self._transition = spec, transition
        self._nodes, self._progress, self._engine, self._emit = nodes, progress, engine, emit
        self._restart: Restart | None = None
        self._moving = ""  # the decision behind it

    def begin(self, choice: MitigationChoice, phase: JobPhase, settle: Callable[[], None]) -> None:
        """Begin an action; one that is impossible, or cannot be simulated, has ended with its reason.

        Parameters
        ----------
        phase
            Of the job now.
        settle
            Updates the job after what is done later.
        """
        try:
            self._begin(choice, phase, settle)
        except InvalidValueError as error:
            self._end(choice.decision, str(error))

    def _begin(self, choice: MitigationChoice, phase: JobPhase, settle: Callable[[], None]) -> None:
        action = choice.action.action
        if phase is not JobPhase.TRAINING:
            raise InvalidValueError(f"the job must be training, but it is {phase}; try again later")
        if self._restart is not None or self._moving:
            raise InvalidValueError("one action at a time, and another one is under way; wait for its end")
        match action:
            case AdjustBatches():
                self._adjust(action)
            case BackupWorkers():
                self._leave_out(action)
            case AdjustRates():
                raise InvalidValueError(
                    "a simulated job has no learning rates, as no parameters are trained; connect local"
                )
            case OwnAction():
                raise InvalidValueError("the simulated world has no physics for actions of packages")
            case SetSize():
                raise InvalidValueError(
                    "all simulated nodes of a role have the size of the plan; scale the job to another plan, "
                    "or connect local"
                )
            case KillRestart():
                self._replace(choice.decision, self._active(action.node, action.role), settle)
                return
            case MoveBuckets():
                self._move(choice.decision, self._active(action.ps, Role.PS), settle)
                return
            case _ as never:
                assert_never(never)
        self._end(choice.decision)

    # what follows from other events

    def joined(self, node: SimNode, retire: Callable[[SimNode], None]) -> None:
        """Let the old node leave when the one that takes its place is ready."""
        restart = self._restart
        if restart is not None and restart.new is node:
            self._restart = None
            if not restart.old.is_gone:
                retire(restart.old)
            self._end(restart.decision)

    def replaced(self, lost: SimNode, new: SimNode) -> None:
        """Wait for another node, where the one that was waited for was lost."""
        if self._restart is not None and self._restart.new is lost:
            self._restart.new = new

    def left(self, node: SimNode) -> None:
        """Set back what was set for the nodes of a role, as one of them has left."""
        if node.role is Role.PS:
            self._progress.loads = {}
        elif self._progress.sizes:
            self._progress.sizes = {}
            self._emit(BatchSizesSet(self._engine.now_s, ()))

    def speed_changed(self, node: SimNode) -> None:
        """Spread parameters evenly when a PS has recovered, as rebalancing by load does."""
        if node.role is Role.PS and node.factor >= 1:
            self._progress.loads = {}

    def give_up(self, why: str) -> None:
        """End what is under way."""
        restart, moving, self._restart, self._moving = self._restart, self._moving, None, ""
        if restart is not None:
            restart.old.is_wanted, restart.new.is_wanted = True, False
        if decision := restart.decision if restart is not None else moving:
            self._end(decision, why)

    # actions

    def _adjust(self, action: AdjustBatches) -> None:
        present = {node.id for node in self._nodes.active(Role.WORKER)}
        other = present ^ {node for node, _ in action.sizes}
        if other:
            raise InvalidValueError(
                f"sizes must be those of all {len(present)} workers, got others ({min(other)} differs); "
                "name the present ones"
            )
        usual, times = self._spec.batch_of(len(present)), dict(action.accumulate)
        self._progress.sizes = dict(action.samples)
        changed = tuple((node, size) for node, size in action.sizes if size != usual or node in times)
        self._emit(BatchSizesSet(self._engine.now_s, changed, action.accumulate))

    def _leave_out(self, action: BackupWorkers) -> None:
        n_worker = len(self._nodes.active(Role.WORKER))
        if self._spec.sync is not Sync.BSP or action.n >= n_worker:
            raise InvalidValueError(
                f"workers must keep in step (sync bsp) and be more than those left out, got sync "
                f"{self._spec.sync} and {action.n} of {n_worker}; leave out fewer"
            )
        self._progress.n_backup = action.n

    def _replace(self, decision: str, old: SimNode, settle: Callable[[], None]) -> None:
        old.is_wanted = False
        new = self._nodes.ask(old.role, RolePlan(1, old.cpu, old.memory_mib), self._engine.now_s)
        self._restart = restart = Restart(decision, old, new)
        self._engine.after(self._transition.plan_limit_s, partial(self._check, restart, settle))

    def _check(self, restart: Restart, settle: Callable[[], None]) -> None:
        """Give up a restart that exceeds its limit of time."""
        if restart is self._restart:
            lack = "no room was found" if restart.new.place is None else "its node did not start"
            self.give_up(f"{lack} within {self._transition.plan_limit_s:g} s")
            settle()

    def _move(self, decision: str, ps: SimNode, settle: Callable[[], None]) -> None:
        if len(self._nodes.active(Role.PS)) < 2:
            raise InvalidValueError(f"{ps.id} must have another PS to give buckets to, got none; add one")
        self._moving = decision
        self._engine.after(self._transition.seamless_s, partial(self._moved, decision, settle))

    def _moved(self, decision: str, settle: Callable[[], None]) -> None:
        """Let each PS have as many parameters as it is fast."""
        if self._moving != decision:
            return
        self._moving, ps = "", self._nodes.active(Role.PS)
        mean = sum(node.factor for node in ps) / max(len(ps), 1)
        self._progress.loads = {node.id: node.factor / mean for node in ps}
        self._end(decision)
        settle()

    def _active(self, name: str, role: Role) -> SimNode:
        names = [node.id for node in self._nodes.active(role)]
        if name not in names:
            raise InvalidValueError(f"expected a {role.value} among {', '.join(names)}, got {name}; name one")
        return self._nodes.active(role)[names.index(name)]

    def _end(self, decision: str, why_not: str = "") -> None:
        self._emit(MitigationEnded(self._engine.now_s, decision, why_not))
