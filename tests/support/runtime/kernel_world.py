"""The kernels to test with: `every_kernel`, imported, repeats a module's tests on each."""

from __future__ import annotations

from ctypes import c_int32, c_int64
from dataclasses import dataclass

import numpy as np
import pytest

from dlrover_nb.core.runtime.kernels import VARIABLE, compiled, maps
from dlrover_nb.core.runtime.kernels.bell_requests import Parameters

needs_c = pytest.mark.skipif(bool(compiled.flaw()), reason=f"the compiled kernel {compiled.flaw()}")


@pytest.fixture(scope="module", params=["numpy", pytest.param("c", marks=needs_c)], autouse=True)
def every_kernel(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param


@dataclass(frozen=True)
class Pieces:
    """The pieces of a map as a kernel sees them that serves without Python; valid until the map changes.

    Attributes
    ----------
    n_row
        Rows of each.
    directory
        The piece of each prefix.
    lines
        Of all pieces, in order.
    early, most
        From how many rows a piece may be split, and how many it can hold.
    """

    n_row: np.ndarray
    directory: np.ndarray
    lines: np.ndarray
    early: int
    most: int


def pieces_of(slots):
    """Return the pieces of a map of `hash_map`."""
    told = Parameters()
    slots.describe(told)
    n_line = maps.N_LINE * told.n_piece
    lines = (c_int32 * (n_line * maps.LINE_LAYOUT.itemsize // 4)).from_address(told.lines)
    return Pieces(
        np.ctypeslib.as_array((c_int64 * told.n_piece).from_address(told.n_in_piece)),
        np.ctypeslib.as_array((c_int32 * (1 << told.depth)).from_address(told.directory)),
        np.ctypeslib.as_array(lines).view(maps.LINE_LAYOUT),
        told.early,
        told.most_in_piece,
    )


def push_as_requests_do(store, ids, gradients):
    """Push rows in one call of the kernel where it serves them, else by the store's own methods; whether it did."""
    pushed, out = (ids, gradients, np.empty(0, np.float32)), store.new_answer(0, is_copied=True)
    is_served = store.exchange(1, pushed, ids[:0], out) is not None
    if not is_served:
        store.push(ids, gradients)
    return is_served
