"""What the measurement makes of memory reports: by samples trained, per role, in whole steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each

from dlrover_nb.core.controller.measured.measurement import MAX_RAISE, Measurement
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

PLAN = ResourcePlan(worker=RolePlan(1, 1.0, 1024), ps=RolePlan(2, 1.0, 512))
RATE = 10_000
FIRST_S = 100.0


def report(node: str, role: Role, at_s: float, memory_mib: float) -> NodeSample:
    n = RATE if role is Role.WORKER else 0
    return NodeSample(node, role, at_s, 1.0, 20, n, 0.05, TimeSplit(compute_s=0.05), 0.5, memory_mib)


def run(
    n_s: int,
    *,
    epochs: int = 1,
    total: int = RATE * 3000,
    ps_mib=lambda _: 100.0,
    paused=(),
    checkpoint_every_s=10**9,
    each_s=lambda _: None,
) -> Measurement:
    spec = replace(JobSpec("clicks", plan=PLAN), n_epoch=epochs, batch_size=500)
    found = Measurement(ControllerSettings(), spec, total)
    found.restart(PLAN, FIRST_S)
    n_done = 0
    for second in range(1, n_s + 1):
        at_s = FIRST_S + second
        if second % checkpoint_every_s == 0:
            found.restart(None, at_s)
            found.restart(PLAN, at_s)
        n_done += 0 if second in paused else RATE
        found.progress(n_done)
        found.add(report("w0", Role.WORKER, at_s, 300.0), at_s)
        found.add(report("s0", Role.PS, at_s, ps_mib(n_done)), at_s)
        found.add(report("s1", Role.PS, at_s, 50.0), at_s)
        found.publish_memory(at_s)
        each_s(found)
    return found


def line_of(lines, role: Role):
    return next(line for line in lines if line.role is role)


def line(found: Measurement, role: Role):
    return line_of(found.published_memory, role)


def needs_of(found: Measurement):
    return dict(found.memory_needs())


def grows(per_s: float, until: float = 1e18):
    return lambda n: 100.0 + per_s * min(n, until) / RATE


def test_the_largest_node_counts():
    found = run(100, ps_mib=grows(1.0))
    assert line_of(found.forecast_memory(FIRST_S + 100), Role.PS).now_mib == 200.0


def test_memory_that_grows_with_samples_is_forecast_to_the_last_one():
    found = line(run(300, total=RATE * 600, ps_mib=grows(0.5)), Role.PS)
    assert found.at_end_mib == pytest.approx(400, rel=0.02)
    assert found.oom_probability < 0.05
    assert found.fan[-1].in_s == pytest.approx(300, rel=0.05)


def test_a_pause_does_not_bend_the_forecast():
    found = line(run(300, total=RATE * 600, ps_mib=grows(0.5), paused=range(100, 160)), Role.PS)
    assert found.at_end_mib == pytest.approx(400, rel=0.03)


def test_keys_are_new_in_the_first_epoch_only():
    one = line(run(300, total=RATE * 4000, ps_mib=grows(0.5)), Role.PS)
    four = line(run(300, total=RATE * 4000, epochs=4, ps_mib=grows(0.5)), Role.PS)
    assert one.at_end_mib == pytest.approx(2100, rel=0.05)
    assert four.at_end_mib == pytest.approx(600, rel=0.05)


def test_a_role_that_will_outgrow_its_memory_needs_more_in_time():
    found = run(400, ps_mib=grows(0.5))
    assert needs_of(found) == {Role.PS: int(512 * MAX_RAISE)}
    assert line(found, Role.PS).full_in_s > 60


def test_a_role_that_stays_needs_nothing_and_may_have_less():
    found = run(300)
    assert needs_of(found) == {}
    assert found.staying == set(Role)


def test_nothing_is_said_of_growth_of_the_first_minute_while_the_limit_is_far():
    found = run(30, ps_mib=grows(4.0))
    assert (line(found, Role.PS).law, line(found, Role.PS).full_in_s) == ("linear", None)
    assert needs_of(found) == {}
    assert Role.PS not in found.filling | found.staying


def test_growth_of_the_first_minute_counts_where_a_fifth_of_its_time_is_left():
    found = run(46, ps_mib=grows(8.0))
    assert line(found, Role.PS).full_in_s < 46 / 5
    assert needs_of(found) == {Role.PS: int(512 * MAX_RAISE)}


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5, 4.0])
def test_no_role_is_given_more_and_less_at_once(rate):
    found = run(400, ps_mib=grows(rate))
    assert not found.filling & found.staying
    assert set(needs_of(found)) <= found.filling


def test_growth_of_the_first_epoch_ends_with_it():
    keys = run(520, total=RATE * 1800, epochs=4, ps_mib=grows(0.9, until=RATE * 450))
    leak = run(800, total=RATE * 1800, epochs=4, ps_mib=grows(0.5))
    assert line(keys, Role.PS).oom_probability < 0.05
    assert line(leak, Role.PS).oom_probability > 0.9
    assert Role.PS in leak.filling


def test_what_a_process_loads_at_its_start_is_no_growth():
    started = run(120, ps_mib=lambda n: 100.0 + min(350.0, 12 * n / RATE))
    assert line(started, Role.PS).oom_probability < 0.05


def of_second(course):
    """Return the memory of a PS by the second."""
    return lambda n: course(n / RATE)


HARMLESS = {
    "start": lambda t: 100 + 300 * min(t / 40, 1),
    "teeth": lambda t: 200 + 200 * (t % 60) / 60,
    "step": lambda t: 200 if t < 300 else 300,
    "step near the limit": lambda t: 200 if t < 300 else 480,
    "ends by itself": lambda t: 400 - 300 * 0.5 ** (t / 150),
    "spikes": lambda t: 400 if t % 90 < 2 else 200,
}


@for_each("course", HARMLESS)
def test_nothing_is_said_of_harmless_memory(course):
    n_named = 0

    def look(found):
        nonlocal n_named
        n_named += bool(found.filling) or any(
            line.full_in_s is not None or (line.oom_probability or 0.0) >= 0.05
            for line in found.published_memory
        )

    found = run(720, ps_mib=of_second(HARMLESS[course]), each_s=look)
    assert n_named == 0
    assert Role.WORKER in found.staying


def test_a_need_that_is_withdrawn_is_not_back_before_memory_has_grown_again():
    alarms = [False]

    def look(found):
        if alarms[-1] != bool(found.filling):
            alarms.append(bool(found.filling))

    def in_two_parts(t):
        return 100 + 0.7 * min(t, 380) + 0.8 * max(t - 1000, 0)

    found = run(1175, ps_mib=of_second(in_two_parts), each_s=look)
    assert alarms == [False, True, False, True]
    assert found.filling == {Role.PS}


def test_a_slow_leak_is_seen_across_the_pauses_of_checkpoints():
    found = line(run(1200, ps_mib=grows(0.05), checkpoint_every_s=60), Role.PS)
    assert found.at_end_mib == pytest.approx(250, rel=0.05)


def test_a_plan_is_as_steady_after_the_pause_of_a_checkpoint_as_before():
    def n_seen(every_s):
        return run(300, checkpoint_every_s=every_s).n_seen

    assert n_seen(10**9) > n_seen(12) > n_seen(10**9) / 2


def test_a_job_that_is_never_steady_is_warned_too():
    found = run(150, ps_mib=grows(2.5), checkpoint_every_s=2)
    assert found.samples == (), "not steady"
    assert needs_of(found) == {Role.PS: int(512 * MAX_RAISE)}


def test_a_new_plan_begins_anew():
    found = run(300, ps_mib=grows(0.5))
    found.restart(replace(PLAN, ps=RolePlan(3, 1.0, 512)), 1000.0)
    assert [line.role for line in found.forecast_memory(1000.0)] == [Role.WORKER]


def test_a_leak_goes_on_where_only_the_other_role_has_other_nodes():
    found = run(300, ps_mib=grows(0.5))
    at_s = FIRST_S + 302
    found.restart(replace(PLAN, worker=RolePlan(2, 1.0, 1024)), at_s - 1)
    found.add(report("w0", Role.WORKER, at_s, 300.0), at_s)
    assert line_of(found.forecast_memory(at_s), Role.PS).at_end_mib == pytest.approx(1600, rel=0.05)


def test_before_the_first_plan_is_in_place_there_is_no_line():
    assert Measurement(ControllerSettings(), JobSpec("clicks", plan=PLAN), RATE).forecast_memory(0.0) == ()
