"""Workers of two quotas in step: AntDT-DD beside LB-BSP and even batches, in turn within one job.

The model is that of `dd_auto`: a full mini-batch fits into memory and not much more; each has the fixed cost
that any has, of some milliseconds. Two workers train it, by all-reduce or with a parameter server; one of
them has a third of the other's cores from its start, by a quota of the kernel: so it measures its
mini-batches under it. Their answers are computed from these costs and from measured speeds (`by_speed`), and
are in effect in turn, within one job of real processes: what else the machine does then meets all of them.

`over_lb_bsp` and `over_even` are medians of the rounds' ratios of rows by wall time. Those `by_cpu` hold on a
busy machine too: a step takes what the slower worker's processor time takes of its quota.

Called by `dd.py`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dd_auto import BATCH, CORES, METHODS, N_EPOCH, SLOW_CORES, Wide, wait

from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.connect import connect
from dlrover_nb.core.master.external.job.step_shares import Part, by_speed, even
from dlrover_nb.core.runtime.process.limits import ROOT, own_group, quota_us
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    import torch

    from dlrover_nb.core.client.handle import JobHandle

FAST, SLOW = "worker-0", "worker-1"
RIVALS = ("lb_bsp", "dd")
QUOTAS = {FAST: CORES, SLOW: SLOW_CORES}
MEMORY_MIB = {Sync.BSP: 580, Sync.ALLREDUCE: 520}  # an even batch fits, and hardly more
SPEED_S, SETTLE_S, MEASURE_S = 4.0, 1.5, 5.0
LIMIT_S = 60.0
FOLDER_VAR = "DD_NOTES"


class Noted(Wide):
    """The same with narrower rows, which notes moment, rows and processor time of each mini-batch.

    Its arrays stay below 32 MiB. Above that glibc gets the pages of each from the kernel anew, and a row
    costs 2.7 times as much: even batches of `dd_auto` lie just there.
    """

    width, fixed_s, n_more = 1 << 13, 0.0, 8

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        if self.training:
            path = Path(os.environ[FOLDER_VAR], os.environ.get("DLROVER_NB_NODE", str(os.getpid())))
            with path.open("a", encoding="utf-8") as notes:
                notes.write(f"{time.monotonic()} {len(dense)} {time.process_time()}\n")
        return super().forward(embedded, dense)


def measured(n_round: int, folder: Path, sync: Sync) -> dict[str, object]:
    """Return what DD is over the others, in rows by wall time and by processor time."""
    folder.mkdir()
    spec = JobSpec(
        f"dd-{sync}",
        model=ModelSpec(embedding_dim=4),
        plan=ResourcePlan(RolePlan(2, CORES, MEMORY_MIB[sync]), RolePlan(1, 0.3, 512)),
        sync=sync,
        batch_size=BATCH,
        n_epoch=N_EPOCH,
        mode=Mode.MANUAL,
        stragglers=SolutionName.ANTDT_DD,
    )
    os.environ[FOLDER_VAR] = str(folder)
    cluster = connect("local", cpus=8)
    try:
        handle = cluster.submit(spec, model=Noted)
        slow_down(spec.name)
        wait(handle, lambda now: len(now.batch_costs) == len(QUOTAS))
        apply(handle, even(spec, [FAST, SLOW]))
        answers = answers_of(spec, handle)
        rounds = [in_turn(handle, folder, answers, is_back=bool(n % 2)) for n in range(n_round)]
        handle.stop()
    finally:
        cluster.shutdown(force=True)
    return figures(rounds, answers)


def slow_down(job: str) -> None:
    """Give the slow worker its quota as soon as it is there."""
    own, is_v2 = own_group("cpu")
    parent = (ROOT if is_v2 else own) / "dlrover-nb"
    end_s, groups = time.monotonic() + LIMIT_S, list[Path]()
    while not groups:
        if time.monotonic() > end_s:
            raise SystemExit("no control group of the worker: this needs the right to make some")
        groups = list(parent.glob(f"{job}-{SLOW}-*"))
        time.sleep(0.05)
    quota, period = quota_us(SLOW_CORES)
    if is_v2:
        (groups[0] / "cpu.max").write_text(f"{quota} {period}")
    else:
        (groups[0] / "cpu.cfs_quota_us").write_text(str(quota))


def apply(handle: JobHandle, parts: dict[str, Part]) -> None:
    """Let each worker have its part of a step from now on."""
    sizes = {node: part.size for node, part in parts.items()}
    times = {node: part.times for node, part in parts.items() if part.times > 1}
    handle.decide(Mitigate(batches=sizes, accumulate=times or None, why="to be measured"))


def answers_of(spec: JobSpec, handle: JobHandle) -> dict[str, dict[str, Part]]:
    """Return what each method gives the workers, by their speeds with even parts."""
    counts_at: dict[tuple[str, float], tuple[int, float]] = {}
    end_s = time.monotonic() + SPEED_S
    while time.monotonic() < end_s:
        now = handle.snapshot()
        for view in now.nodes:
            sample = view.last
            if view.id in QUOTAS and sample is not None and sample.split.compute_s:
                counts_at[view.id, sample.at_s] = sample.n_sample, sample.n_iter * sample.split.compute_s
        time.sleep(0.2)
    speeds = {}
    for node in QUOTAS:
        counts = [each for (name, _), each in counts_at.items() if name == node]
        speeds[node] = sum(n for n, _ in counts) / sum(s for _, s in counts)
    spec = replace(spec, sync=Sync.ALLREDUCE)  # with the bounds that workers of ours measure
    now_parts, costs = even(spec, [FAST, SLOW]), handle.snapshot().batch_costs
    sys.stderr.write(f"rows/s {speeds}; {costs}\n")
    by = {
        m: by_speed(replace(spec, stragglers=METHODS[m]), [*QUOTAS], speeds, now_parts, costs) for m in RIVALS
    }
    return {"even": now_parts, **by}


def in_turn(
    handle: JobHandle, folder: Path, answers: dict[str, dict[str, Part]], *, is_back: bool
) -> dict[str, tuple[float, float]]:
    """Return samples/s of each method, by wall time and by processor time, one after the other."""
    measured_rates = {}
    for method in reversed(answers) if is_back else answers:
        apply(handle, answers[method])
        time.sleep(SETTLE_S)
        since_s = time.monotonic()
        time.sleep(MEASURE_S)
        pids = {view.id: view.pid for view in handle.snapshot().nodes}
        if not QUOTAS.keys() <= pids.keys():
            raise SystemExit(f"a worker ended while {method} was measured; there are {sorted(pids)}")
        files = {node: folder / str(pids[node] or node) for node in QUOTAS}
        measured_rates[method] = rates(files, since_s, answers[method])
        sys.stderr.write(f"{method} {measured_rates[method]}\n")
    return measured_rates


def rates(files: dict[str, Path], since_s: float, parts: dict[str, Part]) -> tuple[float, float]:
    """Return samples/s by wall time, and as the quotas alone would give them."""
    wall, step_s = 0.0, 0.0
    for node, part in parts.items():
        lines = (line.split() for line in files[node].read_text().splitlines())
        notes = [(float(at), int(rows), float(cpu)) for at, rows, cpu in lines if float(at) >= since_s]
        (began_s, _, cpu_before_s), (end_s, _, cpu_s) = notes[0], notes[-1]
        n_row = sum(rows for _, rows, _ in notes[:-1])
        wall += n_row / (end_s - began_s)
        step_s = max(step_s, (cpu_s - cpu_before_s) / n_row * part.n_row / QUOTAS[node])
    return wall, sum(part.n_row for part in parts.values()) / step_s


def figures(
    rounds: list[dict[str, tuple[float, float]]], answers: dict[str, dict[str, Part]]
) -> dict[str, object]:
    """Return the medians of the rounds' ratios, and what the workers were given."""

    def over(method: str, way: int) -> float:
        return round(statistics.median(each["dd"][way] / each[method][way] for each in rounds), 3)

    return {
        "over_lb_bsp": over("lb_bsp", 0),
        "over_even": over("even", 0),
        "over_lb_bsp_by_cpu": over("lb_bsp", 1),
        "over_even_by_cpu": over("even", 1),
        "samples_per_s": {m: round(statistics.median(each[m][0] for each in rounds)) for m in answers},
        "parts": {
            method: {node: f"{part.times} x {part.size}" for node, part in parts.items()}
            for method, parts in answers.items()
        },
    }
