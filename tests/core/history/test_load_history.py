"""The load of clusters over time: laws of thinning, and what a database gives back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.history.stores.load_series import ALL, DAY_S, KEPT_S, LoadPoint, thinned
from dlrover_nb.core.history.stores.loads import LoadStore
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad

NOW_S = 100 * DAY_S
AMOUNTS = st.builds(Amount, st.floats(0, 1e4), st.floats(0, 1e7))
POINTS = st.lists(
    st.builds(
        LoadPoint,
        st.sampled_from(["", "a"]),
        st.integers(1, 40 * 86_400).map(lambda s: NOW_S - s) | st.integers(0, 400).map(lambda s: NOW_S - 8 * DAY_S + s),
        AMOUNTS,
        AMOUNTS,
        AMOUNTS,
        st.none() | AMOUNTS,
        st.integers(1, 9),
    ),
    unique_by=lambda p: (p.machine, p.at_s),
    max_size=40,
)  # fmt: skip


def _core_samples(points, machine):
    mine = [p for p in points if p.machine == machine and NOW_S - p.at_s <= KEPT_S]
    return sum(p.n_sample for p in mine), sum(p.n_sample * p.by_jobs.cpu for p in mine)


@pytest.mark.more
@given(POINTS)
def test_counts_and_sums_of_what_is_kept_stay(points):
    after = thinned(points, NOW_S)
    for machine in ("", "a"):
        assert _core_samples(after, machine) == pytest.approx(_core_samples(points, machine))


@pytest.mark.more
@given(POINTS)
def test_thinning_twice_is_thinning_once(points):
    once = thinned(points, NOW_S)
    assert thinned(once, NOW_S) == once


@given(POINTS)
def test_old_points_stand_a_minute_or_an_hour_of_the_clock_apart_and_none_is_older_than_a_month(points):
    after = thinned(points, NOW_S)
    for older_s, younger_s, span_s in ((DAY_S, 7 * DAY_S, 60), (7 * DAY_S, KEPT_S, 3600)):
        old = [(p.machine, p.at_s // span_s) for p in after if older_s < NOW_S - p.at_s <= younger_s]
        assert len(set(old)) == len(old)
    assert all(NOW_S - p.at_s <= KEPT_S for p in after)


def test_a_mean_of_what_was_measured_is_taken_of_those_moments():
    def at(second, used):
        return LoadPoint("a", NOW_S - 2 * DAY_S + second, None, Amount(1, 1), None, used)

    (point,) = thinned([at(0, Amount(2, 10)), at(5, None), at(9, Amount(4, 30))], NOW_S)
    assert (point.n_sample, point.used, point.has) == (3, Amount(3, 20), None)


def load(cpu=1.0, *, place="local here"):
    used = Amount(cpu / 2, 100)
    machines = (
        MachineLoad("a", Amount(4, 8192), (("ctr", Amount(cpu, 512)),), used=used),
        MachineLoad("b", None, (), others=None),
    )
    return ClusterLoad(machines, place=place)


@pytest.fixture
def store(url):
    store = LoadStore(url)
    yield store
    store.close()


def test_a_sample_comes_back_for_all_machines_and_for_each(store):
    assert store.add(load(), NOW_S) == 3
    whole, a, b = store.between("local here", NOW_S, NOW_S)
    assert (whole.machine, whole.by_jobs, whole.has, whole.used) == (ALL, Amount(1, 512), None, None)
    assert (a.has, a.idle, a.used) == (Amount(4, 8192), Amount(3, 7680), Amount(0.5, 100))
    assert (b.machine, b.has, b.idle, b.used) == ("b", None, None, None)


def test_a_span_of_time_and_one_machine_are_chosen(store):
    for second in range(5):
        store.add(load(float(second)), NOW_S + second)
    found = store.between("local here", NOW_S + 1, NOW_S + 3, "a")
    assert [p.by_jobs.cpu for p in found] == [1.0, 2.0, 3.0]
    assert store.between("ray elsewhere", 0, 2 * NOW_S) == ()


def test_a_moment_is_written_once_and_the_simulated_never(store):
    assert store.add(load(), NOW_S) == 3
    assert store.add(load(2.0), NOW_S) == 0
    assert store.add(load(place=""), NOW_S + 1) == 0
    assert len(store.between("local here", 0, 2 * NOW_S)) == 3


def test_the_first_sample_of_an_hour_thins_what_is_old(store):
    early_s = NOW_S - 40 * DAY_S
    times = [early_s, *(NOW_S - 2 * DAY_S + 10 * i for i in range(12)), NOW_S - 60.0]
    for at_s in times:
        store.add(load(), at_s)
    before = store.between("local here", 0, 2 * NOW_S, "a")
    store.add(load(), NOW_S + 1)
    after = store.between("local here", 0, 2 * NOW_S, "a")
    assert after == tuple(thinned([*before, after[-1]], NOW_S + 1))
    assert [p.n_sample for p in after] == [6, 6, 1, 1]
