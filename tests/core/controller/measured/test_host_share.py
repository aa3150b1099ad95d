"""What other work on a host took is divided from what a plan does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.controller.measured.host_share import HostTally, job_cores, others_part
from dlrover_nb.core.controller.measured.older_windows import OlderWindows
from dlrover_nb.core.controller.measured.windows import SteadyWindows
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Outcome
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample, TimeSplit

PLAN = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.5, 512))
CPU_S, WAIT_S, BATCH = 0.02, 0.01, 512  # of an iteration: processor time, and the wait for the PS


def report(*, starved_s, throttled_s=0.0, cores=0.5, host_cores=None):
    return NodeSample(
        "w0", Role.WORKER, 1.0, 1.0, 0, 0, 0.0, TimeSplit(), cores, 300.0,
        throttled_s=throttled_s, starved_s=starved_s, host_cores=host_cores,
    )  # fmt: skip


def tally(*reports, cpu=0.5):
    node = HostTally()
    for each in reports:
        node.add(each, cpu)
    return node


@given(
    cores=st.floats(0.0, 4.0), starved_s=st.floats(0, 10), throttled_s=st.floats(0, 10), cpu=st.floats(0.1, 8),
    others=st.floats(0, 1),
)  # fmt: skip
def test_no_more_than_the_window_is_lost_and_nothing_without_waits(
    cores, starved_s, throttled_s, cpu, others
):
    node = tally(report(starved_s=starved_s, throttled_s=throttled_s, cores=cores), cpu=cpu)
    assert 0 <= node.lost_s(others) < 1.0
    assert node.lost_s(0.0) == 0
    assert node.lost_s(others) <= node.lost_s(1.0)
    assert node.given_cores <= node.wanted_cores(others) * (1 + 1e-9)
    assert tally(report(starved_s=0.0, throttled_s=throttled_s, cores=cores), cpu=cpu).lost_s(1.0) == 0
    assert not tally(report(starved_s=None, cores=cores)).is_known


def test_a_node_that_used_up_its_quota_lost_nothing_however_its_reports_fall():
    assert tally(report(starved_s=0.4, throttled_s=0.1)).lost_s(1.0) == 0
    some = (report(starved_s=0.4, cores=cores) for cores in (0.45, 0.55, 0.47, 0.53))
    assert tally(*some).lost_s(1.0) == pytest.approx(0, abs=1e-9)
    assert tally(report(starved_s=0.4), cpu=1.0).lost_s(1.0) == pytest.approx(0.4)


def test_threads_that_wait_side_by_side_lose_the_time_once():
    four = tally(report(starved_s=2.0, cores=2.0), cpu=4.0)  # four threads, each half of the time
    assert four.lost_s(1.0) == pytest.approx(0.5)


def test_a_plan_that_is_in_its_own_way_is_no_busy_host():
    alone = [tally(report(starved_s=0.5, host_cores=2.0), cpu=1.0) for _ in range(4)]
    beside = [tally(report(starved_s=0.5, host_cores=2.0), cpu=1.0) for _ in range(2)]
    assert {others_part(node, job_cores(alone)) for node in alone} == {0.0}
    assert {others_part(node, job_cores(beside)) for node in beside} == {
        2 / 3
    }  # 1 core of others, .5 of its own
    assert others_part(tally(report(starved_s=0.5)), {"": 0.5}) == 1.0  # not known


def windows_of(host_s, ps_share=0.0, seconds=12):
    """Return the windows of two workers whose iterations take so much longer because of other work."""
    windows, steady = SteadyWindows(ControllerSettings(), JobSpec("busy", plan=PLAN, batch_size=BATCH)), []
    windows.restart(PLAN, 0.0)
    wait_s = WAIT_S / (1 - ps_share)
    iter_s = CPU_S / PLAN.worker.cpu + host_s + wait_s
    n_iter = 10 / iter_s
    split = TimeSplit(compute_s=CPU_S / PLAN.worker.cpu + host_s, lookup_s=wait_s)
    for at_s in range(10, 10 * seconds, 10):  # reports of 10 s: of whole iterations
        ps = NodeSample(
            "ps", Role.PS, float(at_s), 10.0, 1000, 0, 0.01, TimeSplit(lookup_s=0.004, idle_s=0.006),
            0.4 * (1 - ps_share), 300.0, throttled_s=0.0, starved_s=4 * ps_share,
        )  # fmt: skip
        windows.add(ps, float(at_s))
        for i in range(PLAN.worker.count):
            sample = NodeSample(
                f"w{i}", Role.WORKER, float(at_s), 10.0, round(n_iter), round(n_iter) * BATCH, iter_s, split,
                n_iter * CPU_S / 10, 300.0, throttled_s=n_iter * CPU_S, starved_s=n_iter * host_s,
            )  # fmt: skip
            steady += windows.add(sample, float(at_s))
    return windows, steady


@given(host_s=st.floats(0.0, 0.1), ps_share=st.floats(0.0, 0.8))
def test_the_speed_of_a_plan_does_not_depend_on_its_neighbors(host_s, ps_share):
    (_, quiet), (windows, busy) = windows_of(0.0), windows_of(host_s, ps_share)
    assert busy[-1].samples_per_s <= quiet[-1].samples_per_s * 1.03  # whole iterations
    assert busy[-1].plan_samples_per_s == pytest.approx(quiet[-1].samples_per_s, rel=0.05)
    assert busy[-1].compute_share == pytest.approx(quiet[-1].compute_share, abs=0.01)
    assert busy[-1].cpu_s == pytest.approx(CPU_S, rel=0.07)  # whole iterations
    assert windows.host.share == pytest.approx(busy[-1].host_share)
    assert windows.host.given_cores <= windows.host.wanted_cores * (1 + 1e-9)


def test_the_fit_gets_speeds_of_plans_and_views_those_that_were_measured():
    window = ProfileSample(0.0, 2.0, PLAN, BATCH, 600.0, host_share=0.4)
    (row,) = OlderWindows().evidence({PLAN: [window]})
    assert (row.samples_per_s, row.host_share) == (pytest.approx(1000.0), 0.0)


def test_an_outcome_is_compared_without_what_the_host_took():
    predicted = Prediction(600.0, 540.0, 660.0, False, 580.0, 620.0, host=0.6)
    outcome = Outcome("d1", PLAN, predicted, 300.0, None, 5, 0.0, 0.5, host_share=0.7)
    assert outcome.error == pytest.approx(0.0)
    assert outcome.inside_band
    assert not Outcome("d1", PLAN, predicted, 300.0, None, 5, 0.0, 0.5).inside_band


def test_a_tally_says_what_a_node_got_and_wanted():
    node = tally(report(starved_s=0.5, cores=0.25), cpu=1.0)
    assert (node.given_cores, node.wanted_cores(1.0)) == (0.25, pytest.approx(0.5))
