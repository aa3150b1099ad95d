"""The write-ahead log of a job master: what is written before orders are sent, and how a successor reads it.

A log is a list of entries, written and read in order. The first entry holds the complete state. Each later
one holds the changes of the ledgers since the previous one, and also the state when an order is sent, or an
event emitted, that others may act on. So at every moment the log is at least as recent as what any node has
received. Grants, reports and acknowledged rows are nearly all of the traffic; each costs one small entry
without a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.master.own.recovery_record import CheckpointName, StateRecord, name_of
from dlrover_nb.core.master.own.state.state import RestorableCheckpoint  # noqa: TC001 - an entry is decoded by its annotations
from dlrover_nb.core.master.shared.orders import Emit, Order, Send
from dlrover_nb.core.sharding.changes import apply_changes
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerRecord  # noqa: TC001 - as above
from dlrover_nb.core.structs.views.events import NodeReported, ProgressMade
from dlrover_nb.core.structs.wire.messages import Granted, NoShard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.master.own.master import JobMaster


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Parameters
    ----------
    state
        None: unchanged since the last entry with a state.
    kept
        Restorable checkpoints that no earlier entry contains, or of which peers keep more than that says.
    changes
        Of the ledgers of training and evaluation.
    ledgers
        Complete ledgers, in the first entry only.
    """

    state: StateRecord | None
    kept: tuple[RestorableCheckpoint, ...] = ()
    changes: tuple[bytes, bytes] = (b"", b"")
    ledgers: tuple[LedgerRecord, LedgerRecord] | None = None


class WriteAheadLog:
    """Makes the entries of one master.

    Parameters
    ----------
    master
        The master; its ledgers record their changes from now on.
    """

    def __init__(self, master: JobMaster) -> None:
        self._master = master
        self._last: StateRecord | None = None
        self._written: dict[CheckpointName, RestorableCheckpoint] = {}
        for ledger in master.ledgers:
            ledger.changes.keep()

    def first(self) -> Entry:
        """Return the complete state, as the first entry of a new log."""
        train, evaluate = self._master.ledgers
        self._drain()
        self._last, self._written = self._master.record, {}
        return Entry(self._last, self._news(), ledgers=(train.record(), evaluate.record()))

    def entry(self, orders: Sequence[Order] = (), *, check_state: bool = False) -> Entry | None:
        """Return the entry to write before `orders` are sent; None when nothing has changed.

        Parameters
        ----------
        check_state
            Whether to compare the state even if no order depends on it.
        """
        changes = self._drain()
        state = self._change() if check_state or any(map(_is_lasting, orders)) else None
        news = self._news()  # also without an order: a peer has said that it keeps a copy
        if state is None and not news and not any(changes):
            return None
        return Entry(state, news, changes)

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
        by_name = {name_of(each): each for each in self._master.checkpoints}
        news = tuple(each for name, each in by_name.items() if self._written.get(name) is not each)
        self._written = by_name
        return news


def read_back(
    master: JobMaster, entries: Iterable[Entry]
) -> tuple[StateRecord, tuple[RestorableCheckpoint, ...]]:
    """Restore the ledgers of a new master from a log; return the arguments of its `resume`.

    Raises
    ------
    CheckpointError
        When the log does not begin with a complete entry, or contradicts itself.
    """
    state: StateRecord | None = None
    checkpoints: dict[CheckpointName, RestorableCheckpoint] = {}
    ledgers: tuple[ShardLedger, ShardLedger] | None = None
    for entry in entries:
        if entry.ledgers is not None:
            train, evaluate = entry.ledgers
            ledgers = ShardLedger.from_record(train), ShardLedger.from_record(evaluate)
        for ledger, changes in zip(ledgers or (), entry.changes, strict=False):
            apply_changes(ledger, changes)
        checkpoints |= {name_of(each): each for each in entry.kept}
        state = entry.state or state
    if state is None or ledgers is None:
        raise CheckpointError("the write-ahead log has no complete entry at its start; submit the job again")
    master.ledgers = ledgers
    return state, tuple(checkpoints.values())


def _is_lasting(order: Order) -> bool:
    """Whether the receiver of an order relies on state of the master beyond the ledgers."""
    match order:
        case Emit(event=NodeReported() | ProgressMade()) | Send(message=Granted() | NoShard()):
            return False
        case _:
            return True
