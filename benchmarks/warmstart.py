"""Accuracy of warm starts, leave-one-out over simulated histories of jobs.

Generation of a history (no real one with final plans is public):
- Owners run families of jobs; a family has one model kind, code, table set, batch and a typical dataset.
  Its speed follows Eqs. 1-6 with a term for contention among workers. Coefficients depend on the traits
  (gradients on kind and dense bytes, lookups on table rows, and so on) times two kinds of noise: 15 % per
  family, shared by its jobs, and 5 % per job, which is unpredictable.
- Recurring jobs are runs of a family with another dataset (15 % larger or smaller, nothing else changes);
  experiments halve, keep or double embedding width and batch, and vary dense size by 30 % and dataset by
  70 %; a novel job is the only one of its family.
- An owner's jobs run on nodes of the owner's sizes. The final plan is the best one under the truth over
  1-60 workers and 1-24 PS: for half of the families the fastest within the family's budget per hour (the
  owner's, plus or minus 25 %), for the others the cheapest that meets the family's deadline; of plans within
  2 % the cheapest. Then the user's own changes: 5 % on either count, and 3 % of the jobs end on counts that
  are off by half at random.
- Four settings: *one user* (as in DLRover-RM section 6.2, whose 92 % and 85 % are a month of one user's
  jobs: 4 families, 25 % experiments), the same with 5 % novel jobs, a *cluster* (6 owners, 12 families,
  25 % experiments, 10 % novel), and a cluster with 30 % novel jobs. The keys of the last line are those
  of one user.

Beside these, one user's history under conditions that are less kind: *20 % noise* on the coefficients of each
job, and *careless* users, of whose jobs a third has a meaningless name, a third another owner or none, and a
third tables declared four times too large. *Strangers* are jobs of other owners, families and sizes with the
same kinds of model, half of them with built-in code as that of the history, half with code that is not known:
none should be given a start.

No two jobs are exact copies: all dataset sizes differ. The warm start gets neither budgets nor deadlines, so
a novel job's are unpredictable. *Ceiling* is a predictor that knows the truth behind all traits and families,
but not the noise of the single job: no predictor can exceed it.

    python benchmarks/warmstart.py [--seeds 5 --jobs 150]
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from lengths import parsed, print_figures

from dlrover_nb.core.structs.job.job import DEFAULT_PLAN
from dlrover_nb.core.structs.job.tuning import StartMethod
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob
from dlrover_nb.core.warmstart import WarmStartSettings, accuracy, into_space, warm_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Starter = Callable[[JobTraits, list[PastJob]], ResourcePlan]

CPUS = (4.0, 8.0, 16.0)
BOUNDS = PlanBounds(max_workers=60, max_ps=24, worker_cpus=CPUS, ps_cpus=CPUS)
CAPACITY = Capacity((NodeShape(64, 512 * 1024, 100),))
GRID = np.column_stack(
    [
        axis.ravel().astype(float)
        for axis in np.meshgrid(np.arange(1, 61), np.arange(1, 25), CPUS, CPUS, indexing="ij")
    ]
)
COST = 0.034 * (GRID[:, 0] * GRID[:, 2] + GRID[:, 1] * GRID[:, 3]) + 0.0045 * (
    16 * GRID[:, 0] + 32 * GRID[:, 1]
)
KINDS = {"wide_deep": 1.0, "dcn": 1.6, "xdeepfm": 2.5}
NEAR = 0.02  # plans that differ by less are equal for their user
GROUPS = ("recurring", "experiment", "novel")


@dataclass(frozen=True)
class Setting:
    """Composition of a history: owners, families, shares of recurring jobs, experiments and novel ones."""

    n_owner: int
    n_family: int
    shares: tuple[float, float, float]
    noise: float = 0.05  # of each coefficient of a single job
    careless: float = 0.0  # share of jobs with a meaningless name; the same of owners, and of table sizes


SETTINGS = {
    "one user": Setting(1, 4, (0.75, 0.25, 0.0)),
    "one user, 5 % novel": Setting(1, 4, (0.7, 0.25, 0.05)),
    "cluster": Setting(6, 12, (0.65, 0.25, 0.10)),
    "cluster, 30 % novel": Setting(6, 12, (0.45, 0.25, 0.30)),
    "one user, 20 % noise": Setting(1, 4, (0.75, 0.25, 0.0), noise=0.2),
    "one user, careless": Setting(1, 4, (0.75, 0.25, 0.0), careless=1 / 3),
}


@dataclass(frozen=True)
class Family:
    """Common traits of a family's jobs; `effects` is its noise on the six coefficients."""

    traits: JobTraits
    effects: Array
    budget: float
    cpus: tuple[float, float]  # of a worker and of a PS: the owner's node sizes
    deadline_s: float | None = None


