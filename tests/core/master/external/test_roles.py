"""Roles of an external job beside worker and PS: who is told what, who ends the job, and what they take."""

import json
from dataclasses import replace

import pytest
from support.cases import for_each
from support.master.external_world import ROOM, RUN, TF, TORCH, World, plan, running

from dlrover_nb.core.backends.programs.program_files import note_placement
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.submitted import planned
from dlrover_nb.core.structs.job.external import CHIEF, EVALUATOR, Counting, FixedRole, Framework
from dlrover_nb.core.structs.job.fixed_roles import capacity_left, check_job_fits, limits_left
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import NodeOutOfMemory, NodeReported

EVAL = FixedRole("evaluator", ("evaluate",))
LEAD = FixedRole("chief", ("lead",), cpu=1.0)
READ = FixedRole("reader", ("read",), count=2)
ALL = (LEAD, EVAL, READ)
WITH_ALL = replace(TF, roles=ALL)


def read(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def tf_config(world, node):
    return json.loads(read(world.told[node])["TF_CONFIG"])


def beside(world, node):
    return json.loads(read(world.told[node])["DLROVER_NB_ROLES"])


def test_a_role_of_any_name_is_one_object_and_no_loop_over_roles_meets_it():
    assert Role("evaluator") is Role("evaluator") is EVALUATOR
    assert from_json(to_json(EVALUATOR), Role) is EVALUATOR
    assert list(Role) == [Role.WORKER, Role.PS]
    for name in ("", "Evaluator", "a-b", "x" * 21, "1a"):
        with pytest.raises(ValueError, match="is not a valid Role"):
            Role(name)


def test_tensorflow_is_told_a_chief_of_its_own_and_an_evaluator_beside_the_cluster():
    world = running(WITH_ALL)
    assert sorted(world.pods) == [
        *("chief-0", "evaluator-0", "ps-0", "reader-0", "reader-1"),
        *("worker-0", "worker-1"),
    ]
    chief, evaluator = tf_config(world, "chief-0"), tf_config(world, "evaluator-0")
    assert {kind: len(tasks) for kind, tasks in chief["cluster"].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    assert chief["task"] == {"type": "chief", "index": 0}
    assert tf_config(world, "worker-1")["task"] == {"type": "worker", "index": 1}
    assert evaluator == {"cluster": chief["cluster"], "task": {"type": "evaluator", "index": 0}}
    reader = beside(world, "reader-1")
    assert reader["task"] == {"type": "reader", "index": 1}
    assert reader["cluster"].keys() == {"chief", "worker", "ps", "reader"}
    assert "TF_CONFIG" not in read(world.told["reader-1"])
    assert "DLROVER_NB_ROLES" not in read(world.told["worker-0"])


def test_the_world_of_torch_is_its_chief_and_workers():
    spec = replace(TORCH, roles=ALL)
    members = [Member(f"{role}-0", Role(role), f"10.0.0.{i}") for i, role in enumerate(spec.every)]
    told = {each.node: read(environment(spec, members, each.node, rendezvous_id="a-1")) for each in members}
    assert [(told[n]["RANK"], told[n]["WORLD_SIZE"]) for n in ("chief-0", "worker-0")] == [
        ("0", "2"),
        ("1", "2"),
    ]
    assert told["worker-0"]["MASTER_ADDR"] == "10.0.0.0"
    assert told["evaluator-0"].keys() == {"DLROVER_NB_ROLES"}
    addresses = json.loads(told["evaluator-0"]["DLROVER_NB_ROLES"])["cluster"]
    assert addresses == {
        "chief": ["10.0.0.0:2222"],
        "worker": ["10.0.0.1:2222"],
        "ps": ["10.0.0.2:2222"],
        "evaluator": ["10.0.0.3:2222"],
    }


def test_the_job_ends_with_its_chief_and_its_evaluator_is_stopped():
    world = running(WITH_ALL)
    world.leave("worker-0", succeeded=True)
    world.leave("worker-1", succeeded=True)
    assert world.master.phase is JobPhase.TRAINING
    world.leave("chief-0", succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED
    assert not world.pods


def test_the_job_waits_for_a_role_that_it_is_to_wait_for():
    world = running(replace(TORCH, roles=(replace(EVAL, ends_job=True), READ)))
    for node in ("worker-0", "worker-1"):
        world.leave(node, succeeded=True)
    assert world.master.phase is JobPhase.TRAINING
    assert "evaluator-0" in world.pods
    world.leave("evaluator-0", succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED


def test_an_awaited_program_that_ends_first_is_not_started_again():
    world = running(replace(TORCH, roles=(replace(EVAL, ends_job=True),)))
    world.leave("evaluator-0", succeeded=True)
    world.leave("worker-1")
    world.come_up()
    assert sorted(world.pods) == ["ps-0", "worker-0", "worker-2"]


def test_with_a_chief_that_nobody_awaits_the_workers_end_the_job():
    world = running(replace(TF, roles=(replace(LEAD, ends_job=False),)))
    world.leave("chief-0", succeeded=True)
    assert world.master.phase is JobPhase.TRAINING
    world.leave("worker-0", succeeded=True)
    world.leave("worker-1", succeeded=True)
    assert world.master.phase is JobPhase.SUCCEEDED


def test_a_lost_evaluator_is_replaced_alone_and_a_change_of_workers_does_not_restart_it():
    world = running(WITH_ALL)
    told = dict(world.told)
    world.leave("evaluator-0")
    world.come_up()
    assert {n: t for n, t in world.told.items() if n in told} == {
        n: t for n, t in told.items() if n in world.pods
    }
    assert tf_config(world, "evaluator-1")["task"] == {"type": "evaluator", "index": 0}
    told = dict(world.told)
    world.do(world.master.set_target(plan(3), world.at_s))
    world.come_up()
    assert {n for n, t in told.items() if world.told[n] != t} == world.told.keys() - {
        "evaluator-1",
        "worker-2",
    }


def test_a_lost_chief_is_a_rendezvous_of_the_world():
    world = running(WITH_ALL)
    told = dict(world.told)
    world.leave("chief-0")
    world.come_up()
    world.train()
    assert (
        tf_config(world, "worker-0")["cluster"]["chief"]
        != json.loads(read(told["worker-0"])["TF_CONFIG"])["cluster"]["chief"]
    )
    assert world.master.phase is JobPhase.TRAINING


def test_roles_beside_the_world_restart_with_its_addresses_and_not_with_each_other():
    two = replace(TF, roles=(READ, FixedRole("writer", ("write",))))
    world = running(two)
    told = dict(world.told)
    world.leave("reader-0")
    world.come_up()
    assert {n for n in world.told if world.told[n] != told.get(n)} == {"reader-1", "reader-2"}


def test_a_role_that_keeps_failing_ends_the_job_as_others_do():
    world = running(WITH_ALL)
    for _ in range(40):
        if world.master.phase.is_final:
            break
        world.come_up()
        world.leave(next(node for node in world.pods if node.startswith("reader")))
        world.later(20.0)
    assert world.master.phase is JobPhase.FAILED
    assert "reader nodes keep failing" in world.master.message


def test_only_workers_and_ps_are_measured_and_an_evaluators_work_does_not_count():
    world = running(replace(WITH_ALL, counting=Counting.OWN))
    before = world.master.train_counts.n_sample_done
    world.train("evaluator-0", "reader-0")
    assert world.master.train_counts.n_sample_done == before
    world.train("chief-0")
    assert world.master.train_counts.n_sample_done > before
    assert {event.sample.role for event in world.of(NodeReported)} == {Role.WORKER}
    views = {node.id: node for node in world.master.nodes}
    assert views["chief-0"].last is not None
    assert views["evaluator-0"].role is EVALUATOR


def test_the_work_that_a_chief_reports_for_all_is_that_of_the_workers():
    world = running(replace(WITH_ALL, counting=Counting.JOB))
    n_event = len(world.of(NodeReported))
    world.train("chief-0")
    assert {e.sample.node for e in world.of(NodeReported)[n_event:]} == {"worker-0", "worker-1"}
    assert world.master.running == plan()


def test_a_fixed_role_that_runs_out_of_memory_keeps_its_size():
    world = running(WITH_ALL)
    world.leave("evaluator-0", out_of_memory=True)
    assert not world.of(NodeOutOfMemory)
    assert "memory_mib" in world.master.message
    assert world.master.target == plan()


def test_a_restarted_master_goes_on_with_all_roles_and_restarts_none():
    world = running(WITH_ALL)
    world.do(world.master.set_target(plan(3), world.at_s))
    world.come_up()
    world.train()
    told = dict(world.told)
    record = from_json(to_json(world.master.record), ExternalRecord)
    world.master = ExternalMaster(world.spec, ROOM)
    world.do(world.master.resume(record, world.at_s))
    world.later()
    assert world.told == told
    assert world.master.record.nodes == record.nodes


def test_the_end_of_a_stopped_job_waits_for_those_that_train():
    world = World(WITH_ALL)
    world.come_up()
    world.do(world.master.stop("ada", "enough", world.at_s))
    assert world.master.phase is JobPhase.STOPPED
    assert not world.pods


@for_each(
    ("roles", "why"),
    [
        ([{"name": "worker"}], "has a group of its own"),
        ([{"name": "master"}], "call the first of its programs chief"),
        ([{"name": "evaluator", "count": 2}], "at most one evaluator, got count: 2"),
        ([{"name": "Reader"}], "lower-case letters and digits"),
        ([{"name": "reader", "command": ()}], "role reader needs a command"),
        ([{"name": "reader"}, {"name": "reader"}], "a name of its own, got reader, reader"),
    ],
)
def test_roles_that_cannot_be_are_refused_with_words(roles, why):
    with pytest.raises(InvalidValueError, match=why):
        replace(TF, roles=tuple(FixedRole(**{"command": ("a",), **each}) for each in roles))


def test_a_ddp_job_has_no_chief(error_words):
    with error_words(InvalidValueError):
        replace(TORCH, framework=Framework.DDP, roles=(LEAD,))


def test_fixed_nodes_take_their_part_of_machines_quota_and_budget(error_words):
    spec = JobSpec("a", plan=plan(), foreign=WITH_ALL, bounds=PlanBounds(quota_cpu=10), budget_per_hour=1.0)
    left = limits_left(spec)
    assert left.bounds.quota_cpu == pytest.approx(10 - 1.0 - 0.5 - 2 * 0.5)
    assert left.budget_per_hour == pytest.approx(1.0 - spec.prices.per_hour(2.5, 4 * 1024))
    room = capacity_left(spec, Capacity((NodeShape(2, 8192, count=2),)))
    assert room.total_cpu == pytest.approx(4 - 2.5)
    assert room.total_memory_mib == 2 * 8192 - 4 * 1024
    check_job_fits(spec, Capacity((NodeShape(4, 8192),)))
    with pytest.raises(CapacityError, match="the plan must fit"):
        check_job_fits(spec, Capacity((NodeShape(3, 8192),)))
    with error_words(CapacityError):
        check_job_fits(spec, Capacity((NodeShape(2, 8192),)))
    with error_words(InvalidValueError):
        planned(replace(spec, budget_per_hour=0.01))


def test_a_budget_is_refused_where_gpus_of_fixed_nodes_have_no_price(error_words):
    trainer = replace(LEAD, gpu=2)
    spec = JobSpec("a", plan=plan(), foreign=replace(TF, roles=(trainer,)), budget_per_hour=9.0)
    room = Capacity((NodeShape(8, 16384, gpu=2),))
    with error_words(InvalidValueError):
        check_job_fits(spec, room)
    check_job_fits(replace(spec, budget_per_hour=None), room)
    priced = replace(spec, prices=replace(spec.prices, gpu_hour=2.0))
    check_job_fits(priced, room)
    without = replace(TF, roles=(LEAD,))
    less = limits_left(replace(priced, foreign=without)).budget_per_hour - limits_left(priced).budget_per_hour
    assert less == pytest.approx(4.0)


def test_without_such_roles_nothing_is_taken():
    spec = JobSpec("a", plan=plan(), foreign=TF, budget_per_hour=1.0)
    assert limits_left(spec) is spec
    assert capacity_left(spec, ROOM) is ROOM
    assert replace(TF, roles=(LEAD,)).first_worker_leads is False
    assert RUN.command == TF.program(Role.PS).command
    assert WITH_ALL.program(CHIEF).command == ("lead",)


@for_each(
    ("worker", "reader", "why"),
    [
        ({"together_with": ("writer",)}, {}, r"name roles of the job \(worker, ps, reader\), got 'writer'"),
        ({"together_with": ("worker",)}, {}, "worker cannot be together_with worker: it is that"),
        ({"together_with": ("ps",), "apart_from": ("ps",)}, {}, "worker cannot be together_with ps"),
        ({"together_with": ("reader",)}, {"apart_from": ("worker",)}, "one is apart_from the other"),
        ({"together_with": ("reader",)}, {"together_with": ("worker",)}, "for roles that wait for it"),
    ],
)
def test_places_that_contradict_each_other_are_refused(worker, reader, why):
    with pytest.raises(InvalidValueError, match=why):
        replace(TF, worker=replace(RUN, **worker), roles=(replace(READ, **reader),))


def test_of_one_machine_a_place_is_noted(caplog, words):
    note_placement(JobSpec("a", foreign=TF))
    assert not caplog.text
    spec = JobSpec("a", foreign=replace(TF, roles=(replace(READ, together_with=("worker",)),)))
    note_placement(spec, is_one=False)
    assert not caplog.text
    note_placement(spec)
    assert caplog.messages == words
