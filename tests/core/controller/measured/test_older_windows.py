"""What is measured of a plan is never forgotten, and keeps its worth where the job's speed changes."""

from collections import deque
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from support.cases import for_each
from support.plans.restarted_controller import restarted

from dlrover_nb.core.controller import state_bytes
from dlrover_nb.core.controller.measured.measurement import Measurement
from dlrover_nb.core.controller.measured.older_windows import OlderWindows
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.perf.evidence import condense
from dlrover_nb.core.perf.fit_input import read
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample, TimeSplit

ONE, TWO = (ResourcePlan(RolePlan(n, 1.0, 1024), RolePlan(1, 1.0, 512)) for n in (1, 2))
SPEED, N_KEPT = 10_000.0, ControllerSettings().n_kept


def windows(plan, noise, seed, n, *, from_s=0.0, speed=SPEED):
    rng = np.random.default_rng(seed)
    speeds = speed * np.exp(rng.normal(0, noise, n))
    return [ProfileSample(from_s + i, 1.0, plan, 512, float(s)) for i, s in enumerate(speeds)]


class Kept:
    """Windows as a measurement keeps them."""

    def __init__(self):
        self.older, self.samples, self.n_change = OlderWindows(), {}, 0

    def add(self, new):
        for window in new:
            kept = self.samples.setdefault(window.plan, deque(maxlen=N_KEPT))
            if len(kept) == N_KEPT:
                self.older.leave(kept[0], kept)
            kept.append(window)
            self.n_change += self.older.compare(kept, self.samples.values())

    def means(self):
        found = condense(read(self.older.evidence(self.samples)))
        n_worker = found.axes[:, 0]
        speeds = n_worker * 512 / np.exp(found.log_iter)
        return dict(zip(n_worker.tolist(), speeds.tolist(), strict=True))


@for_each("n", [N_KEPT + 1, 100, 400])
@for_each("noise", [0.01, 0.15, 0.3])
@for_each("seed", range(3))
def test_a_mean_is_as_sure_as_all_its_windows_make_it(n, noise, seed):
    job, every = Kept(), windows(ONE, noise, seed, n)
    job.add(every)
    kept, whole = condense(read(job.older.evidence(job.samples))), condense(read(every))
    assert 0.6 * n <= kept.n_window[0] <= n  # neighbors may seem alike by chance
    assert kept.scatter[0] == pytest.approx(whole.scatter[0], rel=0.15)
    assert abs(kept.log_iter[0] - whole.log_iter[0]) < 0.35 * max(noise, 0.02) / sqrt(n)


def test_rows_of_a_plan_stay_as_many_however_long_it_runs():
    job = Kept()
    job.add(windows(ONE, 0.05, 1, 1000))
    assert len(job.older.evidence(job.samples)) == N_KEPT + 1


def test_an_outlier_that_leaves_the_kept_windows_weighs_no_more_than_before():
    every = windows(ONE, 0.02, 3, 240)
    struck = [replace(w, samples_per_s=w.samples_per_s / 10) if i == 20 else w for i, w in enumerate(every)]
    calm, hit = Kept(), Kept()
    calm.add(every)
    hit.add(struck)
    assert hit.n_change == 0
    assert hit.means()[1] == pytest.approx(calm.means()[1], rel=0.002)


@for_each("factor", [0.5, 0.8, 1.6])
@for_each("seed", range(5))
def test_a_change_of_all_speeds_leaves_plans_compared_as_before(factor, seed):
    job = Kept()
    job.add(windows(ONE, 0.02, seed, 60))
    job.add(windows(TWO, 0.02, seed + 50, 60, from_s=100.0, speed=1.1 * SPEED))
    job.add(windows(TWO, 0.02, seed + 90, 60, from_s=200.0, speed=1.1 * factor * SPEED))
    means = job.means()
    assert job.n_change == 1
    assert means[2] / means[1] == pytest.approx(1.1, rel=0.02)
    assert means[2] == pytest.approx(1.1 * factor * SPEED, rel=0.02)


def test_a_change_back_is_seen_too_and_nothing_is_left_of_it():
    job = Kept()
    job.add(windows(TWO, 0.02, 1, 60))
    for i, factor in enumerate((1.0, 0.5, 1.0)):
        job.add(windows(ONE, 0.02, i, 100, from_s=100.0 + 100 * i, speed=factor * SPEED))
    assert job.n_change == 2
    assert job.means()[2] == pytest.approx(SPEED, rel=0.02)


@for_each("noise", [0.02, 0.05, 0.15, 0.3])
@for_each("seed", range(4))
def test_noise_is_no_change_of_speed(noise, seed):
    job = Kept()
    job.add(windows(ONE, noise, seed, 600))
    assert job.n_change == 0


def test_the_fit_gets_the_older_windows_of_a_measurement_and_views_the_kept_ones():
    measured = Measurement(ControllerSettings(), JobSpec("clicks", plan=ONE), 10**9)
    measured.restart(ONE, 0.0)
    for second in range(1, 400):
        report = NodeSample("w0", Role.WORKER, float(second), 1.0, 20, 10_000, 0.05, TimeSplit(), 0.5, 300.0)
        measured.add(report, float(second))
    assert len(measured.samples) == N_KEPT
    assert sum(row.n_window for row in measured.evidence) == measured.n_seen > 2 * N_KEPT


def test_a_snapshot_of_a_release_without_sums_is_read_and_goes_on(make_job):
    job = make_job(n_sample_total=10**9)
    job.train(150)
    measured, analyst = (state_bytes.parts(job.controller)[name] for name in ("_measured", "_analyst"))
    for part, names in ((measured, ("_older", "n_change")), (analyst, ("_n_change",))):
        for name in names:
            delattr(part, name)
    job.controller = restarted(job.controller)
    job.train(60)
    restored = state_bytes.parts(job.controller)["_measured"]
    assert max(row.n_window for row in restored.evidence) > 1


@for_each("alike, most", [(0.5, 0), (0.74, 4)])
def test_neighbors_that_are_alike_are_seldom_a_change_of_speed(alike, most):
    n_change = 0
    for seed in range(6):
        rng, job, value, every = np.random.default_rng(seed), Kept(), 0.0, []
        for i in range(600):
            value = alike * value + rng.normal(0, 0.03 * (1 - alike**2) ** 0.5)
            every.append(ProfileSample(float(i), 1.0, ONE, 512, SPEED * np.exp(value)))
        job.add(every)
        n_change += job.n_change
    assert n_change <= most  # as if independent they would be some 30


@for_each("factor, n_change", [(0.94, 0), (1.06, 0), (0.5, 1), (1.7, 1)])
def test_another_run_of_a_plan_may_differ_a_little_without_a_change_of_the_job(factor, n_change):
    job = Kept()
    job.add(windows(ONE, 0.01, 1, 30))
    job.add(windows(TWO, 0.01, 2, 30, from_s=100.0, speed=1.2 * SPEED))
    job.add(windows(ONE, 0.01, 3, 30, from_s=200.0, speed=factor * SPEED))
    assert job.n_change == n_change
