"""Laws of the straggler patterns: how many nodes, how much of the time, and the same for the same seed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.testing.faults import Persistent, Together, Transient, delay_s, in_time

SEEDS = st.integers(-(1 << 63), (1 << 63) - 1)
NODES = st.sampled_from([f"worker-{i}" for i in range(20)])
TIMES = st.floats(0, 1e6)
TRANSIENT = st.builds(
    lambda every_s, share, probability, seed: Transient(
        probability=probability, lasts_s=every_s * share, every_s=every_s, seed=seed
    ),
    st.floats(1, 1e4),
    st.floats(0.01, 1),
    st.floats(0, 1),
    SEEDS,
)


@given(pattern=TRANSIENT, node=NODES, at_s=TIMES)
def test_a_delay_is_sleep_times_intensity_or_nothing_and_the_same_each_time(pattern, node, at_s):
    told = delay_s(pattern, node, at_s)
    assert told in {0.0, pattern.sleep_s * pattern.intensity}
    assert delay_s(replace(pattern), node, at_s) == told


@settings(deadline=None)
@given(node=NODES, period=st.integers(0, 500), seed=SEEDS)
def test_a_drawn_node_is_delayed_for_the_first_half_of_the_papers_half_hour(node, period, seed):
    pattern = Transient(probability=1.0, seed=seed)
    seconds = [delay_s(pattern, node, period * 1800.0 + at_s) > 0 for at_s in range(0, 1800, 10)]
    assert seconds == [at_s < 900 for at_s in range(0, 1800, 10)]


@given(pattern=TRANSIENT, node=NODES, period=st.integers(0, 100))
def test_the_draw_holds_for_the_whole_delayed_part_of_a_period(pattern, node, period):
    within = [pattern.every_s * period + pattern.lasts_s * part for part in (0.001, 0.3, 0.6, 0.999)]
    assert len({delay_s(pattern, node, at_s) for at_s in within}) == 1


@settings(deadline=None, max_examples=25)
@given(seed=SEEDS, probability=st.floats(0, 1))
def test_the_fraction_of_drawn_nodes_is_the_probability(seed, probability):
    pattern = Transient(probability=probability, seed=seed)
    n_node, n_period = 40, 50
    drawn = [
        delay_s(pattern, f"worker-{node}", period * 1800.0) > 0
        for node in range(n_node)
        for period in range(n_period)
    ]
    n = len(drawn)
    deviation = math.sqrt(probability * (1 - probability) / n)
    assert abs(sum(drawn) / n - probability) <= 6 * deviation + 1e-9


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1 << 62))
def test_another_seed_draws_other_nodes(seed):
    def drawn(of: int) -> list[bool]:
        pattern = Transient(seed=of)
        return [delay_s(pattern, f"worker-{i}", p * 1800.0) > 0 for i in range(20) for p in range(20)]

    assert drawn(seed) != drawn(seed + 1)


@given(pattern=TRANSIENT, node=NODES, at_s=TIMES, power=st.integers(-8, 8))
def test_a_pattern_in_other_time_is_the_same_pattern_at_other_times(pattern, node, at_s, power):
    factor = 2.0**power  # exact in floating point
    assert delay_s(in_time(pattern, factor), node, at_s * factor) == delay_s(pattern, node, at_s)


@given(pattern=TRANSIENT, sleep_s=st.floats(0, 10), node=NODES, at_s=TIMES)
def test_delays_of_patterns_together_add_up(pattern, sleep_s, node, at_s):
    constant = Persistent(sleep_s)
    both = Together((pattern, Together((constant,))))
    assert delay_s(both, node, at_s) == delay_s(pattern, node, at_s) + sleep_s
    assert delay_s(in_time(both, 0.5), node, at_s * 0.5) == delay_s(both, node, at_s)


@given(at_s=TIMES)
def test_only_named_nodes_are_delayed_and_none_before_the_begin(at_s):
    pattern = Persistent(nodes=("worker-3",))
    assert delay_s(pattern, "worker-3", at_s) == 4.0  # the paper's
    assert delay_s(pattern, "worker-2", at_s) == 0.0
    assert delay_s(Together((pattern, Transient(probability=1.0))), "worker-3", -1e-6 - at_s) == 0.0


@for_each(
    ("make", "words"),
    [
        (lambda: Persistent(-1.0), "sleep_s must be >= 0"),
        (lambda: Persistent(intensity=1.5), "raise sleep_s instead"),
        (lambda: Transient(probability=30), r"probability must be in \[0, 1\]"),
        (lambda: Transient(lasts_s=20.0, every_s=10.0), "use Persistent"),
        (lambda: Transient(every_s=math.nan), "every_s must be > 0"),
        (lambda: in_time(Transient(), 0.0), "factor must be > 0"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(make, words):
    with pytest.raises(InvalidValueError, match=words):
        make()
