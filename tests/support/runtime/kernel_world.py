"""The kernels to test with: `every_kernel`, imported, repeats a module's tests on each."""

from __future__ import annotations

import numpy as np
import pytest

from dlrover_nb.core.runtime.kernels import VARIABLE, compiled

needs_c = pytest.mark.skipif(bool(compiled.flaw()), reason=f"the compiled kernel {compiled.flaw()}")


@pytest.fixture(scope="module", params=["numpy", pytest.param("c", marks=needs_c)], autouse=True)
def every_kernel(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param


def push_as_requests_do(store, ids, gradients):
    """Push rows in one call of the kernel where it serves them, else by the store's own methods; whether it did."""
    pushed, out = (ids, gradients, np.empty(0, np.float32)), store.new_answer(0, is_copied=True)
    is_served = store.exchange(1, pushed, ids[:0], out) is not None
    if not is_served:
        store.push(ids, gradients)
    return is_served
