import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.sim_world import N_SAMPLE, UP_S, make_job, make_plan, make_world, only, play, scale

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError
from dlrover_nb.core.simulator import (
    CALM,
    Faults,
    MemoryGrowth,
    Pending,
    SimulatedWorld,
    TermsTruth,
    Transition,
    WorldSettings,
)
from dlrover_nb.core.simulator.faults import DAY_S
from dlrover_nb.core.simulator.workload import JobSampler
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Migration, Mode
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import (
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    RoomChanged,
    Scale,
)
from dlrover_nb.core.structs.views.snapshot import NodePhase

ROUGH = Faults(failures_per_day=2.0, slow_per_day=5.0)
PLANS = [
    make_plan(2, 1),
    make_plan(5, 1),
    make_plan(3, 2),
    make_plan(4, 3, cpu=2.0),
    make_plan(1, 1, cpu=1.0),
]
CONTROL = ControllerSettings(
    window_s=30.0, max_window_s=300.0, settle_s=30.0, cool_down_s=120.0, refit_s=1200.0, memory_check_s=300.0
)


def phases(played):
    return [event.phase for event in only(played, PhaseChanged)]


def test_a_calm_job_ends_when_its_samples_over_its_speed_have_passed() -> None:
    world = make_world()
    sim = world.submit(make_job())
    played = play(world)
    expected_s = UP_S + N_SAMPLE / sim.job.truth.speed(sim.target, 512)
    assert sim.ended_at_s == pytest.approx(expected_s, rel=1e-9)
    assert phases(played) == [JobPhase.STARTING, JobPhase.TRAINING, JobPhase.SUCCEEDED]
    assert only(played, PlanApplied)[0].pause_s == 0
    assert isinstance(played[0][2], JobSubmitted)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    changes=st.lists(st.tuples(st.floats(10, 3000), st.sampled_from(PLANS)), max_size=5),
    is_rough=st.booleans(),
    migration=st.sampled_from(Migration),
)
def test_laws_hold_whatever_happens(seed, changes, is_rough, migration) -> None:
    """Order of time, exact accounting, nodes within the machines, nothing held after the end."""
    world = make_world(
        seed=seed,
        faults=ROUGH if is_rough else CALM,
        pending=Pending(),
        transition=Transition(migration=migration),
        machines=[NodeShape(16.0, 32 * 1024, 3)],
    )
    sims = [world.submit(make_job(f"job-{i}"), i * 40.0) for i in range(2)]
    orders = [(at_s, scale(world, plan, "job-0")) for at_s, plan in changes]
    played, last_s = [], 0.0
    for at_s, name, event in play(world, orders=orders):
        assert at_s >= last_s
        assert event.at_s == at_s
        played.append((name, event))
        last_s = at_s
    assert world.next_at_s == math.inf
    for sim in sims:
        own = [event for name, event in played if name == sim.job.spec.name]
        counts = sim.train_counts
        assert sim.phase is JobPhase.SUCCEEDED, sim.message
        assert (counts.todo, counts.doing, counts.n_sample_done) == (0, 0, N_SAMPLE)
        reported = sum(e.sample.n_sample for e in own if isinstance(e, NodeReported))
        assert reported <= N_SAMPLE
        if not is_rough:
            assert reported == N_SAMPLE
        done = [e.n_sample_done for e in own if isinstance(e, ProgressMade)]
        assert done == sorted(done)
        assert done[-1] == N_SAMPLE
        assert not sim.nodes
    assert world.cluster.used_cpu == 0


@pytest.mark.parametrize("faults", [CALM, ROUGH])
def test_the_same_seed_tells_the_same_story(faults) -> None:
    def story(seed):
        world = make_world(seed=seed, faults=faults, pending=Pending())
        world.submit(make_job())
        return play(world, orders=[(400.0, scale(world, make_plan(4, 2)))])

    assert story(3) == story(3)
    assert story(3) != story(4)


