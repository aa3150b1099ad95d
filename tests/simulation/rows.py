"""The auditor's own account of rows: which worker pushed which, and what of that the master was told.

It knows nothing of shards, leases or grants. Each message of a worker about its rows speaks of all that it pushed before.
A message that is lost excuses nothing: its worker lives, and can say it again. So when a row is pushed a second time, the
first time must have been by a worker that the master lost before it was told: anything else is a row trained twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row = tuple[int, int]  # epoch, row


@dataclass
class RowAccount:
    """Pushes of all workers.

    Parameters
    ----------
    is_lost
        Whether the master cannot be told any more what a worker did.
    is_excused
        Whether the master may have given up a worker that lives, and trains on.

    Attributes
    ----------
    wrong
        What should not have happened, in words.
    n_excused
        Rows that were pushed again because the master could not know of the first time.
    """

    is_lost: Callable[[str], bool]
    is_excused: Callable[[str], bool] = lambda _: False
    wrong: list[str] = field(default_factory=list)
    n_excused: int = 0
    _n_pushed: Counter[str] = field(default_factory=Counter)
    _heard: dict[str, int] = field(default_factory=dict)
    _kept: dict[int, dict[Row, tuple[str, int]]] = field(default_factory=dict)
    _by: dict[Row, tuple[str, int]] = field(default_factory=dict)

    def n_pushed(self, worker: str) -> int:
        """Batches that a worker has pushed."""
        return self._n_pushed[worker]

    def push(self, worker: str, epoch: int, rows: range, learnt: Mapping[Row, int]) -> None:
        """Note a batch, before the parameter servers are taught it; `learnt` is what they have learnt."""
        self._n_pushed[worker] += 1
        for row in rows:
            if learnt.get((epoch, row)):
                self._judge(worker, (epoch, row))
            self._by[epoch, row] = worker, self._n_pushed[worker]

    def heard(self, worker: str, n_pushed: int) -> None:
        """Note that the master was told of so many batches."""
        self._heard[worker] = max(n_pushed, self._heard.get(worker, 0))

    def keep(self, checkpoint: int) -> None:
        """Note who has pushed what by the time of a checkpoint."""
        self._kept.setdefault(checkpoint, dict(self._by))

    def go_back(self, checkpoint: int) -> None:
        """Let the account be that of a checkpoint, whose parameters are loaded."""
        self._by = dict(self._kept[checkpoint])

    def _judge(self, worker: str, row: Row) -> None:
        before, n_push = self._by[row]
        told = n_push <= self._heard.get(before, 0)
        if self.is_excused(worker) or self.is_excused(before):
            self.n_excused += 1
        elif told:
            self.wrong.append(f"row {row} was trained again by {worker}, though {before} had told the master")
        elif before == worker:
            self.wrong.append(f"row {row} was trained twice by {worker}")
        elif not self.is_lost(before):
            self.wrong.append(f"row {row} was trained by {worker} too, though {before} lives")
        else:
            self.n_excused += 1
