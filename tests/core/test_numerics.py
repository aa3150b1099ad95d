"""What fits need of scipy is imported before they need it."""

from __future__ import annotations

import subprocess
import sys

from threadpoolctl import threadpool_info, threadpool_limits

from dlrover_nb.core.basics.numerics import one_thread

EACH_ONCE = """
import sys
import numpy as np
from dlrover_nb.core.basics import numerics

numerics.load()
before = set(sys.modules)
numerics.nnls(np.eye(2), np.ones(2))
numerics.dposv(np.eye(2), np.ones(2))
numerics.ndtr(0.0), numerics.log_ndtr(0.0), numerics.ndtri(0.5), numerics.stdtrit(3.0, 0.5)
print("scipy" in before, *sorted(set(sys.modules) - before))
"""


def test_once_all_is_loaded_no_function_imports_anything() -> None:
    done = subprocess.run([sys.executable, "-c", EACH_ONCE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_linear_algebra_has_one_thread_within_and_as_many_as_before_after_it() -> None:
    def n_threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = n_threads()
        with one_thread():
            assert set(n_threads()) == {1}
        assert n_threads() == before
