"""Jobs in pods without storage: what a lost pod costs, and what it does not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.master.master_world import features, in_place, plan, spec, trained_every_row
from support.master.pods_world import PodsWorld, last_whole

from dlrover_nb.core.master.own.checkpoints.copy_coordinator import COPY_LIMIT_S
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.training.checkpoints import PeerCopies
from dlrover_nb.core.structs.views.events import PhaseChanged, PlanFailed
from dlrover_nb.core.structs.wire.copy_messages import CopyKept, KeepCopy
from dlrover_nb.core.structs.wire.messages import Save


def running(n_worker: int = 2, n_ps: int = 2, n_train: int = 8000, **changes: object) -> PodsWorld:
    """Return a job that has a checkpoint with peers and trains on."""
    job = spec(plan(n_worker, n_ps), **({"checkpoint_every_s": 1.0} | changes))
    world = PodsWorld(job, features(n_train))
    world.run_until(lambda: last_whole(world.master) > 0 and not world.master.record.writing)
    return world


def rarely(world: PodsWorld) -> None:
    """Let no further checkpoint become due."""
    world.master._state.spec = replace(world.job, checkpoint_every_s=1000.0)


def n_trained(world: PodsWorld) -> int:
    return world.master.train_counts.n_sample_done


def story(world: PodsWorld) -> str:
    return "\n".join(event.message for event in world.told(PhaseChanged))


def owners_of(world: PodsWorld, holder: str) -> set[str]:
    kept = world.master.checkpoints[-1]
    return {node for node, peer in zip(kept.nodes, kept.peers, strict=True) if peer and peer.holder == holder}


@pytest.mark.more
@pytest.mark.parametrize("n_ps", [1, 2, 3])
def test_a_lost_pod_of_a_ps_costs_no_more_than_since_its_last_copy(n_ps: int, words) -> None:
    world = running(2, n_ps)
    before = n_trained(world)
    world.run_until(lambda: n_trained(world) > before + 50)
    whole = last_whole(world.master)
    world.kill("ps-0")
    assert n_trained(world) == len(world.copies[whole]) > 0
    assert f"checkpoint {whole} " in world.said("ps-0")
    assert world.said("ps-0") == words
    world.run_until(lambda: in_place(world, plan(2, n_ps)))
    world.check_parameters()
    assert world.n_from_peers
    assert "copies of peers" in story(world)
    assert world.said("kept the copy") == words
    assert story(world).count(" kept the copy of ") == 1, "only a PS that has ended is missed"
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert world.master.phase is JobPhase.SUCCEEDED


def test_no_file_is_asked_for_but_by_the_last_checkpoint() -> None:
    world = running(1, 2, 2000)
    world.run_to_end()
    saves = [s for node in world.nodes.values() for s in node.heard if isinstance(s, Save)]
    last = max(save.checkpoint for save in saves)
    assert {save.checkpoint for save in saves if save.file} == {last}


def test_a_machine_with_a_ps_and_the_copies_that_it_keeps_is_lost_at_once() -> None:
    world = running(3, 3)
    lost = [
        name for name in (*world.living(Role.PS), *world.living(Role.WORKER)) if world.machine(name) == "m1"
    ]
    assert len(lost) == 2
    for name in lost:
        world.nodes[name].is_alive = False
    for name in lost:
        world.kill(name, "the machine is gone")
    assert n_trained(world) > 0
    world.run_until(lambda: in_place(world, plan(3, 3)))
    world.check_parameters()
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_the_pod_of_a_ps_and_that_of_its_peer_cost_the_beginning_and_the_story_says_so() -> None:
    world = running(2, 2)
    kept = world.master.checkpoints[-1]
    peer = kept.peers[0]
    assert peer is not None
    world.nodes[peer.holder].is_alive = False
    world.kill("ps-0")
    world.kill(peer.holder)
    world.run_until(lambda: in_place(world, plan(2, 2)))
    assert "continuing from the beginning" in story(world)
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def lost_one_by_one(rng: random.Random, n_worker: int, n_ps: int) -> None:
    """At any moment, also amid a pause, a copy on its way or a load: exactly that account, never less."""
    world = running(n_worker, n_ps, 40_000)
    for _ in range(3):
        for _ in range(rng.randint(0, 25)):
            world.round()
        before, whole = world.master.record, last_whole(world.master)
        lost = rng.choice(sorted([*world.living(Role.PS), *world.living(Role.WORKER)]))
        is_of_group = before.group is not None and lost in before.group.nodes
        world.kill(lost)
        if is_of_group and before.stage is not Stage.LOADING:
            source = world.master.record.source
            assert source is not None
            assert source[0] >= whole
            assert n_trained(world) == len(world.copies[source[0]])
        world.run_until(
            lambda: (
                in_place(world, plan(n_worker, n_ps))
                and last_whole(world.master) > 0
                and not world.master.record.writing
                and _has_its_copies(world)
            ),
            2000,
        )
        world.check_parameters()
    assert "continuing from the beginning" not in story(world)


@pytest.mark.parametrize(("seed", "n_worker", "n_ps"), [(0, 1, 1), (1, 2, 2), (2, 3, 4), (3, 1, 3)])
def test_some_pods_that_are_lost_one_by_one_do_not_cost_what_peers_keep(
    seed: int, n_worker: int, n_ps: int
) -> None:
    lost_one_by_one(random.Random(seed), n_worker, n_ps)


@pytest.mark.release
@settings(deadline=None, max_examples=60)
@given(st.randoms(), st.integers(1, 3), st.integers(1, 4))
def test_pods_that_are_lost_one_by_one_never_cost_what_peers_keep(
    rng: random.Random, n_worker: int, n_ps: int
) -> None:
    lost_one_by_one(rng, n_worker, n_ps)


def _has_its_copies(world: PodsWorld) -> bool:
    """Whether the present PS have a checkpoint of their own: the loss of one costs nothing again."""
    newest = world.master.checkpoints[-1] if world.master.checkpoints else None
    return (
        newest is not None
        and last_whole(world.master) == newest.number
        and set(newest.nodes) <= set(world.living(Role.PS))
    )


def test_after_a_loss_the_next_checkpoint_comes_at_once() -> None:
    """Parts of the one that was loaded are with one pod only."""
    world = running(2, 2)
    rarely(world)
    number = world.master.record.n_checkpoint
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, plan(2, 2)))
    at_s = world.at_s
    world.run_until(lambda: last_whole(world.master) > number)
    assert world.at_s < at_s + 10.0


def test_a_peer_that_dies_is_replaced_by_another_one(words) -> None:
    world = running(3, 1)
    rarely(world)
    holder = world.master.checkpoints[-1].peers[0].holder
    world.kill(holder)
    assert last_whole(world.master) == -1
    world.run_until(lambda: last_whole(world.master) == 1)
    assert world.master.checkpoints[-1].peers[0].holder != holder
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, plan(3, 1)))
    assert world.said("checkpoint 1") == words


def test_a_copy_that_its_holder_drops_is_made_by_another_one_and_nobody_else_drops_it() -> None:
    world = running(3, 1)
    rarely(world)
    kept = world.master.checkpoints[-1]
    holder = kept.peers[0].holder
    other = next(name for name in world.living(Role.WORKER) if name != holder)
    for name, whole in ((other, kept.number), (holder, -1)):
        dropped = CopyKept(name, kept.nodes[0], kept.number, error="its memory is needed")
        world.do(world.master.on_message(name, dropped, world.at_s))
        assert last_whole(world.master) == whole
    world.run_until(lambda: last_whole(world.master) == kept.number)
    assert world.master.checkpoints[-1].peers[0].holder not in {holder, other}


@for_each(("number", "owner"), [(99, "ps-0"), (1, "ps-9")])
def test_what_is_told_of_a_copy_that_nobody_knows_changes_nothing(number: int, owner: str) -> None:
    world = running(2, 2)
    before = world.master.checkpoints
    world.do(world.master.on_message("worker-0", CopyKept("worker-0", owner, number), world.at_s))
    assert world.master.checkpoints == before


def refusing(**changes: object) -> PodsWorld:
    """Return a job whose nodes have no memory for copies any more."""
    world = running(2, 2, **changes)
    world.refusals = dict.fromkeys(world.nodes, "no memory for a copy of 3.0 MiB")
    world.run_until(lambda: world.master.record.n_checkpoint_failed == 1)
    return world


def test_peers_without_memory_are_told_cost_nothing_and_count_no_copy(words) -> None:
    world = refusing()
    assert world.master.stage is Stage.SERVING
    failed = world.master.record.n_checkpoint
    assert world.said("ps-0") == words
    assert world.said("ps-1") == words
    assert last_whole(world.master) == failed - 1
    world.kill("ps-1")
    assert f"checkpoint {failed - 1} " in world.said("continuing from")
    assert world.said("continuing from") == words
    world.refusals = {}
    world.run_until(lambda: last_whole(world.master) > failed)
    assert world.said("kept by peers") == words
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_one_node_without_memory_is_passed_over_for_another() -> None:
    world = running(2, 2)
    world.refusals = {"ps-1": "no memory"}
    number = world.master.record.n_checkpoint
    world.run_until(lambda: last_whole(world.master) > number)
    assert world.master.record.n_checkpoint_failed == 0
    assert owners_of(world, "ps-1") == set()


def test_a_peer_that_never_answers_is_given_up_and_checkpoints_go_on(words) -> None:
    world = running(1, 1, heartbeat_timeout_s=1e6)
    world.silent = set(world.nodes)
    number = world.master.record.n_checkpoint
    world.run_until(lambda: world.master.record.n_checkpoint > number)
    before = n_trained(world)
    world.run_until(lambda: n_trained(world) > before + 100)
    from_s = world.at_s
    while not world.master.record.n_checkpoint_failed:
        assert world.at_s < from_s + COPY_LIMIT_S + 2.0
        world.tick(1.0)
    assert world.said("did not store") == words


@pytest.mark.more
def test_a_ps_without_memory_for_its_own_copy_is_told(words) -> None:
    world = running(1, 2)
    world.has_memory = False
    world.run_until(lambda: world.master.record.n_checkpoint_failed)
    assert world.said("ps-0") == words
    world.has_memory = True
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_restarted_master_knows_who_keeps_what() -> None:
    world = running(2, 2)
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    whole = last_whole(world.master)
    world.crash()
    world.run_until(lambda: in_place(world, plan(2, 2)))
    assert last_whole(world.master) >= whole
    world.kill("ps-1")
    assert n_trained(world) > 0
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def killed_together(n_round: int, n_kept: int) -> None:
    """Kill the master, some of whose last records are lost, and a PS at once."""
    world = running(2, 2)
    for _ in range(n_round):
        world.round()
    world.crash(n_kept=n_kept, dead=["ps-0"])
    world.run_until(lambda: in_place(world, plan(2, 2)), 1000)
    world.check_parameters()
    assert "continuing from the beginning" not in story(world)
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


@pytest.mark.more
@pytest.mark.parametrize(("n_round", "n_kept"), [(0, 0), (3, 1), (11, 2), (26, 3)])
def test_a_master_and_a_ps_that_are_killed_together_at_some_moments_cost_no_more(
    n_round: int, n_kept: int
) -> None:
    killed_together(n_round, n_kept)


@pytest.mark.release
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 40), st.integers(0, 3))
def test_a_master_and_a_ps_that_are_killed_together_cost_no_more(n_round: int, n_kept: int) -> None:
    killed_together(n_round, n_kept)


def test_a_job_that_wants_no_copies_begins_anew_as_before() -> None:
    job = spec(plan(2, 2), checkpoint_every_s=1.0, peer_copies=PeerCopies.NEVER)
    world = PodsWorld(job, features(8000))
    world.run_until(lambda: n_trained(world) > 500)
    assert world.master.record.n_checkpoint == 0
    world.kill("ps-0")
    assert "continuing from the beginning" in story(world)


def test_with_a_shared_folder_copies_are_made_over_several_machines_and_files_stay() -> None:
    world = type("Shared", (PodsWorld,), {"folder": "/run"})(
        spec(plan(2, 2), checkpoint_every_s=1.0), features(8000)
    )
    world.run_until(lambda: len(world.disk) == 2)
    assert last_whole(world.master) >= max(world.disk)
    assert world.master.checkpoints[-1].is_on_disk


def test_on_one_machine_with_a_shared_folder_nothing_is_copied_unless_asked_for() -> None:
    for setting in PeerCopies:
        kind = type("Alone", (PodsWorld,), {"folder": "/run", "machines": ("m0",)})
        world = kind(spec(plan(2, 2), checkpoint_every_s=1.0, peer_copies=setting), features(8000))
        world.run_until(lambda world=world: len(world.disk) == 2)
        orders = [o for node in world.nodes.values() for o in node.heard if isinstance(o, KeepCopy)]
        assert bool(orders) == (setting is PeerCopies.ALWAYS)


def resized(n_worker: int, n_ps: int, memory_mib: int = 300) -> ResourcePlan:
    first = plan(n_worker, n_ps)
    return replace(first, ps=replace(first.ps, memory_mib=memory_mib))


@pytest.mark.more
@pytest.mark.parametrize("target", [plan(2, 1), plan(2, 3), resized(2, 2), resized(2, 1), resized(1, 3)])
def test_ps_that_restart_read_what_nodes_that_stay_keep(target: ResourcePlan, words) -> None:
    world = running(2, 2, migration=Migration.RESTART)
    old = set(world.living(Role.PS))
    world.do(world.master.set_target(target, world.at_s))
    world.run_until(lambda: in_place(world, target))
    world.check_parameters()
    assert not world.told(PlanFailed)
    there = {*world.living(Role.WORKER), *world.living(Role.PS)}
    assert world.master.record.source is not None
    source = world.master.checkpoints[0]
    assert {peer.holder for peer in source.peers if peer is not None} <= there
    assert set(source.nodes) == old
    assert world.said("was loaded") == words
    world.run_to_end()
    trained_every_row(world, exactly_once=True)
    assert world.master.phase is JobPhase.SUCCEEDED


@pytest.mark.more
def test_a_restart_without_anybody_who_can_keep_the_parts_fails_its_plan_and_the_job_goes_on(words) -> None:
    world = running(2, 2, migration=Migration.RESTART)
    world.refusals = dict.fromkeys(
        ("ps-2", "ps-3", "worker-0", "worker-1"), "no memory for a copy of 3.0 MiB"
    )
    world.do(world.master.set_target(resized(2, 2), world.at_s))
    world.run_until(lambda: in_place(world, plan(2, 2)) and bool(world.told(PlanFailed)))
    (failed,) = [event for event in world.events if isinstance(event, PlanFailed)]
    assert failed.why == words
    world.run_to_end()
    trained_every_row(world, exactly_once=True)


def changed_amid_restarts(rng: random.Random) -> None:
    """Change the plan again and again, and kill nodes meanwhile."""
    world = running(2, 2, 8000, migration=Migration.RESTART)
    targets = [plan(2, 1), plan(2, 3), resized(2, 2), resized(1, 2), plan(2, 2)]
    for _ in range(3):
        world.do(world.master.set_target(rng.choice(targets), world.at_s))
        for _ in range(rng.randint(0, 20)):
            world.round()
        if rng.random() < 0.5:
            world.kill(rng.choice(world.living(Role.PS) or world.living(Role.WORKER)))
    world.run_until(lambda: world.master.running is not None, 3000)
    world.check_parameters()
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert world.master.phase is JobPhase.SUCCEEDED


@pytest.mark.more
@pytest.mark.parametrize("seed", range(4))
def test_some_targets_that_change_and_nodes_that_die_amid_restarts_cost_a_rollback_at_most(seed: int) -> None:
    changed_amid_restarts(random.Random(seed))


@pytest.mark.release
@settings(deadline=None, max_examples=25)
@given(st.randoms())
def test_targets_that_change_and_nodes_that_die_amid_restarts_never_cost_more_than_a_rollback(
    rng: random.Random,
) -> None:
    changed_amid_restarts(rng)
