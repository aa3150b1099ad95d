from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models import metrics, score_sums
from dlrover_nb.core.models.score_sums import ScoreSums

laws = settings(deadline=None, max_examples=50)
PROBABILITIES = st.floats(0, 1, width=32)
SHARDS = st.lists(st.lists(st.tuples(PROBABILITIES, st.booleans()), max_size=30), min_size=1, max_size=8)
BOTH_CLASSES = SHARDS.filter(lambda shards: len({y for rows in shards for _, y in rows}) == 2)


def columns(rows):
    scores = np.array([p for p, _ in rows], np.float32)
    return scores, np.array([y for _, y in rows], np.float32)


def summed(shards, order):
    sums = ScoreSums()
    for shard in order:
        sums.add(shard, *columns(shards[shard]))
    return sums


def exact(shards):
    return metrics.evaluate(*columns([row for rows in shards for row in rows]))


@laws
@given(shards=BOTH_CLASSES, data=st.data())
def test_few_rows_have_the_numbers_of_all_at_once_in_any_order(shards, data):
    order = data.draw(st.permutations(range(len(shards))))
    assert summed(shards, order).evaluate() == exact(shards)


@laws
@given(shards=BOTH_CLASSES, most=st.integers(0, 20), data=st.data())
def test_many_rows_have_an_auc_within_the_tolerance_and_the_log_loss(shards, most, data):
    order = data.draw(st.permutations(range(len(shards))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score_sums, "EXACT_ROWS", most)
        sums = summed(shards, order)
        found, expected = sums.evaluate(), exact(shards)
        assert abs(found.auc - expected.auc) <= sums.auc_tolerance + 1e-12
        assert found.log_loss == pytest.approx(expected.log_loss, rel=1e-9)
        assert found.n_sample == expected.n_sample


@laws
@given(first=PROBABILITIES, second=PROBABILITIES)
def test_a_larger_score_is_in_no_earlier_bin(first, second):
    low, high = score_sums._bins(np.sort(np.array([first, second], np.float32))).tolist()
    assert 0 <= low <= high < score_sums._N_BIN
    # seen from the nearer end, scores that differ by a thousandth are told apart
    near, far = sorted(min(p, 1 - p) for p in (first, second))
    if far > 1.001 * near + 1e-38 and (first < 0.5) == (second < 0.5):
        assert low < high


@pytest.mark.parametrize("bias", [0.0, -6.0, 6.0])
def test_the_auc_of_a_large_evaluation_is_exact_to_six_digits(bias):
    rng = np.random.default_rng(0)
    logits = rng.normal(bias, 1.5, score_sums.EXACT_ROWS + 50_000)
    labels = (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    scores = (1 / (1 + np.exp(-logits - rng.normal(0, 1, len(logits))))).astype(np.float32)
    sums = ScoreSums()
    for shard, start in enumerate(range(0, len(scores), 50_000)):
        sums.add(shard, scores[start : start + 50_000], labels[start : start + 50_000])
    found, expected = sums.evaluate(), metrics.evaluate(scores, labels)
    assert found.auc == pytest.approx(expected.auc, abs=1e-6)
    assert found.auc != expected.auc  # it is not ranked
    assert sums.auc_tolerance < 1e-3
    assert found.log_loss == pytest.approx(expected.log_loss, rel=1e-9)


@pytest.mark.parametrize("most", [0, 1000])
def test_rows_of_one_class_are_refused_and_cleared_rows_are_gone(monkeypatch, most, error_words):
    monkeypatch.setattr(score_sums, "EXACT_ROWS", most)
    sums = summed([[(0.25, True), (0.5, True)]], [0])
    with error_words(InvalidValueError):
        sums.evaluate()
    sums.clear()
    with error_words(InvalidValueError):
        sums.evaluate()
    shards = [[(0.25, False), (0.5, True)]]
    sums.add(0, *columns(shards[0]))
    assert sums.evaluate() == exact(shards)
