"""Laws of Qore-DL's scheduler: weights of hosts, utilisation, priority, placement."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.deadline.scheduler import (
    PAPER,
    Host,
    Thresholds,
    WaitingJob,
    candidates,
    host_weights,
    light_hosts,
    ordered,
    place,
    priority,
    urgency,
    utilisation,
)
from dlrover_nb.core.errors import InvalidValueError

SHARES = st.floats(0, 1)
LOADS = st.lists(SHARES, min_size=1, max_size=60)
HOSTS = st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=20).map(
    lambda rows: [Host(f"h{i}", 32.0, 1 << 16, 32.0 * c, int(m * (1 << 16))) for i, (c, m) in enumerate(rows)]
)
JOB = WaitingJob("job", ((4.0, 4096), (2.0, 2048)), run_s=600, least_run_s=300, left_s=1200)


def even(load: float, n: int = 7) -> list[Host]:
    return [Host(f"h{i}", 32.0, 1 << 16, 32.0 * load, int(load * (1 << 16))) for i in range(n)]


@given(st.lists(SHARES, min_size=2, max_size=200, unique=True))
def test_the_lightest_third_of_the_hosts_holds_95_percent_of_the_weight(loads):
    weights = host_weights(loads)
    light = np.argsort(loads, kind="stable")[: light_hosts(len(loads))]
    assert weights[light].sum() == pytest.approx(0.95, abs=1e-6)


@given(LOADS)
def test_weights_sum_to_one_and_fall_with_load_and_only_with_load(loads):
    weights = host_weights(loads)
    assert weights.sum() == pytest.approx(1)
    order = np.argsort(loads, kind="stable")
    assert (np.diff(weights[order]) <= 1e-12).all()
    for a, b in pairwise(order):
        assert loads[a] != loads[b] or weights[a] == weights[b]


@given(HOSTS, st.randoms())
def test_utilisation_lies_between_the_lightest_and_the_mean_load_whatever_the_order(hosts, random):
    found, loads = utilisation(hosts), [host.load for host in hosts]
    assert min(loads) - 1e-9 <= found <= np.mean(loads) + 1e-9
    shuffled = random.sample(hosts, len(hosts))
    assert utilisation(shuffled) == pytest.approx(found)


def test_the_load_of_a_host_is_seven_parts_cores_and_three_parts_memory():
    assert Host("h", 10.0, 1000, 5.0, 100).load == pytest.approx(0.7 * 0.5 + 0.3 * 0.1)


@given(HOSTS, st.floats(300, 1e5), st.floats(300, 1e5))
def test_of_jobs_that_can_be_in_time_the_nearer_deadline_goes_first(hosts, one_s, other_s):
    near, far = sorted((one_s, other_s))
    assert priority(replace(JOB, left_s=near), hosts) >= priority(replace(JOB, left_s=far), hosts)


@given(st.floats(-1e5, 299))
def test_a_job_that_must_be_late_is_not_urgent(left_s):
    assert urgency(replace(JOB, left_s=left_s)) == 0


@pytest.mark.parametrize(("load", "first"), [(0.1, "large"), (0.35, "large"), (0.7, "small"), (0.9, "small")])
def test_large_jobs_go_first_under_light_load_and_small_ones_under_heavy_load(load, first):
    jobs = [replace(JOB, name="small"), replace(JOB, name="large", needs=JOB.needs * 5)]
    assert ordered(jobs, even(load))[0].name == first


def test_an_urgent_job_goes_before_a_larger_one_that_has_time():
    large = replace(JOB, name="large", needs=JOB.needs * 8, left_s=12000)
    assert [job.name for job in ordered([large, replace(JOB, left_s=650)], even(0.1))] == ["job", "large"]


@given(HOSTS, st.integers(1, 30), st.integers(0, 99))
def test_candidates_are_different_hosts_and_the_seed_decides(hosts, n, seed):
    drawn = candidates(hosts, n, np.random.default_rng(seed))
    assert len(set(drawn)) == len(drawn) == min(n, len(hosts))
    assert drawn == candidates(hosts, n, np.random.default_rng(seed))


def test_first_candidates_are_drawn_by_their_weights():
    hosts = [replace(host, used_cpu=float(i)) for i, host in enumerate(even(0.0, 6))]
    rng, weights = np.random.default_rng(5), host_weights([host.load for host in hosts])
    drawn = np.bincount([candidates(hosts, 1, rng)[0] for _ in range(4000)], minlength=6) / 4000
    assert np.abs(drawn - weights).max() < 0.03


@given(HOSTS, st.lists(st.tuples(st.floats(0.1, 20), st.integers(64, 40000)), min_size=1, max_size=8))
def test_placed_nodes_fit_on_their_hosts(hosts, needs):
    found = place(needs, hosts, np.random.default_rng(0))
    if found is None:
        return
    after = list(hosts)
    for need, i in zip(needs, found, strict=True):
        assert after[i].has_room(need)
        after[i] = after[i].with_node(need)


@given(HOSTS, st.tuples(st.floats(0.1, 32), st.integers(64, 1 << 16)), st.integers(0, 20))
def test_one_node_is_placed_wherever_any_host_has_room(hosts, need, seed):
    found = place([need], hosts, np.random.default_rng(seed), n_candidate=1)
    assert (found is not None) == any(host.has_room(need) for host in hosts)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidValueError, match="must rise"):
        Thresholds(light=0.6)
    with pytest.raises(InvalidValueError, match=">= 1 host"):
        host_weights([])
    with pytest.raises(InvalidValueError, match=">= 1 node"):
        replace(JOB, needs=())
    assert (PAPER.light, PAPER.middle, PAPER.heavy) == (0.35, 0.55, 0.7)
