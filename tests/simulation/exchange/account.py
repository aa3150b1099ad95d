"""The auditor's account of updates: which batch of which worker each number of the parameter servers has got.

It knows nothing of steps, connections or epochs' meaning. A batch takes 1 from the first number of each of its rows, and a
mark of its own from the second and from the dense parameters. So what a server holds says which batches it has applied, and
what a worker reads says which ones it sees. A server handles a message or two between two looks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from simulation.promises import PromiseBrokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ASKED_BEFORE = 2  # batches of its worker were computed between the request for rows and its use, at most
NEAR = 0.25
LEAST_SHARE = 0.01  # of a batch in a round


@dataclass(slots=True)
class Marked:
    """A batch that was computed."""

    mark: int
    worker: str
    rows: list[int]  # of the data
    numbers: frozenset[int]  # rows of the table, and behind them the dense parameters
    epoch: int
    n_load: int  # loads of checkpoints before it
    place: int = 0  # among those that its worker counts as applied; 0: it does not


@dataclass
class Account:
    """Updates of all workers at all servers.

    Parameters
    ----------
    first
        What rows of the table are before any update, [n, 2].
    n_dense
        Dense parameters, which are 0 at first.
    is_lost
        Whether the master cannot be told any more what a worker did.
    n_own
        First rows of the table that are each of one row of the data.
    is_weighted
        Whether batches count by their share of a round (BSP) or global batch (GBA): then only rows of their own
        tell which they are.
    is_gathered
        Whether what is acknowledged may be applied later, though before it is saved or moves (GBA).

    Attributes
    ----------
    n_excused
        Rows that were trained again because the master could not know of the first time.
    """

    first: np.ndarray
    n_dense: int
    is_lost: Callable[[str], bool]
    n_own: int
    is_weighted: bool = False
    is_gathered: bool = False
    MARKS = 64
    n_excused: int = 0
    n_load: int = 0
    newest: int = -1  # epoch
    wrong: list[PromiseBrokenError] = field(default_factory=list)
    epoch_of: dict[str, int] = field(default_factory=dict)  # that workers train in
    batches: dict[int, Marked] = field(default_factory=dict)
    applied: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _base: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # updates that were loaded
    _open: dict[int, set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )  # marks of a number, not applied yet
    _n_applied: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _heard: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _taken: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    _n_taken: int = 0
    _lookups: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    _copies: dict[int, dict[int, tuple[set[int], np.ndarray]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _loads: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sums = np.zeros((len(self.first) + self.n_dense, 2))
        self._start = np.concatenate([self.first, np.zeros((self.n_dense, 2))]).astype(np.float64)

    def _break(self, kind: str, words: str) -> None:
        self.wrong.append(PromiseBrokenError(kind, words))

    # of workers

    def connect(self, worker: str, epoch: int) -> None:
        """Note that a worker connects to the servers of an epoch."""
        self.epoch_of[worker] = epoch
        self._lookups[worker] = deque(maxlen=ASKED_BEFORE)

    def compute(self, worker: str, rows: list[int], ids: np.ndarray) -> int:
        """Note the gradients of a batch; return its mark."""
        mark = 2 * len(self.batches) + 1  # odd, so that the sum of two is no mark
        dense = range(len(self.first), len(self.first) + self.n_dense)
        numbers = frozenset(rows if self.is_weighted else [*ids.tolist(), *dense])
        self.batches[mark] = Marked(mark, worker, rows, numbers, self.epoch_of[worker], self.n_load)
        for number in numbers:
            self._open[number].add(mark)
        self._lookups[worker].append((self._n_taken, self.n_load))
        return mark

    def acknowledge(self, worker: str, mark: int) -> None:
        """Note that a worker counts a batch as applied."""
        batch = self.batches[mark]
        self._n_applied[worker] += 1
        batch.place = self._n_applied[worker]
        if batch.n_load != self.n_load or batch.epoch < self.newest:
            return  # what it was applied to may be gone
        if self.is_gathered:
            return
        missing = [number for number in batch.numbers if mark not in self.applied[number]]
        if missing:
            self._break("an acknowledged push is not applied", f"batch {mark} of {worker}, at {missing}")
        self._n_taken += 1
        for number in batch.numbers:
            self._taken[number].append((self._n_taken, mark))

    def look_up(self, worker: str, ids: np.ndarray, values: np.ndarray) -> None:
        """Check that a worker sees all updates that were acknowledged before it asked."""
        lookups = self._lookups[worker]
        if self.is_weighted:
            return
        if len(lookups) < ASKED_BEFORE or lookups[0][1] != self.n_load or self.epoch_of[worker] < self.newest:
            return
        n_before = lookups[0][0]
        seen = np.rint(self.first[ids, 0] - values[:, 0]).astype(int)
        for number, n_seen in zip(ids.tolist(), seen.tolist(), strict=True):
            due = self._base[number] + sum(at <= n_before for at, _ in self._taken[number])
            if n_seen < due:
                words = f"{worker} sees {n_seen} updates of row {number}, {due} were acknowledged before"
                self._break("a lookup is older than what was acknowledged", words)

    def n_pushed(self, worker: str) -> int:
        """Batches that a worker counts as applied."""
        return self._n_applied[worker]

    def heard(self, worker: str, n_applied: int) -> None:
        """Note that the master was told of so many batches."""
        self._heard[worker] = max(n_applied, self._heard[worker])

    # of servers

    def settle(self, server: str, numbers: Iterable[int]) -> None:
        """Check that a server whose workers are all paused has applied what they count as applied."""
        here = frozenset(numbers)
        for batch in self.batches.values():
            if not batch.place or batch.n_load != self.n_load or batch.epoch < self.newest:
                continue
            if missing := [n for n in batch.numbers & here if batch.mark not in self.applied[n]]:
                words = f"batch {batch.mark} of {batch.worker}, at {missing} of {server}"
                self._break("an acknowledged push is neither saved nor moved", words)

    def copy(self, checkpoint: int, numbers: Iterable[int]) -> None:
        """Note what a server saves."""
        copies = {number: (set(self.applied[number]), self._sums[number].copy()) for number in numbers}
        self._copies[checkpoint].update(copies)

    def load(self, server: str, epoch: int, checkpoint: int) -> None:
        """Note that a server is to load its part of a checkpoint; 0: of none."""
        self._loads[server] = epoch, checkpoint
        self.n_load += 1
        self.newest = max(self.newest, epoch)

    def look(self, server: str, epoch: int, numbers: np.ndarray, values: np.ndarray) -> None:
        """Look at what a server holds under an epoch: `values` [n, 2] of its numbers, of dense ones in the second."""
        if epoch < self.newest:
            return  # what it learns counts nowhere
        self.newest = epoch
        load = self._loads.get(server)
        if load is not None and load[0] == epoch:
            self._go_back(numbers, self._copies[load[1]])
            del self._loads[server]
            self._check_loaded(server, load[1], numbers, values)
            return
        change = self._start[numbers] - values - self._sums[numbers]
        change[:, 1] *= self.MARKS
        if self.is_weighted:
            change = self._unweighted(numbers, change)
        changed = np.flatnonzero(np.abs(change).max(axis=1) > NEAR)
        if len(changed):
            self._apply(server, epoch, numbers, {int(numbers[i]): change[i] for i in changed})

    def _unweighted(self, numbers: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return changes of rows of their own as if each batch counted as a whole, and take over all as they are."""
        self._sums[numbers] += change / [1, self.MARKS]
        n = change[:, :1]
        is_own = (numbers[:, None] < self.n_own) & (np.abs(n) > LEAST_SHARE)
        return np.where(is_own, change / np.where(is_own, np.abs(n), 1.0), 0.0)

    def _go_back(self, numbers: np.ndarray, copies: dict[int, tuple[set[int], np.ndarray]]) -> None:
        for number in numbers.tolist():
            marks, self._sums[number] = copies.get(number, (set(), np.zeros(2)))
            self.applied[number] = set(marks)
            self._base[number], self._taken[number] = len(marks), []

    def _check_loaded(self, server: str, checkpoint: int, numbers: np.ndarray, values: np.ndarray) -> None:
        change = self._start[numbers] - values - self._sums[numbers]
        if (np.abs(change * [1, self.MARKS]) > NEAR).any():
            wrong = numbers[(np.abs(change * [1, self.MARKS]) > NEAR).any(axis=1)].tolist()
            self._break("a server loads other parameters than were saved", f"{server}, {checkpoint}: {wrong}")

    def _apply(self, server: str, epoch: int, numbers: np.ndarray, changes: dict[int, np.ndarray]) -> None:
        """Find out which batches changed these numbers, and judge each."""
        marks = set[int]()
        for number, (n, total) in changes.items():
            explained = self._explain(number, n, total)
            if explained is None:
                change = f"{server} changed {number} by {round(n)} updates of marks {round(total)}"
                open_, had = sorted(self._open[number]), sorted(self.applied[number])
                kind = "an update is lost" if n < 0 or total < 0 else "an update is applied twice"
                self._break(kind, f"{change}; computed are {open_}, applied {had}")
                return
            marks |= explained
        for mark in sorted(marks):
            self._judge(server, epoch, self.batches[mark], {each for each in marks if each < mark})
            here = self.batches[mark].numbers & set(numbers.tolist())
            if any(
                mark not in (self._explain(number, *changes.get(number, (0.0, 0.0))) or ()) for number in here
            ):
                self._break("a push is applied in part", f"batch {mark} at {server}")
        for number, (n, total) in changes.items():
            explained = self._explain(number, n, total)
            self.applied[number] |= explained
            self._open[number] -= explained
            if self.is_weighted:
                continue
            self._sums[number] += (0 if number >= len(self.first) else round(n)), round(total) / self.MARKS

    def _explain(self, number: int, n: float, total: float) -> set[int] | None:
        """Return the batches that explain a change; None: none do."""
        if self.is_gathered and round(n) == 1:
            alone = {mark for mark in self._open[number] if abs(mark - total) <= NEAR}
            return alone or self._mixed(number, total)
        n, total = round(n), round(total)
        counts = (n,) if number < len(self.first) else (0, 1, 2)
        for size in counts:
            if 0 <= size <= 2:
                for marks in combinations(sorted(self._open[number], reverse=True), size):
                    if sum(marks) == total:
                        return set(marks)
        return None

    def _mixed(self, number: int, mean: float) -> set[int] | None:
        """Return two batches of one row in one global batch, whose marks have this mean by weight."""
        for pair in combinations(sorted(self._open[number], reverse=True), 2):
            if pair[1] < mean < pair[0]:
                return set(pair)
        return None

    def _judge(self, server: str, epoch: int, batch: Marked, beside: set[int]) -> None:
        if batch.epoch != epoch:
            words = f"batch {batch.mark} of {batch.worker} of epoch {batch.epoch}, at {server} in {epoch}"
            self._break("an update of another epoch is applied", words)
        for row in batch.rows:
            others = {mark for mark in beside if row in self.batches[mark].rows}
            for mark in (self.applied[row] | others) - {batch.mark}:
                self._judge_again(row, batch, self.batches[mark])

    def _judge_again(self, row: int, batch: Marked, before: Marked) -> None:
        again = f"row {row} by {batch.worker} (batch {batch.mark}) and {before.worker} (batch {before.mark})"
        if before.place and before.place <= self._heard[before.worker]:
            self._break("rows were trained twice", f"{again}, which had told the master")
        elif before.worker == batch.worker:
            self._break("rows were trained twice", f"{again}, which is the same")
        elif not self.is_lost(before.worker):
            self._break("rows were trained twice", f"{again}, which lives")
        else:
            self.n_excused += 1