def test_another_job_changes_nothing_of_what_happens_to_the_first() -> None:
    def story(n_job):
        world = make_world(seed=1, faults=ROUGH, pending=Pending(), room_every_s=1e9)
        for i in range(n_job):
            world.submit(make_job(f"job-{i}"), i * 10.0)
        played = [(at_s, event) for at_s, name, event in play(world) if name == "job-0"]
        return [entry for entry in played if isinstance(entry[1], NodeReported)]

    assert story(1) == story(3)


def test_nodes_never_hold_more_than_the_machines_have() -> None:
    world = make_world(machines=[NodeShape(16.0, 16 * 1024, 2)], faults=ROUGH)
    for i in range(5):
        world.submit(make_job(f"job-{i}", make_plan(2, 1), n_sample=300_000), i * 20.0)
    while world.next_at_s < math.inf:
        world.step()
        assert (world.cluster.free_cpu >= 0).all()
        assert (world.cluster.free_mib >= 0).all()
        placed = [n for s in world.jobs for n in s.nodes if n.phase is not NodePhase.PENDING]
        assert sum(n.cpu for n in placed) <= world.cluster.used_cpu + 1e-9
    assert all(sim.phase is JobPhase.SUCCEEDED for sim in world.jobs)


def test_jobs_that_find_no_room_wait_and_start_in_turn() -> None:
    world = make_world(machines=[NodeShape(12.0, 16 * 1024, 1)])
    sims = [world.submit(make_job(f"job-{i}")) for i in range(3)]
    play(world, until_s=100.0)
    assert [s.phase for s in sims] == [JobPhase.TRAINING, JobPhase.STARTING, JobPhase.STARTING]
    assert "room" in sims[1].message
    played = play(world)
    ends = [s.ended_at_s for s in sims]
    assert ends == sorted(ends)
    assert ends[1] >= ends[0] + UP_S
    assert only(played, RoomChanged)


# changes of plan


def test_workers_join_without_a_pause() -> None:
    world = make_world()
    world.submit(make_job())
    played = play(world, orders=[(300.0, scale(world, make_plan(4, 1)))], until_s=600.0)
    applied = only(played, PlanApplied)[1]
    assert (applied.plan, applied.pause_s, applied.at_s) == (make_plan(4, 1), 0.0, 300.0 + UP_S)
    assert phases(played)[-2:] == [JobPhase.RESCALING, JobPhase.TRAINING]


def test_workers_leave_at_once() -> None:
    world = make_world()
    sim = world.submit(make_job())
    played = play(world, orders=[(300.0, scale(world, make_plan(1, 1)))], until_s=400.0)
    assert only(played, PlanApplied)[1].at_s == 300.0
    assert len(sim.nodes) == 2


@pytest.mark.parametrize(
    ("migration", "pause_s"), [(Migration.SEAMLESS, 15.0), (Migration.RESTART, UP_S + 120.0)]
)
def test_a_change_of_ps_costs_the_pause_of_its_kind(migration, pause_s) -> None:
    world = make_world(transition=Transition(migration=migration))
    sim = world.submit(make_job())
    played = play(world, orders=[(300.0, scale(world, make_plan(2, 2, cpu=2.0)))], until_s=900.0)
    applied = only(played, PlanApplied)[1]
    assert applied.pause_s == pytest.approx(pause_s)
    lost_s = (900 - UP_S) - sim.progress.n_done / sim.job.truth.speed(make_plan(2, 1), 512)
    assert lost_s != pytest.approx(0)
    assert sim.running == make_plan(2, 2, cpu=2.0)


def test_a_plan_larger_than_all_machines_fails_at_once() -> None:
    world = make_world(machines=[NodeShape(12.0, 16 * 1024, 1)])
    world.submit(make_job())
    played = play(world, orders=[(300.0, scale(world, make_plan(16, 4)))], until_s=310.0)
    assert only(played, PlanFailed)[0].at_s == 300.0


