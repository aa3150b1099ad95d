"""Encoded rows of shards, kept on this machine for the next pass over them, and for the next job.

A shard is the same rows in each pass, so a pass after the first one reads what the first has encoded, for a
twentieth of the CPU time. Entries are files, so that all workers of a machine share them and a restart finds
them again.

An entry is named by all that its bytes depend on: the data and their encoding, the range of rows, the version
of the files that have them (`storage.versions`), and the encoder. The version of the encoder is a hash of its
own source and the versions of its libraries: a number that is raised by hand would be forgotten once.

An entry is read into memory and not mapped: a mapped file may change or be cut off after its checksum was
computed, and its pages count as memory of the worker. Without `fsync` a power failure may leave anything
under the name; an entry whose length or checksum is wrong is deleted, and its rows are encoded again. Two
processes that write one entry write two files, and the last name stays.

Nothing here is needed for training: where it cannot be written to, rows are encoded in each pass. Entries of
other data that were not used for the longest time are deleted for new ones. Those of the same data stay, as
the next pass begins with the oldest of them: of data that do not fit, a part is kept and the rest is encoded
in each pass. In a pod the room of its own disk is not known, and one that takes too much is ended, so there
rows are only kept in a folder that the user names.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import struct
import sys
import time
import zlib
from dataclasses import astuple, dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dlrover_nb.core.data.encode import Batch
from dlrover_nb.core.data.storage.cache import FOLDER_VAR, LEAST_FREE, data_cache
from dlrover_nb.core.errors import DlroverError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import DataSpec

_log = logging.getLogger(__name__)

FOLDER = "encoded"
SHARE = 5  # of what fetched files may take, encoded rows take one part in so many, beside them
DISK_SHARE = 4  # likewise of the free disk
_STEP_BYTES = 256 << 20  # that are written before the folder is listed again
_STALE_S = 86_400.0  # not used since: an unfinished file has no writer, and a former version no reader
_ENDING, _PART = ".rows", ".part"
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{40}\.(rows|[0-9a-f]{8}\.part)")
_ROOMS = ("data", "structs/data", "structs/job")  # of the core: what reads rows, and how it is told to
_MAGIC = b"dnrows1\n"
_HEAD = struct.Struct("<8sI")  # and the checksum of all that follows
_SIZES = struct.Struct("<32sqqqq")  # the key, rows, places, numbers, bytes of an id


@dataclass(slots=True)
class Uses:
    """Shards that were read from here, and that were not there."""

    n_hit: int = 0
    n_miss: int = 0


class EncodedRows:
    """Encoded rows of one data set in one encoding.

    Parameters
    ----------
    folder
        Of the entries of all data sets.
    most_bytes
        Of all of them.
    encoding
        What the bytes depend on beside rows and files, as a hash.
    """

    def __init__(self, folder: Path, most_bytes: int, encoding: str) -> None:
        self._folder, self._most_bytes, self._encoding = folder, most_bytes, encoding
        self._left_bytes = 0  # to be written before the folder is listed again
        self._is_open = True  # for new entries
        self.uses = Uses()

    def get(self, start: int, stop: int, version: str) -> Batch | None:
        """Return rows [start, stop) of files of a version, where they are here."""
        key = self._key(start, stop, version)
        path = self._path(key)
        batch = None
        try:
            batch = _read(path, key, stop - start)
            os.utime(path)
        except FileNotFoundError:
            pass
        except ValueError as error:
            _log.warning("rows [%d, %d) are encoded again: %s", start, stop, error)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        except OSError as error:
            self._close(f"{self._folder} cannot be read ({error.strerror or error})")
        if batch is not None and not self.uses.n_hit:
            _log.info("rows are read as they were encoded before, from %s", self._folder)
        self.uses.n_hit += batch is not None
        self.uses.n_miss += batch is None
        return batch

    def put(self, start: int, stop: int, version: str, batch: Batch) -> None:
        """Store rows [start, stop) of files of a version, if there is room."""
        key = self._key(start, stop, version)
        path = self._path(key)
        part = path.with_suffix(f".{secrets.token_hex(4)}{_PART}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_open and self._has_room(_n_byte(batch)):
                _write(part, key, batch)
                part.replace(path)
        except OSError as error:
            self._close(f"{self._folder} cannot be written to ({error.strerror or error})")
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _key(self, start: int, stop: int, version: str) -> bytes:
        return hashlib.sha256(f"{self._encoding}\n{start}\n{stop}\n{version}".encode()).digest()

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{self._encoding[:16]}-{key.hex()[:40]}{_ENDING}"

    def _has_room(self, n_byte: int) -> bool:
        if n_byte > self._left_bytes:
            self._left_bytes = self._made_room(n_byte)
        if n_byte > self._left_bytes:
            self._close(f"those of {self._folder} take {self._most_bytes / (1 << 30):.3g} GiB at most")
            return False
        self._left_bytes -= n_byte
        return True

    def _close(self, why: str) -> None:
        if self._is_open:
            _log.warning("no more encoded rows are kept, the rest is encoded in each pass: %s", why)
        self._is_open = False

    def _made_room(self, n_least: int) -> int:
        """Delete what others have not used for the longest time; return how much may be written next.

        That is `n_least` bytes and some more, so that the folder is listed rarely.
        """
        entries = sorted(_entries(self._folder))
        n_total = sum(size for _, size, _ in entries)
        free = shutil.disk_usage(self._folder).free
        most = min(self._most_bytes, (free + n_total) // DISK_SHARE, free + n_total - LEAST_FREE)
        step = max(min(_STEP_BYTES, most // 8), n_least)
        now_s = time.time()
        for used_s, size, path in entries:
            if n_total + step <= most:
                break
            is_own = path.name.startswith(self._encoding[:16]) and now_s - used_s < _STALE_S
            is_written = path.suffix == _PART and now_s - used_s < _STALE_S
            if not is_own and not is_written:
                path.unlink(missing_ok=True)
                n_total -= size
        return min(step, most - n_total)


def encoded_rows(data: DataSpec, features: FeatureSpec) -> EncodedRows | None:
    """Return what is kept on this machine of the rows of a job; None where nothing may be kept."""
    encoder = encoder_version()
    is_in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if encoder is None or (is_in_pod and not os.environ.get(FOLDER_VAR)):
        return None
    try:
        files = data_cache()
    except (DlroverError, OSError) as error:
        _log.warning("no encoded rows are kept: %s", error)
        return None
    if files.most_bytes < SHARE:
        return None
    folder = files.folder.parent / FOLDER
    with contextlib.suppress(OSError):
        if folder.stat().st_uid != os.geteuid():  # its owner could give this job other rows
            _log.warning("no encoded rows are kept: %s is of another user", folder)
            return None
    encoding = hashlib.sha256(repr((encoder, astuple(data), astuple(features))).encode()).hexdigest()
    return EncodedRows(folder, files.most_bytes // SHARE, encoding)


@cache
def encoder_version(core: Path = Path(__file__).parents[2]) -> str | None:
    """Return a hash of all that reads and encodes rows; None where its source is not at hand."""
    sources = sorted(chain.from_iterable((core / room).rglob("*.py") for room in _ROOMS))
    if not sources:
        return None
    digest = hashlib.sha256(f"{pa.__version__} {np.__version__} {sys.byteorder}".encode())
    for source in sources:
        digest.update(source.relative_to(core).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield (last use, bytes, path) of entries; files of others in this folder are left alone."""
    for path in filter(lambda path: _NAME.fullmatch(path.name), folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            yield stat.st_mtime, stat.st_size, path


def _narrow(ids: NDArray[np.int64]) -> NDArray[np.int64] | NDArray[np.int32]:
    """Return ids in half of the room, where they fit: those of a fixed table, not hashes."""
    fits = np.iinfo(np.int32)
    is_narrow = ids.size == 0 or (ids.min() >= fits.min and ids.max() <= fits.max)
    return ids.astype(np.int32) if is_narrow else ids


def _n_byte(batch: Batch) -> int:
    """Return the most bytes of an entry."""
    return _HEAD.size + _SIZES.size + batch.ids.nbytes + batch.dense.nbytes + batch.labels.nbytes


def _write(path: Path, key: bytes, batch: Batch) -> None:
    ids = _narrow(batch.ids)
    sizes = _SIZES.pack(key, len(batch), batch.ids.shape[1], batch.dense.shape[1], ids.itemsize)
    pieces = [memoryview(sizes), *map(_bytes, (ids, batch.dense, batch.labels))]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb", buffering=0) as file:  # noqa: PTH123 - pathlib opens no descriptor
        for piece in (memoryview(_HEAD.pack(_MAGIC, checksum)), *pieces):
            while piece:
                piece = piece[file.write(piece) :]  # noqa: PLW2901 - what is left of it


def _read(path: Path, key: bytes, n_row: int) -> Batch:
    """Read an entry; ValueError where it is not what was written."""
    n_head = _HEAD.size + _SIZES.size
    with path.open("rb", buffering=0) as file:
        n_byte = os.fstat(file.fileno()).st_size
        head = file.read(n_head)
        if len(head) < n_head:
            raise ValueError(f"{path} is cut off")
        magic, expected = _HEAD.unpack_from(head)
        its_key, its_n_row, n_slot, n_dense, item = _SIZES.unpack_from(head, _HEAD.size)
        n_expected = n_head + its_n_row * (n_slot * item + 4 * (n_dense + 1))
        is_of_key = (magic, its_key, its_n_row) == (_MAGIC, key, n_row) and item in {4, 8}
        if not is_of_key or n_byte != n_expected or min(n_slot, n_dense) < 0:
            raise ValueError(f"{path} is not what was written")
        ids = np.empty((n_row, n_slot), np.int32 if item == 4 else np.int64)
        dense, labels = np.empty((n_row, n_dense), np.float32), np.empty(n_row, np.float32)
        checksum = zlib.crc32(head[_HEAD.size :])
        for piece in map(_bytes, (ids, dense, labels)):
            _fill(file, piece)
            checksum = zlib.crc32(piece, checksum)
    if checksum != expected:
        raise ValueError(f"{path} has another checksum than was written")
    return Batch(ids.astype(np.int64, copy=False), dense, labels)


def _fill(file: FileIO, piece: memoryview) -> None:
    while piece:
        n_byte = file.readinto(piece)
        if not n_byte:
            raise ValueError(f"{file.name!s} is cut off")
        piece = piece[n_byte:]


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
