"""The steps of one process of an elastic job: what it takes, what all of them sum, and when that counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import report
from .group import LeftError
from .session import session

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .group import Group, Sum
    from .rows import Rows

IDLE_S = 0.02  # between steps in which no member has rows, while some may still come back


def note_busy(n_row: int, seconds: float) -> None:
    """Note how long this process has computed some rows, from which the master knows its speed."""
    joined = session()
    if joined is not None:
        n_before, before_s = joined.busy
        joined.busy = n_before + n_row, before_s + seconds


def _job_stops() -> bool:
    """Whether the job stops, for a process that is not needed any more; False where others train on."""
    joined = session()
    return joined is None or bool(joined.state(fresh=True)["should_stop"])


class Steps:
    """Completes steps together with the other members.

    Parameters
    ----------
    group, rows
        The members, and the rows of this process.
    bind
        Called in each new world: make a buffer for gradients with room for `Group.n_tail` numbers at its end.
    save_every_s
        Seconds between checkpoints, which rank 0 keeps; 0: none.
    """

    def __init__(
        self,
        group: Group,
        rows: Rows[Any],
        *,
        bind: Callable[[], None],
        save_every_s: float,
    ) -> None:
        self._group, self._rows, self._bind = group, rows, bind
        self._save_every_s = save_every_s
        self._save_at_s = time.monotonic() + save_every_s
        self._unsure = 0, 0  # the place after the last step that was applied

    def begin(self) -> None:
        """Go to the first world; raises as `Group.join`."""
        self._group.join()
        self._bind()

    def complete(
        self, flat: torch.Tensor, n_row: int, loss: float, update: Callable[[Sum], bool], *, n_item: int = 0
    ) -> bool:
        """Complete a step with what this process has of it; return whether the training is over.

        Parameters
        ----------
        flat
            Its gradients, summed over its rows, and room for the tail.
        n_row, loss
            Its rows, and the sum of their losses.
        update
            Applies the sums of all; returns whether it did, or another member was lost before.
        n_item
            Of what is gathered in `update`, how much this process has.

        Raises
        ------
        LeftError
            As `Group.join`.
        """
        group, rows, number = self._group, self._rows, self._group.member.number
        place = rows.place
        total = group.sum(flat, n_row, place, is_over=not n_row and rows.is_over, n_item=n_item)
        if total is not None:
            rows.confirm(self._unsure)
            self._keep_if_due()  # all members have the last step now, also if one is lost from here on
            if total.is_over:
                return True
            if not total.n_row:
                self._wait()
                self._applied(place)
            elif update(total):
                if n_row:
                    report(n_row, loss / n_row)
                self._applied(place)
        if group.member.number != number:
            rows.rewind()
            self._unsure = rows.place
            self._bind()
        return False

    def _applied(self, place: tuple[int, int]) -> None:
        """Note that a step is in the parameters, with the rows of this process before a place.

        A process that leaves while others train on keeps no checkpoint: they may not have its last step, and
        would never train the rows that it counts as done.
        """
        self._unsure = place
        try:
            self._group.applied()
        except LeftError:
            if self._group.member.rank == 0 and _job_stops():
                self._keep()  # the job may go on from here
            raise

    def _keep_if_due(self) -> None:
        if time.monotonic() >= self._save_at_s and self._group.member.rank == 0:
            self._keep()

    def _keep(self) -> None:
        if self._save_every_s:
            self._group.keep()
        self._save_at_s = time.monotonic() + self._save_every_s

    def _wait(self) -> None:
        """Let the master know what is done: it may grant the rows that are left by that."""
        joined = session()
        if joined is not None:
            joined.report()
        time.sleep(IDLE_S)