def test_a_newer_plan_replaces_one_on_its_way() -> None:
    world = make_world()
    sim = world.submit(make_job())
    orders = [(300.0, scale(world, make_plan(4, 1))), (310.0, scale(world, make_plan(5, 1)))]
    played = play(world, orders=orders, until_s=600.0)
    assert [f.plan for f in only(played, PlanFailed)] == [make_plan(4, 1)]
    assert sim.running == make_plan(5, 1)


def test_reports_name_the_plan_only_when_it_ran_for_their_whole_window() -> None:
    world = make_world()
    world.submit(make_job())
    played = play(world, orders=[(310.0, scale(world, make_plan(4, 1)))])
    applied = {e.plan: e.at_s for e in only(played, PlanApplied)}
    named = [e for e in only(played, NodeReported) if e.plan is not None]
    assert {e.plan for e in named} == set(applied)
    for event in named:
        assert event.at_s - event.sample.window_s >= applied[event.plan] - 1e-9


def test_the_speed_of_reports_is_the_true_speed_of_the_plan() -> None:
    world = make_world()
    sim = world.submit(make_job())
    samples = [e.sample for e in only(play(world, until_s=300.0), NodeReported) if e.plan is not None]
    workers = [s for s in samples if s.role is Role.WORKER and s.at_s == 270.0]
    speed = sum(s.n_sample / s.window_s for s in workers)
    assert speed == pytest.approx(sim.job.truth.speed(sim.target, 512), rel=1e-3)
    assert workers[0].split.total_s == pytest.approx(workers[0].iter_s)
    assert workers[0].iter_s == pytest.approx(sim.job.truth.split(sim.target, 512).total_s, rel=1e-3)


# troubles


def test_a_node_is_killed_exactly_when_its_memory_reaches_the_limit() -> None:
    growth = MemoryGrowth(1000.0, 8000.0, 1e6, 0.5)
    world = make_world(max_lost=2)
    sim = world.submit(make_job(ps_memory=growth))
    played = play(world)
    killed = only(played, NodeOutOfMemory)
    n_at = growth.reached_at(4096)
    assert killed[0].at_s == pytest.approx(UP_S + n_at / sim.job.truth.speed(sim.target, 512))
    assert killed[0].memory_mib == pytest.approx(4096, rel=1e-6)
    assert killed[0].role is Role.PS
    assert sim.phase is JobPhase.FAILED
    assert len(killed) == 3
    assert sim.progress.n_done == pytest.approx(n_at)


def test_more_memory_saves_a_job_that_ran_out_of_it() -> None:
    world = make_world()
    sim = world.submit(make_job(ps_memory=MemoryGrowth(1000.0, 8000.0, 1e6, 0.5)))
    played = []
    while world.next_at_s < math.inf:
        at_s, events = world.step()
        played += [(at_s, name, event) for name, event in events]
        if any(isinstance(e, NodeOutOfMemory) for _, e in events):
            world.obey("job", Scale("d1", make_plan(ps_mib=16384)))
    assert len(only(played, NodeOutOfMemory)) == 1
    assert sim.phase is JobPhase.SUCCEEDED


def test_the_fullest_of_several_ps_is_the_one_that_is_killed() -> None:
    world = make_world(max_lost=1)
    job = make_job(plan=make_plan(2, 3), ps_memory=MemoryGrowth(1000.0, 30000.0, 1e6, 0.5), hot_ps=0.2)
    world.submit(job)
    killed = only(play(world), NodeOutOfMemory)
    assert killed[0].memory_mib == pytest.approx(4096)
    assert killed[0].node == "job-ps-1"


@pytest.mark.release
def test_failures_come_at_their_rate() -> None:
    world = make_world(faults=Faults(failures_per_day=4, slow_per_day=0, speed_noise=0))
    for i in range(10):
        world.submit(make_job(f"job-{i}", make_plan(8, 2), n_sample=10**11))
    played = play(world, until_s=0.375 * DAY_S)
    names = {e.sample.node for e in only(played, NodeReported)}
    n_lost, expected = len(names) - 100, 4 * 0.375 * 100
    assert abs(n_lost - expected) < 4 * math.sqrt(expected)


