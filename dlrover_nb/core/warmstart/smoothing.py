"""The numbers of a start plan from past jobs' final ones: the paper's smoothing, and ours.

The paper's Algorithm 1 (`exponential`) uses the k most similar jobs alone: twice the data gets the same plan.
Ours (`interpolate`) uses all past jobs. It is a Gaussian process over the logarithms of the numbers, with
kernels for what groups of jobs share: jobs of one family (same code, same kind of model, similar name) share
a level, slopes in size and a local term; jobs of one model kind share a level and slopes; jobs of one owner
share a level; all jobs share slopes. The weight of each of these is chosen by leave-one-out error on the past
jobs themselves, in closed form and for each number separately. Outliers are then cut to twice the usual
residual, and the levels are fitted again.

Rejected after trying them on simulated histories (`benchmarks/warmstart.py`): smoothing of logarithms
weighted by similarity (a point better than Algorithm 1), one kernel from the similarity alone (about half of
the improvement), and voting on the CPU sizes first (the counts then jump with the vote).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAMILY = (0.1, 0.3, 1.0)  # weight of the family's kernel against the owner's, which is 1
MODEL = 0.3
LOCAL = 0.3  # of what is neither level nor slope within a family
OWN_SLOPES = (0.1, 0.5)  # slopes of a family or model kind, against its level
SLOPES = (0.1, 0.5)  # slopes that all jobs share
LEVEL = 1.0  # that all jobs share
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)  # variance that no trait explains
CUT = 2.0  # usual residuals: larger ones are outliers
LEAST_USUAL = 0.05  # least usual residual of a logarithm, however similar most jobs are
NORMAL = 1.4826  # standard deviation of a normal law over its median absolute deviation


@dataclass(frozen=True, slots=True, eq=False)
class Relatives:
    """Past jobs and, last, the new one.

    Parameters
    ----------
    targets
        ndarray of shape (n_past, n_number): logarithms of the past jobs' final numbers.
    family, owner, model
        ndarrays of shape (n_past + 1, n_past + 1): in [0, 1], whether two jobs share it.
    traits
        ndarray of shape (n_past + 1, n_trait): logarithms of the numbers that describe a job.
    """

    targets: Array
    family: Array
    owner: Array
    model: Array
    traits: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """One kernel, decomposed: eigenvalues and -vectors among past jobs, and its row for the new one."""

    values: Array
    vectors: Array
    to_new: Array


def exponential(rows: Array, mu: float) -> Array:
    """Smooth final plans, least similar first: A_i <- mu*A_i + (1 - mu)*A_(i-1) (Eq. 10, Algorithm 1)."""
    smooth = rows[0]
    for row in rows[1:]:
        smooth = mu * row + (1 - mu) * smooth  # (eq. 10)
    return np.asarray(smooth)


def interpolate(relatives: Relatives) -> tuple[Array, Array]:
    """Return the expected logarithms for the new job and their leave-one-out error, one per number."""
    kernels = _kernels(relatives)
    centre = np.median(relatives.targets, axis=0)
    targets = relatives.targets - centre
    _, left_out = _best(kernels, targets)
    expected = targets - left_out
    usual = np.maximum(NORMAL * np.median(np.abs(left_out), axis=0), LEAST_USUAL)
    smooth, _ = _best(kernels, expected + np.clip(left_out, -CUT * usual, CUT * usual))
    return centre + smooth, np.mean(np.abs(left_out), axis=0)


def _best(kernels: list[_Kernel], y: Array) -> tuple[Array, Array]:
    """Return each number at the new job by the kernel with the least leave-one-out error, and that error."""
    least = np.full(y.shape[1], np.inf)
    best, left_out = np.zeros(y.shape[1]), np.zeros_like(y)
    for kernel, noise in product(kernels, NOISES):
        scaled = kernel.vectors / (np.maximum(kernel.values, 0.0) + noise)
        weights = scaled @ (kernel.vectors.T @ y)
        residual = weights / np.sum(scaled * kernel.vectors, axis=1)[:, None]  # leave-one-out, in closed form
        error = np.mean(np.abs(residual), axis=0)
        better = error < least
        least = np.where(better, error, least)
        best = np.where(better, kernel.to_new @ weights, best)
        left_out = np.where(better, residual, left_out)
    return best, left_out


def _kernels(relatives: Relatives) -> list[_Kernel]:
    """Return the kernels to choose from."""
    traits = relatives.traits
    spread = traits[:-1].std(axis=0)
    scaled = (traits - traits[:-1].mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)
    lines = scaled @ scaled.T / traits.shape[1]
    apart = np.diag(lines)[:, None] + np.diag(lines)[None, :] - 2 * lines
    near = LOCAL * np.exp(-np.maximum(apart, 0.0))
    kernels = []
    for family, own, shared in product(FAMILY, OWN_SLOPES, SLOPES):
        whole = (
            family * relatives.family * (1 + own * lines + near)
            + MODEL * relatives.model * (1 + own * lines)
            + relatives.owner
            + shared * lines
            + LEVEL
        )
        values, vectors = np.linalg.eigh(whole[:-1, :-1])
        kernels.append(_Kernel(values, vectors, whole[-1, :-1]))
    return kernels
