"""Run a lab: every contender on the same jobs, seed by seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import usercode
from dlrover_nb.core.basics.numerics import one_thread
from dlrover_nb.core.driver.policies import find_policy
from dlrover_nb.core.lab.cluster_run import ClusterRun
from dlrover_nb.core.lab.lab_file import OwnPolicy, policy_of
from dlrover_nb.core.lab.measured_speeds import read_tables
from dlrover_nb.core.lab.results import LabResult, scored
from dlrover_nb.core.lab.traces import chosen, read_trace
from dlrover_nb.core.lab.workload import described_jobs, past_jobs_again, traced_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.lab.lab_file import Contender, LabFile, Workload
    from dlrover_nb.core.lab.results import RunResult
    from dlrover_nb.core.lab.traces import TraceRow
    from dlrover_nb.core.lab.workload import LabJob, PastRun

MODEL_FREE = frozenset({"fixed-plan", "optimus", "elastic-scheduling", "nearchus"})


def run_lab(
    lab: LabFile,
    *,
    history: Sequence[PastRun] = (),
    progress: Callable[[str, int], None] = lambda *_: None,
) -> LabResult:
    """Run all contenders of a lab on each of its seeds.

    Parameters
    ----------
    history
        Runs of the history, where the workload is of it.
    progress
        Called before each run with the contender's name and the seed.

    Raises
    ------
    InvalidValueError
        When a contender's policy is not there, or the trace, the tables or the history hold no job.
    CapacityError
        When a job's request does not fit on the empty machines.
    """
    policies = {each.name: policy(each) for each in lab.contenders}
    source = _Source(lab.workload, history)
    workloads = {seed: source.jobs(seed) for seed in lab.seeds}
    runs: dict[str, list[RunResult]] = {each.name: [] for each in lab.contenders}
    with one_thread():
        for contender in lab.contenders:
            for seed, jobs in workloads.items():
                progress(contender.name, seed)
                decide = policies[contender.name]
                run = ClusterRun(jobs, lab.machines, contender, decide, world=lab.world, seed=seed)
                runs[contender.name].append(run.run(seed))
    first = runs[lab.contenders[0].name]
    jobs = workloads[lab.seeds[0]]
    return LabResult(
        name=lab.name,
        workload=lab.workload.words,
        n_job=len(jobs),
        seeds=lab.seeds,
        scores=tuple(scored(runs[each.name], first) for each in lab.contenders),
        runs=tuple(run for own in runs.values() for run in own),
        notes=lab.notes,
        published=lab.published,
        currency=jobs[0].spec.prices.currency,
    )


def policy(contender: Contender) -> OwnPolicy:
    """Return the policy of a contender: its function, one by name, or one to import as ``module:name``."""
    if contender.own is not None:
        return contender.own
    if usercode.is_import(contender.policy):
        return policy_of(usercode.load(contender.policy, None))
    return OwnPolicy(find_policy(contender.policy), reads_model=contender.policy not in MODEL_FREE)


class _Source:
    """The jobs of a workload by seed; files are read once."""

    def __init__(self, workload: Workload, history: Sequence[PastRun]) -> None:
        self._workload, self._history = workload, history
        self._tables = read_tables(Path(workload.tables)) if workload.tables else {}
        self._rows: tuple[TraceRow, ...] = ()
        if workload.trace:
            self._rows = read_trace(Path(workload.trace), workload.columns)

    def jobs(self, seed: int) -> tuple[LabJob, ...]:
        """Return the jobs of one seed, in the order of their arrival."""
        workload, rng = self._workload, np.random.default_rng(seed)
        if workload.history_days is not None:
            return past_jobs_again(self._history, workload, rng)
        if self._rows:
            rows = chosen(self._rows, workload.jobs, workload.days, rng)
            return traced_jobs(rows, workload, self._tables, rng)
        return described_jobs(workload, self._tables, rng)
