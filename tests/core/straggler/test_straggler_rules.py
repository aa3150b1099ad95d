"""The rules against slow twins: column by column, with NumPy's own medians, and nothing left out."""

from __future__ import annotations

import math
import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dlrover_nb.core.straggler import rules
from dlrover_nb.core.straggler.detect import beside_others
from dlrover_nb.core.straggler.rules import Thresholds, Window, excesses, robustly

SHAPES = st.tuples(st.integers(2, 7), st.integers(2, 12))
TIMES = st.sampled_from([math.nan, 0.1, 0.1, 0.11, 0.13, 0.2, 0.4]) | st.floats(0.01, 1.0)


def others(column):
    found = np.full(len(column), np.nan)
    for i in np.flatnonzero(np.isfinite(column)):
        rest = np.delete(column, i)
        if np.isfinite(rest).any():
            found[i] = np.median(rest[np.isfinite(rest)])
    return found


def medians(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows that are all NaN
        return np.nanmedian(rows, axis=1)


def plainly(window, thresholds):
    """The robust rule as its words say it."""
    logs = np.log(window.parts)
    every = logs - np.column_stack([others(column) for column in logs.T])
    judged, least = every[:, -window.n_judged :], np.log(thresholds.least_ratio)
    levels, n_part = medians(judged), np.isfinite(judged).sum(axis=1)
    noise = 1.4826 / np.sqrt(2) * others(medians(np.abs(np.diff(every, axis=1))))
    uncertain = 1.2533 * noise / np.sqrt(np.maximum(n_part, 1))
    known = levels[np.isfinite(levels)]
    apart = np.abs(levels - np.median(known)) if len(known) > 2 else np.zeros(len(levels))
    scatter = np.fmax(np.fmax(uncertain, 1.4826 * others(apart)), 1e-6)
    is_each_over = (judged >= np.log(thresholds.ratio)).sum(axis=1) == n_part
    is_clear = levels / scatter >= np.where(is_each_over, thresholds.score / 2, thresholds.score)
    is_lasting = (judged >= least).sum(axis=1) >= thresholds.share * n_part
    is_above = beside_others(window.means[:, None])[:, 0] > 1
    return (n_part >= 3) & is_lasting & is_clear & (levels >= least) & is_above


@given(hnp.arrays(np.float64, SHAPES, elements=TIMES))
def test_medians_of_the_others_and_of_rows_are_numpys_to_the_last_bit(parts):
    logs = np.log(parts)
    expected = logs - np.column_stack([others(column) for column in logs.T])
    np.testing.assert_array_equal(excesses(parts), expected)
    np.testing.assert_array_equal(rules._medians(parts), medians(parts))


@given(
    hnp.arrays(np.float64, SHAPES, elements=TIMES),
    st.integers(1, 12),
    st.dictionaries(st.integers(0, 6), st.floats(1.0, 4.0), max_size=2),
)
def test_what_is_left_out_where_no_node_can_be_slow_changes_no_answer(parts, n_judged, slowed):
    for node, factor in slowed.items():
        parts[node % len(parts)] *= factor
    n_judged = min(n_judged, parts.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of nodes that reported nothing
        means = np.nanmean(parts[:, -n_judged:], axis=1)
    window = Window(parts, means, n_judged)
    np.testing.assert_array_equal(robustly(window, Thresholds()), plainly(window, Thresholds()))
