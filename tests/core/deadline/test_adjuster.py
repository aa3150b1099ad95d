"""Laws of Qore-DL's adjuster, and its genetic algorithm against all 512 genotypes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.deadline.adjuster import (
    RunningJob,
    Size,
    changed,
    eagerness,
    fitness,
    sensitivity,
    targets,
    timeout_degree,
)
from dlrover_nb.core.deadline.genetic import N_CODE, Change, decoded, encoded, evolved, listed
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.tuning import ClusterLoads

SIZE = Size(4, 2.0, 4096)
JOBS = st.lists(st.tuples(st.floats(-1, 3), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12).map(
    lambda rows: [RunningJob(f"j{i}", *row) for i, row in enumerate(rows)]
)


def speed(size: Size, contention: float = 0.02, serial: float = 0.2) -> float:
    return size.count / (2 / size.cpu + serial + contention * size.count)


def test_a_genotype_and_its_change_are_one_to_one():
    assert sorted(encoded(decoded(code)) for code in range(N_CODE)) == list(range(N_CODE))
    assert all(encoded(decoded(code)) == code for code in range(N_CODE))
    assert decoded(0b1_10_10_01_00) == Change(is_horizontal=True, cpu=0b1100, memory=0b0010)


@given(st.floats(0, 1e6), st.floats(1, 1e6))
def test_a_job_is_late_when_it_runs_longer_than_is_left(run_s, left_s):
    assert (timeout_degree(run_s, left_s) > 0) == (run_s / left_s > 1)
    assert timeout_degree(run_s, left_s) >= -1
    assert timeout_degree(run_s, -left_s) == math.inf


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 100)), max_size=8), st.floats(1, 100))
def test_sensitivity_is_that_of_the_best_plan_by_one_workers_resources(plans, held):
    speed, cores = (np.array([plan[i] for plan in plans], dtype=float) for i in (0, 1))
    gain, loss = sensitivity(speed, cores, now=(100.0, held), unit=2.0)
    assert gain >= 0
    assert loss >= 0
    more = [s / 100 - 1 for s, c in plans if held + 1e-9 < c <= held + 2]
    assert gain >= max(more, default=0) - 1e-9
    assert (loss == np.inf) == (not any(c < held - 1e-9 for c in cores))


def test_twice_as_much_for_twice_the_gain_is_as_sensitive():
    speed, cores = np.array([110.0, 120.0, 95.0, 90.0]), np.array([12.0, 14.0, 8.0, 6.0])
    gain, loss = sensitivity(speed, cores, now=(100.0, 10.0), unit=2.0)
    assert (gain, loss) == (pytest.approx(0.1), pytest.approx(0.05))


@given(JOBS, st.floats(0, 1), st.integers(1, 4))
def test_the_four_cases(jobs, load, n):
    found = targets(jobs, load, n=n)
    by_name, late = {j.name: j for j in jobs}, [j for j in jobs if j.is_late]
    grown, shrunk = ([by_name[t.name] for t in found if t.grows == grows] for grows in (True, False))
    assert len(grown) <= n
    assert len(shrunk) <= n
    assert all(j.timeout < 0 for j in shrunk)
    may_grow = late or (jobs if load <= 0.35 else [])
    assert grown == sorted(may_grow, key=lambda j: -j.gain)[:n]
    assert not shrunk or (load > 0.55 if late else load > 0.7)


def test_thresholds_rise():
    paper = ClusterLoads()
    assert (paper.light, paper.middle, paper.heavy) == (0.35, 0.55, 0.7)
    with pytest.raises(InvalidValueError, match="must rise"):
        ClusterLoads(light=0.6)


def test_growth_that_no_deadline_asks_for_must_be_worth_its_cores():
    assert eagerness(1.0, 1.0) == 0
    assert eagerness(1.5, 2.0) > 0 > eagerness(1.1, 2.0)


@given(st.integers(0, N_CODE - 1), st.booleans())
def test_a_change_grows_or_shrinks_and_zero_changes_nothing(code, grows):
    change, after = decoded(code), changed(SIZE, decoded(code), grows=grows)
    if after is None:
        assert not grows
        return
    before, now = SIZE.count * SIZE.cpu, after.count * after.cpu
    assert now >= before - 1e-9 if grows else now <= before + 1e-9
    if min(change.cpu, change.memory) == max(change.cpu, change.memory) == 0:
        assert after == SIZE


def fitness_of(run_s: float, left_s: float, *, grows: bool, contention: float):
    asked = []

    def values(codes):
        asked.extend(codes.tolist())
        found = []
        for code in codes:
            after = changed(SIZE, decoded(int(code)), grows=grows)
            if after is None:
                found.append(-math.inf)
                continue
            after_s = run_s * speed(SIZE, contention) / speed(after, contention)
            cpu, mib = (after.count * after.cpu / 8, after.count * after.memory_mib / 16384)
            found.append(fitness(timeout_degree(after_s, left_s), 0.7 * cpu + 0.3 * mib, grows=grows))
        return np.array(found)

    return values, asked


@pytest.mark.more
@pytest.mark.parametrize("grows", [True, False])
def test_the_genetic_algorithm_comes_near_the_best_of_all_genotypes_with_fewer_evaluations(grows):
    short, n_asked = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        left_s = 1000 * (rng.uniform(0.4, 0.95) if grows else rng.uniform(1.2, 3))
        values, asked = fitness_of(1000, left_s, grows=grows, contention=rng.uniform(0.005, 0.1))
        found = evolved(values, np.random.default_rng(seed))
        n_asked.append(len(asked))
        best, own = (float(values(np.array([code]))[0]) for code in (listed(values), found))
        assert own <= best
        short.append(best - own)
    assert max(n_asked) < N_CODE
    assert np.median(short) <= 0.05, "in shares of the job's present resources"
    assert max(short) <= 0.5


def test_the_seed_decides_what_the_genetic_algorithm_finds():
    values, _ = fitness_of(1000, 600, grows=True, contention=0.02)
    assert evolved(values, np.random.default_rng(1)) == evolved(values, np.random.default_rng(1))
