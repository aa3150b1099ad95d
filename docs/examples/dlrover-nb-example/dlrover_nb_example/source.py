"""A data source: a file of JSON lines, one object per row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import json

from dlrover_nb.core.data.kinds import kind_of
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.job.job import DataSpec


class JsonLines:
    """The rows of a file, held in memory."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"no data file {path}; check the path")
        try:
            self._table = json.read_json(path)
        except pa.ArrowInvalid as error:
            raise InvalidValueError(f"{path} must hold one JSON object per line: {error}") from error
        self.n_row = self._table.num_rows
        self.kinds = {field.name: kind_of(field.type) for field in self._table.schema}

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        return self._table.select(list(columns)).slice(start, stop - start)


def open_json_lines(data: DataSpec, _: Path | None) -> JsonLines:
    """Open the file that the job names; the second argument is the job's run folder."""
    return JsonLines(Path(data.path))
