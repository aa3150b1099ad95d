"""AntDT's Cluster-A in simulated time: 20 workers, 8 parameter servers, stragglers by pattern and intensity.

An iteration of worker i takes its own work (proportional to its batch, with scatter, and a straggler's
sleep), the time of the slowest server, and communication. All constants come from the paper, see
`Model.of_paper`, or are named as assumptions there. Who is slow and what is done about it is decided by the
product's own controller in auto mode.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.straggler.methods import find_methods
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, BackupWorkers, KillRestart, MoveBuckets
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.solution_names import RuleName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    JobSubmitted,
    Mitigate,
    MitigationEnded,
    NodeLeft,
    NodeReported,
    NodeStarted,
    PhaseChanged,
    PlanApplied,
)

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.views.events import Event

INTENSITIES = (0.1, 0.3, 0.5, 0.8)
TABLE_III = {  # job completion times in seconds: BSP, AntDT-ND
    "worker": ((4312, 4832, 6004, 8144), (3745, 3790, 3859, 3982)),
    "server": ((4627, 6087, 7365, 8440), (3636, 3863, 3944, 4064)),
}
N_WORKER, N_PS, GLOBAL_BATCH, N_SAMPLE = 20, 8, 81_920, 3 * 45_000_000
EVEN = GLOBAL_BATCH // N_WORKER
N_ITER = N_SAMPLE / GLOBAL_BATCH
TRANSIENT_S, PERSISTENT_S = 1.5, 4.0  # SleepDuration; the sleep is this times the intensity
PERIOD_S, SLOW_S, N_TRANSIENT = 1_800.0, 900.0, 6
REPORT_EVERY = 10
RESTART_S = 120.0  # until another node is ready (figure 17 has a worker's)
FITTED_ONCE = ControllerSettings(refit_growth=100.0)  # no plan is asked for
MOVE_S = 0.1  # pause of a migration: docs/explanation/migration.md
RELIEVED = 0.1  # of its buckets, that a slow server keeps
SHARD = 100 * EVEN
EXPECTED_MAX = 1.867  # of 20 standard normal values
SLOW_WORKER, SLOW_PS = 3, 3


@dataclass(frozen=True)
class Model:
    """Means of the parts of one iteration with an even batch, and the scatter of a worker's own work."""

    work_s: float
    work_sd_s: float
    server_s: float
    other_s: float

    @classmethod
    def of_paper(cls) -> Model:
        """Derive the parts from Table III and the text, for worker stragglers under BSP and LB-BSP.

        - Without a straggler: the straight line through BSP's times, at intensity 0. It contains the greatest
          of 20 workers' times.
        - With one worker that sleeps 1.2 s or more, its time is the greatest: the time less the sleep is the
          mean of one worker. The difference of the two gives the scatter.
        - LB-BSP at 0.8 (44 % above AntDT-ND) has taken nearly all samples from that worker: the time less the
          sleep is all that is not a worker's own work. How it divides into server and communication is not in
          the paper; half each is assumed. It decides only whether a server's sleep of 0.4 s is found.
        """
        bsp_s = np.array(TABLE_III["worker"][0]) / N_ITER
        sleep_s = PERSISTENT_S * np.array(INTENSITIES)
        base_s = float(np.polyfit(INTENSITIES, bsp_s, 1)[1])
        mean_s = float((bsp_s - sleep_s)[1:].mean())
        shared_s = TABLE_III["worker"][1][3] / (1 - 0.44) / N_ITER - float(sleep_s[3])
        return cls(mean_s - shared_s, (base_s - mean_s) / EXPECTED_MAX, shared_s / 2, shared_s / 2)


class Trouble:
    """Who sleeps how long when; a restart takes a node off its machine and so from its present trouble."""

    def __init__(self, role: str, intensity: float, seed: int) -> None:
        self.role, self.intensity, self.seed = role, intensity, seed
        self.restarted_s: dict[str, float] = {}
        self.drawn: dict[int, np.ndarray] = {}

    def workers(self, at_s: float) -> np.ndarray:
        """Return the sleep of each worker in one iteration; shape (20,)."""
        sleep_s = np.zeros(N_WORKER)
        if self.role not in {"worker", "persistent worker"}:
            return sleep_s
        period, into_s = divmod(at_s, PERIOD_S)
        if into_s < SLOW_S and self.role == "worker":
            for i in self.transient(int(period)):
                if self.restarted_s.get(f"worker-{i}", -1.0) < period * PERIOD_S:
                    sleep_s[i] += TRANSIENT_S * self.intensity
        if f"worker-{SLOW_WORKER}" not in self.restarted_s:
            sleep_s[SLOW_WORKER] += PERSISTENT_S * self.intensity
        return sleep_s

    def transient(self, period: int) -> np.ndarray:
        if period not in self.drawn:
            others = [i for i in range(N_WORKER) if i != SLOW_WORKER]
            rng = np.random.default_rng((self.seed, period))
            self.drawn[period] = rng.choice(others, N_TRANSIENT, replace=False)
        return self.drawn[period]

    def servers(self) -> np.ndarray:
        """Return the sleep of each server in one iteration; shape (8,)."""
        sleep_s = np.zeros(N_PS)
        if self.role == "server" and f"ps-{SLOW_PS}" not in self.restarted_s:
            sleep_s[SLOW_PS] = PERSISTENT_S * self.intensity
        return sleep_s


