"""Laws of the weighted greedy selection."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.greedy import WEIGHTS, Bids, efficiency, equal, refusal, remaining_time, select


def bids_of(seed, n_job, n_most, n_resource=2, *, slower=False):
    """Draw ragged bids: some jobs wait (hold nothing), some have no candidate."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, n_most + 1, n_job)
    n = int(counts.sum())
    offsets = np.concatenate(([0], np.cumsum(counts)))
    present = rng.integers(0, 5, (n_job, n_resource)) * (rng.random((n_job, 1)) < 0.8)
    demands = rng.integers(1, 20, (n, n_resource))
    gains = rng.normal(5, 10, n) if slower else rng.uniform(0, 10, n)
    return Bids(
        offsets=offsets,
        demands=demands.astype(float),
        gains=gains,
        costs=rng.normal(2, 2, n),
        samples_per_s=rng.uniform(10, 1000, n),
        samples_left=rng.uniform(0, 1e6, n_job),
        present=present.astype(float),
        resources=tuple(f"r{i}" for i in range(n_resource)),
    )


def capacity_of(bids, share):
    most = bids.present.sum(axis=0) + bids.demands.sum(axis=0)
    return bids.present.sum(axis=0) + share * (most - bids.present.sum(axis=0))


def held(bids, chosen):
    """Add up what the chosen plans need."""
    total = np.zeros(len(bids.resources))
    for job, own in enumerate(chosen):
        total += bids.present[job] if own < 0 else bids.demands[bids.offsets[job] + own]
    return total


def worth(bids, selection):
    picks = [(j, o) for j, o in enumerate(selection.chosen) if o >= 0]
    return sum(selection.values[bids.offsets[j] + o] for j, o in picks)


def best_of_all(bids, values, capacity, *, shrink=False):
    """Try every selection."""
    best = -np.inf
    for chosen in product(*(range(-1, n) for n in np.diff(bids.offsets))):
        picks = [bids.offsets[j] + o for j, o in enumerate(chosen) if o >= 0]
        if not shrink and any(bids.gains[i] < 0 for i in picks):
            continue
        if (held(bids, chosen) <= capacity + 1e-9).all():
            best = max(best, sum(values[i] for i in picks))
    return best


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 25),
    st.integers(1, 8),
    st.integers(1, 3),
    st.floats(0, 1.2),
    st.booleans(),
)
def test_never_over_capacity_and_no_job_slower_unless_asked(seed, n_job, n_most, n_resource, share, shrink):
    bids = bids_of(seed, n_job, n_most, n_resource, slower=True)
    capacity = capacity_of(bids, share)
    found = select(bids, capacity, shrink=shrink)
    used = held(bids, found.chosen)
    assert (used <= capacity * (1 + 1e-9)).all()
    np.testing.assert_allclose(found.used, used, rtol=1e-6, atol=1e-6)
    picks = [bids.offsets[j] + o for j, o in enumerate(found.chosen) if o >= 0]
    assert shrink or all(bids.gains[i] >= 0 for i in picks)
    assert 0 <= found.objective <= found.bound * (1 + 1e-9) + 1e-15


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 8), st.floats(0, 1.0))
def test_objective_is_the_sum_of_the_chosen_and_lies_between_nothing_and_the_bound(
    seed, n_job, n_most, share
):
    bids = bids_of(seed, n_job, n_most)
    found = select(bids, capacity_of(bids, share))
    assert found.objective == pytest.approx(worth(bids, found), rel=1e-9, abs=1e-12)
    assert 0 <= found.objective <= found.bound * (1 + 1e-9) + 1e-15
    assert (found.prices >= 0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.6))
def test_a_few_jobs_get_nearly_the_best_of_all_selections(seed, share):
    bids = bids_of(seed, 4, 4)
    capacity = capacity_of(bids, share)
    found = select(bids, capacity, weight=equal)
    best = best_of_all(bids, found.values, capacity)
    assert found.objective <= best * (1 + 1e-9) + 1e-12
    assert found.objective >= 0.95 * best - 1e-12
    assert found.bound >= best * (1 - 1e-9)


@pytest.mark.more
def test_over_many_small_instances_the_mean_loss_is_below_a_percent():
    ratios = []
    for seed in range(150):
        bids = bids_of(seed, 4, 4)
        capacity = capacity_of(bids, 0.25)
        found = select(bids, capacity, weight=equal)
        best = best_of_all(bids, found.values, capacity)
        ratios.append(found.objective / best if best > 0 else 1.0)
    assert np.mean(ratios) >= 0.99


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 6))
def test_where_all_fits_every_job_gets_the_plan_worth_most(seed, n_job, n_most):
    bids = bids_of(seed, n_job, n_most)
    found = select(bids, capacity_of(bids, 2.0))
    for job in range(n_job):
        values = found.values[bids.offsets[job] : bids.offsets[job + 1]]
        own = found.chosen[job]
        assert (0.0 if own < 0 else values[own]) == pytest.approx(max(values.max(initial=0.0), 0.0))
        assert refusal(bids, found, job) is None
    assert (found.prices == 0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 20), st.floats(0, 0.3))
