"""What a job master writes down before its orders leave, and how the next one reads it.

A diary is a list of entries; written one after the other, read in the same order. The first one holds
everything. Each later one holds the changes of the ledgers since the one before and, when an order leaves
that others may act on, the state as it is then. So at every moment the diary knows at least as much as any
node was told. Grants, reports and acknowledged rows make up nearly all of the traffic, and cost one small
entry without a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.orders import Emit, Order, Send
from dlrover_nb.core.runtime.recovery_record import KeptName, StateRecord, name_of
from dlrover_nb.core.runtime.state import RestorableCheckpoint  # noqa: TC001 - an entry is decoded by its annotations
from dlrover_nb.core.sharding.changes import apply_changes
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerRecord  # noqa: TC001 - as above
from dlrover_nb.core.structs.messages import Granted, NoShard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.runtime.master import JobMaster


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Parameters
    ----------
    state
        None: as it was told last.
    kept
        Checkpoints that can be restored and that no earlier entry told of.
    changes
        Of the ledgers of training and evaluation.
    ledgers
        All of both; in the first entry alone.
    """

    state: StateRecord | None
    kept: tuple[RestorableCheckpoint, ...] = ()
    changes: tuple[bytes, bytes] = (b"", b"")
    ledgers: tuple[LedgerRecord, LedgerRecord] | None = None


class WriteAheadLog:
    """Decides what of one master has to be written down, from now on.

    Parameters
    ----------
    master
        The master; the first entry tells all of it.
    """

    def __init__(self, master: JobMaster) -> None:
        self._master = master
        self._last: StateRecord | None = None
        self._told: set[KeptName] = set()
        for ledger in master.ledgers:
            ledger.changes.keep()

    def first(self) -> Entry:
        """Return all that there is, as the beginning of a new diary."""
        train, evaluate = self._master.ledgers
        self._drain()
        self._last, self._told = self._master.record, set()
        return Entry(self._last, self._news(), ledgers=(train.record(), evaluate.record()))

    def entry(self, orders: Sequence[Order] = (), *, look: bool = False) -> Entry | None:
        """Return what must be written before `orders` leave; None when nothing has changed.

        Parameters
        ----------
        look
            Whether to look for changes of the state though no order tells of one.
        """
        changes = self._drain()
        state = self._change() if look or any(map(_is_lasting, orders)) else None
        if state is None and not any(changes):
            return None
        return Entry(state, self._news() if state else (), changes)

    def _drain(self) -> tuple[bytes, bytes]:
        train, evaluate = self._master.ledgers
        return train.changes.drain(), evaluate.changes.drain()

    def _change(self) -> StateRecord | None:
        now = self._master.record
        if now == self._last:
            return None
        self._last = now
        return now

    def _news(self) -> tuple[RestorableCheckpoint, ...]:
        kept = {name_of(each): each for each in self._master.checkpoints}
        news = tuple(each for name, each in kept.items() if name not in self._told)
        self._told = set(kept)
        return news


def read_back(
    master: JobMaster, entries: Iterable[Entry]
) -> tuple[StateRecord, tuple[RestorableCheckpoint, ...]]:
    """Give a new master the ledgers of a diary; return what it has to `resume` with.

    Raises
    ------
    CheckpointError
        When the diary does not begin as one, or tells of something that cannot be.
    """
    state: StateRecord | None = None
    kept: dict[KeptName, RestorableCheckpoint] = {}
    ledgers: tuple[ShardLedger, ShardLedger] | None = None
    for entry in entries:
        if entry.ledgers is not None:
            train, evaluate = entry.ledgers
            ledgers = ShardLedger.from_record(train), ShardLedger.from_record(evaluate)
        for ledger, changes in zip(ledgers or (), entry.changes, strict=False):
            apply_changes(ledger, changes)
        kept |= {name_of(each): each for each in entry.kept}
        state = entry.state or state
    if state is None or ledgers is None:
        raise CheckpointError("expected a diary that begins with all of a job, got none; submit it again")
    master.ledgers = ledgers
    return state, tuple(kept.values())


def _is_lasting(order: Order) -> bool:
    """Whether somebody who obeys it relies on the master's state, beyond the ledgers."""
    match order:
        case Emit() | Send(message=Granted() | NoShard()):
            return False
        case _:
            return True