@dataclass(frozen=True)
class Made:
    """A job of the history, its group, and the plan without the job's own noise."""

    past: PastJob
    group: str
    ideal: ResourcePlan


def speeds(traits: JobTraits, effects: Array) -> Array:
    """Return the true samples/s of every plan of the grid."""
    w, p, worker_cpu, ps_cpu = GRID.T
    size, m = traits.dense_bytes, traits.batch_size
    tables = 1 + np.log10(traits.n_table_row) / 7
    columns = (
        3e-9 * KINDS[traits.model] * size * m / worker_cpu,
        2e-8 * size * w / (p * ps_cpu),
        8e-10 * size * w / p,
        6e-7 * tables * m * traits.embedding_dim / p,
        np.full(len(w), 0.02),
        8e-4 * w,
    )
    return np.asarray(w * m / sum(e * c for e, c in zip(effects, columns, strict=True)))


def best(traits: JobTraits, effects: Array, family: Family) -> Array:
    """Return the row of the family's best plan for these traits; of plans within 2 % of it, the cheapest."""
    speed = np.where((GRID[:, 2:] == family.cpus).all(axis=1), speeds(traits, effects), 0.0)
    if family.deadline_s is None:
        speed = np.where(family.budget >= COST, speed, 0.0)
        enough = (1 - NEAR) * speed.max()
    else:
        enough = min(traits.n_sample / family.deadline_s, (1 - NEAR) * speed.max())
    index = np.flatnonzero(speed >= enough)
    return np.asarray(GRID[index[COST[index].argmin()]])


def as_plan(row: Array, hand: Array) -> ResourcePlan:
    """Return the plan after the user's changes of its counts."""
    w, p = (max(round(n * h), 1) for n, h in zip(row[:2], hand, strict=True))
    return ResourcePlan(
        RolePlan(min(w, 60), float(row[2]), 16 * 1024), RolePlan(min(p, 24), float(row[3]), 32 * 1024)
    )


@dataclass(frozen=True)
class Owner:
    """An owner's settings for all jobs: sizes of nodes, and the typical budget per hour."""

    name: str
    cpus: tuple[float, float]
    budget: float


def new_owner(rng: np.random.Generator, i: int) -> Owner:
    return Owner(
        f"team-{i}", (float(rng.choice(CPUS)), float(rng.choice(CPUS))), float(rng.lognormal(np.log(12), 0.4))
    )


def new_family(rng: np.random.Generator, owners: list[Owner]) -> Family:
    subject = (
        f"{rng.choice(['ctr', 'cvr', 'feed', 'ads', 'search'])}-{rng.choice(['main', 'rank', 'recall'])}"
    )
    owner, n_table = owners[rng.integers(len(owners))], int(rng.integers(8, 60))
    traits = JobTraits(
        model=str(rng.choice(list(KINDS))),
        n_table=n_table,
        embedding_dim=n_table * int(rng.choice([8, 16, 32])),
        n_table_row=int(rng.lognormal(np.log(2e7), 1)),
        dense_bytes=int(rng.lognormal(np.log(4e6), 0.7)),
        batch_size=int(rng.choice([256, 512, 1024])),
        n_sample=int(rng.lognormal(np.log(5e8), 0.8)),
        owner=owner.name,
        name=subject,
        code_hash=f"{rng.integers(1 << 32):08x}",
        data_hash=f"{rng.integers(1 << 32):08x}",
    )
    effects, budget = rng.lognormal(0, 0.15, 6), float(np.clip(owner.budget * rng.lognormal(0, 0.25), 5, 40))
    family = Family(traits, effects, budget, owner.cpus)
    if rng.random() < 0.5:
        return family
    row = (best(traits, effects, family) == GRID).all(axis=1)
    usual = float(speeds(traits, effects)[row][0])
    return replace(family, deadline_s=traits.n_sample / usual * rng.uniform(1.0, 1.5))


