"""Elastic programs: the real `Elastic` of `dlrover_nb.client`, its optimizer in the place of parameters.

A state of the parameters is the rows that they were taught. Members that apply the same step to the same state have the same
one afterwards, so two that were taught different rows in one step stay two. The account of rows that is kept with a state
must be of these rows: else it would show only where all members are lost before the next checkpoint.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from simulation.external.programs import BATCH, BATCH_S, session_of_task
from simulation.tasks import LONGEST_S, Time
from torch.distributed import distributed_c10d

from dlrover_nb.client.elastic import Elastic
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.sharding.split import LedgerCheckpoint
from dlrover_nb.core.sharding.states import DONE, shards_in, states_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.external.collectives import Batch
    from simulation.external.programs import PlayedSession
    from simulation.external.world import ExternalWorld, Pod
    from simulation.rows import Row

NAMES = ("elastic", "exchange", "group", "rows")
ELASTIC, EXCHANGE, GROUP, ROWS = (sys.modules[f"dlrover_nb.client.{name}"] for name in NAMES)


class States:
    """All states that parameters of one job ever had, by number; 0 is that before the first step."""

    def __init__(self) -> None:
        self.rows: list[frozenset[Row]] = [frozenset()]
        self.ends: list[int] = []  # of processes that trained to the end
        self.wrong: list[str] = []
        self.other_accounts: list[str] = []  # of checkpoints, in words
        self._next: dict[tuple[int, tuple[Batch, ...]], int] = {}

    def teach(self, state: int, batches: tuple[Batch, ...]) -> int:
        """Return the state that follows by a step."""
        if (state, batches) not in self._next:
            before, rows = self.rows[state], [(epoch, row) for epoch, part in batches for row in part]
            twice = [row for row in rows if row in before or rows.count(row) > 1]
            self.wrong += [f"row {row} is twice in one state of the parameters" for row in twice[:1]]
            self.rows.append(before.union(rows))
            self._next[state, batches] = len(self.rows) - 1
        return self._next[state, batches]

    def check_account(self, state: int, account: str) -> None:
        """Note an account of rows that is kept with a state and is of others."""
        if other := _rows_of(account) ^ self.rows[state]:
            self.other_accounts.append(f"{len(other)} rows, as {min(other)}")


def _rows_of(account: str) -> set[Row]:
    """Return the rows that an account counts as done."""
    kept = from_json(account, LedgerCheckpoint)
    done = {
        int(shard): kept.split.n_row(int(shard)) for shard in shards_in(states_of(kept, kept.split), DONE)
    }
    places = [(kept.split.place(shard), n_row) for shard, n_row in (*done.items(), *kept.begun)]
    return {(epoch, start + i) for (epoch, start, _), n_row in places for i in range(n_row)}


class PlayedOptimizer:
    """Changes the state of one process."""

    def __init__(self, world: ExternalWorld, joined: PlayedSession) -> None:
        self._world, self._joined, self.state = world, joined, 0
        joined.check_account = lambda account: world.states.check_account(self.state, account)

    def step(self) -> None:
        self.state = self._world.states.teach(self.state, self._joined.coming)
        self._world.learnt |= dict.fromkeys(self._world.states.rows[self.state], 1)

    def state_dict(self) -> dict[str, int]:
        return {"state": self.state}

    def load_state_dict(self, kept: dict[str, int]) -> None:
        self.state = kept["state"]


class PlayedFuture:
    """What a pool's work comes to."""

    def __init__(self, world: ExternalWorld) -> None:
        self._world, self._found, self._waiter = world, [], None  # type: ignore[var-annotated]

    def run(self, work: Callable[[], Any]) -> None:
        try:
            found = work(), None
        except RuntimeError as error:
            found = None, error
        self._found.append(found)
        if self._waiter is not None:
            self._world.tasks.wake(self._waiter, True)

    def done(self) -> bool:
        return bool(self._found)

    def result(self) -> Any:
        if not self._found:
            self._waiter = self._world.tasks.present
            self._world.tasks.park(LONGEST_S)
        value, error = self._found[0]
        if error is not None:
            raise error
        return value


class PlayedPool:
    """A pool whose thread is a task of the program."""

    def __init__(self, world: ExternalWorld) -> None:
        self._world = world

    def submit(self, work: Callable[[], Any]) -> PlayedFuture:
        joined, future = session_of_task(), PlayedFuture(self._world)
        assert joined is not None
        self._world.run_in(joined.pod, joined, lambda: future.run(work))
        return future

    def shutdown(self, **_: Any) -> None:
        """Do nothing: its task ends by itself."""


def train_together(world: ExternalWorld, pod: Pod, joined: PlayedSession) -> None:
    """Train with the others until all rows are trained, or nobody needs this process any more."""
    model, optimizer = torch.nn.Linear(1, 1, bias=False), PlayedOptimizer(world, joined)
    job = Elastic(
        model,
        optimizer,  # type: ignore[arg-type]
        n_row=world.case.n_row,
        batch_size=BATCH,
        shuffle=False,
        checkpoint_every_s=world.case.keeps_every_s,
        timeout_s=world.case.timeout_s,
    )
    for rows in job.batches():
        numbers = tuple(rows.tolist())
        world.tasks.sleep(BATCH_S * world.slow.get(pod.node, 1.0) * world.rng.choice([1, 1, 2]))
        if not world.case.poison.isdisjoint(numbers):
            world.fail_program(pod, 139)
        grant = job._rows.place[0]
        epoch = next(each.shard.epoch for each in job._rows._works if each.grant == grant)
        joined.batches.append((epoch, numbers))
        job.step(model.weight.sum() * 0)
    if job.is_complete:
        world.states.ends.append(optimizer.state)


@contextmanager
def played_torch(world: ExternalWorld) -> Iterator[None]:
    """Let the modules of elastic programs run in tasks."""
    time = Time(world.tasks)
    with ExitStack() as open_:
        for module in (ELASTIC, EXCHANGE, GROUP, ROWS):
            open_.enter_context(mock.patch.object(module, "time", time))
        for module in (ELASTIC, EXCHANGE, ROWS):
            open_.enter_context(mock.patch.object(module, "session", session_of_task))
        for module, name, played in (
            (GROUP, "dist", world.collectives),
            (distributed_c10d, "PrefixStore", world.collectives.prefix_store),
            (ROWS, "ThreadPoolExecutor", lambda *_: PlayedPool(world)),
            (EXCHANGE, "report", lambda *_: world.count_step()),
        ):
            open_.enter_context(mock.patch.object(module, name, played))
        yield
