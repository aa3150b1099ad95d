"""Replay of the changes that a `ChangeLog` recorded, on the ledger of a restarted job master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core import codec
from dlrover_nb.core.errors import CheckpointError, DlroverError
from dlrover_nb.core.sharding.split import LedgerCheckpoint
from dlrover_nb.core.structs.training.shards import Lease

if TYPE_CHECKING:
    from dlrover_nb.core.sharding.ledger import ShardLedger


def apply_changes(ledger: ShardLedger, data: bytes) -> None:
    """Apply the changes that `ChangeLog.drain` returned; an incomplete last line is ignored.

    Raises
    ------
    CheckpointError
        When a line is not a valid change of this ledger; the ledger must not be used then.
    """
    for line in data.decode(errors="replace").split("\n")[:-1]:
        try:
            _apply(ledger, line.split(" "))
        except (ValueError, DlroverError) as error:
            raise CheckpointError(f"expected a change of the ledger, got {line[:80]!r}: {error}") from error


def _apply(ledger: ShardLedger, words: list[str]) -> None:  # noqa: C901, PLR0912 - one flat branch per call
    match words:
        case ["grant", owner, most]:
            ledger.grant(owner, most_batches=int(most) or None)
        case ["progress", owner, shard, grant, n_row]:
            _must(ledger.progress(owner, _lease(ledger, shard, grant), int(n_row)))
        case ["complete", owner, shard, grant]:
            _must(ledger.complete(owner, _lease(ledger, shard, grant)))
        case ["give_back", owner, shard, grant]:
            _must(ledger.give_back(owner, _lease(ledger, shard, grant)))
        case ["refuse"]:
            ledger.refuse()
        case ["release", owner, killed]:
            ledger.release(owner, killed=killed == "1")
        case ["retry", shard]:
            ledger.retry(int(shard))
        case ["skip", shard]:
            ledger.skip(int(shard))
        case ["reopen_step"]:
            ledger.reopen_step()
        case ["close"]:
            ledger.close()
        case ["close_at", row]:
            ledger.close_at(int(row))
        case ["restore", text]:
            ledger.restore(codec.from_json(text, LedgerCheckpoint))
        case _:
            raise ValueError("no such change")


def _lease(ledger: ShardLedger, shard: str, grant: str) -> Lease:
    return Lease(ledger.split.purpose, int(shard), int(grant))


def _must(is_held: bool) -> None:  # noqa: FBT001 - the answer of a call
    if not is_held:
        raise ValueError("no such grant is held")
