"""A user pins parts of a running job's plan, through the handle that notebooks hold."""

from __future__ import annotations

import numpy as np
import pytest

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.commands.requests import Pin
from dlrover_nb.core.errors import CapacityError, InvalidValueError, StaleDecisionError
from dlrover_nb.core.simulator import (
    CALM,
    MemoryGrowth,
    SimulatedJob,
    SimulatedWorld,
    TermsTruth,
    WorldSettings,
)
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

PLAN = ResourcePlan(worker=RolePlan(1, 1.0, 2048), ps=RolePlan(1, 1.0, 2048))


def ads(spec: JobSpec) -> SimulatedJob:
    truth = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)
    return SimulatedJob(spec, truth, 200_000_000, ps_memory=MemoryGrowth(300.0))


@pytest.fixture
def handle():
    world = SimulatedWorld(
        [NodeShape(16.0, 65_536, 4)],
        rng=np.random.default_rng(1),
        settings=WorldSettings(report_s=15.0, faults=CALM),
    )
    cluster = SimulatedCluster(world, SETTINGS, ads, speed=50.0)
    yield cluster.add(ads(JobSpec("ads", owner="ada", plan=PLAN)))
    cluster.shutdown(force=True)


def test_pins_are_taken_shown_and_freed_again(handle):
    pins = Pins(worker_memory_mib=24_576)
    decision = handle.decide(Pin(worker_memory_mib=24_576, why="the tables need it"))
    assert (decision.verdict, decision.pins, decision.why) == (Verdict.PIN, pins, "the tables need it")
    assert decision.id
    handle.decide(Pin(clear=True))
    assert [d.pins for d in handle.snapshot().decisions] == [pins, Pins()]
    assert not handle.snapshot().pins


def test_pins_that_cannot_be_are_refused_to_the_user(handle, error_words):
    with error_words(CapacityError):
        handle.decide(Pin(worker_memory_mib=100_000))
    with pytest.raises(InvalidValueError, match=r"already has .* pinned"):
        handle.decide(Pin(clear=True))
    assert handle.snapshot().decisions == ()


def test_pins_of_a_job_that_has_ended_are_refused(handle):
    handle.stop(why="done")
    with pytest.raises(StaleDecisionError, match="left to decide"):
        handle.decide(Pin(ps=1))
