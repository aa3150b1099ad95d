"""Frames: how records and arrays travel between the processes of a job, through the sockets of `sockets`.

A message is a list of frames. The first holds a magic number, the version of this format, the headers of the
arrays and the record; each further frame is the memory of one array, sent and read without a copy. A small
array lies in the first frame, between headers and record, at a multiple of 8 bytes: a frame of its own costs
more than its copy, in Python and in ZeroMQ at both ends, and one more seal (`sealed`).

`decode` returns only records of the closed unions and the listed array types: nothing in a message is ever
executed, so there is no pickle here.

An array may lie in memory that both ends map instead (`SharedBlock`): it has no frame then, and its header
says where it lies. Each place is checked against the memory. Integers, which become addresses, are copied
before they are checked, as the other end could change them afterwards; numbers are read in place.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import (
    BetweenPs,
    ExchangeRefused,
    FromPs,
    GradientsKept,
    KeepGradients,
    NotMember,
    ToPs,
)
from dlrover_nb.core.runtime.exchange.shared_block import SharedArray, SharedBlock
from dlrover_nb.core.structs.wire.copy_messages import CopyTraffic
from dlrover_nb.core.structs.wire.messages import FromNode, LinesWritten, ToNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


MAX_FRAME_BYTES = 256 << 20  # one frame; frames of a PS are far smaller
MAX_FRAMES = 16
MAX_HEAD_BYTES = 1 << 20  # the record and the arrays' headers, which are decoded into objects

_MARK = b"DN"
_VERSION = 1
_HEAD = struct.Struct("<2sBB")  # mark, version, number of arrays
_ARRAY = struct.Struct("<BB")  # type, number of dimensions
_DTYPES = tuple(np.dtype(name) for name in ("<f4", "<f8", "<i4", "<i8", "|u1", "<f2", "<u2"))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_MAX_DIMENSIONS = 4
_SHARED = 0x80  # added to the type of an array in shared memory
_ALIGNMENT = 8  # of arrays in the first frame
_INLINE = 0x40  # and to that of one in the first frame
INLINE_BYTES = 16 << 10  # a larger array has a frame; pyzmq copies less than 64 KiB anyway
_PLACE = struct.Struct("<IQ")  # number of the block, offset
_Header: TypeAlias = tuple[int, tuple[int, ...], tuple[int, int]]  # type, shape, place in shared memory
_RECORDS: Tagged[Any] = Tagged(
    FromNode,
    LinesWritten,
    ToNode,
    ToPs,
    FromPs,
    BetweenPs,
    CopyTraffic,
    written={
        KeepGradients: "Hold",
        GradientsKept: "Held",
        NotMember: "Gone",
        ExchangeRefused: "Refused",
    },
)


def encode(message: object, arrays: Iterable[NDArray[Any] | SharedArray] = ()) -> list[Any]:
    """Return the frames of a record and the arrays beside it.

    Larger arrays are not copied: with ``send_multipart(frames, copy=False)`` their memory must not change
    until the answer has arrived.

    Raises
    ------
    WireError
        When an array's type is not one of the wire's, or it is too large.
    """
    headers: list[bytes] = []
    frames: list[memoryview | bytes] = []
    inline: list[memoryview | bytes] = []
    for array in arrays:
        if isinstance(array, SharedArray):
            headers.append(_array_header(array.array, _SHARED) + _PLACE.pack(array.number, array.offset))
        else:
            part = np.asarray(array, order="C")
            is_small = part.nbytes <= INLINE_BYTES
            headers.append(_array_header(part, _INLINE if is_small else 0))
            (inline if is_small else frames).append(_memory(part))
    if len(headers) >= MAX_FRAMES:
        raise WireError(f"a message holds at most {MAX_FRAMES - 1} arrays, got {len(headers)}")
    parts: list[memoryview | bytes] = [b"".join((_HEAD.pack(_MARK, _VERSION, len(headers)), *headers))]
    at = len(parts[0])
    for each in inline:
        parts += bytes(_padded(at) - at), each
        at = _padded(at) + len(each)
    first = b"".join((*parts, _RECORDS.pack(message)))
    if len(first) > MAX_HEAD_BYTES:
        raise WireError(f"a record has at most {MAX_HEAD_BYTES >> 10} KiB, got {len(first) >> 10}")
    return [first, *frames]


def n_byte(frames: Sequence[Any]) -> int:
    """Return how many bytes the frames of a message hold."""
    return sum(frame.nbytes if isinstance(frame, memoryview) else len(frame) for frame in frames)


def decode(frames: Sequence[Any], shared: SharedBlock | None = None) -> tuple[Any, list[NDArray[Any]]]:
    """Return the record and the arrays of a message; the arrays are views of the frames' memory.

    `shared` is the memory that the sender may place arrays in; None: none.

    Raises
    ------
    WireError
        When it is not a message of this version, or its arrays are not what its header says.
    """
    try:
        return _decode([memoryview(getattr(frame, "buffer", frame)) for frame in frames], shared)
    except (struct.error, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"malformed message: {error}; do all nodes run the same release?") from error


def _decode(frames: list[memoryview], shared: SharedBlock | None) -> tuple[Any, list[NDArray[Any]]]:
    if not 1 <= len(frames) <= MAX_FRAMES:
        raise WireError(f"expected 1 to {MAX_FRAMES} frames, got {len(frames)}")
    if frames[0].nbytes > MAX_HEAD_BYTES:
        raise WireError(f"a record has at most {MAX_HEAD_BYTES >> 10} KiB, got {frames[0].nbytes >> 10}")
    mark, version, n_array = _HEAD.unpack_from(frames[0])
    if mark != _MARK:
        raise WireError(
            f"expected a message that begins with {_MARK!r}, got {mark!r}: it was sent by another program"
        )
    if version != _VERSION:
        raise WireError(
            f"expected version {_VERSION} of the wire, got version {version}; run one release on all nodes"
        )
    arrays: list[NDArray[Any]] = []
    headers, at = _read_array_headers(frames[0], min(n_array, MAX_FRAMES))
    unread = iter(frames[1:])
    for code, shape, place in headers:
        if code & _SHARED:
            arrays.append(_shared(shared, *place, dtype=_dtype(code & ~_SHARED), shape=shape))
        elif code & _INLINE:
            dtype = _dtype(code & ~_INLINE)
            begin = _padded(at)
            at = begin + math.prod(shape) * dtype.itemsize
            arrays.append(_array(frames[0][begin:at], dtype, shape))
        elif (frame := next(unread, None)) is not None:
            arrays.append(_array(frame, _dtype(code), shape))
    n_unread = len(list(unread))
    if n_array != len(arrays) or n_unread:
        raise WireError(f"the header announces {n_array} arrays, got {len(arrays) + n_unread}")
    return _RECORDS.unpack(frames[0][at:]), arrays  # type: ignore[arg-type]  # any buffer is accepted


def _array_header(array: NDArray[Any], mark: int = 0) -> bytes:
    code = _CODES.get(array.dtype)
    if code is None or array.ndim > _MAX_DIMENSIONS or array.nbytes > MAX_FRAME_BYTES:
        raise WireError(
            f"expected an array of {', '.join(d.name for d in _DTYPES)}, <= {_MAX_DIMENSIONS} dimensions "
            f"and <= {MAX_FRAME_BYTES >> 20} MiB, got {array.dtype} {array.shape}; use more PS"
        )
    return _ARRAY.pack(code | mark, array.ndim) + struct.pack(f"<{array.ndim}Q", *array.shape)


def _read_array_headers(head: memoryview, n: int) -> tuple[list[_Header], int]:
    """Return the headers of arrays, and where what follows them begins."""
    headers, at = [], _HEAD.size
    for _ in range(n):
        code, shape, at = _read_array_header(head, at)
        place = (0, 0)
        if code & _SHARED:
            place = _PLACE.unpack_from(head, at)
            at += _PLACE.size
        headers.append((code, shape, place))
    return headers, at


def _read_array_header(head: memoryview, at: int) -> tuple[int, tuple[int, ...], int]:
    code, n_dimension = _ARRAY.unpack_from(head, at)
    if n_dimension > _MAX_DIMENSIONS:
        raise WireError(f"expected at most {_MAX_DIMENSIONS} dimensions, got {n_dimension}")
    sizes = struct.Struct(f"<{n_dimension}Q")
    shape = sizes.unpack_from(head, at + _ARRAY.size)
    return code, shape, at + _ARRAY.size + sizes.size


def _dtype(code: int) -> np.dtype[Any]:
    if code >= len(_DTYPES):
        raise WireError(f"unknown array type {code}")
    return _DTYPES[code]


def _shared(
    shared: SharedBlock | None, number: int, offset: int, *, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    if shared is None or shared.number != number:
        raise WireError(f"an array lies in shared memory {number}, which is not mapped here")
    if math.prod(shape) * dtype.itemsize > MAX_FRAME_BYTES:
        raise WireError(f"an array {dtype} {shape} is larger than {MAX_FRAME_BYTES >> 20} MiB")
    view = shared.view(offset, dtype, shape)
    return view.copy() if dtype.kind in "iu" else view


def _array(frame: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if frame.nbytes > MAX_FRAME_BYTES or math.prod(shape) * dtype.itemsize != frame.nbytes:
        raise WireError(f"an array {dtype} {shape} does not fit a frame of {frame.nbytes} bytes")
    if not frame.nbytes:
        return np.empty(shape, dtype)  # numpy reads no empty buffers
    return np.frombuffer(frame, dtype).reshape(shape)


def _padded(n_byte: int) -> int:
    return -(-n_byte // _ALIGNMENT) * _ALIGNMENT


def _memory(array: NDArray[Any]) -> memoryview | bytes:
    return memoryview(array.data).cast("B") if array.size and array.ndim else array.tobytes()
