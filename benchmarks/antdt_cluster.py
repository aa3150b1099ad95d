"""AntDT's Cluster-A in simulated time: 20 workers, 8 parameter servers, stragglers by pattern and intensity.

An iteration of worker i takes its own work (proportional to its batch, with scatter, and a straggler's
sleep), the time of the slowest server, and communication. All constants come from the paper, see
`Model.of_paper`, or are named as assumptions there. Findings, solutions and the arbiter are the product's
own.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.straggler.arbiter import Facts, arbitrate
from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, RATIO, SHORT_WINDOW_S, heat
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, BackupWorkers, KillRestart, MoveBuckets
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.actions import Action

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
REPORT_EVERY, DECIDE_EVERY_S = 10, 300.0
RESTART_S = 120.0  # of a worker, with data sharding (figure 17)
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


class Watch:
    """AntDT's monitor: means over two windows against λ times the mean of the others (`detect.heat`)."""

    def __init__(self) -> None:
        self.rows: dict[Role, list[tuple[float, NodeSample]]] = {role: [] for role in Role}

    def observe(self, sample: NodeSample, at_s: float) -> None:
        rows = self.rows[sample.role]
        rows.append((at_s, sample))
        while rows[0][0] < at_s - LONG_WINDOW_S:
            del rows[0]

    def forget(self, node: str, role: Role) -> None:
        self.rows[role] = [row for row in self.rows[role] if row[1].node != node]

    def findings(self, at_s: float) -> tuple[Straggler, ...]:
        """Return who is slow over the short window, and who over both."""
        found: list[Straggler] = []
        for role in Role:
            short = self.slow(role, Pace.TRANSIENT, at_s)
            lasting = self.slow(role, Pace.PERSISTENT, at_s)
            found += short + [each for each in lasting if each.node in {other.node for other in short}]
        return tuple(found)

    def slow(self, role: Role, pace: Pace, at_s: float) -> list[Straggler]:
        window_s = SHORT_WINDOW_S if pace is Pace.TRANSIENT else LONG_WINDOW_S
        first_s = at_s - window_s
        if first_s < 0:
            return []
        rows = [(t - first_s, row.node, own_s(row)) for t, row in self.rows[role] if first_s <= t < at_s]
        seen = heat(rows, window_s, RATIO)
        return [
            Straggler(node, role, pace, own[-1], own[-1] / ratio[-1], window_s, first_s, "ratio")
            for node, own, ratio in zip(seen.nodes, seen.iter_s, seen.ratios, strict=True)
            if ratio[-1] >= RATIO
        ]

    def speeds(self, at_s: float) -> dict[str, float]:
        """Return samples over seconds of own work in the short window, by worker."""
        work: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for t, row in self.rows[Role.WORKER]:
            if t >= at_s - SHORT_WINDOW_S:
                work[row.node][0] += row.n_sample
                work[row.node][1] += row.n_iter * own_s(row)
        return {node: n_sample / seconds for node, (n_sample, seconds) in work.items()}


def own_s(row: NodeSample) -> float:
    return row.iter_s - row.split.lookup_s


