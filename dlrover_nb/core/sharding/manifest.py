"""What a checkpoint holds besides parameters: which parts it has, and which rows they have seen."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.sharding.split import LedgerCheckpoint  # noqa: TC001 - a manifest is decoded by its annotations
from dlrover_nb.core.structs.job.trained import Trained  # noqa: TC001 - as above


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint: the parts that the PS wrote, and the data queue of the same moment.

    It is written last and atomically: a checkpoint without a manifest does not exist. `n_journal_byte` is
    the length of the journal's segment `journal_segment` at the pause in which it was copied.
    """

    number: int
    at_s: float
    ps_epoch: int
    bucket_owner: tuple[int, ...]
    files: tuple[tuple[str, str], ...]  # (path, sha256), in index order of the PS
    n_row: int
    n_byte: int
    ledger: LedgerCheckpoint
    n_journal_byte: int = 0
    journal_segment: int = 0
    trained: Trained | None = None  # None: written by release 0.1
    spent: float = 0.0  # money of the job until it was written, earlier runs of its rows included
