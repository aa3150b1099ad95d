"""Shards for torch's `DataLoader`: a sampler for data read by row, a dataset for data read by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import IterableDataset, Sampler

from .session import session
from .shards import LOCAL_ROWS, Feed, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class ShardSampler(Sampler[int]):
    """Yields the numbers of rows to train: ``DataLoader(dataset, sampler=ShardSampler(len(dataset)), ...)``.

    A loader draws rows ahead, so the training says how many are done: ``sampler.done(len(batch))`` after each
    step. Leave ``drop_last`` off: rows that are never trained are never done. It ends when there is nothing
    to grant now (see `passes`).

    Parameters
    ----------
    n_row, shuffle, wait, epochs, shard_rows
        As of `shards`.
    """

    def __init__(
        self,
        n_row: int | None = None,
        *,
        shuffle: bool = False,
        wait: bool = True,
        epochs: int = 1,
        shard_rows: int = LOCAL_ROWS,
    ) -> None:
        self._new: Callable[[], Source] = lambda: Source(
            n_row, shuffle=shuffle, epochs=epochs, shard_rows=shard_rows
        )
        self._feed = Feed(self._new(), wait=wait)

    def __iter__(self) -> Iterator[int]:
        self._feed.renew(self._new())
        for shard in self._feed.draw():
            yield from shard.rows

    def done(self, n_row: int) -> None:
        """Count the next `n_row` rows as done, in the order in which they were drawn."""
        self._feed.done(n_row)


class Ticket(NamedTuple):
    """Names the rows of a batch, so that the process that trains it can say that they are done."""

    node: str
    slot: str
    program: str
    shard: int
    grant: int
    n_row: int  # rows of the shard that are done with this batch


class ShardDataset(IterableDataset[Any]):
    """Yields batches, each with a ticket, for ``DataLoader(ShardDataset(read), batch_size=None, ...)``.

    Loader processes (``num_workers``) draw shards of their own. The training says that a batch is done:
    ``dataset.done(ticket)`` after its step. It ends when there is nothing to grant now (see `passes`).

    Parameters
    ----------
    read
        Returns a batch: its argument are the numbers of its rows. With loader processes it must be pickled,
        where these are spawned.
    n_row, shuffle, epochs, shard_rows
        As of `shards`.
    batch_size
        Rows of a batch; one at the end of a shard has less.
    """

    def __init__(
        self,
        read: Callable[[Sequence[int]], Any],
        n_row: int | None = None,
        *,
        batch_size: int,
        shuffle: bool = False,
        epochs: int = 1,
        shard_rows: int = LOCAL_ROWS,
    ) -> None:
        self._read, self._n_row, self._batch_size = read, n_row, batch_size
        self._options: dict[str, Any] = {"shuffle": shuffle, "epochs": epochs, "shard_rows": shard_rows}

    def __iter__(self) -> Iterator[tuple[Any, Ticket]]:
        joined, source = session(), Source(self._n_row, **self._options)
        while True:
            shard = source.draw(wait=False)
            if shard is None:
                return
            if shard.lease is not None:
                shard.lease.is_relayed = True
            lease, n_row = shard.lease, 0 if shard.lease is None else shard.lease.n_done
            for at in range(0, len(shard), self._batch_size):
                rows = shard.rows[at : at + self._batch_size]
                n_row += len(rows)
                key = (0, 0) if lease is None else lease.key
                caller = {"node": "", "slot": "", "program": ""} if joined is None else joined.caller
                yield self._read(rows), Ticket(**caller, shard=key[0], grant=key[1], n_row=n_row)

    def done(self, ticket: Ticket) -> None:
        """Count the rows of a batch as done, and all of the shard before them."""
        joined, ticket = session(), Ticket(*ticket)
        if joined is None:
            return
        caller = {"node": ticket.node, "slot": ticket.slot, "program": ticket.program}
        joined.done_elsewhere(caller, (int(ticket.shard), int(ticket.grant)), int(ticket.n_row))
