"""Rows that a user holds in memory, written once to a Parquet file that nodes read by shards.

The file is named by its content in the user's state folder: the same rows submitted again are the same file,
and an earlier job still finds its own. Pickling a DataFrame into the run folder was rejected: every node
would hold all rows. A file that nothing has used for `KEPT_S` is deleted when the next one is written, unless
a run folder still names it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlrover_nb.core.data.kinds import Kind, kind_of
from dlrover_nb.core.data.objects.arrow_tables import as_table
from dlrover_nb.core.disk.files import replace_synced, writing_to
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from pathlib import Path

GROUP_ROWS = 1 << 16  # of one row group: decoded as fast as it would be read back
KEPT_S = 30 * 86_400.0


def store_rows(rows: object, folder: Path, *, at_s: float | None = None) -> Path:
    """Write rows to a file of `folder`, and return its path.

    Parameters
    ----------
    rows
        A DataFrame, an Arrow table, or a mapping of columns.
    at_s
        The present time; None: that of the clock.

    Raises
    ------
    InvalidValueError
        When they are no table of named columns, each of one type; it names the column.
    BackendError
        When the folder cannot be written to.
    """
    table = _table(rows)
    with writing_to(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".{secrets.token_hex(8)}"
        try:
            _write(table, temporary)
            with temporary.open("rb") as file:
                path = folder / f"{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}.parquet"
            replace_synced(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _prune(folder, path, time.time() if at_s is None else at_s)
    return path


def _write(table: pa.Table, path: Path) -> None:
    try:
        pq.write_table(table, path, row_group_size=GROUP_ROWS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidValueError(
            f"the rows cannot be written as Parquet: {_line(error)}; leave it out"
        ) from error
    path.chmod(0o600)


def _prune(folder: Path, new: Path, at_s: float) -> None:
    old = [p for p in folder.glob("*.parquet") if p != new and at_s - p.stat().st_mtime > KEPT_S]
    if not old:
        return
    named = b"".join(record.read_bytes() for record in jobs_folder().glob("*/*.json"))
    for path in old:
        if path.name.encode() not in named:
            path.unlink(missing_ok=True)


def _table(rows: Any) -> pa.Table:  # noqa: ANN401 - whatever a user holds
    _check_names(rows)
    table = _with_categories_as_text(as_table(rows))
    if not table.num_rows:
        raise InvalidValueError("the rows are none; give a table with data")
    return table


def _with_categories_as_text(table: pa.Table) -> pa.Table:
    """Return categories that are no text as text: Parquet would make plain numbers of them."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and kind_of(field.type.value_type) is not Kind.CATEGORICAL:
            texts = table.column(i).cast(field.type.value_type).cast(pa.string())
            table = table.set_column(i, field.name, texts)
    return table


def _check_names(rows: Any) -> None:  # noqa: ANN401 - as above
    """Refuse columns that a job file could not name, or that an index would hide."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        names = rows.schema.names
    else:
        names = list(rows if isinstance(rows, dict) else getattr(rows, "columns", ()))
    names += [name for name in getattr(getattr(rows, "index", None), "names", ()) if name is not None]
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidValueError(
                f"column names must be text, got {name!r}; rename them, such as "
                "frame.columns = [f'c{i}' for i in range(frame.shape[1])]"
            )
        if names.count(name) > 1:
            raise InvalidValueError(f"there are two columns {name!r}; rename or drop one")


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
