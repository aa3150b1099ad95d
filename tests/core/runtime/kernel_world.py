"""The kernels to test with: `every_kernel`, imported, repeats a module's tests on each."""

from __future__ import annotations

import pytest

from dlrover_nb.core.runtime.kernels import VARIABLE, compiled

needs_c = pytest.mark.skipif(not compiled.is_built(), reason="the compiled kernel was not built here")


@pytest.fixture(scope="module", params=["numpy", pytest.param("c", marks=needs_c)], autouse=True)
def every_kernel(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param