def test_a_slow_worker_slows_the_job_by_its_share_and_recovers() -> None:
    faults = Faults(
        failures_per_day=0, slow_per_day=50, slow_factor=(0.5, 0.5), slow_s=300.0, speed_noise=0, node_noise=0
    )
    world = make_world(faults=faults)
    sim = world.submit(make_job(n_sample=10**8))
    full = sim.job.truth.speed(sim.target, 512)
    seen = set()
    while world.next_at_s < 20_000:
        world.step(20_000)
        seen.add(round(sim.progress.speed / full, 3))
    assert {1.0, 0.75} <= seen


def test_a_stopped_job_gives_its_room_back_and_tells_it_once() -> None:
    world = make_world()
    sim = world.submit(make_job())
    orders = [(300.0, lambda: world.stop("job", "ann", "enough")), (301.0, lambda: world.stop("job", "bob"))]
    played = play(world, orders=orders)
    assert phases(played)[-1:] == [JobPhase.STOPPED]
    assert sim.message == "stopped by ann: enough"
    assert world.cluster.used_cpu == 0
    assert world.next_at_s == math.inf


def test_a_job_stopped_before_it_arrives_never_starts() -> None:
    world = make_world()
    sim = world.submit(make_job(), 100.0)
    world.stop("job", "ann")
    played = play(world)
    assert phases(played) == [JobPhase.STOPPED]
    assert sim.phase is JobPhase.STOPPED
    assert not sim.nodes


@pytest.mark.parametrize("at_s", [0.0, 5000.0])
def test_a_job_reserves_what_its_nodes_have_from_their_places_to_its_end(at_s) -> None:
    world = make_world()
    sim = world.submit(make_job(plan=make_plan(2, 1)), at_s)
    play(world)
    assert sim.started_at_s == at_s
    held_s = sim.ended_at_s - at_s
    assert sim.progress.core_s == pytest.approx(3 * 4.0 * held_s)
    assert sim.progress.gib_s == pytest.approx(3 * 4.0 * held_s)


# real time, bad input, and a controller


def test_time_passes_though_nothing_happens() -> None:
    world = make_world()
    assert world.step(50.0) == (50.0, ())
    world.submit(make_job(), 100.0)
    assert world.next_at_s == 100.0
    assert world.step(99.0) == (99.0, ())
    at_s, played = world.step()
    assert at_s == 100.0
    assert isinstance(played[0][1], JobSubmitted)


def test_bad_submissions_are_refused() -> None:
    world = make_world()
    world.step(10.0)
    world.submit(make_job())
    with pytest.raises(InvalidValueError, match="unique"):
        world.submit(make_job())
    with pytest.raises(InvalidValueError, match="now"):
        world.submit(make_job("late"), 5.0)
    with pytest.raises(CapacityError):
        world.submit(make_job("large", make_plan(400, 4)))
    with pytest.raises(NotFoundError, match="jobs: job"):
        world.job("nobody")


def play_with_controller(world, settings=CONTROL):
    """Let a controller decide for each job; return all that was told."""
    controllers, played = {}, []
    while world.next_at_s < math.inf:
        _, events = world.step()
        played += [event for _, event in events]
        for name, event in events:
            if isinstance(event, JobSubmitted):
                controllers[name] = Controller(event, settings)
                continue
            for instruction in controllers[name].handle(event):
                world.obey(name, instruction)
    return played


@pytest.mark.more
def test_a_controller_gives_memory_before_a_node_is_killed_for_want_of_it() -> None:
    def killed(mode):
        world = make_world(max_lost=1)
        growth = MemoryGrowth(500.0, 8000.0, 1e7, 0.7)
        sim = world.submit(make_job(n_sample=10**7, ps_memory=growth, mode=mode))
        played = play_with_controller(world)
        return sim.phase, sum(isinstance(event, NodeOutOfMemory) for event in played)

    assert killed(Mode.MANUAL) == (JobPhase.FAILED, 2)
    assert killed(Mode.AUTO) == (JobPhase.SUCCEEDED, 0)


