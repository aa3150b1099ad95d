"""Scores of predictions, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.history.history_records import OUTCOME

from dlrover_nb.core.history.runs.prediction_scores import Score, score, scoreboard


def _measured(value):
    return replace(OUTCOME, measured_samples_per_s=value)  # predicted 100, band 80 to 120


def test_share_error_and_bias_are_those_of_the_predicted_ones():
    found = score([_measured(100.0), _measured(80.0), _measured(50.0), replace(OUTCOME, predicted=None)])
    assert found == Score(4, 3, pytest.approx(2 / 3), 0.25, 0.25)


def test_too_low_predictions_have_a_bias_below_zero():
    assert score([_measured(125.0)]).bias == pytest.approx(-0.2)


def test_nothing_predicted_is_no_score():
    assert score([]) == Score(0, 0, None, None, None)
    assert score([replace(OUTCOME, predicted=None)]) == Score(1, 0, None, None, None)


def test_job_that_stood_still_is_outside_the_band_and_has_no_error():
    assert score([_measured(0.0)]) == Score(1, 1, 0.0, None, None)


def test_total_counts_each_outcome_once():
    board = scoreboard({"b": [_measured(100.0)], "a": [_measured(50.0), _measured(90.0)]})
    assert [job for job, _ in board.jobs] == ["a", "b"]
    assert board.total.n_outcome == 3
    assert board.total == score([_measured(50.0), _measured(90.0), _measured(100.0)])
