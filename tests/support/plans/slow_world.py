"""A job whose nodes are as slow as a test says, in virtual time, under a controller that only watches pace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.straggler.methods import find_methods
from dlrover_nb.core.structs.decisions.actions import ActionChoice, AdjustBatches, SetSize
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    Decided,
    JobSubmitted,
    Mitigate,
    MitigationEnded,
    NodeLeft,
    NodeReported,
    NodeSizesSet,
    NodeStarted,
    PhaseChanged,
    PlanApplied,
    Remember,
    Scale,
)
from support.plans.replayed import replay

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

WINDOW_S = 30.0
ITER_S = 0.1  # of a node at normal speed with the job's batch
BATCH = 512
FITTED_ONCE = ControllerSettings(
    refit_growth=100.0
)  # what is done about slow nodes does not follow from the fit


def plan_of(n_worker: int = 4, n_ps: int = 2) -> ResourcePlan:
    return ResourcePlan(RolePlan(n_worker, 0.25, 512), RolePlan(n_ps, 0.25, 512))


class SlowJob:
    """A job; `slow` holds how many times as long each node takes, `ahead_s` by how much its clock is off."""

    def __init__(self, *, n_worker: int = 4, n_ps: int = 2, program: str = "", **fields: Any) -> None:
        given = {"mode": Mode.SUGGEST, "sync": Sync.BSP, "straggler_window_s": WINDOW_S} | fields
        given.setdefault("policy", "fixed-plan")
        self.settings = given.pop("settings", FITTED_ONCE)
        self.plan = given.pop("plan", None) or plan_of(n_worker, n_ps)
        self.policy = POLICIES[given["policy"]]
        self.spec = JobSpec("clicks", owner="ada", plan=self.plan, batch_size=BATCH, **given)
        room = Capacity((NodeShape(8.0, 65536),))
        first = JobSubmitted(0.0, self.spec, room, 10**9, 100_000, 16, program=program)
        self.journal: list[Any] = [first]
        self.orders: list[Any] = []
        self.at_s = 0.0
        self.workers = [f"worker-{i}" for i in range(n_worker)]
        self.ps = [f"ps-{i}" for i in range(n_ps)]
        self.slow: dict[str, float] = {}
        self.ahead_s: dict[str, float] = {}
        self.sizes: dict[str, int] = {}
        self.own: dict[str, SetSize] = {}
        self.costs: dict[str, BatchCost] = {}  # as workers have measured them
        self.demand: dict[str, float] = {}  # cores that a node would use, if it had them
        self.methods = find_methods(self.spec)
        self.controller = Controller(first, self.settings, policy=self.policy, stragglers=self.methods)
        for node, role in self.nodes:
            self.tell(NodeStarted(0.0, node, role, 1.0))
        self.tell(PhaseChanged(0.0, JobPhase.TRAINING))
        self.tell(PlanApplied(0.0, self.plan, 0.0))

    @property
    def nodes(self) -> list[tuple[str, Role]]:
        return [(node, Role.WORKER) for node in self.workers] + [(node, Role.PS) for node in self.ps]

    def tell(self, event: Any) -> list[Any]:
        new = list(self.controller.handle(event))
        self.journal.append(event)
        self.orders += new
        return new

    def run(self, seconds: float) -> list[Any]:
        """Let all nodes report each second; return what was ordered."""
        ordered: list[Any] = []
        for _ in range(round(seconds)):
            self.at_s += 1.0
            for node, role in self.nodes:
                report = self.report(node, role)
                ordered += self.tell(NodeReported(self.at_s, report, self.plan))
        return ordered

    def report(self, node: str, role: Role) -> NodeSample:
        size = self.sizes.get(node, BATCH)
        own_s = ITER_S * self.slow.get(node, 1.0) * (size / BATCH if role is Role.WORKER else 1.0)
        n_iter = max(round(1.0 / own_s), 1)
        n_sample = n_iter * size if role is Role.WORKER else 0
        at_s = self.at_s + self.ahead_s.get(node, 0.0)
        has = self.own[node].cpu if node in self.own else self.plan.role(role).cpu
        cores = min(self.demand.get(node, has), has)
        wait_s = self.wait_s if role is Role.WORKER else 0.0
        split = TimeSplit(compute_s=own_s, lookup_s=wait_s)
        return NodeSample(
            node, role, at_s, 1.0, n_iter, n_sample, split.total_s, split, cores, 100.0,
            batch_cost=self.costs.get(node),
        )  # fmt: skip

    @property
    def wait_s(self) -> float:
        """How long a worker waits for PS in an iteration: for the slowest, where one is slow."""
        slowest = max(self.slow.get(ps, 1.0) for ps in self.ps)
        return ITER_S * slowest if slowest > 1 else 0.0

    def decide(self, verdict: Verdict, **fields: Any) -> list[Any]:
        return self.tell(Decided(self.at_s, Decision(verdict, "ada", self.at_s, **fields)))

    def order(self, action: Any, **fields: Any) -> list[Any]:
        return self.decide(Verdict.MITIGATE, action=ActionChoice.of(action), **fields)

    def undo(self) -> list[Any]:
        back = self.view.undo
        return self.decide(back.verdict, action=back.action, plan=back.plan, undoes=back.undoes)

    def end(self, why_not: str = "") -> None:
        """Bring about the action that is under way, as a job master does, or fail it."""
        choice = self.controller.acting
        assert choice is not None, self.view.mitigations
        action = choice.action.action
        if isinstance(action, AdjustBatches) and not why_not:
            self.sizes, times = dict(action.samples), dict(action.accumulate)
            changed = tuple((n, b) for n, b in action.sizes if b != BATCH or n in times)
            self.tell(BatchSizesSet(self.at_s, changed, action.accumulate))
        if isinstance(action, SetSize) and not why_not:
            self.set_own({**self.own, action.node: action})
        self.tell(MitigationEnded(self.at_s, choice.decision, why_not))

    def set_own(self, sizes: dict[str, SetSize]) -> None:
        """Give nodes sizes of their own, as a job master says it: those of their role are none."""
        self.own = {
            node: each
            for node, each in sizes.items()
            if (each.cpu, each.memory_mib)
            != (self.plan.role(each.role).cpu, self.plan.role(each.role).memory_mib)
        }
        self.tell(NodeSizesSet(self.at_s, tuple(self.own.values())))

    def replace_node(self, node: str, new: str) -> None:
        """Let another node take the place of one."""
        role = Role.PS if node in self.ps else Role.WORKER
        names = self.ps if role is Role.PS else self.workers
        names[names.index(node)] = new
        self.tell(NodeStarted(self.at_s, new, role, 2.0))
        self.tell(NodeLeft(self.at_s, node, role))

    @property
    def view(self) -> Any:
        return self.controller.view()

    @property
    def statuses(self) -> list[tuple[str, str]]:
        return [(each.words, str(each.status)) for each in self.view.mitigations]

    @property
    def open(self) -> Any:
        return next((each for each in self.view.mitigations if each.is_open), None)

    def told(self, text: str) -> list[str]:
        return [line for line in self.view.story if text in line]

    @property
    def remembered(self) -> tuple[Any, ...]:
        """The actions as the history has them, oldest first."""
        told = [order.record for order in self.orders if isinstance(order, Remember)]
        return tuple({each.id: each for each in told if isinstance(each, Mitigation)}.values())

    def check_replay(self) -> None:
        """Check that the journal leads to the same state."""
        again = replay(self.journal, self.settings, policy=self.policy, stragglers=self.methods)
        assert again.view() == self.view
        assert again.story() == self.controller.story()
        assert self.remembered == self.view.mitigations


def actions(orders: list[Any]) -> list[str]:
    return [order.choice.action.words for order in orders if isinstance(order, Mitigate)]


def scales(orders: list[Any]) -> list[ResourcePlan]:
    return [order.target for order in orders if isinstance(order, Scale)]


SIZES = AdjustBatches((("worker-0", 600), ("worker-1", 600), ("worker-2", 248), ("worker-3", 600)))


def slow_job(node: str = "worker-2", seconds: float = 120, **fields) -> SlowJob:
    """Return a job in which a node has been three times as slow as the others for so long."""
    job = SlowJob(**{"sync": Sync.ASP} | fields)
    job.run(40)
    job.slow[node] = 3.0
    job.run(seconds)
    return job


def end_all(job: SlowJob, seconds: float) -> list[str]:
    """Run a job whose actions take some seconds; return what was done."""
    done = []
    for _ in range(round(seconds / 5)):
        done += actions(job.run(5))
        if job.controller.acting is not None:
            job.end()
    return done