@pytest.mark.more
def test_a_controller_lives_with_the_world_and_speeds_a_job_up() -> None:
    def end(mode):
        world = make_world(faults=Faults(failures_per_day=1.0), pending=Pending())
        sim = world.submit(make_job(plan=make_plan(1, 1), n_sample=30_000_000, mode=mode))
        play_with_controller(world)
        assert sim.phase is JobPhase.SUCCEEDED
        return sim.ended_at_s

    assert end(Mode.AUTO) < 0.7 * end(Mode.MANUAL)


@pytest.mark.more
def test_a_controller_takes_back_memory_that_no_node_uses_and_no_node_is_killed_for_it() -> None:
    coarse = replace(CONTROL, window_s=120.0, max_window_s=600.0, settle_s=60.0)

    def played(play_through):
        rng = np.random.default_rng(4)
        world = make_world(machines=[NodeShape(32.0, 192 * 1024, 60)], faults=Faults(), report_s=60.0)
        jobs = [JobSampler(hours=(1.0, 0.3)).sample(f"job-{i}", rng) for i in range(6)]
        sims = [world.submit(asked_for(job, float(rng.uniform(1.05, 10.0)))) for job in jobs]
        killed = [event for event in play_through(world) if isinstance(event, NodeOutOfMemory)]
        assert all(sim.phase is JobPhase.SUCCEEDED for sim in sims)
        held_gib = [sim.progress.gib_s / (sim.ended_at_s - sim.started_at_s) / n_node(sim) for sim in sims]
        return len(killed), np.mean(held_gib)

    def n_node(sim):
        return sim.target.worker.count + sim.target.ps.count

    def asked_for(job, factor):
        plan = job.spec.plan
        share = 1.0 if plan.ps.count == 1 else min((1 + job.hot_ps) / plan.ps.count, 1.0)
        needs = job.worker_memory.at(job.n_sample), job.ps_memory.at(job.n_sample, share)
        worker, ps = (
            replace(role, memory_mib=math.ceil(factor * need))
            for role, need in zip((plan.worker, plan.ps), needs, strict=True)
        )
        return replace(job, spec=replace(job.spec, plan=replace(plan, worker=worker, ps=ps)))

    without, of_request = played(lambda world: [event for *_, event in play(world)])
    with_it, of_less = played(lambda world: play_with_controller(world, coarse))
    assert with_it <= without == 0
    assert of_less < 0.5 * of_request


@pytest.mark.more
def test_a_hundred_random_jobs_all_end() -> None:
    rng = np.random.default_rng(0)
    world = make_world(machines=[NodeShape(32.0, 192 * 1024, 60)], faults=ROUGH, report_s=300.0)
    sampler = JobSampler(hours=(1.0, 0.3), mode=Mode.MANUAL)
    for i in range(100):
        world.submit(sampler.sample(f"job-{i}", rng), float(i * 60))
    play(world, until_s=40 * DAY_S)
    assert all(sim.phase.is_final for sim in world.jobs)
    assert world.cluster.used_cpu == 0


@settings(max_examples=30, deadline=None)
@given(n_sample=st.integers(1, 10**9), grad_s=st.floats(1e-8, 1e-3), at_s=st.sampled_from([0.0, 1.8e9, 4e12]))
def test_a_job_ends_however_coarse_its_clock_is(n_sample, grad_s, at_s) -> None:
    world = SimulatedWorld(
        [NodeShape(32.0, 128 * 1024, 4)],
        rng=np.random.default_rng(0),
        settings=WorldSettings(report_s=3600.0, faults=CALM),
        at_s=at_s,
    )
    sim = world.submit(make_job(n_sample=n_sample, truth=TermsTruth(grad_s=grad_s)))
    n_step = 0
    while world.next_at_s < math.inf and n_step < 20_000:
        world.step()
        n_step += 1
    assert sim.phase is JobPhase.SUCCEEDED
    assert sim.train_counts.n_sample_done == n_sample
