"""Gradients that may change parameters, and those that no part of the runtime lets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel  # noqa: F401 - a fixture

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.store import ParameterStore, gradients
from dlrover_nb.core.runtime.store.gradients import LARGEST_NORM, UsualNorm, check_usable, norm_of
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
VALUES = st.lists(FLOATS | st.floats(-10, 10, width=32), max_size=12)
FINITE = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=12)


def exact_norm(*arrays: np.ndarray) -> float:
    return float(np.linalg.norm(np.concatenate([a.ravel().astype(np.float64) for a in arrays])))


def unusable(loss: float, rows: np.ndarray, dense: np.ndarray, *, clip_norm: float | None) -> str:
    """Return why a batch is skipped whose like came before."""
    usual = UsualNorm()
    usual.value = norm_of(rows, dense)
    return gradients.unusable(loss, rows, dense, clip_norm=clip_norm, usual=usual, of_parts=list)


def arrays(rows: list[float], dense: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(rows * 2, np.float32).reshape(2, -1), np.array(dense, np.float32)


@given(VALUES, VALUES, FLOATS)
def test_a_batch_is_used_when_loss_and_gradients_are_finite_and_not_too_large(
    row_values: list[float], dense_values: list[float], loss: float
) -> None:
    rows, dense = arrays(row_values, dense_values)
    before = rows.copy(), dense.copy()
    why = unusable(loss, rows, dense, clip_norm=None)
    norm = exact_norm(rows, dense) if np.isfinite(rows).all() and np.isfinite(dense).all() else np.inf
    is_good = bool(np.isfinite(loss)) and norm <= LARGEST_NORM
    if abs(norm / LARGEST_NORM - 1) > 1e-5:
        assert (why == "") is is_good
    np.testing.assert_array_equal(rows, before[0])
    np.testing.assert_array_equal(dense, before[1])
    if is_good:
        check_usable(rows, dense)
    elif norm > 2.1 * LARGEST_NORM:
        with pytest.raises(WireError, match="expected finite gradients"):
            check_usable(rows, dense)


@example([3e38, 3e38, 3e38], [2.5e38], 1e-3)  # the factor is no normal number of 32 bits
@example([1.7e38], [1e38], 1.3e-3)
@given(FINITE, FINITE, st.floats(1e-3, 1e6))
def test_clipped_gradients_keep_their_direction_and_have_at_most_that_norm(
    row_values: list[float], dense_values: list[float], clip_norm: float
) -> None:
    rows, dense = arrays(row_values, dense_values)
    before = np.concatenate([rows.ravel(), dense]).astype(np.float64)
    norm = exact_norm(rows, dense)
    assert unusable(0.5, rows, dense, clip_norm=clip_norm) == ""
    after = np.concatenate([rows.ravel(), dense]).astype(np.float64)
    assert norm_of(rows, dense) <= clip_norm * (1 + 1e-4)
    scale = min(1.0, clip_norm / norm) if norm else 1.0
    np.testing.assert_allclose(after, before * scale, rtol=1e-4, atol=clip_norm * 1e-4)
    if norm < clip_norm * (1 - 1e-4):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.usefixtures("every_kernel")
def test_a_gradient_of_1e20_does_not_freeze_a_row(optimizer: Optimizer, words, error_words) -> None:
    model = ModelSpec(embedding_dim=3, optimizer=optimizer, learning_rate=0.1)
    store = ParameterStore(model, 8, 2)
    store.init_dense(np.zeros(2, np.float32))
    ids, huge, dense = np.array([5]), np.full((1, 4), 1e20, np.float32), np.ones(2, np.float32)
    with error_words(WireError):
        store.check_push(ids, huge, dense)
    assert unusable(0.7, huge, dense, clip_norm=None) == words
    assert unusable(0.7, huge, dense, clip_norm=1.0) == ""
    store.check_push(ids, huge, dense)
    store.push(ids, huge)
    before = store.pull(ids)
    store.push(ids, np.full((1, 4), 0.1, np.float32))
    assert np.all(np.abs(store.pull(ids) - before) > 1e-3)


@settings(deadline=None)
@given(st.integers(0, 199), st.sampled_from([np.nan, np.inf, -np.inf]), st.booleans())
def test_a_store_knows_one_number_that_is_not_finite(place: int, bad: float, in_dense: object) -> None:
    store = ParameterStore(ModelSpec(embedding_dim=3), 50, 200)
    store.init_dense(np.zeros(200, np.float32))
    store.push(np.arange(50), np.ones((50, 4), np.float32))
    assert store.is_finite()
    part = store.export()
    where = part.dense[0] if in_dense else part.table.reshape(-1)
    where[place] = bad  # a view of the store
    assert not store.is_finite()
