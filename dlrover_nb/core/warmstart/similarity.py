"""Similarity of two jobs before they run: one number in [0, 1] per feature, and their weighted mean.

DLRover-RM (section 4.3, Algorithm 1) "calculates the similarity in each type of feature" and does not say
how. Here numbers compare by their ratio (twice the rows is as far as half), names by the words they share
without run numbers, all else by equality.

Features are of two groups: what a job is (its code, data, owner, name) and how large it is. Two jobs are
alike as far as both groups are, so the similarity is the product of both groups' weighted means. A mean over
all features took strangers for relatives: any two jobs with one kind of model had 41 % in common, whatever
they trained and on what. A feature that is unknown in either job counts half, which is neutral; code and data
that are unknown in both are no agreement either.
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

    from dlrover_nb.core.structs.views.past_jobs import JobTraits

    Array = NDArray[np.float64]

NUMBERS = ("n_table", "embedding_dim", "n_table_row", "dense_bytes", "batch_size", "n_sample")
LABELS = ("model", "code_hash", "data_hash", "owner")
IDENTITY: Mapping[str, float] = MappingProxyType(
    {"code_hash": 3.0, "data_hash": 3.0, "model": 1.0, "owner": 1.0, "name": 1.0}
)
SIZE: Mapping[str, float] = MappingProxyType(
    {
        "embedding_dim": 1.0,  # D, M and m of Eqs. 2-5, and the work to do
        "dense_bytes": 1.0,
        "batch_size": 1.0,
        "n_sample": 1.0,
        "n_table": 0.5,
        "n_table_row": 0.5,
    }
)
WEIGHTS: Mapping[str, float] = MappingProxyType({**IDENTITY, **SIZE})
UNTOLD = 0.5
FAR = 0.8  # a feature below it is a difference to tell: a quarter more or less
_TERMS = {
    "code_hash": "code",
    "data_hash": "columns",
    "model": "model",
    "owner": "owner",
    "name": "name",
    "embedding_dim": "embedding width",
    "dense_bytes": "dense parameters",
    "batch_size": "batch size",
    "n_sample": "samples",
    "n_table": "tables",
    "n_table_row": "table rows",
}


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of two jobs: in total, and each feature's own, largest weight first."""

    total: float
    features: tuple[tuple[str, float], ...]


def similarity(a: JobTraits, b: JobTraits) -> Similarity:
    """Compare two jobs feature by feature."""
    columns = {name: float(matrix[0, 0]) for name, matrix in features([a], [b]).items()}
    order = sorted(columns, key=lambda name: -WEIGHTS.get(name, 0.0))
    total = float(similarities([a], [b])[0, 0])
    return Similarity(total, tuple((name, columns[name]) for name in order))


def differences(new: JobTraits, old: JobTraits) -> tuple[str, ...]:
    """Return how a new job differs from an old one, for people, the weightiest first."""
    return tuple(
        _difference(name, getattr(new, name), getattr(old, name))
        for name, value in similarity(new, old).features
        if value < FAR
    )


def _difference(name: str, new: str | int, old: str | int) -> str:
    term = _TERMS[name]
    if not isinstance(new, str) and not isinstance(old, str):
        return f"{(new + 1) / (old + 1):.2g} times the {term}"
    return f"another {term}" if new and old else f"{term} unknown"


def similarities(
    a: Sequence[JobTraits], b: Sequence[JobTraits], weights: Mapping[str, float] = WEIGHTS
) -> Array:
    """Return the similarity of each job of `a` to each of `b`: shape (len(a), len(b)).

    Raises
    ------
    InvalidValueError
        When all weights are zero, or one is below zero.
    """
    _check(weights)
    parts = features(a, b)
    return _mean(parts, IDENTITY, weights) * _mean(parts, SIZE, weights)


def features(a: Sequence[JobTraits], b: Sequence[JobTraits]) -> dict[str, Array]:
    """Return the similarity of each feature, in [0, 1]: shape (len(a), len(b)) each."""
    columns = zip(NUMBERS, log_numbers(a).T, log_numbers(b).T, strict=True)
    scores = {name: _ratio(left, right) for name, left, right in columns}
    for name in LABELS:
        scores[name] = _equality([getattr(t, name) for t in a], [getattr(t, name) for t in b])
    for name in ("code_hash", "data_hash"):
        unknown = [[not getattr(x, name) and not getattr(y, name) for y in b] for x in a]
        scores[name] = np.where(np.reshape(unknown, scores[name].shape), UNTOLD, scores[name])
    words = [_words(t.name) for t in a], [_words(t.name) for t in b]
    scores["name"] = np.array([[_shared(x, y) for y in words[1]] for x in words[0]]).reshape(len(a), len(b))
    return scores


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


def _mean(parts: Mapping[str, Array], group: Mapping[str, float], weights: Mapping[str, float]) -> Array:
    """Return the weighted mean of a group's features; a group without weights does not count."""
    total = sum(weights.get(name, 0.0) for name in group)
    if total <= 0:
        return np.ones_like(parts["name"])
    return np.asarray(sum(weights.get(name, 0.0) * parts[name] for name in group) / total)


def _check(weights: Mapping[str, float]) -> None:
    unknown = set(weights) - set(WEIGHTS)
    if unknown or sum(weights.values()) <= 0 or min(weights.values()) < 0:
        raise InvalidValueError(
            f"weights must be >= 0, not all 0, of {', '.join(WEIGHTS)}; got {dict(weights)}"
        )
