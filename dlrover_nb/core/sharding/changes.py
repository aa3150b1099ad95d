"""Changes of a ledger as lines of text: what a job master writes down before it lets anybody know.

A line names a call of `ShardLedger` and its arguments. A ledger decides by nothing else than its calls, so
the same calls on the same record make the same grants, owners and counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core import codec
from dlrover_nb.core.errors import CheckpointError, DlroverError
from dlrover_nb.core.sharding.split import LedgerCheckpoint
from dlrover_nb.core.structs.shards import Lease

if TYPE_CHECKING:
    from dlrover_nb.core.sharding.ledger import ShardLedger


class ChangeLog:
    """The changes of one ledger since they were last taken out; none before somebody wants them kept."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether changes are noted."""
        return self._lines is not None

    def keep(self) -> None:
        """Note every change from now on, for `drain`."""
        self._lines = []

    def note(self, line: str) -> None:
        """Note a change."""
        if self._lines is not None:
            self._lines.append(line)

    def drain(self) -> bytes:
        """Return the changes since the last call, a line each, and forget them."""
        if not self._lines:
            return b""
        lines, self._lines = self._lines, []
        return ("\n".join(lines) + "\n").encode()


def apply_changes(ledger: ShardLedger, data: bytes) -> None:
    """Make the changes that `ChangeLog.drain` returned; a last line without its end is left out.

    Raises
    ------
    CheckpointError
        When a line is no change of this ledger; the ledger is of no use then.
    """
    for line in data.decode(errors="replace").split("\n")[:-1]:
        try:
            _apply(ledger, line.split(" "))
        except (ValueError, DlroverError) as error:
            raise CheckpointError(f"expected a change of the ledger, got {line[:80]!r}: {error}") from error


def _apply(ledger: ShardLedger, words: list[str]) -> None:  # noqa: C901 - one flat branch per call
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
        raise ValueError("nobody holds that")
