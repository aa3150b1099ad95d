"""The shards of an external job on disk: a write-ahead log of its ledger alone.

It is the log of own jobs (`core.rundir.log_file`) with entries of another content: the first holds the
complete ledger, each later one the changes since the one before. So a grant costs a few dozen bytes however
many shards there are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.master.own.write_ahead_log import Entry
from dlrover_nb.core.rundir.log_file import WriteAheadLogFile, read_log_file
from dlrover_nb.core.sharding.changes import apply_changes
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.training.shards import Purpose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.wire.services import Held

logger = logging.getLogger(__name__)

RETRY_KEEPS = 5  # seconds, one `keep` each, between two attempts to write a log that was lost
_NOTHING = ShardLedger(
    Split(0, 1, 1, purpose=Purpose.EVALUATE)
).record()  # external programs evaluate themselves


class ShardLog:
    """Writes the log of one job.

    Parameters
    ----------
    folder
        The job's run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file, self._folder = WriteAheadLogFile(folder), folder
        self._has_begun, self._n_keep = False, 0

    def append(self, ledger: ShardLedger | None) -> None:
        """Write the changes of the ledger since the last call; without a ledger there is nothing to write."""
        if ledger is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._begin(ledger)
        elif changes := ledger.changes.drain():
            self._file.append(Entry(None, changes=(changes, b"")))

    def keep(self, ledger: ShardLedger | None) -> None:
        """Write changes, compact a long log, and begin a lost one again."""
        self._n_keep += 1
        is_due = self._file.is_long or (self._file.is_lost and self._n_keep % RETRY_KEEPS == 0)
        if ledger is not None and self._has_begun and is_due:
            self._begin(ledger)
        else:
            self.append(ledger)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _begin(self, ledger: ShardLedger) -> None:
        """Begin a new log; a disk that is full does not stop training."""
        ledger.changes.keep()
        try:
            self._file.begin(Entry(None, ledgers=(ledger.record(), _NOTHING)))
        except BackendError as error:
            self._has_begun = False  # it is tried again with the next change
            logger.warning(
                "the shards of the job in %s will not outlive this master: %s", self._folder, error
            )


def read_shard_log(folder: Path) -> tuple[ShardLedger, tuple[Held, ...]]:
    """Return the ledger of a run folder, and the leases that ended by their last row.

    Raises
    ------
    CheckpointError
        When there is no usable log: external programs keep their checkpoints themselves, so that there is
        nothing to go back to.
    """
    ledger: ShardLedger | None = None
    ended: list[Held] = []
    log = read_log_file(folder)
    if log.damage is not None:
        raise CheckpointError(
            f"{log.path} is damaged: {log.damage.words}; which rows were granted is lost from there on; "
            "restore it from a backup, or submit the job again: its programs go on from checkpoints of their "
            "own, and all rows are granted anew"
        )
    for entry in log.entries:
        if entry.ledgers is not None:
            ledger = ShardLedger.from_record(entry.ledgers[0])
        if ledger is not None:
            apply_changes(ledger, entry.changes[0])
            ended.extend(_ended(entry.changes[0]))
    if ledger is None:
        raise CheckpointError(f"expected the shards of a job in {folder}, got none; submit the job again")
    return ledger, tuple(ended)


def _ended(changes: bytes) -> Iterator[Held]:
    for line in changes.decode().splitlines():
        match line.split():
            case ["complete", _, shard, grant]:
                yield int(shard), int(grant)
