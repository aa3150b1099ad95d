from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def shm(tmp_path):
    """A folder that stands for /dev/shm: what is mapped from it is shared as well."""
    path = tmp_path / "shm"
    path.mkdir()
    return path


@pytest.fixture
def arrays():
    return lambda seed=0, n=1000: {"table": np.random.default_rng(seed).random((n, 4)), "ids": np.arange(n)}
