"""Names of data files: their formats by their extensions, and what in them is a pattern."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDINGS: Mapping[str, DataFormat] = {
    ".parquet": DataFormat.PARQUET,
    ".pq": DataFormat.PARQUET,
    ".csv": DataFormat.CSV,
    ".tsv": DataFormat.TSV,  # those of Criteo without a header too, see `core.data.source`
    ".npz": DataFormat.NUMPY,
    ".npy": DataFormat.NUMPY,
}
COMPRESSED = (".gz", ".bz2", ".zst")  # of text: the other formats compress by themselves
_ARCHIVES = frozenset({".zip", ".xz", ".7z", ".rar", ".tar", ".tgz", ".lz4", ".br"})
TEXT = frozenset({DataFormat.CSV, DataFormat.TSV, DataFormat.CRITEO})
FILES = TEXT | {DataFormat.PARQUET, DataFormat.NUMPY}  # formats whose data are files
_USERINFO = re.compile(r"(?<=://)[^/?#@\s]*@")


def is_url(path: str) -> bool:
    """Whether a data path is a URL."""
    return "://" in path


def format_of(path: str) -> DataFormat | None:
    """Return the format of a file, a pattern or a URL by its extension; None where that is unknown."""
    name = PurePosixPath(bare(path) if is_url(path) else path)
    kind = ENDINGS.get(name.suffix.lower())
    if kind is None and name.suffix.lower() in COMPRESSED:
        kind = ENDINGS.get(name.with_suffix("").suffix.lower())
        return kind if kind in TEXT else None
    return kind


def check_readable(path: str) -> None:
    """Refuse a file that is compressed as a whole in a way that cannot be read from its middle or in parts.

    Raises
    ------
    InvalidValueError
        With the compressions of text that are read.
    """
    suffix = PurePosixPath(bare(path) if is_url(path) else path).suffix.lower()
    if suffix in _ARCHIVES:
        raise InvalidValueError(
            f"{shown(path)} is a {suffix} file, which is not read; unpack it, or compress its text with "
            f"gzip, bzip2 or zstd ({', '.join(COMPRESSED)})"
        )


def is_pattern(path: str) -> bool:
    """Whether a path may name several files; in a URL a question mark begins its query."""
    return any(
        letter in (bare(path) if is_url(path) else path) for letter in ("*[" if is_url(path) else "*?[")
    )


def bare(url: str) -> str:
    """Return a URL without what may be secret: its user, its query and its fragment."""
    return re.split(r"[?#]", _USERINFO.sub("", url), maxsplit=1)[0]
