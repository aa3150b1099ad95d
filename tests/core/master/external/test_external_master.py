"""Laws of the master of a foreign job, with a cluster that does what it is told."""

import re
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.master.external_world import ROOM, TF, TORCH, World, plan, running

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.master.external.master import QUIET_S, ROOM_LIMIT_S, ExternalMaster
from dlrover_nb.core.master.external.submitted import planned
from dlrover_nb.core.structs.job.external import Counting
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import ShardAction, ShardChoice
from dlrover_nb.core.structs.views.events import NodeOutOfMemory, NodeReported, PlanApplied, PlanFailed


@pytest.mark.parametrize("foreign", [TF, TORCH])
def test_programs_begin_once_all_of_them_have_an_address(foreign):
    world = World(foreign)
    assert sorted(world.pods) == ["ps-0", "worker-0", "worker-1"]
    world.do(world.master.update_addresses({"worker-0": "10.0.0.1", "ps-0": "10.0.0.2"}, 101.0))
    assert not world.told
    world.come_up()
    assert sorted(world.told) == sorted(world.pods)
    assert all(world.told.values())
    assert world.master.phase is JobPhase.STARTING
    world.train()
    assert world.master.phase is JobPhase.TRAINING
    assert world.of(PlanApplied) == [PlanApplied(world.at_s - 0.0, plan(), 0.0)]
    assert world.of(NodeReported)[-1].plan == plan()


def test_a_job_whose_programs_tell_nothing_runs_all_the_same():
    world = World()
    world.come_up()
    world.later(QUIET_S + 1)
    assert world.master.phase is JobPhase.TRAINING


def test_another_master_says_which_pods_run_and_which_still_wait_to_start(words):
    world = World(TF)
    assert said_at_restart(world) == words
    world.do(world.master.update_addresses({"ps-0": "10.0.0.2"}, 101.0))
    assert said_at_restart(world) == words
    world.come_up()
    assert said_at_restart(world) == words


def said_at_restart(world):
    other, n_before = ExternalMaster(world.spec, ROOM), len(world.events)
    world.do(other.resume(world.master.record, world.at_s))
    return world.events[n_before].message


def test_scaling_out_keeps_pods_and_tells_all_programs_the_others():
    world = running()
    before, told = set(world.pods), dict(world.told)
    world.do(world.master.set_target(plan(3), world.at_s))
    assert world.told == told, "nobody is disturbed before the new one is up"
    assert world.master.phase is JobPhase.RESCALING
    world.come_up()
    assert set(world.pods) == before | {"worker-2"}
    assert all(world.told[node] != told[node] for node in before)
    world.later(5.0)
    world.train()
    applied = world.of(PlanApplied)[-1]
    assert applied.plan == plan(3)
    assert applied.pause_s > 0


def test_what_programs_tell_that_are_about_to_begin_anew_says_nothing_of_the_new_plan():
    world = running()
    old = dict(world.told)
    world.do(world.master.set_target(plan(3), world.at_s))
    world.come_up()
    new, world.told = world.told, old | {"worker-2": world.told["worker-2"]}
    world.train()
    world.train()
    assert world.master.running is None
    world.told = new
    world.train()
    assert world.master.running == plan(3)


def test_scaling_in_ends_the_newest_workers():
    world = running(first=plan(3))
    world.do(world.master.set_target(plan(1), world.at_s))
    assert sorted(world.pods) == ["ps-0", "worker-0"]
    world.train()
    assert world.master.running == plan(1)


def test_a_lost_worker_is_replaced_and_all_meet_again():
    world = running()
    told = dict(world.told)
    world.leave("worker-0")
    assert sorted(world.pods) == ["ps-0", "worker-1", "worker-2"]
    assert world.told["worker-1"] == told["worker-1"], "TensorFlow trains on until then"
    world.come_up()
    assert world.told["worker-1"] != told["worker-1"]
    world.train()
    assert world.master.running == plan()
    assert "worker-0 was lost" in " ".join(
        event.message for event in world.events if hasattr(event, "message")
    )


