"""The binary image of a checkpoint part: the same bytes in shared memory and in a file.

An image is a magic number with the version of this format, the length of a JSON head, the head (a small
header of the caller; name, type, shape and position of each array), and the arrays' memory, each at a
multiple of 64 bytes. So a buffer is written to a file unchanged, and either is mapped without a copy. There
is no pickle, so an image cannot execute code; it yields only arrays of plain numbers, from inside its bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dlrover_nb.core.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

Header = dict[str, int | float | str | bool]

_MARK = b"DLNBCKP"
_FORMAT = b"3"
_ALIGN = 64  # a cache line; arrays can be used in place
_LENGTH_AT = len(_MARK) + len(_FORMAT)
_HEAD_AT = _LENGTH_AT + 4
_MAX_HEAD_BYTES = 1 << 16
_DTYPES = frozenset({"|b1", "|u1", "|i1", "<i4", "<i8", "<u4", "<u8", "<f4", "<f8"})
_SELECT_ROWS = 1 << 14  # of which some are taken, at a time
_COPY_BYTES = 64 << 20  # size of the blocks between which the caller gets control


@dataclass(frozen=True, slots=True)
class _Field:
    """Position of one array, from the start of the image."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    at: int

    @property
    def n_byte(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class _Head:
    header: Header
    fields: tuple[_Field, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """The caller's header and its arrays; read-only views after a read."""

    header: Header
    arrays: Mapping[str, NDArray[Any]]


class Layout:
    """The layout of an image, computed before any array is copied.

    Parameters
    ----------
    image
        What to lay out. Arrays that are not contiguous are copied once more; ours are.
    rows
        Which rows of arrays of these names; of others, all. They are selected when their bytes are asked for.
    """

    def __init__(self, image: Image, rows: Mapping[str, NDArray[np.bool_]] | None = None) -> None:
        self._rows = rows or {}
        self._n_row = {name: int(np.count_nonzero(mask)) for name, mask in self._rows.items()}
        self._arrays = {name: np.ascontiguousarray(array) for name, array in image.arrays.items()}
        for name, array in self._arrays.items():
            if array.dtype.str not in _DTYPES:
                raise CheckpointError(f"{name} has the type {array.dtype}, expected one of {sorted(_DTYPES)}")
        length = 0
        while True:  # positions in the head depend on its length
            head = self._head(image.header, length)
            if len(head) <= length:
                break
            length = _aligned(len(head))
        self._start = head.ljust(length, b"\0")
        self.n_byte = self._end

    def _head(self, header: Header, at: int) -> bytes:
        fields = []
        for name, array in self._arrays.items():
            n_row = self._n_row.get(name, len(array))
            field = _Field(name, array.dtype.str, (n_row, *array.shape[1:]), at)
            fields.append(field)
            at = _aligned(at + field.n_byte)
        self._end = at
        text = msgspec.json.encode(_Head(header, tuple(fields)))
        if len(text) > _MAX_HEAD_BYTES:
            raise CheckpointError(
                f"the head of a checkpoint may have {_MAX_HEAD_BYTES} bytes, got {len(text)}"
            )
        return _MARK + _FORMAT + len(text).to_bytes(4, "little") + text

    def views(self, body: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Write all but the arrays into `body`, and return where there they belong."""
        views, at = {}, len(self._start)
        body[:at] = np.frombuffer(self._start, np.uint8)
        for name, array in self._arrays.items():
            end = at + array.nbytes
            views[name] = body[at:end].view(array.dtype).reshape(array.shape)
            at = _aligned(end)
            body[end:at] = 0
        return views

    def pieces(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield all bytes in their order as (place, bytes), views of at most 64 MiB; between lie zeros."""
        yield 0, np.frombuffer(self._start, np.uint8)
        at = len(self._start)
        for name, array in self._arrays.items():
            for piece in _pieces(array, self._rows.get(name)):
                yield at, piece
                at += len(piece)
            at = _aligned(at)

    def chunks(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all bytes without a gap, to be written one after the other."""
        done = 0
        for at, piece in self.pieces():
            if at > done:
                yield np.zeros(at - done, np.uint8)
            yield piece
            done = at + len(piece)
        if done < self.n_byte:
            yield np.zeros(self.n_byte - done, np.uint8)


def _pieces(array: NDArray[Any], rows: NDArray[np.bool_] | None) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of an array, or of some rows of it, in their order."""
    n_row = max(1, _COPY_BYTES // max(1, array[:1].nbytes)) if rows is None else _SELECT_ROWS
    for start in range(0, len(array) if array.size else 0, n_row):
        block = array[start : start + n_row]
        piece = block if rows is None else block[rows[start : start + n_row]]
        yield piece.reshape(-1).view(np.uint8)


def parse(data: NDArray[np.uint8], where: str) -> Image:
    """Return the image that `data` holds, its arrays as read-only views of it.

    Parameters
    ----------
    data
        uint8 [n], all bytes of the image and none more.
    where
        Its name, for errors.

    Raises
    ------
    CheckpointError
        When it is of another format or its head does not fit its length.
    """
    head, length = _read_head(data, where)
    data = data.view()
    data.flags.writeable = False
    end = _aligned(length)
    arrays = {}
    for field in head.fields:
        if field.at != end:
            raise CheckpointError(f"{where} is damaged: {field.name} lies at {field.at}, expected {end}")
        end = _aligned(field.at + _checked_bytes(field, len(data), where))
        flat = data[field.at : field.at + field.n_byte].view(field.dtype)
        arrays[field.name] = flat.reshape(field.shape)
    if end != len(data):
        raise CheckpointError(f"{where} is damaged: it has {len(data)} bytes, its head announces {end}")
    return Image(head.header, arrays)


def _read_head(data: NDArray[np.uint8], where: str) -> tuple[_Head, int]:
    start = data[:_HEAD_AT].tobytes()
    if not start.startswith(_MARK) or len(start) < _HEAD_AT:
        raise CheckpointError(f"{where} is no checkpoint of dlrover-nb; name one that it wrote")
    version = start[len(_MARK) : _LENGTH_AT]
    if version != _FORMAT:
        raise CheckpointError(
            f"{where} has checkpoint format {version.decode(errors='replace')}, expected {_FORMAT.decode()}; "
            "read it with the release that wrote it"
        )
    length = int.from_bytes(start[_LENGTH_AT:], "little")
    end = _HEAD_AT + length
    if length > _MAX_HEAD_BYTES or end > len(data):
        raise CheckpointError(f"{where} is damaged: a head of {length} bytes in {len(data)}")
    try:
        return msgspec.json.decode(data[_HEAD_AT:end].tobytes(), type=_Head), end
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{where} is damaged: {error}") from error


def _checked_bytes(field: _Field, n_byte: int, where: str) -> int:
    """Return the length of an array whose type and place are allowed."""
    is_allowed = field.dtype in _DTYPES and min(field.shape, default=0) >= 0
    if not is_allowed or field.at + field.n_byte > n_byte:
        raise CheckpointError(f"{where} is damaged: {field.name} cannot be {field.dtype} {field.shape}")
    return field.n_byte


def _aligned(n_byte: int) -> int:
    return -(-n_byte // _ALIGN) * _ALIGN
