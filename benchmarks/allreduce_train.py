"""The program that `allreduce.py` and `dd.py` run: one model, trained elastically or by torch's own DDP.

    python allreduce_train.py {elastic,ddp} FOLDER --rows N --batch B [--seconds S] [--slow NAME]

It appends a line for each step to FOLDER/steps-PID: the machine's monotonic time, rows, rank, members, CPU
seconds. With `--seconds` it ends after so many seconds of steps. The node of the name, or of DDP the rank,
waits before each backward pass as long as a whole step computes: a processor of half the speed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from dlrover_nb.client.elastic import Elastic

if TYPE_CHECKING:
    from collections.abc import Iterator

INIT_LIMIT_S = (
    15.0  # processes that torchrun restarts sometimes do not find each other, and are restarted again
)
N_COLUMN, N_TEST = 39, 20_000
WIDTHS = (512, 256, 64)  # 167,000 parameters: 670 KB of gradients a step


def data(n_row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and labels that a linear rule with noise explains."""
    drawn = torch.Generator().manual_seed(7)
    x = torch.randn(n_row + N_TEST, N_COLUMN, generator=drawn)
    rule = torch.randn(N_COLUMN, generator=drawn)
    noise = torch.randn(n_row + N_TEST, generator=drawn) * 2
    return x, (x @ rule + noise > 0).float()


def network() -> nn.Module:
    """Return the model, with the same parameters in each process."""
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((N_COLUMN, *WIDTHS)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTHS[-1], 1))


def ddp_rows(n_row: int, batch: int) -> Iterator[torch.Tensor]:
    """Yield this rank's rows, pass after pass, as torch's distributed sampler shares them."""
    for epoch in itertools.count():
        order = torch.randperm(n_row, generator=torch.Generator().manual_seed(epoch))
        own = order[dist.get_rank() :: dist.get_world_size()]
        yield from (own[at : at + batch] for at in range(0, len(own) - batch + 1, batch))


class Slow:
    """Makes this process half as fast: it waits as long as it computes, by its forward passes."""

    backward = 3.0  # a whole step beside its forward pass, about

    def __init__(self, *, is_on: bool) -> None:
        self._is_on, self._since_s = is_on, 0.0

    def begin(self) -> None:
        """Note the begin of a forward pass."""
        self._since_s = time.perf_counter()

    def wait(self) -> None:
        """Wait after a forward pass."""
        if self._is_on:
            # it stands for computing that a slower processor would do
            time.sleep(self.backward * (time.perf_counter() - self._since_s))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("elastic", "ddp"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--steps", type=int, default=1 << 60)
    parser.add_argument("--slow", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    x, y = data(args.rows)
    model = network()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    names = {os.environ.get("DLROVER_NB_NODE"), os.environ.get("RANK")}
    slow = Slow(is_on=bool(args.slow) and args.slow in names)
    steps = (args.folder / f"steps-{os.getpid()}").open("w", buffering=1)
    begun_s = None
    if args.kind == "elastic":
        job = Elastic(
            model,
            optimizer,
            n_row=args.rows,
            batch_size=args.batch,
            checkpoints=str(args.folder / "checkpoints"),
        )
        for rows in job.batches():
            slow.begin()
            loss = loss_of(model(x[rows]), y[rows])
            slow.wait()
            job.step(loss)
            now_s = time.monotonic()
            begun_s = begun_s or now_s
            steps.write(f"{now_s} {len(rows)} {job.rank} {job.size} {time.process_time()}\n")
            if now_s > begun_s + args.seconds:
                os._exit(0)  # a process that only measures speed
        if job.rank == 0:
            tell_quality(model, x, y, args.folder)
        return
    dist.init_process_group("gloo", timeout=timedelta(seconds=INIT_LIMIT_S))
    wrapped = DistributedDataParallel(model)
    for n_step, rows in enumerate(ddp_rows(args.rows, args.batch)):
        optimizer.zero_grad()
        slow.begin()
        loss = loss_of(wrapped(x[rows]), y[rows])
        slow.wait()
        torch.autograd.backward(loss)
        optimizer.step()
        now_s = time.monotonic()
        begun_s = begun_s or now_s
        steps.write(f"{now_s} {len(rows)} {dist.get_rank()} {dist.get_world_size()} {time.process_time()}\n")
        if now_s > begun_s + args.seconds:
            os._exit(0)
        if n_step + 1 == args.steps:
            break
    if dist.get_rank() == 0:
        tell_quality(model, x, y, args.folder)
    dist.destroy_process_group()


def loss_of(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss."""
    return functional.binary_cross_entropy_with_logits(out.squeeze(1), labels)


def tell_quality(model: nn.Module, x: torch.Tensor, y: torch.Tensor, folder: Path) -> None:
    """Write the loss on rows that nobody trained."""
    with torch.no_grad():
        loss = float(loss_of(model(x[-N_TEST:]), y[-N_TEST:]))
    (folder / "quality").write_text(str(loss))


if __name__ == "__main__":
    main()