def test_torch_programs_that_lost_one_are_ended_until_they_meet_again():
    world = running(TORCH)
    store = world.told["ps-0"]
    world.leave("worker-0")
    assert (world.told["worker-1"], world.told["ps-0"]) == ("", store)
    world.come_up()
    assert world.told["worker-1"]
    assert world.told["ps-0"] == store


def test_a_program_that_fails_each_time_ends_the_job_with_its_reason():
    world = World(TORCH)
    for _ in range(40):
        if world.master.phase.is_final:
            break
        world.come_up()
        world.leave(next(node for node in world.pods if node.startswith("worker")))
        world.later(20.0)
    assert world.master.phase is JobPhase.FAILED
    assert "keep failing" in world.master.message
    assert not world.pods


def test_what_no_new_node_can_mend_ends_the_job():
    world = running()
    world.leave("worker-1", retryable=False)
    assert world.master.phase is JobPhase.FAILED
    assert not world.pods


def test_with_tensorflow_the_end_of_the_chief_is_the_end_of_the_job():
    world = running()
    world.leave("worker-1", succeeded=True)
    assert world.master.phase is JobPhase.TRAINING
    world.leave("worker-0", succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED
    assert not world.pods


def test_programs_that_end_well_before_they_reported_all_samples_are_said_to():
    world = running()
    world.leave("worker-0", succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED
    assert re.search(r"reported [\d,]+ of [\d,]+ samples", world.master.message)


@pytest.mark.parametrize("foreign", [TORCH, replace(TF, chief=False)])
def test_without_a_chief_all_workers_end(foreign):
    world = running(foreign)
    world.leave("worker-0", succeeded=True)
    assert world.master.phase is JobPhase.TRAINING
    world.leave("worker-1", succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED


def test_one_that_had_finished_begins_anew_with_a_lost_one():
    world = running(TORCH)
    world.leave("worker-0", succeeded=True)
    world.leave("worker-1")
    world.come_up()
    assert sorted(world.pods) == ["ps-0", "worker-2", "worker-3"]
    assert world.told["worker-2"]
    assert world.told["worker-3"]


def test_a_node_that_ran_out_of_memory_gets_more():
    world = running()
    world.leave("worker-1", out_of_memory=True)
    assert world.of(NodeOutOfMemory)
    assert world.master.target.worker.memory_mib > 512
    world.come_up()
    world.train()
    assert world.master.running == world.master.target
    assert all(n.memory_mib > 512 for n in world.last if n.role is Role.WORKER)


def test_a_plan_that_finds_no_room_is_given_up_for_the_one_before():
    world = running()
    told = dict(world.told)
    world.do(world.master.set_target(plan(4), world.at_s))
    waiting = {node: "Insufficient cpu" for node, address in world.pods.items() if not address}
    world.do(world.master.set_waiting(waiting, world.at_s))
    assert {n.waits_for for n in world.last if not world.pods[n.id]} == {"Insufficient cpu"}
    world.later(ROOM_LIMIT_S + 1)
    assert "Insufficient cpu" in world.of(PlanFailed)[-1].why
    assert world.told == told, "those that trained train on"
    assert sorted(world.pods) == ["ps-0", "worker-0", "worker-1"]


def test_a_first_plan_waits_for_room_as_long_as_it_takes():
    world = World()
    for _ in range(10):
        world.do(world.master.set_waiting(dict.fromkeys(world.pods, ""), world.at_s))
        world.later(ROOM_LIMIT_S)
    assert world.master.phase is JobPhase.STARTING
    world.come_up()
    assert all(world.told.values())


def test_nodes_of_another_shape_make_room_for_their_successors():
    world = running()
    world.do(world.master.set_target(plan(memory_mib=1024), world.at_s))
    assert "worker-0" in world.pods
    waiting = {node: "" for node, address in world.pods.items() if not address}
    world.do(world.master.set_waiting(waiting, world.at_s))
    assert "worker-0" not in world.pods
    world.come_up()
    world.train()
    assert world.master.running == plan(memory_mib=1024)


def test_a_stop_ends_all_nodes():
    world = running()
    world.do(world.master.stop("ada", "done", world.at_s))
    assert (world.master.phase, world.master.message) == (JobPhase.STOPPED, "stopped by ada: done")
    assert not world.pods


def test_what_is_trained_is_counted_for_the_whole_job():
    world = World(replace(TF, counting=Counting.JOB))
    world.come_up()
    world.train("worker-0")
    assert world.master.train_counts.n_sample_done == 160
    assert world.master.running == plan(), "nobody else needs to report"


def test_shards_and_batches_are_not_ours_to_choose():
    with pytest.raises(InvalidValueError, match="runs its own programs"):
        running().master.choose(ShardChoice(1, ShardAction.SKIP, "ada"), 0.0)


def test_a_job_is_planned_for_in_counts_and_cores_and_a_store_stays_as_it_is(error_words):
    bounds = PlanBounds(worker_cpus=(0.5, 1.0), ps_cpus=(0.25, 0.5))
    assert planned(JobSpec("a", plan=plan(), foreign=TF, bounds=bounds)).bounds == bounds
    torch = planned(JobSpec("a", plan=plan(), foreign=TORCH, bounds=bounds)).bounds
    assert (torch.worker_cpus, torch.ps_cpus, torch.max_ps) == ((0.5, 1.0), (0.25,), 1)
    with error_words(InvalidValueError):
        planned(JobSpec("a", plan=plan(2, 2), foreign=TORCH))


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: what is wanted comes about, and a new master changes nothing."""

    @initialize(
        foreign=st.sampled_from([TF, TORCH, replace(TF, chief=False)]), resizes=st.sampled_from([False, True])
    )
    def begin(self, foreign, resizes):
        self.resizes = resizes
        self.world = World(foreign, resizes=resizes)

    @property
    def alive(self):
        return not self.world.master.phase.is_final

    @rule()
    def come_up(self):
        self.world.come_up()

    @rule(by_s=st.sampled_from([1.0, 30.0]))
    def time_passes(self, by_s):
        self.world.later(by_s)

    @precondition(lambda self: self.alive)
    @rule(n=st.integers(1, 5), memory_mib=st.sampled_from([512, 512, 1024]))
    def scale(self, n, memory_mib):
        self.world.do(self.world.master.set_target(plan(n, memory_mib=memory_mib), self.world.at_s))

    @rule(why=st.sampled_from(["", "its machine has no room"]))
    def resize(self, why):
        self.world.resize(why)

    @rule()
    def train(self):
        self.world.train()

    @precondition(lambda self: any(self.world.pods.values()))
    @rule(data=st.data(), succeeded=st.booleans())
    def leave(self, data, succeeded):
        up = sorted(node for node, address in self.world.pods.items() if address)
        self.world.leave(data.draw(st.sampled_from(up)), succeeded=succeeded)

    @rule()
    def new_master(self):
        world = self.world
        record = from_json(to_json(world.master.record), ExternalRecord)
        told = {node: text for node, text in world.told.items() if text}
        world.master, world.asked = ExternalMaster(world.spec, ROOM), {}
        world.master.resizes_in_place = None
        world.do(world.master.resume(record, world.at_s))
        world.do(world.master.set_resizes_in_place(resizes=self.resizes, at_s=world.at_s))
        kept = {node: text for node, text in world.told.items() if node in told}
        assert kept == {node: told[node] for node in kept}, "a program would begin anew for nothing"
        again = world.master.record
        for lasting in ("target", "members", "meeting", "heard", "n_done", "told"):
            assert getattr(again, lasting) == getattr(record, lasting)

    @invariant()
    def is_sound(self):
        world = self.world
        alive = {node.id for node in world.master.nodes if node.phase != "gone"}
        assert alive == set(world.pods)
        told = [node for node in world.told if world.told[node]]
        assert all(world.pods.get(node) for node in told)
        coming = [node for node in world.master.node_set.nodes if node.asked_size_s is not None]
        assert len(coming) <= 1, "one at a time"

    def teardown(self):
        """Let a calm world be: the target comes about, or the job is over."""
        world = self.world
        for _ in range(8):
            world.later(20.0)
            world.come_up()
            while world.asked:
                world.resize()
            world.train()
        assert world.master.phase.is_final or world.master.running == world.master.target


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
