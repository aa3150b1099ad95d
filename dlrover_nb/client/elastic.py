"""Elastic all-reduce for torch programs: processes come and go, and every row is trained once.

::

    from dlrover_nb.client.elastic import Elastic

    job = Elastic(model, optimizer, batch_size=512)
    for rows in job.batches():            # the next rows of this process
        job.step(loss_of(model(x[rows]), y[rows]))

Each step trains the mean over the rows of all processes, as one process with all of them would. Outside of a
job the same program trains alone. Parameters are the same in all processes after each step; so each of them
holds a copy of the job's state, and a process that is lost takes nothing along.
"""

from __future__ import annotations

import io
import time
from functools import partial
from typing import TYPE_CHECKING

import torch

from .batch_trial import BatchTrial
from .exchange import Steps, note_busy
from .group import TIMEOUT_S, Group, LeftError
from .job import batch_size
from .rows import Rows
from .session import session
from .shards import Shard, Source

if TYPE_CHECKING:
    from collections.abc import Iterator


class RowsOf:
    """The numbers of a shard's rows, and how many of them were taken and are known to count.

    Parameters
    ----------
    shard
        The shard, with its rows in the order of the data.
    is_shuffled
        Whether they are shuffled, in the same way by each process that gets the shard.
    """

    def __init__(self, shard: Shard, *, is_shuffled: bool) -> None:
        self.shard = shard
        self.grant = 0 if shard.lease is None else shard.lease.key[1]
        self._first = 0 if shard.lease is None else shard.lease.end - len(shard)
        self._n_taken = self._n_done = 0
        self.end = self._first + len(shard)
        self._rows = torch.arange(shard.start, shard.stop)
        if is_shuffled:
            seed = hash((shard.seed, shard.epoch, shard.start))  # of numbers it is the same everywhere
            order = torch.Generator().manual_seed(seed)
            self._rows = self._rows[torch.randperm(len(self._rows), generator=order)]
        self._rows = self._rows[self._first : self.end]

    @property
    def n_left(self) -> int:
        """Rows that are not taken."""
        return len(self.shard) - self._n_taken

    @property
    def place(self) -> tuple[int, int]:
        """Its grant, and the row before which all are taken."""
        return self.grant, self._first + self._n_taken

    def take(self, size: int) -> torch.Tensor:
        """Return the numbers of the next rows."""
        rows = self._rows[self._n_taken : self._n_taken + size]
        self._n_taken += len(rows)
        return rows

    def confirm(self, n_row: int) -> None:
        """Count the rows before this one as done."""
        more = n_row - self._first - self._n_done
        if more > 0:
            self.shard.done(more)
            self._n_done += more
            self._n_taken = max(self._n_taken, self._n_done)

    def rewind(self) -> None:
        """Take again what is not done."""
        self._n_taken = self._n_done


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters whose gradients are summed, in one tensor."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("the model has no parameters to train; set requires_grad on some")
    device = next(iter(parameters.values())).device
    for name, p in parameters.items():
        if p.dtype is not torch.float32 or p.device != device:
            raise ValueError(
                f"parameters must be float32 on one device, got {name} with {p.dtype} on {p.device}; use "
                "model.float() and model.to(device) before the optimizer is made"
            )
    return list(parameters.values())