@dataclass
class Control:
    """Reports, decisions every 5 minutes, and the job's adjustable state."""

    solution: str
    sync: Sync
    workers: tuple[str, ...] = tuple(f"worker-{i}" for i in range(N_WORKER))
    ps: tuple[str, ...] = tuple(f"ps-{i}" for i in range(N_PS))
    sizes: np.ndarray = field(default_factory=lambda: np.full(N_WORKER, EVEN))
    n_backup: int = 0
    relieved: set[str] = field(default_factory=set)
    monitor: Watch = field(default_factory=Watch)
    iteration: dict[str, int | None] = field(default_factory=dict)
    last_at_s: dict[str, float] = field(default_factory=dict)
    next_s: float = DECIDE_EVERY_S
    log: list[str] = field(default_factory=list)

    def report(self, at_s: float, node: str, parts_s: tuple[float, float], size: int, iteration: int) -> None:
        """Take one report: mean own work and exchange of an iteration, the batch, and how many were done."""
        role = Role.PS if node.startswith("ps") else Role.WORKER
        own, exchange = parts_s
        split = TimeSplit(compute_s=own, lookup_s=exchange)
        iter_s, n = own + exchange, REPORT_EVERY
        sample = NodeSample(node, role, at_s, n * iter_s, n, n * size, iter_s, split, 1.0, 1.0)
        self.monitor.observe(sample, at_s)
        if role is Role.WORKER:
            self.iteration[node] = iteration

    def decide(self, at_s: float) -> tuple[Action, ...]:
        """Return the actions that the arbiter admits now."""
        self.next_s += DECIDE_EVERY_S
        found, speeds = self.monitor.findings(at_s), self.monitor.speeds(at_s)
        states = tuple(
            WorkerState(node, int(size), speeds.get(node))
            for node, size in zip(self.workers, self.sizes, strict=True)
        )
        situation = Situation(self.sync, states, self.ps, frozenset(self.relieved), n_backup=self.n_backup)
        facts = Facts(
            at_s,
            {node: self.iteration.get(node) for node in self.workers},
            self.ps,
            GLOBAL_BATCH,
            found,
            frozenset(self.relieved),
            last_at_s=dict(self.last_at_s),
        )
        orders = arbitrate(SOLUTIONS[self.solution](found, situation), facts).orders
        self.log += [f"{at_s:.0f} s: {order.action.words}" for order in orders]
        return tuple(order.action for order in orders)

    def apply(self, action: Action, at_s: float, trouble: Trouble) -> float:
        """Carry an action out; return for how long a job in step pauses."""
        match action:
            case AdjustBatches():
                sizes = dict(action.sizes)
                self.sizes = np.array([sizes[node] for node in self.workers])
            case BackupWorkers():
                self.n_backup = action.n
            case MoveBuckets():
                self.relieved.add(action.ps)
                self.last_at_s[action.ps] = at_s
                return MOVE_S
            case KillRestart():
                self.forget(action.node, action.role)
                trouble.restarted_s[action.node] = at_s
                self.last_at_s[action.node] = at_s
                return MOVE_S if action.role is Role.PS else RESTART_S  # another PS starts beside it
        return 0.0

    def forget(self, node: str, role: Role) -> None:
        self.monitor.forget(node, role)
        self.iteration[node] = max(i or 0 for i in self.iteration.values())
        self.relieved.discard(node)

    def servers(self, model: Model, sleep_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the time of each server in one iteration; the others carry what a relieved one gave away.

        A sleep is that of each request, however few rows it asks for.
        """
        kept = np.where([ps in self.relieved for ps in self.ps], RELIEVED, 1.0)
        part_s = model.server_s * kept * N_PS / kept.sum() * rng.normal(1.0, 0.02, N_PS)
        return np.asarray(part_s + sleep_s)


def run_bsp(model: Model, solution: str, trouble: Trouble) -> tuple[float, Control]:
    """Return the completion time of a job whose workers keep in step."""
    control, rng = Control(solution, Sync.BSP), np.random.default_rng(trouble.seed)
    at_s, done, n, last = 0.0, 0.0, 0, []
    while done < N_SAMPLE:
        work_s = np.maximum(rng.normal(model.work_s, model.work_sd_s, N_WORKER), 0.05 * model.work_s)
        times_s = work_s * control.sizes / EVEN + trouble.workers(at_s)
        server_s = control.servers(model, trouble.servers(), rng)
        first = np.argsort(times_s, kind="stable")[: N_WORKER - control.n_backup]
        at_s += times_s[first].max() + server_s.max() + model.other_s
        done += control.sizes[first].sum()
        n += 1
        last.append((times_s, server_s))
        if n % REPORT_EVERY == 0:
            own, served = (np.mean(part, axis=0) for part in zip(*last, strict=True))
            for node, size, mean_s in zip(control.workers, control.sizes, own, strict=True):
                exchange_s = float(served.max() + model.other_s)
                control.report(at_s, node, (float(mean_s), exchange_s), int(size), n)
            for ps, mean_s in zip(control.ps, served, strict=True):
                control.report(at_s, ps, (float(mean_s), 0.0), 0, n)
            last = []
        if at_s >= control.next_s and not last:
            pauses_s = [control.apply(action, at_s, trouble) for action in control.decide(at_s)]
            at_s += max(pauses_s, default=0.0)
    return at_s, control


def run_asp(model: Model, solution: str, trouble: Trouble, *, is_even: bool = False) -> tuple[float, Control]:
    """Return the completion time of a job whose workers do not wait for each other.

    Data are given out in shards of 100 batches, or, if `is_even`, divided among the workers at the start.
    """
    control, rng = Control(solution, Sync.ASP), np.random.default_rng(trouble.seed)
    n_left = N_SAMPLE if not is_even else 0
    held = np.full(N_WORKER, N_SAMPLE // N_WORKER if is_even else 0)
    counts, sums_s = np.zeros(N_WORKER, int), np.zeros(N_WORKER)
    queue = [(0.0, i) for i in range(N_WORKER)]
    end_s = 0.0
    while queue:
        at_s, i = heapq.heappop(queue)
        if at_s >= control.next_s:
            for action in control.decide(at_s):
                assert isinstance(action, KillRestart | MoveBuckets)
                away_s = control.apply(action, at_s, trouble)
                if isinstance(action, KillRestart) and action.role is Role.WORKER:
                    which = control.workers.index(action.node)
                    n_left, held[which] = (n_left, held[which]) if is_even else (n_left + held[which], 0)
                    queue = [(at_s + away_s if j == which else t, j) for t, j in queue]
                    heapq.heapify(queue)
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
            control.report(at_s, control.workers[i], parts_s, EVEN, int(counts[i]))
            sums_s[i] = 0.0
            if i < N_PS:
                control.report(at_s, control.ps[i], (float(server_s[i]), 0.0), 0, int(counts[i]))
        heapq.heappush(queue, (then_s, i))
    return end_s, control
