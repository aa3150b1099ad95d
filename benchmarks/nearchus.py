"""NEARCHUS against Optimus and the best fixed plan, on the paper's jobs, budgets and links (its section V).

Training speed and completion time (JCT) of single jobs on clusters A (100 cores, 1 Gbit/s) and B (300 cores,
50 Gbit/s), and queueing of 40 jobs that arrive at random on cluster A. `nearchus_jobs` is the model of a job.

Optimus is the product's (`core.baselines`): nodes of 5 cores, fitted to 20 profiled plans and to what ran,
one node each 10 minutes. NEARCHUS is `core.bottleneck` with cores of single nodes, one change each 8 minutes
(the paper: stable after 5 to 8). Both begin with 1 PS, 2 workers and 15 cores. FA-BF is the best plan of
nodes of 5 cores, known beforehand. A change stops training for a minute; the paper gives no number.

    python benchmarks/nearchus.py [--hours 4] [--seeds 5]

`speed_gain_percent_*` are of ResNet-50 and Inception-V3 on cluster A, as the paper's headline;
`jct_percent_low` of ResNet-50 on A, `jct_percent_high` of NasNetLarge on B; `queueing_percent` of NEARCHUS
over FA-BF. A job takes `--hours` on FA-BF's plan, as the paper gives no lengths.

Where it differs from the paper:

- Speed on A. Against FA-BF it gains as in the paper (ResNet-50 18 %, there 19.9; MobileNet 21 %, there 18.3).
  Against Optimus it gains less, because Optimus comes near FA-BF here: its term in w/p describes a full link
  well where profiles are exact and cover plans of all sizes. The paper says that its profiles missed the full
  links. Its figures are those of an Optimus that stays at 2 PS: `speed_gain_percent_two_ps_*` is that.
- JCT. NEARCHUS is not sooner at its budget here. By the law of Figs. 3 and 4 a worker of 5 cores uses 94 %,
  just below the threshold of 95 %, so that after each growth by half several workers are added one at a time,
  and it makes more changes than Optimus; in the paper it made fewer.
- Speed on B. At the end of a job of 4 hours the search is still under way, for the same reason. A longer one
  ends 1 to 3 % above FA-BF, after nearly 90 changes; in the paper the speeds are alike too.
- Queueing. It is shorter than in the paper, for Optimus too: the lengths and budgets of its trace are not
  given, and with those assumed here more jobs find 15 cores free at once.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from nearchus_jobs import MODELS, A, B, Cluster, Model, Nodes, measured, plan_of, steps_per_s, total

from dlrover_nb.core.baselines import JobState, optimus
from dlrover_nb.core.bottleneck import Remedy, Step, diagnose, fruitless, wanted
from dlrover_nb.core.bottleneck.remedy_plans import balanced, moved, scaled, spread, start_cores
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.plans.job_queues import JobQueues, WaitingJob

TICK_S = 30.0
RESTART_S = 60.0
NODE_CORES = 5.0
NEARCHUS_S, OPTIMUS_S = 480.0, 600.0
N_PROFILE = 20
START_CORES = 15.0
HEADLINE = ("ResNet-50", "Inception-V3")
ROLES = (Role.PS, Role.WORKER, Role.WORKER)
PAPER = {"speed": (71.4, 129.1), "jct": (-37.2, -61.6), "queueing": -67.8}


@dataclass(frozen=True)
class Job:
    name: str
    model: Model
    budget_cores: float
    n_step: float
    at_s: float = 0.0


class Policy(Protocol):
    every_s: float

    def start(self) -> Nodes: ...

    def next(self, nodes: Nodes, most_cores: float) -> Nodes: ...


class Fixed:
    """FA-BF: the best plan of 5-core nodes from the start, once all of it is free."""

    every_s = math.inf

    def __init__(self, job: Job, cluster: Cluster) -> None:
        self._nodes = best_fixed(job.model, job.budget_cores, cluster)

    def start(self) -> Nodes:
        return self._nodes

    def next(self, nodes: Nodes, most_cores: float) -> Nodes:
        del most_cores
        return nodes


class Optimus:
    every_s = OPTIMUS_S

    def __init__(self, job: Job, cluster: Cluster, seed: int) -> None:
        self._job, self._cluster = job, cluster
        pairs = fixed_counts(cluster.cores)
        chosen = np.random.default_rng(seed).choice(len(pairs), min(N_PROFILE, len(pairs)), replace=False)
        self._samples = {pairs[i]: self._sample(fixed_nodes(*pairs[i])) for i in chosen}

    def start(self) -> Nodes:
        return fixed_nodes(1, 2)

    def next(self, nodes: Nodes, most_cores: float) -> Nodes:
        plan = plan_of(nodes)
        self._samples[plan.ps.count, plan.worker.count] = self._sample(nodes)
        n_node = int(most_cores / NODE_CORES + 1e-9)
        bounds = PlanBounds(n_node, n_node, (NODE_CORES,), (NODE_CORES,), quota_cpu=n_node * NODE_CORES)
        capacity = Capacity((NodeShape(NODE_CORES, 4096, n_node),))
        state = JobState(plan, tuple(self._samples.values()), int(self._job.n_step) + 1, bounds, capacity, 1)
        after = optimus(state)
        return nodes if after is None else fixed_nodes(after.ps.count, after.worker.count)

    def _sample(self, nodes: Nodes) -> ProfileSample:
        speed = steps_per_s(self._job.model, nodes, self._cluster)
        return ProfileSample(0.0, 60.0, plan_of(nodes), 1, speed)


class Nearchus:
    every_s = NEARCHUS_S

    def __init__(self, job: Job, cluster: Cluster) -> None:
        self._job, self._cluster = job, cluster
        self._steps: list[Step] = []
        self._last: Remedy | None = None

    def start(self) -> Nodes:
        cores = start_cores(self._job.budget_cores, START_CORES / self._job.budget_cores)
        return tuple(zip(ROLES, cores, strict=True))

    def next(self, nodes: Nodes, most_cores: float) -> Nodes:
        use = measured(self._job.model, nodes, self._cluster)
        found = diagnose(use)
        assert found is not None
        self._steps.append(Step(self._last, use.cores()))
        in_vain = fruitless(self._steps, found.tuning)
        for remedy in wanted(found):
            after = self._with(remedy, nodes, most_cores)
            if remedy not in in_vain and after != nodes:
                self._last = remedy
                return after
        self._steps.pop()  # nothing was changed: the next measurement is of the same nodes
        return nodes

    def _with(self, remedy: Remedy, nodes: Nodes, most_cores: float) -> Nodes:
        match remedy:
            case Remedy.SCALE_UP:
                cores = [cores for _, cores in nodes]
                more = scaled(cores, max(min(1.5 * sum(cores), most_cores), sum(cores)))
                return tuple((role, each) for (role, _), each in zip(nodes, more, strict=True))
            case Remedy.MOVE_CORES:
                return self._moved(nodes)
            case Remedy.ADD_WORKER:
                return one_more(nodes, Role.WORKER)
            case Remedy.ADD_PS:
                return one_more(nodes, Role.PS)

    def _moved(self, nodes: Nodes) -> Nodes:
        for change in (balanced, moved):
            cores = change(measured(self._job.model, nodes, self._cluster).nodes)
            nodes = tuple((role, each) for (role, _), each in zip(nodes, cores, strict=True))
        return nodes


def one_more(nodes: Nodes, role: Role) -> Nodes:
    """Return the nodes with one more of a role, whose cores are spread evenly."""
    own = [cores for each, cores in nodes if each is role]
    rest = tuple(node for node in nodes if node[0] is not role)
    return (*rest, *((role, each) for each in spread([*own, 0.0])))


def fixed_nodes(n_ps: int, n_worker: int) -> Nodes:
    return ((Role.PS, NODE_CORES),) * n_ps + ((Role.WORKER, NODE_CORES),) * n_worker


def fixed_counts(cores: float) -> list[tuple[int, int]]:
    n_node = int(cores / NODE_CORES)
    return [(p, w) for p in range(1, n_node) for w in range(1, n_node - p + 1)]


def best_fixed(model: Model, cores: float, cluster: Cluster) -> Nodes:
    plans = [fixed_nodes(*pair) for pair in fixed_counts(cores)]
    return max(plans, key=lambda nodes: steps_per_s(model, nodes, cluster))


# jobs on one cluster


@dataclass
class Life:
    """What became of a job."""

    job: Job
    policy: Policy
    nodes: Nodes = ()
    started_s: float = 0.0
    ended_s: float = 0.0
    decides_s: float = 0.0
    trains_s: float = 0.0
    n_done: float = 0.0
    n_change: int = 0
    speeds: list[float] = field(default_factory=list)

    @property
    def jct_s(self) -> float:
        return self.ended_s - self.job.at_s

    @property
    def queued_s(self) -> float:
        return self.started_s - self.job.at_s


def run(jobs: list[Job], cluster: Cluster, policy: str, seed: int) -> tuple[list[Life], int]:
    """Run jobs first come first served to their end; return them, and the longest waiting queue."""
    lives = {job.name: Life(job, policy_of(policy, job, cluster, seed)) for job in jobs}
    queues, coming, now_s, longest = JobQueues(cluster.cores), sorted(jobs, key=lambda j: j.at_s), 0.0, 0
    while len(queues.finished) < len(jobs):
        while coming and coming[0].at_s <= now_s:
            life = lives[coming.pop(0).name]
            life.nodes = life.policy.start()
            queues = queues.submit(WaitingJob(life.job.name, total(life.nodes), life.job.budget_cores))
        queues = _started(queues, lives, now_s)
        longest = max(longest, len(queues.waiting))
        for each in queues.running:
            queues = _advanced(queues, lives[each.name], cluster, now_s)
        now_s += TICK_S
    return list(lives.values()), longest


def _started(queues: JobQueues, lives: dict[str, Life], now_s: float) -> JobQueues:
    ran = {each.name for each in queues.running}
    queues = queues.admit()
    for each in queues.running:
        if each.name not in ran:
            life = lives[each.name]
            life.started_s, life.decides_s = now_s, now_s + life.policy.every_s
    return queues


def _advanced(queues: JobQueues, life: Life, cluster: Cluster, now_s: float) -> JobQueues:
    """Decide for a job and train it for a tick."""
    name = life.job.name
    if now_s >= life.decides_s:
        life.decides_s = now_s + life.policy.every_s
        most = min(life.job.budget_cores, queues.job(name).cores + queues.free_cores)
        after = life.policy.next(life.nodes, most)
        if after != life.nodes:
            queues = queues.resize(name, total(after))
            assert queues.job(name).cores >= total(after) - 1e-6
            life.nodes, life.n_change, life.trains_s = after, life.n_change + 1, now_s + RESTART_S
    if now_s < life.trains_s:
        return queues
    speed = steps_per_s(life.job.model, life.nodes, cluster)
    life.speeds.append(speed)
    life.n_done += speed * TICK_S
    if life.n_done < life.job.n_step:
        return queues
    life.ended_s = now_s + TICK_S
    return queues.finish(name)


def policy_of(name: str, job: Job, cluster: Cluster, seed: int) -> Policy:
    if name == "optimus":
        return Optimus(job, cluster, seed)
    return Nearchus(job, cluster) if name == "nearchus" else Fixed(job, cluster)


# figures


@dataclass(frozen=True)
class Compared:
    """NEARCHUS over Optimus, in percent: median over profiles of Optimus.

    `over_two_ps` is the gain in speed over 2 PS, with all other nodes of the budget as workers.
    """

    speed: float
    jct: float
    over_two_ps: float


def single(model: Model, cluster: Cluster, hours: float, n_seed: int) -> Compared:
    fixed = steps_per_s(model, best_fixed(model, cluster.cores, cluster), cluster)
    job = Job(model.name, model, cluster.cores, fixed * hours * 3600)
    ours = run([job], cluster, "nearchus", 0)[0][0]
    theirs = [run([job], cluster, "optimus", seed)[0][0] for seed in range(n_seed)]
    speed = statistics.median(max(life.speeds) for life in theirs)
    jct_s = statistics.median(life.jct_s for life in theirs)
    two_ps = fixed_nodes(2, int(cluster.cores / NODE_CORES) - 2)
    best = max(ours.speeds)
    found = Compared(
        100 * (best / speed - 1),
        100 * (ours.jct_s / jct_s - 1),
        100 * (best / steps_per_s(model, two_ps, cluster) - 1),
    )
    used = 100 * speed * model.core_s / cluster.cores
    print(
        f"{cluster.name} {model.name:13} best steps/s: FA-BF {fixed:7.3f}  Optimus {speed:7.3f}  "
        f"NEARCHUS {best:7.3f} ({found.speed:+.1f} %); workers of Optimus use {used:.0f} % of "
        f"the budget; JCT h: {jct_s / 3600:.2f} -> {ours.jct_s / 3600:.2f} ({found.jct:+.1f} %); changes "
        f"{statistics.median(life.n_change for life in theirs):g} -> {ours.n_change}; "
        f"last {words(ours.nodes)}"
    )
    return found


def words(nodes: Nodes) -> str:
    plan: ResourcePlan = plan_of(nodes)
    roles: tuple[RolePlan, ...] = (plan.worker, plan.ps)
    return " + ".join(f"{role.count} x {role.cpu:.2f}" for role in roles)


def trace(cluster: Cluster, seed: int, n_job: int = 40) -> list[Job]:
    """Return 40 arrivals, one an hour on average, each one of 30 jobs: 5 models, 3 budgets, 2 lengths.

    The lengths keep the cluster from overload, as the paper says of its trace: with FA-BF's plans 70 % of the
    cores are reserved on average.
    """
    rng, at_s, jobs = np.random.default_rng(seed), 0.0, []
    for i in range(n_job):
        at_s += float(rng.exponential(3600.0))
        model = MODELS[int(rng.integers(len(MODELS)))]
        budget, hours = float(rng.choice((25.0, 50.0, 100.0))), float(rng.choice((0.8, 1.6)))
        speed = steps_per_s(model, best_fixed(model, budget, cluster), cluster)
        jobs.append(Job(f"j{i}-{model.name}", model, budget, speed * hours * 3600, at_s))
    return jobs


def queueing(n_seed: int) -> dict[str, float]:
    """Return the change in percent of the mean times of many jobs over FA-BF's."""
    means: dict[str, list[tuple[float, float, int]]] = {"fa-bf": [], "optimus": [], "nearchus": []}
    for seed in range(n_seed):
        jobs = trace(A, seed)
        for name, rows in means.items():
            lives, longest = run(jobs, A, name, seed)
            queued = statistics.fmean(life.queued_s for life in lives)
            rows.append((queued, statistics.fmean(life.jct_s for life in lives), longest))
    sums = {
        name: [statistics.fmean(column) for column in zip(*rows, strict=True)] for name, rows in means.items()
    }
    for name, (queued_s, jct_s, longest) in sums.items():
        print(
            f"A 40 jobs {name:9} queued {queued_s / 60:6.1f} min, JCT {jct_s / 3600:.2f} h, "
            f"most waiting {longest:g}"
        )
    over = {name: 100 * (row[0] / sums["fa-bf"][0] - 1) for name, row in sums.items()}
    jct = 100 * (sums["nearchus"][1] / sums["optimus"][1] - 1)
    return {
        "queueing_percent": over["nearchus"],
        "queueing_percent_optimus": over["optimus"],
        "many_jct_percent": jct,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=4.0, help="length of a single job on FA-BF's plan")
    parser.add_argument("--seeds", type=int, default=5, help="profiles of Optimus, and traces of many jobs")
    options = parser.parse_args()
    found = {
        (cluster.name, model.name): single(model, cluster, options.hours, options.seeds)
        for cluster in (A, B)
        for model in MODELS
    }
    gains = sorted(found["A", name].speed for name in HEADLINE)
    line: dict[str, object] = {"benchmark": "nearchus", "hours": options.hours, "seeds": options.seeds}
    line |= {"speed_gain_percent_low": gains[0], "speed_gain_percent_high": gains[1]}
    two_ps = sorted(found["A", name].over_two_ps for name in HEADLINE)
    line |= {"speed_gain_percent_two_ps_low": two_ps[0], "speed_gain_percent_two_ps_high": two_ps[1]}
    line |= {
        "jct_percent_low": found["A", "ResNet-50"].jct,
        "jct_percent_high": found["B", "NasNetLarge"].jct,
    }
    line |= queueing(options.seeds)
    print("paper:", json.dumps(PAPER))
    print(json.dumps({key: round(v, 1) if isinstance(v, float) else v for key, v in line.items()}))


if __name__ == "__main__":
    main()
