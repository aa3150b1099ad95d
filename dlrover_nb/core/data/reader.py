"""Read a shard's rows: the index ranges that the ledger grants to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.data.encode import encode
from dlrover_nb.core.data.source import Versioned, open_source
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.data.encode import Batch
    from dlrover_nb.core.data.storage.encoded_rows import EncodedRows
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import DataSpec


class ShardReader:
    """Reader of encoded rows by index: training rows are [0, n_train), evaluation rows the n_eval after them.

    Parameters
    ----------
    data
        Where the rows are.
    features
        What `make_features` made of them when the job was submitted.
    folder
        The job's run folder, where a user's own object lies.
    encoded
        What this machine keeps of rows that were encoded before; None: nothing.

    Raises
    ------
    InvalidValueError
        When the file does not have the rows that it had then.
    """

    def __init__(
        self,
        data: DataSpec,
        features: FeatureSpec,
        *,
        folder: Path | None = None,
        encoded: EncodedRows | None = None,
    ) -> None:
        self._encoded = encoded
        self._source = open_source(data, folder, features=features)
        self._features = features
        numeric, categorical = ([c.name for c in features.numeric], [c.name for c in features.categorical])
        self._columns = (*numeric, *categorical, features.label)
        self._n_row = None if features.is_stream else features.n_train + features.n_eval
        if self._source.n_row != self._n_row:
            raise InvalidValueError(
                f"{data.place} has {self._source.n_row} rows, but had {self._n_row} when the job was "
                "submitted; stop the job and submit it again"
            )

    def read(self, start: int, stop: int) -> Batch:
        """Return rows [start, stop), encoded; fewer where a stream ends.

        Raises
        ------
        InvalidValueError
            When there are no such rows, or they do not match the features; it names the row.
        """
        if not 0 <= start <= stop <= (stop if self._n_row is None else self._n_row):
            raise InvalidValueError(f"rows must be within [0, {self._n_row}), got [{start}, {stop})")
        if self._encoded is None or not isinstance(self._source, Versioned):
            return self._read(start, stop)
        version = self._source.content_version(start, stop)
        if version is None:
            return self._read(start, stop)
        batch = self._encoded.get(start, stop, version)
        if batch is None:
            batch = self._read(start, stop)
            if self._source.content_version(start, stop) == version:  # not written meanwhile
                self._encoded.put(start, stop, version, batch)
        return batch

    def _read(self, start: int, stop: int) -> Batch:
        return encode(self._source.read(start, stop, self._columns), self._features, start)
