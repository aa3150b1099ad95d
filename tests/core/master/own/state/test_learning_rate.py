"""The learning rate follows the rows of one step, over a warm-up that nothing interrupts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.master.master_world import World, features, in_place, plan, spec

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.own.state.learning_rate import N_RUNG, factor_at, factor_of
from dlrover_nb.core.master.own.state.state_records import RateRamp
from dlrover_nb.core.structs.job.spec_choices import RateScaling, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire.mitigation_messages import SetRate

SCALINGS = st.sampled_from([RateScaling.SQRT, RateScaling.LINEAR])
FACTORS = st.floats(0.01, 100)
LINEAR = {"learning_rate_scaling": RateScaling.LINEAR, "learning_rate_warmup": 20}


@given(
    scaling=SCALINGS,
    n_worker=st.integers(1, 64),
    n_first=st.integers(1, 64),
    sync=st.sampled_from([sync for sync in Sync if sync not in {Sync.ASP, Sync.SSP, Sync.ALLREDUCE}]),
)
def test_the_rate_grows_with_the_rows_of_a_round(scaling, n_worker, n_first, sync):
    job = spec(plan(n_first, 1), sync=sync, learning_rate_scaling=scaling)
    factor = factor_of(job, n_worker)
    assert factor_of(job, n_first) == 1.0
    assert factor ** (2 if scaling is RateScaling.SQRT else 1) == pytest.approx(n_worker / n_first)
    assert factor_of(job, n_worker + 1) > factor


@given(scaling=SCALINGS, n_worker=st.integers(1, 64))
def test_the_rate_falls_where_workers_share_a_batch_without_rounds(scaling, n_worker):
    job = spec(plan(2, 1), sync=Sync.ASP, global_batch=8192, learning_rate_scaling=scaling)
    power = 0.5 if scaling is RateScaling.SQRT else 1.0
    assert factor_of(job, n_worker) == pytest.approx((job.batch_of(n_worker) / job.batch_of(2)) ** power)


@pytest.mark.parametrize(("sync", "batch"), [(Sync.ASP, None), (Sync.SSP, None), (Sync.BSP, 64)])
def test_a_scaling_that_no_worker_could_change_is_refused(sync, batch, error_words):
    with error_words(InvalidValueError):
        spec(sync=sync, global_batch=batch, learning_rate_scaling=RateScaling.SQRT)


@given(start=FACTORS, end=FACTORS, since=st.integers(0, 999), n=st.integers(0, 999), at=st.integers(0, 3000))
def test_a_warm_up_goes_from_one_rate_to_the_other_in_few_rungs(start, end, since, n, at):
    ramp = RateRamp(start, end, since, n)
    factors = {factor_at(ramp, row) for row in range(since, since + n + 1)}
    assert min(start, end) <= factor_at(ramp, at) * (1 + 1e-12) <= max(start, end) * (1 + 1e-9)
    assert len(factors) <= N_RUNG + 1
    assert factor_at(ramp, since + n) == end
    assert n == 0 or factor_at(ramp, since) == start
    later = [factor_at(ramp, row) for row in range(since, since + n + 1)]
    assert later == sorted(later, reverse=end < start)


def rates(world: World) -> dict[str, list[float]]:
    """Return the factors that each living PS heard of, in order."""
    return {
        name: [each.factor for each in world.nodes[name].heard if isinstance(each, SetRate)]
        for name in world.living(Role.PS)
    }


def scaled_to_four(**fields: object) -> World:
    """Return a job of two workers that now has four, in rounds."""
    world = World(spec(plan(2, 1), sync=Sync.BSP, **LINEAR, **fields), features(8000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    assert rates(world) == {"ps-0": []}  # the job's own rate, which PS begin with
    world.do(world.master.set_target(plan(4, 1), world.at_s))
    world.run_until(lambda: rates(world)["ps-0"])
    return world


def test_a_ps_is_told_of_each_rung_of_a_warm_up_once(words):
    world = scaled_to_four()
    said = [each.message for each in world.events if isinstance(each, PhaseChanged)]
    assert [message for message in said if "learning rate" in message] == [words]
    world.run_until(lambda: rates(world)["ps-0"][-1] == 2.0)
    told = rates(world)["ps-0"]
    assert told == sorted(set(told))
    assert set(told) <= {1 + rung / N_RUNG for rung in range(N_RUNG + 1)}
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    world.run_until(lambda: rates(world)["ps-0"][-1] == 1.0)


def test_a_warm_up_goes_on_after_the_master_as_it_was():
    world = scaled_to_four()
    before = world.master.record.ramp
    world.crash()
    assert world.master.record.ramp == before
    world.run_until(lambda: rates(world)["ps-0"][-1] == 2.0)
    assert world.master.record.ramp == before


def test_a_ps_that_comes_later_or_again_is_told_the_rate():
    world = scaled_to_four()
    world.run_until(lambda: rates(world)["ps-0"][-1] == 2.0)
    world.do(world.master.set_target(plan(4, 2), world.at_s))
    world.run_until(lambda: in_place(world, plan(4, 2)))
    assert {told[-1] for told in rates(world).values()} == {2.0}
    world.kill(lost := world.living(Role.PS)[0])
    world.run_until(lambda: lost not in world.living(Role.PS) and in_place(world, plan(4, 2)))
    world.run_until(lambda: {told[-1] for told in rates(world).values() if told} == {2.0})
    world.run_until(lambda: all(rates(world).values()))  # rows went back: the warm-up does too
    world.hello(again := world.living(Role.PS)[0])
    n_told = len(rates(world)[again])
    world.run_until(lambda: len(rates(world)[again]) > n_told)
    assert rates(world)[again][-1] == 2.0


def test_the_rate_stays_while_a_lost_worker_is_replaced():
    world = scaled_to_four()
    world.run_until(lambda: rates(world)["ps-0"][-1] == 2.0)
    n_told = len(rates(world)["ps-0"])
    world.kill(world.living(Role.WORKER)[0])
    world.run_until(lambda: in_place(world, plan(4, 1)))
    assert len(rates(world)["ps-0"]) == n_told


def test_no_ps_is_told_a_rate_where_the_job_scales_none():
    world = World(spec(plan(2, 1), sync=Sync.BSP), features(800))
    world.do(world.master.set_target(plan(4, 1), world.at_s))
    world.run_to_end()
    assert not any(isinstance(each, SetRate) for node in world.nodes.values() for each in node.heard)
    assert world.master.record == replace(world.master.record, ramp=RateRamp())
