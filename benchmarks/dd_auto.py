"""Workers of two quotas with parameter servers: AntDT-DD beside LB-BSP and even batches, as real processes.

A model of one's own keeps so much of each row until the backward pass, and has such a fixed cost per
mini-batch, as one on a real device does: a full mini-batch fits, and not much more. Two workers in step have
a PS; one of them gets a third of the other's quota. All methods train the same rows with the same global
batch, so that LB-BSP cannot give the fast worker more than fits, and DD lets it compute several mini-batches
for one update. `samples_per_s` counts from the time at which what a method does has settled; ratios are
medians of rounds.

Called by `dd.py --auto-rounds`.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from straggler_runs import LIMIT_S, LOOK_S

from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.commands.requests import Pin
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

METHODS = {"even": SolutionName.NONE, "lb_bsp": SolutionName.LB_BSP, "dd": SolutionName.ANTDT_DD}
BATCH, N_EPOCH = 256, 200
CORES, SLOW_CORES = 0.6, 0.2
MEMORY_MIB = 1100  # of which an even batch takes what the libraries leave, and hardly more fits
SETTLE_S, MEASURE_S, WINDOW_S = 35.0, 15.0, 5.0
FIXED_S = 0.003  # of processor time of each mini-batch, as the start of kernels on a device
WIDTH = 1 << 15  # numbers that each row keeps for the backward pass, several times


def spin(cpu_s: float) -> None:
    """Use processor time: to sleep would cost nothing where a quota stops the process anyhow."""
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass


class Wide(torch.nn.Module):
    """A model whose activations take most of a worker's memory, with a fixed cost per mini-batch."""

    width, fixed_s, n_more = WIDTH, FIXED_S, 0

    def __init__(self, columns: Any) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(columns.n_numeric, 16)
        self.scale = torch.nn.Parameter(torch.linspace(-1, 1, self.width))
        self.out = torch.nn.Linear(16, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        if self.training:
            spin(self.fixed_s)
        inner = torch.tanh(self.inner(dense) + embedded.sum((1, 2)).unsqueeze(1))
        wide = torch.sin(inner.repeat(1, self.width // 16) * self.scale)
        with torch.no_grad():  # takes time of each row, and no memory
            for _ in range(self.n_more):
                torch.sin(wide)
        mixed = torch.sigmoid(wide) * wide
        return (self.out(inner) + mixed.mean(1, keepdim=True)).squeeze(1)


def measured(n_round: int) -> dict[str, object]:
    """Return samples/s of all methods, and what DD is over the others."""
    rates: dict[str, list[float]] = {method: [] for method in METHODS}
    last: dict[str, str] = {}
    for number in range(n_round):
        for method in METHODS if number % 2 else reversed(METHODS):
            rate, last[method] = one_run(method, number)
            rates[method].append(rate)
            sys.stderr.write(f"{method} {rate:.0f} samples/s; {last[method]}\n")
    ratios = {
        f"auto_over_{method}": round(
            statistics.median(a / b for a, b in zip(rates["dd"], each, strict=True)), 3
        )
        for method, each in rates.items()
        if method != "dd"
    }
    return {
        **ratios,
        "auto_samples_per_s": {method: round(statistics.median(each)) for method, each in rates.items()},
        "auto_actions": last,
    }


def one_run(method: str, number: int) -> tuple[float, str]:
    """Return the samples/s of one job, and the last action against its straggler."""
    plan = ResourcePlan(RolePlan(2, CORES, MEMORY_MIB), RolePlan(1, 0.3, 512))
    spec = JobSpec(
        f"dd-{method.replace('_', '-')}-{number}",
        model=ModelSpec(embedding_dim=4),
        plan=plan,
        sync=Sync.BSP,
        batch_size=BATCH,
        n_epoch=N_EPOCH,
        mode=Mode.AUTO,
        policy="fixed-plan",
        stragglers=METHODS[method],
        straggler_window_s=WINDOW_S,
        checkpoint_every_s=600.0,
    )
    cluster = connect("local", cpus=8)
    try:
        handle = cluster.submit(spec, model=Wide)
        wait(handle, trains)
        handle.decide(Pin(worker_memory_mib=MEMORY_MIB, why="a device has the memory that it has"))
        handle.decide(Mitigate(cores={"worker-1": SLOW_CORES}, why="a device of another kind"))
        wait(handle, has_two_kinds)
        time.sleep(SETTLE_S)
        began, began_s = handle.snapshot(), time.monotonic()
        time.sleep(MEASURE_S)
        end, end_s = handle.snapshot(), time.monotonic()
        actions = [each.words for each in end.mitigations if each.status.value == "applied"]
        n_row = end.train.n_sample_done - began.train.n_sample_done
        handle.stop()
        return n_row / (end_s - began_s), actions[-1] if actions else "nothing"
    finally:
        cluster.shutdown(force=True)


def wait(handle: JobHandle, holds: Callable[[JobSnapshot], bool]) -> None:
    """Wait until a job is so far."""
    end_s = time.monotonic() + LIMIT_S
    while not holds(now := handle.snapshot()):
        if now.phase.is_final or time.monotonic() > end_s:
            raise SystemExit(f"the job did not come so far: {now.phase}: {now.message}")
        time.sleep(LOOK_S)


def trains(now: JobSnapshot) -> bool:
    """Whether both workers have trained some batches."""
    workers = [n for n in now.nodes if n.id.startswith("worker") and n.last and n.last.n_iter]
    return len(workers) == 2 and now.train.n_sample_done > 0


def has_two_kinds(now: JobSnapshot) -> bool:
    """Whether two workers train, one of them with the smaller quota."""
    return trains(now) and any(abs(n.cpu - SLOW_CORES) < 0.01 for n in now.nodes if n.id.startswith("worker"))
