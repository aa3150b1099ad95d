"""Similarity of two jobs before they run: one number in [0, 1] per feature, and their weighted mean.

DLRover-RM (section 4.3, Algorithm 1) "calculates the similarity in each type of feature" and does not say
how. Here numbers compare by their ratio (twice the rows is as far as half), names by the words they share
without run numbers, all else by equality. A feature that is unknown in either job (an empty owner) counts
half, which is neutral. Each of these is a positive definite kernel, and so is their mean, so `smoothing` may
use them as kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.past import JobTraits

    Array = NDArray[np.float64]

NUMBERS = ("n_table", "embedding_dim", "n_table_row", "dense_bytes", "batch_size", "n_sample")
LABELS = ("model", "code_hash", "owner")
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "model": 3.0,  # sets the form of the computation
        "code_hash": 2.0,
        "owner": 1.0,
        "name": 1.0,
        "embedding_dim": 1.0,  # D, M and m of Eqs. 2-5, and the work to do
        "dense_bytes": 1.0,
        "batch_size": 1.0,
        "n_sample": 1.0,
        "n_table": 0.5,
        "n_table_row": 0.5,
    }
)
UNTOLD = 0.5


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of two jobs: weighted mean, and each feature's own, largest weight first."""

    total: float
    features: tuple[tuple[str, float], ...]


def similarity(a: JobTraits, b: JobTraits, weights: Mapping[str, float] = WEIGHTS) -> Similarity:
    """Compare two jobs feature by feature."""
    columns = {name: float(matrix[0, 0]) for name, matrix in features([a], [b]).items()}
    total = sum(weights.get(name, 0.0) * value for name, value in columns.items())
    order = sorted(columns, key=lambda name: -weights.get(name, 0.0))
    return Similarity(total / _sum(weights), tuple((name, columns[name]) for name in order))


def similarities(
    a: Sequence[JobTraits], b: Sequence[JobTraits], weights: Mapping[str, float] = WEIGHTS
) -> Array:
    """Return the similarity of each job of `a` to each of `b`: shape (len(a), len(b)).

    Raises
    ------
    InvalidValueError
        When all weights are zero, or one is below zero.
    """
    total = _sum(weights)
    parts = features(a, b).items()
    return np.asarray(sum(weights.get(name, 0.0) * part for name, part in parts) / total)


def features(a: Sequence[JobTraits], b: Sequence[JobTraits]) -> dict[str, Array]:
    """Return the similarity of each feature, in [0, 1]: shape (len(a), len(b)) each."""
    columns = zip(NUMBERS, log_numbers(a).T, log_numbers(b).T, strict=True)
    found = {name: _ratio(left, right) for name, left, right in columns}
    for name in LABELS:
        found[name] = _equality([getattr(t, name) for t in a], [getattr(t, name) for t in b])
    words = [_words(t.name) for t in a], [_words(t.name) for t in b]
    found["name"] = np.array([[_shared(x, y) for y in words[1]] for x in words[0]]).reshape(len(a), len(b))
    return found


def log_numbers(traits: Sequence[JobTraits]) -> Array:
    """Return log(1 + x) of each number x: shape (n_job, 6)."""
    rows = [[getattr(t, name) for name in NUMBERS] for t in traits]
    return np.log1p(np.asarray(rows, dtype=np.float64).reshape(-1, len(NUMBERS)))


def _ratio(a: Array, b: Array) -> Array:
    return np.asarray(np.exp(-np.abs(a[:, None] - b[None, :])))


def _equality(a: list[str], b: list[str]) -> Array:
    left, right = np.array(a, dtype=object)[:, None], np.array(b, dtype=object)[None, :]
    untold = (left == "") ^ (right == "")
    return np.where(untold, UNTOLD, (left == right).astype(np.float64))


def _words(name: str) -> frozenset[str]:
    """Return the words of a name without its numbers, which are run numbers and dates."""
    return frozenset(w for w in re.split(r"[^a-z]+", name.lower()) if w)


def _shared(a: frozenset[str], b: frozenset[str]) -> float:
    if not a or not b:
        return 1.0 if a == b else UNTOLD
    return len(a & b) / len(a | b)


def _sum(weights: Mapping[str, float]) -> float:
    unknown = set(weights) - set(WEIGHTS)
    total = sum(weights.values())
    if unknown or total <= 0 or min(weights.values()) < 0:
        raise InvalidValueError(
            f"weights must be >= 0, not all 0, of {', '.join(WEIGHTS)}; got {dict(weights)}"
        )
    return total
