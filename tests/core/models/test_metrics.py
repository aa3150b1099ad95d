from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.metrics import auc, log_loss

ROWS = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=200)


@pytest.fixture(scope="module")
def sk():
    """Return scikit-learn's metrics; it takes a second to import."""
    from sklearn import metrics  # noqa: PLC0415 - see above

    return metrics


def columns(rows):
    scores = np.array([s / 10 for s, _ in rows], np.float32)
    labels = np.array([float(y) for _, y in rows], np.float32)
    return scores, labels


@settings(deadline=None, max_examples=100)
@given(rows=ROWS.filter(lambda rows: len({y for _, y in rows}) == 2))
def test_auc_with_ties_is_that_of_scikit_learn(sk, rows):
    scores, labels = columns(rows)
    assert auc(scores, labels) == pytest.approx(sk.roc_auc_score(labels, scores), abs=1e-12)


@settings(deadline=None, max_examples=100)
@given(rows=ROWS)
def test_log_loss_is_that_of_scikit_learn(sk, rows):
    scores, labels = columns(rows)
    inside = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    assert log_loss(scores, labels) == pytest.approx(sk.log_loss(labels, inside, labels=[0, 1]), rel=1e-9)


def test_auc_of_a_perfect_order_is_one_and_of_its_reverse_zero():
    labels = np.array([0, 0, 1, 1])
    assert auc(np.array([0.1, 0.2, 0.3, 0.4]), labels) == 1
    assert auc(np.array([0.4, 0.3, 0.2, 0.1]), labels) == 0
    assert auc(np.full(4, 0.5), labels) == 0.5


def test_auc_of_one_class_is_refused():
    with pytest.raises(InvalidValueError, match="both classes"):
        auc(np.array([0.1, 0.2]), np.array([1, 1]))