@dataclass
class Replacement:
    """A node that another one takes the place of, and when that one is ready."""

    ready_s: float
    choice: MitigationChoice


class Control:
    """What ships, in auto mode: the job's controller, and what a job master makes of its orders.

    Another node starts beside one that is replaced, and takes its place when it is ready; until then the plan
    is not steady, so no report counts. The new worker has the usual batch.
    """

    def __init__(self, solution: str, sync: Sync, rule: str = RuleName.ROBUST) -> None:
        self.plan = ResourcePlan(RolePlan(N_WORKER, 2.0, 4096), RolePlan(N_PS, 2.0, 4096))
        spec = JobSpec(
            "antdt", plan=self.plan, mode=Mode.AUTO, sync=sync, policy="fixed-plan", batch_size=EVEN,
            stragglers=solution, straggler_rule=rule,
        )  # fmt: skip
        first = JobSubmitted(0.0, spec, Capacity((NodeShape(64.0, 1 << 18, 2),)), N_SAMPLE, 100_000, 16)
        self.controller = Controller(
            first, FITTED_ONCE, policy=POLICIES["fixed-plan"], stragglers=find_methods(spec)
        )
        self.workers = [f"worker-{i}" for i in range(N_WORKER)]
        self.ps = [f"ps-{i}" for i in range(N_PS)]
        self.sizes = np.full(N_WORKER, EVEN)
        self.n_backup, self.n_named, self.pause_s = 0, N_WORKER + N_PS, 0.0
        self.relieved: set[str] = set()
        self.replacing: list[Replacement] = []
        self.log: list[str] = []
        for role, names in self.names.items():
            for node in names:
                self.tell(NodeStarted(0.0, node, role, 1.0))
        self.tell(PhaseChanged(0.0, JobPhase.TRAINING))
        self.tell(PlanApplied(0.0, self.plan, 0.0))

    @property
    def names(self) -> dict[Role, list[str]]:
        return {Role.WORKER: self.workers, Role.PS: self.ps}

    def tell(self, event: Event) -> None:
        for order in self.controller.handle(event):
            if isinstance(order, Mitigate):
                self.log.append(f"{event.at_s:.0f} s: {order.choice.action.words}")
                self.begin(order.choice, event.at_s)

    def report(
        self, at_s: float, node: str, parts_s: tuple[float, float], size: int, window_s: float
    ) -> None:
        """Take one report: mean own work and exchange of an iteration, the batch, and the time of all."""
        role = Role.PS if node.startswith("ps") else Role.WORKER
        own, exchange = parts_s
        n, iter_s = REPORT_EVERY, window_s / REPORT_EVERY
        rest_s = max(iter_s - own - exchange, 0.0)
        waits = {"idle_s": rest_s} if role is Role.PS else {"peers_s": rest_s}
        split = TimeSplit(compute_s=own, lookup_s=exchange, **waits)
        sample = NodeSample(node, role, at_s, window_s, n, n * size, own + exchange + rest_s, split, 1.0, 1.0)
        self.tell(NodeReported(at_s, sample, None if self.replacing else self.plan))

    def begin(self, choice: MitigationChoice, at_s: float) -> None:
        """Carry an action out, or begin to."""
        match choice.action.action:
            case AdjustBatches(sizes=sizes):
                self.sizes = np.array([dict(sizes)[node] for node in self.workers])
                self.tell(BatchSizesSet(at_s, tuple((node, n) for node, n in sizes if n != EVEN)))
            case BackupWorkers(n=n):
                self.n_backup = n
            case MoveBuckets(ps=ps):
                self.relieved.add(ps)
                self.pause_s += MOVE_S
            case KillRestart():
                self.replacing.append(Replacement(at_s + RESTART_S, choice))
                return
            case other:
                self.tell(MitigationEnded(at_s, choice.decision, f"no physics for: {other.words}"))
                return
        self.tell(MitigationEnded(at_s, choice.decision))

    def advance(self, at_s: float, trouble: Trouble) -> list[int]:
        """Let nodes that are ready take their places; return which workers left."""
        ready = [each for each in self.replacing if each.ready_s <= at_s]
        self.replacing = [each for each in self.replacing if each.ready_s > at_s]
        left = []
        for each in ready:
            action = each.choice.action.action
            assert isinstance(action, KillRestart)
            names = self.names[action.role]
            i, new = names.index(action.node), f"{action.role}-{self.n_named}"
            names[i], self.n_named = new, self.n_named + 1
            trouble.restarted_s[f"{action.role}-{i}"] = at_s
            self.relieved.discard(action.node)
            if action.role is Role.WORKER:
                self.sizes[i] = EVEN
                left.append(i)
            else:
                self.pause_s += MOVE_S
            self.tell(NodeStarted(at_s, new, action.role, 1.0))
            self.tell(NodeLeft(at_s, action.node, action.role))
            self.tell(MitigationEnded(at_s, each.choice.decision))
        return left

    def paused_s(self) -> float:
        """Return for how long a job in step has paused since the last call."""
        pause_s, self.pause_s = self.pause_s, 0.0
        return pause_s

    def servers(self, model: Model, sleep_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the time of each server in one iteration; the others carry what a relieved one gave away.

        A sleep is that of each request, however few rows it asks for.
        """
        kept = np.where([ps in self.relieved for ps in self.ps], RELIEVED, 1.0)
        part_s = model.server_s * kept * N_PS / kept.sum() * rng.normal(1.0, 0.02, N_PS)
        return np.asarray(part_s + sleep_s)


def run_bsp(
    model: Model, solution: str, trouble: Trouble, rule: str = RuleName.ROBUST
) -> tuple[float, Control]:
    """Return the completion time of a job whose workers keep in step."""
    control, rng = Control(solution, Sync.BSP, rule), np.random.default_rng(trouble.seed)
    at_s, reported_s, done, last = 0.0, 0.0, 0.0, []
    while done < N_SAMPLE:
        work_s = np.maximum(rng.normal(model.work_s, model.work_sd_s, N_WORKER), 0.05 * model.work_s)
        times_s = work_s * control.sizes / EVEN + trouble.workers(at_s)
        server_s = control.servers(model, trouble.servers(), rng)
        first = np.argsort(times_s, kind="stable")[: N_WORKER - control.n_backup]
        at_s += times_s[first].max() + server_s.max() + model.other_s + control.paused_s()
        done += control.sizes[first].sum()
        last.append((times_s, server_s))
        control.advance(at_s, trouble)
        if len(last) == REPORT_EVERY:
            own, served = (np.mean(part, axis=0).tolist() for part in zip(*last, strict=True))
            window_s, reported_s, last = at_s - reported_s, at_s, []
            exchange_s = max(served) + model.other_s
            for node, size, mean_s in zip([*control.workers], control.sizes.tolist(), own, strict=True):
                control.report(at_s, node, (mean_s, exchange_s), size, window_s)
            for ps, mean_s in zip([*control.ps], served, strict=True):
                control.report(at_s, ps, (mean_s, 0.0), 0, window_s)
    return at_s, control


def run_asp(model: Model, solution: str, trouble: Trouble, *, is_even: bool = False) -> tuple[float, Control]:
    """Return the completion time of a job whose workers do not wait for each other.

    Data are given out in shards of 100 batches, or, if `is_even`, divided among the workers at the start.
    """
    control, rng = Control(solution, Sync.ASP), np.random.default_rng(trouble.seed)
    n_left = N_SAMPLE if not is_even else 0
    held = np.full(N_WORKER, N_SAMPLE // N_WORKER if is_even else 0)
    counts, sums_s, reported_s = np.zeros(N_WORKER, int), np.zeros(N_WORKER), np.zeros(N_WORKER)
    queue = [(0.0, i) for i in range(N_WORKER)]
    end_s = 0.0
    while queue:
        at_s, i = heapq.heappop(queue)
        for which in control.advance(at_s, trouble):
            if not is_even:
                n_left, held[which] = n_left + held[which], 0
        if held[i] <= 0 and n_left > 0:
            held[i] = min(SHARD, n_left)
            n_left -= held[i]
        if held[i] <= 0:
            end_s = max(end_s, at_s)
            continue
        work_s = max(rng.normal(model.work_s, model.work_sd_s), 0.05 * model.work_s)
        work_s += trouble.workers(at_s)[i]
        server_s = control.servers(model, trouble.servers(), rng)
        held[i] -= EVEN
        counts[i] += 1
        sums_s[i] += work_s
        then_s = at_s + work_s + server_s.max() + model.other_s
        if counts[i] % REPORT_EVERY == 0:
            parts_s = float(sums_s[i]) / REPORT_EVERY, float(server_s.max() + model.other_s)
            window_s, reported_s[i], sums_s[i] = float(then_s - reported_s[i]), then_s, 0.0
            control.report(at_s, control.workers[i], parts_s, EVEN, window_s)
            if i < N_PS:
                control.report(at_s, control.ps[i], (float(server_s[i]), 0.0), 0, window_s)
        heapq.heappush(queue, (then_s, i))
    return end_s, control