def new_traits(rng: np.random.Generator, family: Family, group: str) -> JobTraits:
    t, free = family.traits, group == "experiment"
    factors = rng.choice([0.5, 1.0, 2.0], 2) if free else np.ones(2)
    dense, data = rng.lognormal(0, 0.3 if free else 1e-9), rng.lognormal(0, 0.7 if free else 0.15)
    return replace(
        t,
        embedding_dim=int(t.embedding_dim * factors[0]),
        batch_size=int(t.batch_size * factors[1]),
        dense_bytes=int(t.dense_bytes * dense),
        n_sample=int(t.n_sample * data),
        name=f"{t.name}-{rng.integers(1000)}",
    )


def history(seed: int, n_job: int, setting: Setting) -> list[Made]:
    """Draw a history as described in the module's docstring."""
    rng = np.random.default_rng(seed)
    owners = [new_owner(rng, i) for i in range(setting.n_owner)]
    families = [new_family(rng, owners) for _ in range(setting.n_family)]
    popularity = rng.dirichlet(np.full(setting.n_family, 1.5))
    made = []
    for _ in range(n_job):
        group = str(rng.choice(GROUPS, p=setting.shares))
        family = (
            new_family(rng, owners) if group == "novel" else families[rng.choice(len(families), p=popularity)]
        )
        traits = new_traits(rng, family, group)
        row = best(traits, family.effects * rng.lognormal(0, setting.noise, 6), family)
        hand = rng.lognormal(0, 0.05, 2) * (rng.choice([0.5, 1.5], 2) if rng.random() < 0.03 else 1.0)
        final = as_plan(row, hand)
        ideal = as_plan(best(traits, family.effects, family), np.ones(2))
        traits = carelessly(rng, traits, setting.careless)
        made.append(Made(PastJob(traits, DEFAULT_PLAN, final), group, ideal))
    return made


def carelessly(rng: np.random.Generator, traits: JobTraits, share: float) -> JobTraits:
    """Return traits as a careless user leaves them; the truth does not change."""
    if not share:
        return traits
    name = str(rng.choice(["test", "untitled", "run"])) if rng.random() < share else traits.name
    owner = str(rng.choice(["", "root"])) if rng.random() < share else traits.owner
    n_table_row = traits.n_table_row * int(rng.choice([1, 4])) if rng.random() < share else traits.n_table_row
    return replace(traits, name=name, owner=owner, n_table_row=n_table_row)


def strangers(seed: int, n_job: int, setting: Setting) -> tuple[int, int]:
    """Return how many strangers there are, and how many of them a history gives a start."""
    past = [job.past for job in history(seed, n_job, setting)]
    rng = np.random.default_rng(10_000 + seed)
    codes = {job.traits.model: job.traits.code_hash for job in past}
    given = 0
    for _ in range(n_job):
        traits = new_family(rng, [new_owner(rng, 99)]).traits
        code = codes.get(traits.model, "") if rng.random() < 0.5 else ""
        given += (
            warm_start(replace(traits, code_hash=code), past, into=into_space(BOUNDS, CAPACITY)) is not None
        )
    return n_job, given


def started(traits: JobTraits, past: list[PastJob], *, method: StartMethod) -> ResourcePlan:
    """Return the warm start's plan, or the default where there is none."""
    settings = WarmStartSettings(method=method)
    found = warm_start(traits, past, into=into_space(BOUNDS, CAPACITY), settings=settings)
    return found.plan if found else DEFAULT_PLAN


def nearest(traits: JobTraits, past: list[PastJob]) -> ResourcePlan:
    """Return the final plan of the most similar job."""
    settings = WarmStartSettings(method=StartMethod.PAPER, k=1)
    found = warm_start(traits, past, into=into_space(BOUNDS, CAPACITY), settings=settings)
    return found.plan if found else DEFAULT_PLAN


STARTERS: dict[str, Starter] = {
    "cold": lambda traits, past: DEFAULT_PLAN,  # noqa: ARG005 - the only starter without inputs
    "nearest": nearest,
    "paper": partial(started, method=StartMethod.PAPER),
    "ours": partial(started, method=StartMethod.INTERPOLATE),
}


