"""ADJUST_BS: exact, whole, within bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.batch_solver import Share, share_batch, slowest_s

# A busy machine is no mistake: no test fails because it takes long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

speeds = st.floats(0.01, 1e4) | st.integers(1, 6).map(float)


@st.composite
def problems(draw, most_workers=40, most_batch=5_000):
    n = draw(st.integers(1, most_workers))
    total = draw(st.integers(n, most_batch))
    shares = []
    for _ in range(n):
        least = draw(st.integers(0, total // n))
        most = draw(st.none() | st.integers(max(least, -(-total // n)), total + 5))
        shares.append(Share(draw(speeds), least, most, draw(st.integers(0, total))))
    return tuple(shares), total


def by_trying_all(shares, total):
    ranges = [
        range(share.least, min(total, share.most if share.most is not None else total) + 1)
        for share in shares
    ]
    return min(slowest_s(shares, sizes) for sizes in product(*ranges) if sum(sizes) == total)


def by_highs(shares, total):
    n = len(shares)
    v = np.array([share.samples_per_s for share in shares])
    below = np.hstack([np.diag(1 / v), -np.ones((n, 1))])
    sums = LinearConstraint(np.append(np.ones(n), 0.0), total, total)
    upper = [total if share.most is None else share.most for share in shares]
    bounds = Bounds([*(share.least for share in shares), 0.0], [*upper, np.inf])
    integer = np.append(np.ones(n), 0)
    cost = np.append(np.zeros(n), 1.0)
    found = milp(
        cost,
        constraints=[LinearConstraint(below, -np.inf, 0.0), sums],
        bounds=bounds,
        integrality=integer,
        options={"mip_rel_gap": 0.0},
    )
    assert found.success
    return slowest_s(shares, [round(b) for b in found.x[:n]])


@patient
@given(problems(most_workers=4, most_batch=14))
def test_no_other_sizes_are_faster(problem):
    shares, total = problem
    assert slowest_s(shares, share_batch(shares, total)) == by_trying_all(shares, total)


@pytest.mark.more
@patient
@given(problems())
def test_sizes_sum_to_the_global_batch_and_keep_the_bounds(problem):
    shares, total = problem
    sizes = share_batch(shares, total)
    assert sum(sizes) == total
    assert all(share.least <= size for share, size in zip(shares, sizes, strict=True))
    assert all(share.most is None or size <= share.most for share, size in zip(shares, sizes, strict=True))


@pytest.mark.more
@patient
@given(problems())
def test_one_sample_from_the_slowest_to_any_other_saves_nothing(problem):
    shares, total = problem
    sizes = share_batch(shares, total)
    now_s = slowest_s(shares, sizes)
    times_s = [size / share.samples_per_s for share, size in zip(shares, sizes, strict=True)]
    if all(size == share.least for share, size, t in zip(shares, sizes, times_s, strict=True) if t == now_s):
        return
    others = (
        (share, size)
        for share, size, t in zip(shares, sizes, times_s, strict=True)
        if t < now_s and (share.most is None or size < share.most)
    )
    assert all((size + 1) / share.samples_per_s >= now_s for share, size in others)


@pytest.mark.more
@patient
@given(problems(), st.integers(0, 39), st.floats(1.0, 8.0))
def test_a_faster_worker_or_a_smaller_batch_never_makes_the_job_slower(problem, which, factor):
    shares, total = problem
    which %= len(shares)
    now_s = slowest_s(shares, share_batch(shares, total))
    faster = [
        Share(s.samples_per_s * (factor if i == which else 1.0), s.least, s.most, s.present)
        for i, s in enumerate(shares)
    ]
    assert slowest_s(faster, share_batch(faster, total)) <= now_s
    assume(total - 1 >= max(1, sum(share.least for share in shares)))
    assert slowest_s(shares, share_batch(shares, total - 1)) <= now_s


@pytest.mark.more
@patient
@given(problems())
def test_what_is_best_already_stays_as_it_is(problem):
    shares, total = problem
    sizes = share_batch(shares, total)
    again = [Share(s.samples_per_s, s.least, s.most, size) for s, size in zip(shares, sizes, strict=True)]
    assert share_batch(again, total) == sizes


@for_each("seed", range(30))
def test_the_result_is_that_of_a_solver_of_integer_programs(seed):
    rng = np.random.default_rng(seed)
    shares = [Share(float(v), int(rng.integers(0, 10))) for v in rng.uniform(0.5, 40, rng.integers(2, 9))]
    total = int(rng.integers(100, 400))
    assert slowest_s(shares, share_batch(shares, total)) == pytest.approx(by_highs(shares, total), rel=1e-6)


def test_among_equals_those_with_the_present_sizes_keep_them():
    for present in ((4, 3, 3), (3, 4, 3), (3, 3, 4)):
        assert share_batch([Share(1.0, present=b) for b in present], 10) == present
    assert share_batch([Share(1.0)] * 3, 10) == (4, 3, 3)
    assert share_batch([Share(1.0, present=2), Share(1.0, present=9), Share(1.0, present=3)], 10) == (3, 4, 3)


def test_a_worker_at_a_third_of_the_speed_gets_a_third():
    assert share_batch([Share(30.0), Share(30.0), Share(10.0)], 70) == (30, 30, 10)


def test_a_thousand_workers_are_shared_exactly():
    rng = np.random.default_rng(1)
    shares = [Share(float(v)) for v in rng.uniform(100, 2_000, 1_000)]
    sizes = share_batch(shares, 1_234_567)
    assert sum(sizes) == 1_234_567
    perfect_s = 1_234_567 / sum(share.samples_per_s for share in shares)
    longest_step_s = max(1 / share.samples_per_s for share in shares)
    assert perfect_s <= slowest_s(shares, sizes) <= perfect_s + longest_step_s


@for_each(
    ("shares", "total", "words"),
    [
        (
            [Share(1.0, least=6), Share(1.0, least=6)],
            10,
            "at most the global batch of 10, got 12; lower them",
        ),
        ([Share(1.0, most=4), Share(1.0, most=5)], 10, "at least the global batch of 10, got 9; raise them"),
        ([Share(1.0)], 0, "global batch must be >= 1, got 0"),
        ([], 10, "greatest sizes of 0 workers"),
    ],
)
def test_bounds_that_no_sizes_keep_are_refused_with_what_to_do(shares, total, words):
    with pytest.raises(InvalidValueError, match=words):
        share_batch(shares, total)


@for_each("wrong", [{"samples_per_s": 0.0}, {"samples_per_s": float("nan")}, {"least": -1}, {"most": 0}])
def test_a_share_without_a_speed_or_with_crossed_bounds_is_refused(wrong):
    with pytest.raises(InvalidValueError):
        Share(**{"samples_per_s": 1.0} | wrong)
