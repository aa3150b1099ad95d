"""Made-up jobs whose T_iter is known, for the tests of the model."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.perf.terms import TERMS, all_columns

M, D, BATCH = 1e5, 16, 512
GRID = np.array(list(product((1, 2, 3, 4, 6, 8), (1, 2, 3, 4), (0.5, 1.0, 2.0), (0.5, 1.0))))
START = GRID[:1]


def model(**more) -> ThroughputModel:
    return ThroughputModel(dense_bytes=M, embedding_dim=D, **more)


def coefficients(iter_s: float = 0.02, **shares: float) -> np.ndarray:
    """Coefficients of TERMS that give these shares of `iter_s` at plan (1, 1, 0.5, 0.5); barrier is 0 there."""
    columns = all_columns(START, BATCH, dense_bytes=M, embedding_dim=D)[0]
    return np.array(
        [iter_s * shares.get(t, 0) / c if c else 0.0 for t, c in zip(TERMS, columns, strict=True)]
    )


def iter_s(axes: np.ndarray, true: np.ndarray) -> np.ndarray:
    return all_columns(axes, BATCH, dense_bytes=M, embedding_dim=D) @ true


def speed(axes: np.ndarray, true: np.ndarray) -> np.ndarray:
    return axes[:, 0] * BATCH / iter_s(axes, true)


def table(axes: np.ndarray, samples_per_s: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(axes, columns=["workers", "ps", "worker_cpu", "ps_cpu"])
    return frame.assign(batch_size=BATCH, samples_per_s=samples_per_s)


def noisy(axes: np.ndarray, true: np.ndarray, *, seed: int = 0, noise: float = 0.02) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return table(axes, speed(axes, true) * np.exp(rng.normal(0, noise, len(axes))))


PAPER = coefficients(gradients=0.3, updates=0.2, sync=0.1, embeddings=0.2, constant=0.2)
CROWDED = coefficients(gradients=0.3, updates=0.1, sync=0.1, embeddings=0.2, constant=0.1, contention=0.2)
