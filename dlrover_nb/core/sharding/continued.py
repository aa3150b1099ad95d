"""The account of rows of an earlier run, continued by another job on the same data.

A shard is named by one number over all passes, so the account fits another job only where the rows are cut
into the same shards; only more passes may follow. Data that have grown are refused: their last shard has
other rows now, and no record says which of these were trained. A run that ended training early is open again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.sharding.ledger import ShardLedger

if TYPE_CHECKING:
    from dlrover_nb.core.sharding.split import LedgerCheckpoint, Split

_NAMES = {
    "n_sample": "number of training rows",
    "batch_size": "batch_size",
    "shard_batches": "shard_batches",
    "seed": "seed",
    "is_stream": "kind of data (a stream or not)",
    "block_shards": "shard_batches of deterministic training",
    "step_shards": "number of batches in one step of deterministic training",
}
_WITHOUT = "leave --from-rows out to train all rows with its parameters"


def continued(account: LedgerCheckpoint, split: Split) -> LedgerCheckpoint:
    """Return the account of rows for a job of `split` that goes on where `account` stopped.

    Raises
    ------
    InvalidValueError
        When its rows are cut otherwise, or no row is left.
    """
    old = account.split
    if differing := _differing(old, split):
        raise InvalidValueError(f"its account of rows does not fit: {'; '.join(differing)}; {_WITHOUT}")
    if split.n_epoch < old.n_epoch:
        raise InvalidValueError(
            f"its account of rows is of {old.n_epoch} passes, got {split.n_epoch}; "
            f"set epochs to at least {old.n_epoch}, or {_WITHOUT}"
        )
    fitting = old if split.is_open else split
    carried = replace(account, split=fitting, is_closed=False)
    ledger = ShardLedger(split)
    ledger.restore(carried)
    if ledger.finished:
        more = "" if old.is_stream else f"; set epochs to more than {old.n_epoch}"
        raise InvalidValueError(f"that run left no row to train{more}, or {_WITHOUT}")
    return carried


def untouched(split: Split) -> LedgerCheckpoint:
    """Return the account of a job that has trained no row."""
    return ShardLedger(split).checkpoint()


def n_sample_of(account: LedgerCheckpoint) -> int:
    """Return how many samples an account holds as trained."""
    ledger = ShardLedger(account.split)
    ledger.restore(account)
    return ledger.counts().n_sample_done


def _differing(old: Split, new: Split) -> list[str]:
    """Return how two splits differ apart from their passes; a stream may have ended in the first."""
    differences = []
    for name, words in _NAMES.items():
        then, now = getattr(old, name), getattr(new, name)
        if then != now and not (name == "n_sample" and old.is_stream and new.is_open):
            differences.append(f"the {words} was {then}, here it is {now}")
    return differences
