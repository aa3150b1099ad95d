"""AntDT-DD, Eq. 4: exact, whole, within bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.accumulation import Kind, share_accumulated, slowest_s

# A busy machine is no mistake: no test fails because it takes long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

speeds = st.floats(0.1, 1e3) | st.integers(1, 6).map(float)


@st.composite
def kinds_(draw, most_kinds, most_size, most_devices):
    found = []
    for _ in range(draw(st.integers(1, most_kinds))):
        least, low = draw(st.integers(1, most_size)), draw(st.integers(1, 3))
        most, high = draw(st.integers(least, most_size)), draw(st.integers(low, 4))
        found.append(Kind(draw(st.integers(1, most_devices)), draw(speeds), least, most, low, high))
    return tuple(found)


def values(kind):
    times = range(kind.least_accumulated, kind.most_accumulated + 1)
    return sorted({c * b for c in times for b in range(kind.least, kind.most + 1)})


def sums(kinds):
    return {
        sum(k.n * m for k, m in zip(kinds, taken, strict=True))
        for taken in product(*(values(k) for k in kinds))
    }


def by_trying_all(kinds, total):
    times_s = [
        max(m / k.samples_per_s for k, m in zip(kinds, taken, strict=True))
        for taken in product(*(values(k) for k in kinds))
        if sum(k.n * m for k, m in zip(kinds, taken, strict=True)) == total
    ]
    return min(times_s, default=None)


def by_highs(kinds, total):
    """Solve Eq. 4 with a binary variable y and a size b for each kind and C: least·y <= b <= most·y."""
    cells = [(i, c) for i, k in enumerate(kinds) for c in range(k.least_accumulated, k.most_accumulated + 1)]
    n = len(cells)
    width = 2 * n + 1  # y, b, z
    rows, low, high = [], [], []

    def add(entries, least, most):
        row = np.zeros(width)
        for j, x in entries:
            row[j] += x
        rows.append(row)
        low.append(least)
        high.append(most)

    for i, kind in enumerate(kinds):
        mine = [j for j, cell in enumerate(cells) if cell[0] == i]
        add([(j, 1.0) for j in mine], 1.0, 1.0)
        add([(n + j, cells[j][1] / kind.samples_per_s) for j in mine] + [(2 * n, -1.0)], -np.inf, 0.0)
        for j in mine:
            add([(n + j, 1.0), (j, -kind.least)], 0.0, np.inf)
            add([(n + j, 1.0), (j, -kind.most)], -np.inf, 0.0)
    add([(n + j, float(kinds[i].n * c)) for j, (i, c) in enumerate(cells)], total, total)
    upper = [1.0] * n + [float(kinds[i].most) for i, _ in cells] + [np.inf]
    found = milp(
        np.append(np.zeros(2 * n), 1.0),
        constraints=LinearConstraint(np.array(rows), low, high),
        bounds=Bounds(np.zeros(width), upper),
        integrality=np.append(np.ones(2 * n), 0),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun) if found.success else None


@patient
@given(kinds_(3, 8, 4), st.integers(0, 10**6))
def test_no_other_mini_batches_are_faster(kinds, which):
    reachable = sorted(sums(kinds))
    total = reachable[which % len(reachable)]
    assert slowest_s(kinds, share_accumulated(kinds, total)) == by_trying_all(kinds, total)


@patient
@given(kinds_(3, 6, 5), st.integers(1, 80))
def test_a_batch_is_refused_exactly_where_no_mini_batches_sum_to_it(kinds, total):
    if total in sums(kinds):
        share_accumulated(kinds, total)
    else:
        with pytest.raises(InvalidValueError, match="global batch"):
            share_accumulated(kinds, total)


@pytest.mark.more
@patient
@given(kinds_(12, 60, 30), st.data())
def test_sums_are_exact_and_bounds_are_kept(kinds, data):
    total = sum(k.n * data.draw(st.sampled_from(values(k))) for k in kinds)
    shares = share_accumulated(kinds, total)
    assert sum(k.n * share.samples for k, share in zip(kinds, shares, strict=True)) == total
    for kind, share in zip(kinds, shares, strict=True):
        assert kind.least <= share.size <= kind.most
        assert kind.least_accumulated <= share.times <= kind.most_accumulated


@pytest.mark.more
@patient
@given(kinds_(3, 7, 3), st.integers(0, 10**6))
def test_each_device_as_its_own_kind_is_no_slower(kinds, which):
    reachable = sorted(sums(kinds))
    total = reachable[which % len(reachable)]
    apart = [
        Kind(1, k.samples_per_s, k.least, k.most, k.least_accumulated, k.most_accumulated)
        for k in kinds
        for _ in range(k.n)
    ]
    grouped_s = slowest_s(kinds, share_accumulated(kinds, total))
    assert slowest_s(apart, share_accumulated(apart, total)) <= grouped_s


@pytest.mark.more
@patient
@given(kinds_(3, 8, 4), st.integers(0, 10**6), st.floats(1.0, 4.0))
def test_faster_devices_never_make_the_job_slower(kinds, which, factor):
    reachable = sorted(sums(kinds))
    total = reachable[which % len(reachable)]
    first, *rest = kinds
    faster = [
        Kind(first.n, first.samples_per_s * factor, first.least, first.most, first.least_accumulated, first.most_accumulated),
        *rest,
    ]  # fmt: skip
    now_s = slowest_s(kinds, share_accumulated(kinds, total))
    assert slowest_s(faster, share_accumulated(faster, total)) <= now_s


@pytest.mark.more
@for_each("seed", range(30))
def test_the_result_is_that_of_a_solver_of_integer_programs(seed):
    rng = np.random.default_rng(seed)
    kinds = []
    for _ in range(rng.integers(1, 5)):
        least = int(rng.integers(1, 30))
        kinds.append(
            Kind(int(rng.integers(1, 9)), float(rng.uniform(1, 9)), least, least + int(rng.integers(0, 60)))
        )
    total = int(sum(k.n * rng.integers(1, 4) * rng.integers(k.least, k.most + 1) for k in kinds))
    expected = by_highs(kinds, total)
    assert expected is not None
    assert slowest_s(kinds, share_accumulated(kinds, total)) == pytest.approx(expected, rel=1e-6)


def test_a_device_of_three_times_the_speed_does_three_times_the_work_in_full_mini_batches():
    kinds = [Kind(4, 300.0, 32, 128), Kind(4, 100.0, 32, 128)]
    fast, slow = share_accumulated(kinds, 768)
    assert (fast.samples, slow.samples) == (144, 48)
    assert (fast.size, fast.times) == (72, 2)  # 144 samples do not fit at once


def test_large_coprime_numbers_of_devices_are_solved():
    kinds = [Kind(499, 3.0, 1, 2_000), Kind(501, 1.0, 1, 2_000)]
    total = 499 * 700 + 501 * 301
    shares = share_accumulated(kinds, total)
    assert sum(k.n * share.samples for k, share in zip(kinds, shares, strict=True)) == total


@for_each(
    ("kinds", "total", "words"),
    [
        ([Kind(2, 1.0, 4, 8)], 6, "between 8 and 80 samples for these devices, got 6"),
        ([Kind(4, 1.0, 4, 8)], 18, "multiple of 4 for these devices, got 18; take 16 or 20"),
        ([Kind(2, 1.0, 10, 10), Kind(2, 1.0, 15, 15)], 70 + 4, "got 74; take 70 or 80"),
        (
            [Kind(3, 1.0, 5, 6, 1, 1), Kind(5, 1.0, 5, 6, 1, 1)],
            41,
            "no mini-batches within the bounds sum to .* 41",
        ),
        ([], 6, "at least one kind"),
    ],
)
def test_a_batch_that_nothing_sums_to_is_refused_with_what_to_do(kinds, total, words):
    with pytest.raises(InvalidValueError, match=words):
        share_accumulated(kinds, total)