def both(start: ResourcePlan, final: ResourcePlan) -> tuple[float, float]:
    pairs = ((start.worker.count, final.worker.count), (start.ps.count, final.ps.count))
    workers, ps = (accuracy(a, b) for a, b in pairs)
    return workers, ps


def leave_one_out(made: list[Made]) -> dict[str, Array]:
    """Return each starter's accuracy for each job: shape (n_job, 2), workers and PS."""
    past = [job.past for job in made]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*STARTERS, "ceiling")}
    for i, job in enumerate(made):
        others, final = past[:i] + past[i + 1 :], job.past.final
        for name, starter in STARTERS.items():
            found[name].append(both(starter(job.past.traits, others), final))
        found["ceiling"].append(both(job.ideal, final))
    return {name: np.array(rows) for name, rows in found.items()}


def measure(seeds: int, n_job: int, setting: Setting) -> dict[str, dict[str, Array]]:
    """Return the mean accuracies (workers, PS) over seeds, per starter and group of jobs."""
    rows: dict[str, list[Array]] = {}
    groups: list[str] = []
    for seed in range(100, 100 + seeds):  # smaller ones were used in development
        made = history(seed, n_job, setting)
        groups += [job.group for job in made]
        for name, values in leave_one_out(made).items():
            rows.setdefault(name, []).append(values)
    kinds = np.array(groups)
    masks = {"all": np.ones(len(kinds), bool), **{g: kinds == g for g in GROUPS if (kinds == g).any()}}
    stacked = {name: np.concatenate(values) for name, values in rows.items()}
    return {
        name: {g: values[mask].mean(axis=0) for g, mask in masks.items()} for name, values in stacked.items()
    }


def worst_seed(seeds: int, n_job: int, setting: Setting) -> list[float]:
    """Return the accuracies (workers, PS) of the seed with the worst mean of both."""
    each = [
        leave_one_out(history(seed, n_job, setting))["ours"].mean(axis=0) for seed in range(100, 100 + seeds)
    ]
    return [round(float(v), 4) for v in min(each, key=sum)]


def show(name: str, found: dict[str, dict[str, Array]]) -> None:
    groups = list(next(iter(found.values())))
    print(f"{name:<22}" + "".join(f"{g:>16}" for g in groups) + "  (workers / PS)")
    for starter, values in found.items():
        print(f"  {starter:<20}" + "".join(f"{values[g][0]:>9.3f} /{values[g][1]:.3f}" for g in groups))


def rounded(found: dict[str, dict[str, Array]]) -> dict[str, list[float]]:
    return {name: [round(float(v), 4) for v in values["all"]] for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=150)
    options = parsed(parser, seeds=5)
    found = {name: measure(options.seeds, options.jobs, setting) for name, setting in SETTINGS.items()}
    for name, values in found.items():
        show(name, values)
    main_ = rounded(found["one user"])
    counted = [
        strangers(seed, options.jobs, SETTINGS["one user"]) for seed in range(100, 100 + options.seeds)
    ]
    n_stranger, n_given = map(sum, zip(*counted, strict=True))
    worst = worst_seed(options.seeds, options.jobs, SETTINGS["one user"])
    print(f"strangers given a start: {n_given} of {n_stranger}; worst seed of one user: {worst}")
    print_figures(
        "warmstart",
        {
            "data": "simulated history of one user, as in DLRover-RM section 6.2",
            "worker_accuracy": main_["ours"][0],
            "ps_accuracy": main_["ours"][1],
            "cold_worker_accuracy": main_["cold"][0],
            "cold_ps_accuracy": main_["cold"][1],
            "paper_worker_accuracy": main_["paper"][0],
            "paper_ps_accuracy": main_["paper"][1],
            "workers_and_ps": {name: rounded(values) for name, values in found.items()},
            "worst_seed_worker_accuracy": worst[0],
            "worst_seed_ps_accuracy": worst[1],
            "n_stranger": n_stranger,
            "n_stranger_given_a_start": n_given,
            "n_job": options.jobs,
            "n_seed": options.seeds,
        },
    )


if __name__ == "__main__":
    main()