def test_whoever_is_refused_something_could_not_have_it_and_is_told_so(seed, n_job, share):
    bids = bids_of(seed, n_job, 6)
    found = select(bids, capacity_of(bids, share), weight=equal)
    for job in range(n_job):
        values = found.values[bids.offsets[job] : bids.offsets[job + 1]]
        own = found.chosen[job]
        lost = values.max(initial=0.0) > (0.0 if own < 0 else values[own]) + 1e-9
        sentence = refusal(bids, found, job)
        assert (sentence is not None) or not lost
        if sentence is not None and lost:
            assert sentence.startswith("Needs ")
            assert "next when" in sentence


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 0.5), st.floats(1e-6, 1e6))
def test_the_unit_of_the_gains_changes_nothing(seed, n_job, share, unit):
    bids = bids_of(seed, n_job, 6)
    unit = 2.0 ** round(np.log2(unit))  # exact in floating point
    other = replace(bids, gains=unit * bids.gains)
    a, b = (select(x, capacity_of(x, share)) for x in (bids, other))
    np.testing.assert_array_equal(a.chosen, b.chosen)
    assert b.objective == pytest.approx(unit * a.objective)


def test_the_same_bids_give_the_same_selection():
    bids = bids_of(3, 30, 8)
    first, second = (select(bids, capacity_of(bids, 0.2)) for _ in range(2))
    np.testing.assert_array_equal(first.chosen, second.chosen)


def test_more_capacity_never_lowers_the_bound():
    bids = bids_of(5, 30, 8)
    bounds = [select(bids, capacity_of(bids, share)).bound for share in (0.0, 0.05, 0.1, 0.3, 0.6, 1.0)]
    assert all(a <= b * (1 + 1e-4) for a, b in pairwise(bounds))


def one_job(**changes):
    base = Bids(
        offsets=np.array([0, 1]),
        demands=np.array([[12.0, 8.0]]),
        gains=np.array([100.0]),
        costs=np.array([1.0]),
        samples_per_s=np.array([200.0]),
        samples_left=np.array([1e5]),
        present=np.array([[2.0, 4.0]]),
        resources=("cpu", "memory_gib"),
    )
    return replace(base, **changes)


def test_refusal_names_what_is_short_and_when_it_is_next(words):
    bids = one_job()
    found = select(bids, np.array([5.0, 100.0]))
    assert found.chosen.tolist() == [-1]
    assert refusal(bids, found, 0) == words
    with pytest.raises(InvalidValueError, match="job must be"):
        refusal(bids, found, 1)


def test_a_plan_that_exactly_fills_the_machines_is_taken():
    bids = one_job()
    assert select(bids, np.array([12.0, 8.0])).chosen.tolist() == [0]


def test_a_faster_plan_that_costs_no_more_is_finite_and_ranks_above_a_dearer_one():
    bids = one_job(
        offsets=np.array([0, 3]),
        demands=np.ones((3, 2)),
        gains=np.array([100.0, 100.0, 120.0]),
        costs=np.array([2.0, -1.0, 0.0]),
        samples_per_s=np.ones(3),
    )
    re = efficiency(bids)
    assert np.isfinite(re).all()
    assert re[0] < re[1] < re[2]


def test_losing_throughput_to_save_money_is_not_efficient():
    bids = one_job(gains=np.array([-100.0]), costs=np.array([-2.0]))
    assert efficiency(bids)[0] == -50.0


def two_jobs():
    """Job 0 could give 8 cores back; job 1 waits for 10 and would use them much better."""
    return Bids(
        offsets=np.array([0, 1, 2]),
        demands=np.array([[2.0, 1.0], [10.0, 1.0]]),
        gains=np.array([-10.0, 1000.0]),
        costs=np.array([-1.0, 1.0]),
        samples_per_s=np.array([90.0, 1000.0]),
        samples_left=np.array([1e5, 1e5]),
        present=np.array([[10.0, 1.0], [0.0, 0.0]]),
    )


def test_a_job_shrinks_for_another_only_where_that_is_asked():
    bids, capacity = two_jobs(), np.array([12.0, 4.0])
    assert select(bids, capacity, weight=equal).chosen.tolist() == [-1, -1]
    assert select(bids, capacity, weight=equal, shrink=True).chosen.tolist() == [0, 0]


