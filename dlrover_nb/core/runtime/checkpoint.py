"""Checkpoint files of a PS: atomic when written, verified when read.

A file is a mark, the length of a JSON header, the header (version, dense offset, and type and shape of each
array), and the arrays' memory one after the other. It is written under another name, forced to the disk and
renamed, so that a crash or a full disk leaves the last good file as it was. The reader first compares the
SHA-256 of the whole file with the one that the master noted, then maps the arrays into memory: neither way
holds a second copy of the parameters. No pickle, so a file cannot run anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.store import StorePart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_MARK = b"DLNBCKP2"
_ARRAYS = (("ids", "<i8", 1), ("table", "<f4", 2), ("dense", "<f4", 2))
_CHUNK_BYTES = 8 << 20
_MAX_HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file: what to note of it."""

    sha256: str
    n_byte: int


def _nothing() -> None:
    """Do nothing between two chunks."""


def write(path: Path, part: StorePart, *, between: Callable[[], None] = _nothing) -> Written:
    """Write `part` to `path` atomically.

    Parameters
    ----------
    between
        Called after every few MiB: a PS sends its heartbeat there.

    Raises
    ------
    CheckpointError
        When the disk is full or the folder cannot be written; `path` is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            written = _write(file, part, between)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the checkpoint {path}: {error.strerror or error}; the last good one is untouched. "
            "Free space on that disk or choose another run folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return written


def read(path: Path, sha256: str, *, between: Callable[[], None] = _nothing) -> StorePart:
    """Return the part that `path` holds, its arrays mapped from the file and read-only.

    Raises
    ------
    CheckpointError
        When the file is missing, not what was written, or of another format.
    """
    try:
        found = _sha256(path, between)
        if found != sha256:
            raise CheckpointError(
                f"the checkpoint {path} is damaged: expected SHA-256 {sha256[:12]}, got {found[:12]}; "
                "use an earlier checkpoint"
            )
        return _map(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}; use an earlier one") from error


def _write(file: BinaryIO, part: StorePart, between: Callable[[], None]) -> Written:
    digest, n_byte = hashlib.sha256(), 0
    for chunk in _chunks(part):
        file.write(chunk)
        digest.update(chunk)
        n_byte += len(chunk)
        between()
    return Written(digest.hexdigest(), n_byte)


def _chunks(part: StorePart) -> Iterator[bytes | memoryview]:
    arrays = [np.asarray(getattr(part, name), dtype, order="C") for name, dtype, _ in _ARRAYS]
    header = {"dense_offset": part.dense_offset, "shapes": [array.shape for array in arrays]}
    text = json.dumps(header).encode()
    yield _MARK + len(text).to_bytes(4, "little") + text
    for array in arrays:
        data = memoryview(array.tobytes() if not array.size else array.data).cast("B")
        for start in range(0, len(data), _CHUNK_BYTES):
            yield data[start : start + _CHUNK_BYTES]


def _map(path: Path) -> StorePart:
    with path.open("rb") as file:
        if file.read(len(_MARK)) != _MARK:
            raise CheckpointError(f"{path} is no checkpoint of this version; use one that this release wrote")
        n_header = int.from_bytes(file.read(4), "little")
        if n_header > _MAX_HEADER_BYTES:
            raise CheckpointError(f"{path} has a header of {n_header} bytes, expected a few hundred")
        header = json.loads(file.read(n_header))
        at = file.tell()
    arrays: dict[str, NDArray[Any]] = {}
    for (name, dtype, n_dimension), shape in zip(_ARRAYS, header["shapes"], strict=True):
        if len(shape) != n_dimension:
            raise CheckpointError(f"{path}: {name} has {len(shape)} dimensions, expected {n_dimension}")
        arrays[name] = _map_array(path, dtype, tuple(shape), at)
        at += arrays[name].nbytes
    if at != path.stat().st_size:
        raise CheckpointError(f"{path} has {path.stat().st_size} bytes, its header says {at}")
    return StorePart(dense_offset=int(header["dense_offset"]), **arrays)


def _map_array(path: Path, dtype: str, shape: tuple[int, ...], at: int) -> NDArray[Any]:
    if 0 in shape:
        return np.empty(shape, dtype)  # nothing can be mapped of it
    return np.memmap(path, dtype, "r", at, shape)


def _sha256(path: Path, between: Callable[[], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            between()
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Force the new name to the disk as well, not only the data."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
