"""Gradients and parameters in fewer bytes, between hosts: narrower numbers, dense sums of several batches.

The worker packs what it pushes and says in the request (`Form`) how, and how it wants the answer; the PS
unpacks, computes in float32 as ever, and packs the answer. A type of numbers is added by one line in
`CODECS`.

What rounding takes from a dense gradient is added to the next one (error feedback: Seide et al. 2014, "1-bit
stochastic gradient descent"): all gradients together arrive, up to the last rounding. The sum of several
batches (`dense_every`) is the same thing: the rest is then all of it. It is sent before a worker pauses, so
only a worker that is killed loses the dense part of its last batches. Rows get no feedback: most
of a batch's rows are not in the next one, and their errors would have to be kept for every row.

Running averages at the end of a dense slice travel in float32 always: they are few, and one factor for them
and for gradients would cost these their digits. Several batches that are sent as one push the mean of their
shares, as one batch.

On one host the arrays lie in shared memory, and packing them would only cost time: there nothing is packed.
A worker that finds only later that it shares memory with a PS sends what it kept, and goes on without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import Form
from dlrover_nb.core.structs.job.exchange_spec import ExchangeSpec, Precision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Arrays = list[NDArray[Any]]

_LARGEST_EXPONENT = 15  # float16 ends at 65504, below 2 ** 16
_LARGEST_SCALE = 2.0**126  # it and its inverse are float32
_HALF = np.uint32(1 << 15)  # of the last bit that bfloat16 keeps


@dataclass(frozen=True, slots=True)
class Codec:
    """A type of numbers on their way.

    Parameters
    ----------
    dtype
        Of packed arrays.
    scale
        Returns the power of two by which an array is multiplied before it is packed.
    pack, unpack
        From float32 and back.
    """

    dtype: np.dtype[Any]
    scale: Callable[[Floats], float]
    pack: Callable[[Floats], NDArray[Any]]
    unpack: Callable[[NDArray[Any]], Floats]


def _to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """Return the upper halves of numbers, rounded to nearest."""
    bits = np.ascontiguousarray(values).view(np.uint32) + _HALF
    return np.ascontiguousarray(bits.view(np.uint16)[..., 1::2])


def _from_bfloat16(packed: NDArray[np.uint16]) -> Floats:
    bits = packed.astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(np.float32)


def _scale_into_float16(values: Floats) -> float:
    largest = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    if not 0 < largest < math.inf:
        return 1.0
    exponent = _LARGEST_EXPONENT - math.frexp(largest)[1]
    return min(math.ldexp(1.0, exponent), _LARGEST_SCALE)


CODECS: Mapping[Precision, Codec] = {
    Precision.FLOAT32: Codec(np.dtype(np.float32), lambda _: 1.0, lambda v: v, lambda p: p),
    Precision.BFLOAT16: Codec(np.dtype(np.uint16), lambda _: 1.0, _to_bfloat16, _from_bfloat16),
    Precision.FLOAT16: Codec(
        np.dtype(np.float16),
        _scale_into_float16,
        lambda values: values.astype(np.float16),
        lambda packed: packed.astype(np.float32),
    ),
}


def pack(values: Floats, precision: Precision) -> tuple[NDArray[Any], float]:
    """Return an array as it travels, and its scale."""
    codec = CODECS[precision]
    scale = codec.scale(values)
    return codec.pack(values if scale == 1.0 else values * np.float32(scale)), scale


def unpack(packed: NDArray[Any], precision: Precision, scale: float) -> Floats:
    """Return the float32 array of a packed one.

    Raises
    ------
    WireError
        When it is of another type, or the scale is none.
    """
    codec = CODECS[precision]
    if packed.dtype != codec.dtype and packed.size:
        raise WireError(f"expected an array of {codec.dtype.name} ({precision}), got {packed.dtype.name}")
    if not 1 / _LARGEST_SCALE <= scale <= _LARGEST_SCALE:
        raise WireError(f"expected a scale from 2^-126 to 2^126, got {scale}")
    if not packed.size:
        return np.empty(packed.shape, np.float32)
    values = codec.unpack(packed)
    with np.errstate(over="ignore"):  # infinite numbers are refused where they matter
        return values if scale == 1.0 else values * np.float32(1 / scale)


def pack_dense(values: Floats, precision: Precision, n_average: int) -> tuple[NDArray[Any], float]:
    """Return a dense slice as it travels, and its scale; its last `n_average` elements stay float32."""
    if not n_average or not values.size:
        return pack(values, precision)
    packed, scale = pack(values[:-n_average], precision)
    return np.concatenate([packed, values[-n_average:].view(packed.dtype)]), scale


def unpack_dense(packed: NDArray[Any], precision: Precision, scale: float, n_average: int) -> Floats:
    """Return the float32 array of a dense slice that was packed.

    Raises
    ------
    WireError
        As `unpack`, and when it is too short for its averages.
    """
    n = n_average * 4 // CODECS[precision].dtype.itemsize
    if not n or not packed.size:
        return unpack(packed, precision, scale)
    if packed.ndim != 1 or len(packed) < n:
        raise WireError(f"expected a dense slice with {n_average} averages, got one of {packed.shape}")
    values = unpack(packed[:-n], precision, scale)
    return np.concatenate([values, packed[-n:].view(np.float32)])


class Packer:
    """What a worker sends to one PS.

    Parameters
    ----------
    spec
        Of the job.
    n_dense, n_average
        Length of the dense slice, and how many of its last elements are averages.
    """

    def __init__(self, spec: ExchangeSpec, n_dense: int, n_average: int = 0) -> None:
        self._spec, self._n_average, self._n_trained = spec, n_average, n_dense - n_average
        self._rest = np.zeros(n_dense, np.float32)  # of dense gradients: what was not sent yet
        self._n_kept = 0  # batches in it
        self._n_turn = 0

    @property
    def owes(self) -> bool:
        """Whether gradients of whole batches were not sent yet."""
        return self._n_kept > 0

    def pack(self, arrays: Arrays, *, is_last: bool = False) -> tuple[Arrays, Form]:
        """Return rows, their gradients and the dense one as they travel, and their form.

        `is_last`: all that is kept goes now.
        """
        rows, row_gradients, dense = arrays
        packed, scale = pack(row_gradients, self._spec.rows)
        is_due = is_last or self._n_turn % self._spec.dense_every == 0
        self._n_turn += not is_last
        self._keep(dense)
        part, dense_scale = self._take() if is_due and self.owes else (self._rest[:0], 1.0)
        form = Form(self._spec.rows, self._spec.dense, scale, dense_scale, is_due)
        return [rows, packed, part], form

    def _keep(self, dense: Floats) -> None:
        if dense.size:
            self._rest += dense
            self._n_kept += 1

    def _take(self) -> tuple[NDArray[Any], float]:
        sums, n = self._rest.copy(), self._n_trained
        sums[n:] /= self._n_kept
        packed, scale = pack_dense(sums, self._spec.dense, self._n_average)
        self._rest[:n] -= unpack_dense(packed, self._spec.dense, scale, self._n_average)[:n]
        self._rest[n:] = 0
        self._n_kept = 0
        return packed, scale


def unpack_push(arrays: Arrays, form: Form | None, n_average: int = 0) -> Arrays:
    """Return the arrays of a request with gradients in float32; its dense slice ends with averages."""
    if form is None or len(arrays) < 3:  # what is missing is refused elsewhere
        return arrays
    rows, row_gradients, dense, *more = arrays
    return [
        rows,
        unpack(row_gradients, form.rows, form.scale),
        unpack_dense(dense, form.dense, form.dense_scale, n_average),
        *more,
    ]


def pack_answer(
    rows: Floats, dense: Floats, form: Form | None, n_average: int = 0
) -> tuple[Sequence[NDArray[Any]], float, float]:
    """Return rows and dense parameters as a worker wants them, and their scales."""
    if form is None:
        return (rows, dense), 1.0, 1.0
    packed, scale = pack(rows, form.rows)
    part, dense_scale = pack_dense(dense if form.wants_dense else dense[:0], form.dense, n_average)
    return (packed, part), scale, dense_scale


def unpack_answer(
    arrays: Sequence[NDArray[Any]], form: Form | None, scale: float, dense_scale: float, n_average: int = 0
) -> tuple[Floats, Floats]:
    """Return rows and dense parameters of an answer; none of these where they were not wanted."""
    rows, dense = arrays
    if form is None:
        return rows, dense
    return unpack(rows, form.rows, scale), unpack_dense(dense, form.dense, dense_scale, n_average)
