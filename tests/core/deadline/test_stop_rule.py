"""The rule of early stopping over whole series, and the decline rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.deadline.stop_rule import decline_rate, evaluation_step, stop_reason, stops_at
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric

VALUES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=30)
RULES = st.builds(
    EarlyStopping,
    st.sampled_from(Metric),
    st.integers(1, 5),
    st.floats(0, 0.2),
    st.none() | st.floats(0.05, 0.95),
    st.floats(0, 0.5),
)


@given(VALUES, RULES)
def test_the_reason_comes_exactly_where_the_series_ends(values, rule) -> None:
    end = int(stops_at(np.array([values]), rule)[0])
    for n in range(1, min(end + 1, len(values)) + 1):
        told = stop_reason(list(range(1, n + 1)), values[:n], rule)
        assert bool(told) == (n - 1 == end)


@given(VALUES, RULES, st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_a_tighter_target_never_ends_earlier(values, rule, one, other) -> None:
    lax, tight = sorted((one, other), reverse=rule.metric != Metric.AUC)
    series = np.array([values])
    ends = [
        int(stops_at(series, EarlyStopping(rule.metric, rule.patience, rule.min_gain, target))[0])
        for target in (lax, tight)
    ]
    assert ends[0] <= ends[1]


@given(VALUES, st.sampled_from(Metric), st.integers(1, 5), st.integers(0, 5))
def test_more_patience_never_ends_earlier(values, metric, patience, more) -> None:
    ends = [
        int(stops_at(np.array([values]), EarlyStopping(metric, p))[0]) for p in (patience, patience + more)
    ]
    assert ends[0] <= ends[1]


@given(VALUES, st.sampled_from(Metric), st.floats(0.1, 10))
def test_the_decline_rate_does_not_depend_on_the_scale(values, metric, scale) -> None:
    rate = decline_rate(values, metric)
    other = decline_rate([scale * value for value in values], metric)
    assert rate == (None if other is None else pytest.approx(other, abs=1e-6))
    assert rate is None or -1 - 1e-9 <= rate <= 1 + 1e-9


def test_the_reason_names_target_decline_and_the_part_of_a_pass(words) -> None:
    loss = EarlyStopping(Metric.LOSS, patience=2, target=0.4)
    assert stop_reason([0.1, 0.2], [0.6, 0.39], loss) == words
    declining = EarlyStopping(Metric.LOG_LOSS, decline=0.1)
    assert stop_reason([1, 2, 3], [0.6, 0.5, 0.495], declining) == words


@for_each(
    ("rule", "n_train", "n_epoch", "step"),
    [
        (EarlyStopping(), 1000, 3, 1000),
        (EarlyStopping(Metric.LOSS), 1000, 3, 100),
        (EarlyStopping(Metric.LOSS), 1000, 100, 500),  # never more than 200 evaluations
        (EarlyStopping(Metric.LOSS), 1, 1, 1),
    ],
)
def test_held_out_rows_are_scored_after_a_pass_and_the_loss_within_it(rule, n_train, n_epoch, step) -> None:
    assert evaluation_step(rule, n_train, n_epoch) == step


@for_each("field", [{"target": 0.0}, {"target": float("nan")}, {"target": 1.5}, {"decline": 1.0}])
def test_impossible_rules_are_refused(field) -> None:
    with pytest.raises(InvalidValueError, match="early stopping"):
        EarlyStopping(**field)
