"""An external job that waits in the queue: its master starts no program until a plan is ordered."""

from __future__ import annotations

import pytest
from support.master.external_world import ROOM, TF, TORCH, World, plan

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.master.external.master import START_LIMIT_S, ExternalMaster
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.queued_jobs import HELD
from dlrover_nb.core.structs.views.events import PlanApplied


def held(foreign=TF):
    world = World(foreign, admission=Admission.QUEUE)
    assert not world.pods
    assert (world.master.phase, world.master.message) == (JobPhase.STARTING, HELD)
    return world


def restarted(world):
    other, record = ExternalMaster(world.spec, ROOM), world.master.record
    world.master = other
    world.do(other.resume(from_json(to_json(record), ExternalRecord), world.at_s))


@pytest.mark.parametrize("foreign", [TF, TORCH])
@pytest.mark.parametrize("given", [plan(), plan(1)], ids=["asked", "less"])
def test_it_waits_beyond_every_limit_and_starts_on_the_plan_that_it_is_given(foreign, given):
    world = held(foreign)
    for _ in range(3):
        world.later(START_LIMIT_S)
    assert not world.pods
    world.do(world.master.set_target(given, world.at_s))
    assert len(world.pods) == given.worker.count + given.ps.count
    assert world.master.message == f"admitted with {given.short}"
    world.come_up()
    world.train()
    assert world.master.phase is JobPhase.TRAINING
    assert [each.plan for each in world.of(PlanApplied)] == [given]


def test_another_master_holds_it_too_and_one_that_was_admitted_goes_on(words):
    world = held()
    restarted(world)
    world.later()
    assert not world.pods
    assert world.master.message == words
    world.do(world.master.set_target(plan(), world.at_s))
    restarted(world)
    assert len(world.pods) == 3
    assert not world.master.is_queued


def test_it_ends_at_once_when_it_is_stopped():
    world = held()
    world.do(world.master.stop("ada", "not needed", world.at_s))
    assert world.master.phase is JobPhase.STOPPED
    assert not world.pods


def test_a_record_of_an_earlier_release_is_of_a_job_that_does_not_wait():
    record = to_json(World().master.record).replace(b',"is_queued":false', b"")
    assert b"is_queued" not in record
    assert not from_json(record, ExternalRecord).is_queued