def test_jobs_that_hold_more_than_there_is_must_shrink_or_are_an_error(error_words):
    bids, capacity = two_jobs(), np.array([5.0, 4.0])
    with error_words(CapacityError):
        select(bids, capacity)
    assert select(bids, capacity, weight=equal, shrink=True).chosen.tolist() == [0, -1]
    with pytest.raises(CapacityError, match="offer smaller plans"):
        select(bids, np.array([1.0, 4.0]), shrink=True)


def rivals():
    """Two jobs want the last 4 cores for the same efficiency; job 0 ends much sooner."""
    return Bids(
        offsets=np.array([0, 1, 2]),
        demands=np.full((2, 2), 5.0),
        gains=np.array([100.0, 100.0]),
        costs=np.array([1.0, 1.0]),
        samples_per_s=np.array([200.0, 200.0]),
        samples_left=np.array([1e4, 1e7]),
        present=np.array([[1.0, 1.0], [1.0, 1.0]]),
        priority=np.array([1.0, 5.0]),
        deadline_s=np.array([1e4, 1e3]),
        owner=np.array([0, 1]),
    )


@pytest.mark.parametrize(("rho", "winner"), [(2.5, 0), (-2.5, 1)])
def test_rho_above_zero_favours_the_job_that_ends_sooner(rho, winner):
    found = select(rivals(), np.array([6.0, 6.0]), rho=rho)
    assert found.chosen[winner] == 0
    assert found.chosen[1 - winner] == -1


@pytest.mark.parametrize(("name", "winner"), [("remaining time", 0), ("priority", 1), ("deadline", 1)])
def test_each_weight_favours_whom_it_says(name, winner):
    found = select(rivals(), np.array([6.0, 6.0]), weight=WEIGHTS[name])
    assert found.chosen[winner] == 0
    assert found.chosen[1 - winner] == -1


def test_fair_share_favours_the_owner_who_holds_least():
    bids = replace(rivals(), present=np.array([[1.0, 3.0], [1.0, 1.0]]))
    assert select(bids, np.array([6.0, 8.0]), weight=WEIGHTS["fair share"]).chosen.tolist() == [-1, 0]


def test_weights_follow_the_papers_equation():
    weight = remaining_time(2.0, 1.0)(rivals(), np.ones(2))
    np.testing.assert_allclose(weight, [(50 + 1) ** -2.0, (50_000 + 1) ** -2.0])


def test_no_jobs_need_nothing():
    empty = Bids(
        offsets=np.array([0]),
        demands=np.zeros((0, 2)),
        gains=np.zeros(0),
        costs=np.zeros(0),
        samples_per_s=np.zeros(0),
        samples_left=np.zeros(0),
        present=np.zeros((0, 2)),
    )
    found = select(empty, np.array([4.0, 4.0]))
    assert found.objective == 0
    assert found.free.tolist() == [4.0, 4.0]


@for_each(
    ("changes", "message"),
    [
        ({"gains": np.array([np.nan])}, "gains must be finite"),
        ({"demands": np.array([[-1.0, 1.0]])}, "demands must be >= 0"),
        ({"samples_per_s": np.array([0.0])}, "samples_per_s must be > 0"),
        ({"samples_left": np.array([-1.0])}, "samples_left must be >= 0"),
        ({"present": np.zeros((2, 2))}, "present must have shape"),
        ({"offsets": np.array([0, 2])}, "offsets must be whole numbers"),
        ({"offsets": np.array([0.0, 1.0])}, "offsets must be whole numbers"),
        ({"least_cost": 0.0}, "least_cost must be > 0"),
        ({"owner": np.array([-1])}, "owner must be >= 0"),
    ],
)
def test_bids_that_cannot_be_are_refused(changes, message):
    with pytest.raises(InvalidValueError, match=message):
        one_job(**changes)


@pytest.mark.parametrize("capacity", [[1.0], [np.nan, 1.0], [-1.0, 1.0]])
def test_a_capacity_that_cannot_be_is_refused(capacity, error_words):
    with error_words(InvalidValueError):
        select(one_job(), np.array(capacity))


def test_weights_that_cannot_be_are_refused(error_words):
    with pytest.raises(InvalidValueError, match="rho"):
        remaining_time(rho=float("nan"))
    with pytest.raises(InvalidValueError, match="epsilon"):
        remaining_time(epsilon=0.0)
    with error_words(InvalidValueError):
        select(one_job(), np.array([50.0, 50.0]), weight=WEIGHTS["priority"])
