"""Decoded row groups in a temporary file, for Parquet files whose groups are much larger than a shard.

Shards come in a shuffled order, and a group can only be decoded whole: of a group of a million rows every
shard of ten thousand would decode a hundred times its own rows. So a group is decoded once and written to
disk uncompressed, in pieces of `PIECE_ROWS`, and a shard reads the pieces that it needs. Keeping decoded
groups in memory was rejected: they would be as large as the data. Mapping the file too: its pages count as
memory of the worker, and the forecast would treat them as growth.

The file has no name once it is open, so nothing is left behind however the process ends. It takes at most
`MOST_BYTES` and a quarter of the free disk; groups that do not fit are decoded as before.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Hashable

_log = logging.getLogger(__name__)

PIECE_ROWS = 8192
LARGE_ROWS = 8 * PIECE_ROWS  # a smaller group is decoded as fast as it is read back
MOST_BYTES = 4 << 30


class SpilledGroup:
    """One group in a file without a name."""

    def __init__(self, table: pa.Table) -> None:
        descriptor, path = tempfile.mkstemp(prefix="dlrover-nb-")
        os.close(descriptor)
        try:
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=PIECE_ROWS)
            self._reader = pa.ipc.open_file(pa.OSFile(path, "rb"))
        finally:
            os.unlink(path)  # noqa: PTH108 - a path as text is all there is of it

    def read(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop) of the group."""
        first, last = start // PIECE_ROWS, -(-stop // PIECE_ROWS)
        pieces = [self._reader.get_batch(i) for i in range(first, last)]
        return pa.Table.from_batches(pieces, self._reader.schema).slice(
            start - first * PIECE_ROWS, stop - start
        )


class Spill:
    """Groups that were written to disk, as long as there is room."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, SpilledGroup] = {}
        self._n_byte = 0

    def get(self, key: Hashable) -> SpilledGroup | None:
        """Return a stored group."""
        return self._groups.get(key)

    def put(self, key: Hashable, table: pa.Table) -> bool:
        """Store a group if it is large and there is room; return whether it is stored now."""
        if table.num_rows < LARGE_ROWS or not self._has_room(table.nbytes):
            return False
        try:
            self._groups[key] = SpilledGroup(table.unify_dictionaries().combine_chunks())
        except (OSError, pa.ArrowInvalid) as error:
            _log.warning("row groups are decoded again and again: no temporary file (%s)", error)
            self._n_byte = MOST_BYTES
            return False
        self._n_byte += table.nbytes
        return True

    def _has_room(self, n_byte: int) -> bool:
        n_free = shutil.disk_usage(tempfile.gettempdir()).free
        return self._n_byte + n_byte <= MOST_BYTES and 4 * n_byte <= n_free