class Elastic:
    """Trains a model in as many processes as the job has.

    Parameters
    ----------
    model, optimizer
        The module and the optimizer of its parameters; embeddings must be dense (``sparse=False``).
    n_row
        Rows of the data; in a job they may be left out, and are compared with the job's where given.
    batch_size
        Rows of one mini-batch outside of a job; a job has its own.
    shuffle
        Whether rows are shuffled within their shards.
    epochs
        Passes over the data outside of a job.
    checkpoint_every_s, checkpoints
        Seconds between checkpoints against the loss of all processes at once, 0 for none, and their folder
        (see `dlrover_nb.client.checkpoint`), which all processes should reach.
    backend, timeout_s
        torch's backend, and the seconds after which a member that does not answer counts as lost.
    """

    def __init__(  # noqa: PLR0913 - what a program may choose, by keyword
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        n_row: int | None = None,
        batch_size: int = 512,
        shuffle: bool = True,
        epochs: int = 1,
        checkpoint_every_s: float = 60.0,
        checkpoints: str | None = None,
        backend: str = "gloo",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._model, self._optimizer, self._batch_size = model, optimizer, batch_size
        self._parameters = _trained(model)
        self._n = sum(p.numel() for p in self._parameters)
        self._device = self._parameters[0].device
        self._rows = Rows(Source(n_row, epochs=epochs), partial(RowsOf, is_shuffled=shuffle))
        self._group: Group | None = None
        if (joined := session()) is not None:
            self._group = Group(
                joined,
                dump=self._dump,
                load=self._load,
                seek=self._rows.seek,
                checkpoints=checkpoints,
                backend=backend,
                device=self._device,
                timeout_s=timeout_s,
            )
            self._steps = Steps(self._group, self._rows, bind=self._bind, save_every_s=checkpoint_every_s)
        self._has_left = self._is_complete = False
        self._flat = torch.zeros(0)
        self._taken = torch.zeros(0)
        self._trial, self._n_part = BatchTrial(), 1  # into how many each mini-batch of this step is divided
        self._n_row = self._n_batch = 0  # of this step
        self._loss = self._since_s = 0.0

    @property
    def rank(self) -> int:
        """Rank of this process now; it may change between two steps."""
        return 0 if self._group is None else self._group.member.rank

    @property
    def is_complete(self) -> bool:
        """Whether all rows are trained: not where the job stops before, or goes on without this process."""
        return self._is_complete

    @property
    def size(self) -> int:
        """Number of processes that train now."""
        return 1 if self._group is None else self._group.member.size

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the rows of mini-batches, int64 [n], each to be given to `step`, until all are trained."""
        try:
            is_over = self._begin()
            while not is_over and not self._has_left:
                rows = self._rows.take(self._next_size())
                if rows is not None:
                    self._taken, self._since_s = rows, time.perf_counter()
                    yield rows
                    if len(self._taken):
                        raise RuntimeError(
                            "rows of job.batches were not trained by job.step; give it their loss, and leave "
                            "out steps of your own optimizer or trainer (to skip rows: job.step(0 * loss))"
                        )
                else:
                    is_over = self._complete()
            self._is_complete = is_over
        except LeftError:
            pass  # this process is not needed any more
        finally:
            self._rows.close()
            if self._group is not None:
                self._group.close()

    def step(self, loss: torch.Tensor) -> None:
        """Train a mini-batch; the parameters change once the mini-batches of a step are complete.

        Parameters
        ----------
        loss
            Mean over the rows that `batches` has yielded last.
        """
        n_row, first = len(self._taken), self._parameters[0].grad
        self._taken = self._taken[:0]
        if first is None or first.data_ptr() != self._flat.data_ptr():
            raise RuntimeError("job.step clears gradients itself; leave out optimizer.zero_grad")
        torch.autograd.backward(loss * n_row)
        self._loss += float(loss.detach()) * n_row
        took_s = time.perf_counter() - self._since_s
        note_busy(n_row, took_s)
        self._trial.note(n_row, took_s)
        self._n_row, self._n_batch = self._n_row + n_row, self._n_batch + 1
        if self._n_batch >= self._n_accumulate():
            try:
                self._complete()
            except LeftError:  # `batches` ends by it
                self._has_left = True

    # parts

    def _next_size(self) -> int:
        """Return the rows of the next mini-batch: in the first steps fewer ones, to know what it costs."""
        size, joined = batch_size(self._batch_size), session()
        if joined is None:
            return size
        self._trial.is_on = bool(joined.state().get("measures"))
        if self._trial.cost is not None and not joined.batch_cost:
            fixed_s, row_s = self._trial.cost
            joined.batch_cost = {"fixed_s": fixed_s, "row_s": row_s}
        if not self._n_batch:
            self._n_part = self._trial.parts(size)
        return max(size // self._n_part, 1)

    def _begin(self) -> bool:
        if self._group is None:
            self._bind()
        else:
            self._steps.begin()
        return False

    def _bind(self) -> None:
        """Let the gradients of all parameters lie in one tensor, with room for the tail of a step."""
        n_tail = 0 if self._group is None else self._group.n_tail
        self._flat = torch.zeros(self._n + n_tail, device=self._device)
        start = 0
        for p in self._parameters:
            p.grad = self._flat[start : start + p.numel()].view_as(p)
            start += p.numel()
        self._clear()

    def _clear(self) -> None:
        self._flat.zero_()
        self._n_row, self._n_batch, self._loss = 0, 0, 0.0

    def _complete(self) -> bool:
        """Complete a step with what this process has of it; return whether the training is over."""
        if self._group is not None:
            is_over = self._steps.complete(
                self._flat, self._n_row, self._loss, lambda total: self._update(total.n_row)
            )
        else:
            is_over = not self._n_row or not self._update(self._n_row)
        self._clear()
        return is_over

    def _update(self, n_row: int) -> bool:
        self._flat[: self._n].div_(n_row)
        self._optimizer.step()
        return True

    def _n_accumulate(self) -> int:
        joined = session()
        times = 1 if joined is None else max(int(joined.state()["n_accumulate"]), 1)
        return times * self._n_part

    def _dump(self) -> torch.Tensor:
        buffer = io.BytesIO()
        torch.save([self._model.state_dict(), self._optimizer.state_dict()], buffer)
        return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)

    def _load(self, data: torch.Tensor) -> None:
        model, optimizer = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True)
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)
