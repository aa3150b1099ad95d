"""The beginning of a run is no evidence, and noise is no beginning."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from support.cases import for_each

from dlrover_nb.core.controller.measured.measurement import Measurement
from dlrover_nb.core.controller.measured.startup import N_LOOK, RunStart, n_starting
from dlrover_nb.core.controller.plans.rollouts import Rollout, Rollouts
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.controller.state.story import Story
from dlrover_nb.core.controller.state_bytes import PACKAGES
from dlrover_nb.core.object_graph import GraphDecoder, GraphEncoder
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample, TimeSplit

ONE, TWO = (ResourcePlan(RolePlan(n, 1.0, 1024), RolePlan(1, 1.0, 512)) for n in (1, 2))
SPEED = 10_000.0


def noisy(n, seed, *, alike=0.0, scatter=0.03):
    """Log speeds whose neighbors have this autocorrelation."""
    rng, values = np.random.default_rng(seed), [0.0]
    for shock in rng.normal(0, scatter * (1 - alike**2) ** 0.5, n + 50):
        values.append(alike * values[-1] + shock)
    return np.array(values[-n:])


@for_each("alike, most", [(0.0, 0.03), (0.5, 0.10), (0.74, 0.20)])
def test_noise_is_seldom_taken_for_a_beginning(alike, most):
    found = [n_starting(noisy(n, seed, alike=alike).tolist()) > 0 for n in (10, 20) for seed in range(300)]
    assert np.mean(found) < most


@for_each("start", [-0.3, -0.15, 0.2])
def test_a_beginning_is_found_by_what_comes_later_and_what_is_left_has_the_speed_of_the_rest(start):
    off = []
    for seed in range(100):
        values = noisy(N_LOOK, seed, scatter=0.01) + start * np.exp(-np.arange(N_LOOK) / 2)
        n = n_starting(values.tolist())
        assert 0 < n <= N_LOOK // 2
        off.append(values[n:].mean())
    assert abs(np.mean(off)) < 0.02 < abs(start) / 5


def test_few_windows_and_equal_ones_have_no_beginning():
    assert [n_starting([0.0] * n) for n in range(30)] == [0] * 30
    assert n_starting([-1.0, 0.0, 0.0]) == 0


def report(second, speed):
    return NodeSample(
        "w0", Role.WORKER, float(second), 2.0, 20, int(2 * speed), 0.05, TimeSplit(), 0.5, 300.0
    )


def train(measured, from_s, speeds):
    new = []
    for i, speed in enumerate(speeds, 1):
        new += measured.add(report(from_s + 2 * i, speed), float(from_s + 2 * i))
    return new


def rising(n, seed=0):
    return SPEED * np.exp(noisy(n, seed, scatter=0.005) - 0.1 * np.exp(-np.arange(n) / 3))


def mean_speed(rows):
    return np.exp(np.average(np.log([r.samples_per_s for r in rows]), weights=[r.n_window for r in rows]))


@for_each("n", [15, 100])
def test_the_fit_sees_the_speed_without_the_nodes_start_also_when_it_has_left_the_kept_windows(n):
    measured = Measurement(ControllerSettings(), JobSpec("clicks", plan=ONE), 10**9)
    measured.restart(ONE, 0.0)
    train(measured, 0, rising(n))
    evidence = measured.evidence
    assert abs(mean_speed(evidence) / SPEED - 1) < 0.01
    assert sum(r.n_window for r in evidence) < measured.n_seen
    assert len(measured.samples) == min(measured.n_seen, ControllerSettings().n_kept)  # views show all


def test_an_outcome_is_that_of_the_started_nodes():
    measured = Measurement(ControllerSettings(), JobSpec("clicks", plan=ONE), 10**9)
    rollouts = Rollouts(TWO, Story())
    rollouts.start(Rollout("d1", TWO, ONE, None, None, SPEED), 0.0)
    rollouts.applied(0.0, 0.0)
    measured.restart(ONE, 0.0)
    rollouts.measured(train(measured, 0, rising(30)))
    (remembered,) = rollouts.score(60.0, least=5)
    assert abs(remembered.record.measured_samples_per_s / SPEED - 1) < 0.01
    assert remembered.record.n_sample < measured.n_seen


@for_each(
    ("kind", "counted"), [(None, "left"), (ProposalKind.IMPROVE, "replaced"), (ProposalKind.EXPLORE, "")]
)
def test_the_plan_that_a_change_leaves_is_counted_unless_the_change_is_a_try(kind, counted):
    rollouts = Rollouts(TWO, Story())
    rollouts.start(Rollout("d1", TWO, ONE, None, None, SPEED, kind), 0.0)
    rollouts.applied(0.0, 0.0)
    assert dict(rollouts.left) == ({axes_key(TWO): 1} if counted == "left" else {})
    assert dict(rollouts.replaced) == ({axes_key(TWO): 1} if counted == "replaced" else {})


def test_a_run_after_a_pause_of_the_same_plan_has_no_other_beginning():
    measured = Measurement(ControllerSettings(), JobSpec("clicks", plan=ONE), 10**9)
    measured.restart(ONE, 0.0)
    train(measured, 0, [SPEED] * 30)
    measured.restart(None, 60.0)
    measured.restart(ONE, 62.0)
    n = measured.n_seen
    train(measured, 62, SPEED * np.array([0.9] * 4 + [1.0] * 10))
    assert sum(r.n_window for r in measured.evidence) == measured.n_seen > n


def test_an_outcome_that_an_older_release_began_to_measure_goes_on():
    """Its snapshot has the sums of all windows, and no first ones."""
    rollouts = Rollouts(TWO, Story())
    rollouts.start(Rollout("d1", TWO, ONE, None, None, SPEED), 0.0)
    rollouts.applied(0.0, 0.0)
    windows = [ProfileSample(float(i), 1.0, ONE, 512, SPEED) for i in range(12)]
    rollouts.measured(windows)
    sums = vars(rollouts)["_trial"].sums
    older = GraphEncoder({}, packages=PACKAGES).pack(
        replace(sums, n=12, log_seen=12 * log(SPEED), log_plan=12 * log(SPEED), start=RunStart())
    )
    vars(rollouts)["_trial"].sums = GraphDecoder({}, packages=PACKAGES).unpack(older)
    rollouts.measured(windows)
    (remembered,) = rollouts.score(60.0, least=5)
    assert remembered.record.n_sample == 24
    assert remembered.record.measured_samples_per_s == pytest.approx(SPEED)
