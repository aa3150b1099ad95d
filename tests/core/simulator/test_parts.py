"""The parts of the simulated world, each by itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.missing import shared
from support.cases import for_each
from support.plans.sim_world import make_plan

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.lab.measured_speeds import TableTruth, read_tables
from dlrover_nb.core.simulator import CALM, Faults, GrowthLaw, MemoryGrowth, Pending, SimCluster, TermsTruth
from dlrover_nb.core.simulator.engine import Engine
from dlrover_nb.core.simulator.faults import DAY_S
from dlrover_nb.core.simulator.workload import BOUNDS, JobSampler, poisson_arrivals, read_arrivals
from dlrover_nb.core.structs.plan.capacity import NodeShape, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import Need

TABLE = ("data", "dl2_ps_speed", "ps_worker_speed.csv")
ARRIVALS = ("data", "pollux_adaptdl")


# time


@given(st.lists(st.floats(0, 100), max_size=30))
def test_actions_run_in_the_order_of_their_time_and_then_of_their_asking(times) -> None:
    engine, seen = Engine(), []
    for i, at_s in enumerate(times):
        engine.at(at_s, lambda i=i, at_s=at_s: seen.append((at_s, i)))
    while engine.next_at_s < math.inf:
        engine.run_next()
    assert seen == sorted(seen)
    assert len(seen) == len(times)


@pytest.mark.parametrize("at_s", [4.9, math.nan, -1.0])
def test_nothing_happens_in_the_past(at_s) -> None:
    engine = Engine(5.0)
    with pytest.raises(InvalidValueError, match="now"):
        engine.at(at_s, lambda: None)


def test_time_cannot_pass_what_is_due() -> None:
    engine = Engine()
    engine.at(3.0, lambda: None)
    with pytest.raises(InvalidValueError, match="due"):
        engine.move(4.0)


# room

needs = st.lists(
    st.builds(Need, st.sampled_from([1.0, 2.0, 3.5]), st.sampled_from([512, 1024, 4096])), max_size=12
)


@given(groups=st.lists(needs, max_size=6))
def test_room_is_given_back_exactly_and_never_overdrawn(groups) -> None:
    cluster = SimCluster([NodeShape(8.0, 8192, 2), NodeShape(4.0, 16384, 1)])
    free = cluster.free_cpu.copy(), cluster.free_mib.copy()
    placed = [places for places in map(cluster.place, groups) if places is not None]
    assert (cluster.free_cpu >= 0).all()
    assert (cluster.free_mib >= 0).all()
    assert cluster.used_cpu == pytest.approx(
        sum(place.cpu_steps for places in placed for place in places) / 100
    )
    for places in placed:
        cluster.release(places)
    assert (cluster.free_cpu == free[0]).all()
    assert (cluster.free_mib == free[1]).all()


@given(workers=st.integers(1, 12), ps=st.integers(1, 6))
def test_on_an_empty_cluster_a_plan_is_placed_exactly_when_it_fits(workers, ps) -> None:
    cluster = SimCluster([NodeShape(9.0, 9000, 3)])
    plan = make_plan(workers, ps)
    assert (cluster.place(plan_needs(plan)) is not None) == fits(cluster.capacity, plan_needs(plan))


def test_a_placement_that_fails_is_no_news() -> None:
    cluster = SimCluster([NodeShape(4.0, 8192, 1)])
    assert cluster.place([Need(3.0, 512), Need(2.0, 512)]) is None
    assert (cluster.n_change, cluster.n_release) == (0, 0)
    assert cluster.used_cpu == 0


def test_a_job_sees_its_own_room_whole_and_the_free_room_rounded_down() -> None:
    cluster = SimCluster([NodeShape(8.0, 8192, 3)])
    own = cluster.place([Need(3.0, 1000)])
    cluster.place([Need(6.5, 1000)])
    room = cluster.room_for(own, 10)
    assert fits(room, [(3.0, 1000)])
    assert room.total_cpu <= 3.0 + float(cluster.free_cpu.sum()) / 100
    assert cluster.room_for(own, 1).total_cpu <= room.total_cpu


# truth


@given(w=st.integers(1, 30), p=st.integers(1, 10), cpu=st.sampled_from([1.0, 2.0, 4.0]))
def test_the_parts_of_an_iteration_sum_to_the_time_that_the_speed_says(w, p, cpu) -> None:
    truth, plan = TermsTruth(2e-3, 0.02, 0.01, 1e-4, 0.05, 0.001), make_plan(w, p, cpu=cpu)
    m = 512
    expected_s = 2e-3 * m / cpu + 0.02 * w / (p * cpu) + 0.01 * w / p + 1e-4 * m / p + 0.05 + 0.001 * (w - 1)
    assert w * m / truth.speed(plan, m) == pytest.approx(expected_s)
    assert truth.split(plan, m).total_s == pytest.approx(expected_s)


def test_coefficients_must_be_numbers_of_which_one_is_above_zero() -> None:
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidValueError):
            TermsTruth(bad)


def test_a_table_returns_what_was_measured_and_lies_between_it_elsewhere() -> None:
    table = TableTruth([1, 1, 4, 4, 4], [1, 4, 1, 4, 4], [10, 40, 20, 100, 100.0], name="x")
    assert table.speed(make_plan(4, 1), 1) == pytest.approx(40)
    assert table.speed(make_plan(4, 4), 1) == pytest.approx(100)
    assert 10 < table.speed(make_plan(2, 2), 1) < 100
    assert table.n_clamped == 0
    assert not table.is_measured(make_plan(2, 2))


def test_beyond_a_table_the_nearest_measured_speed_holds_and_is_counted() -> None:
    table = TableTruth([1, 1, 4, 4], [1, 4, 1, 4], [10, 40, 20, 100.0])
    assert table.speed(make_plan(9, 9), 1) == pytest.approx(100)
    assert table.speed(make_plan(9, 9), 1) == pytest.approx(100)
    assert table.n_clamped == 1
    assert TableTruth([2], [2], [5.0]).speed(make_plan(1, 1), 1) == pytest.approx(5)


@for_each(("p", "w", "speed"), [([], [], []), ([1], [1, 2], [1.0])])
def test_a_bad_table_is_refused(p, w, speed) -> None:
    with pytest.raises(InvalidValueError):
        TableTruth(p, w, speed)


def test_measured_jobs_are_read_without_their_failed_rows() -> None:
    jobs = read_tables(shared(*TABLE))
    assert "resnet-50" in jobs
    for job in jobs.values():
        speeds = [job.truth.speed(make_plan(w, p), 1) for p, w in job.truth.plans]
        assert min(speeds) > 0
        assert job.truth.n_clamped == 0


def test_a_file_without_the_columns_is_refused(tmp_path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("model,num_ps\na,1\n")
    with pytest.raises(InvalidValueError, match="columns"):
        read_tables(path)
    with pytest.raises(InvalidValueError, match="time or timestamp"):
        read_arrivals(path)


# memory


@given(
    law=st.sampled_from(GrowthLaw),
    exponent=st.floats(0.3, 1.0),
    share=st.floats(0.05, 1.0),
    limit=st.floats(1001, 5000),
)
def test_memory_reaches_a_limit_where_it_is_said_to(law, exponent, share, limit) -> None:
    growth = MemoryGrowth(1000.0, 3000.0, 1e6, exponent, law)
    assert growth.at(growth.reached_at(limit, share), share) == pytest.approx(limit)


def test_memory_that_does_not_grow_reaches_nothing() -> None:
    assert MemoryGrowth(1000.0).reached_at(1001) == math.inf
    assert MemoryGrowth(1000.0).reached_at(1000) == 0


# chance


def test_times_to_failure_have_the_mean_of_their_rate() -> None:
    rng = np.random.default_rng(0)
    days = np.array([Faults().until_failure_s(rng) for _ in range(4000)]) / DAY_S
    assert days.mean() == pytest.approx(1 / 0.015, rel=0.06)
    assert np.median(days) == pytest.approx(math.log(2) / 0.015, rel=0.06)
    assert CALM.until_failure_s(rng) == math.inf


def test_pending_times_have_their_median() -> None:
    rng = np.random.default_rng(0)
    assert np.median([Pending(20.0, 0.5, 10.0).draw_s(rng) for _ in range(2000)]) == pytest.approx(
        30, rel=0.05
    )
    assert Pending(20.0, 0.0, 10.0).draw_s(rng) == 30


@pytest.mark.parametrize(
    "bad", [{"failures_per_day": -1}, {"slow_factor": (0.0, 1.0)}, {"slow_factor": (0.9, 1.1)}]
)
def test_impossible_faults_are_refused(bad) -> None:
    with pytest.raises(InvalidValueError):
        Faults(**bad)


# workloads


def test_arrivals_have_their_rate_and_the_rhythm_of_the_day() -> None:
    at_s = poisson_arrivals(8000, per_day=400, rng=np.random.default_rng(0), swing=0.5)
    assert len(at_s) / (at_s[-1] / DAY_S) == pytest.approx(400, rel=0.05)
    hours = (at_s % DAY_S) / 3600
    assert ((hours > 9) & (hours < 15)).sum() > 1.8 * ((hours < 3) | (hours > 21)).sum()


def test_real_arrivals_are_read_in_order() -> None:
    arrivals = shared(*ARRIVALS)
    pollux = read_arrivals(arrivals / "workloads.csv.gz", load=0.5, workload=1)
    philly = read_arrivals(arrivals / "philly_before_nov.csv.xz")
    assert pollux[-1] < 8 * 3600 + 1
    assert len(philly) == 52849
    for at_s in (pollux, philly):
        assert at_s[0] == 0
        assert (np.diff(at_s) >= 0).all()


def test_sampled_jobs_keep_to_their_bounds_and_differ_by_the_seed_alone() -> None:
    def draw(seed):
        rng = np.random.default_rng(seed)
        return [JobSampler().sample(f"job-{i}", rng) for i in range(20)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    for job in draw(1):
        plan = job.spec.plan
        assert plan.worker.count <= BOUNDS.max_workers
        assert plan.ps.count <= BOUNDS.max_ps
        assert plan.worker.cpu in BOUNDS.worker_cpus
