"""A worker that was given up and is alive: refused by all PS before others get its shards, counted exactly."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.sharding.deaths import MAX_DEATHS
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.shards import Lease

PAUSED = "worker-0"
SERVERS = ("ps-0", "ps-1", "ps-2")


class Frozen(World):
    """A world in which workers stand still for a while, and its backend cannot reach them."""

    is_still = False
    paused: tuple[str, ...] = (PAUSED,)

    def stands_still(self, name: str) -> bool:
        return name in self.paused and self.is_still

    def turn(self, name: str) -> bool:
        return False if self.stands_still(name) else super().turn(name)

    def report(self, name: str) -> None:
        if not self.stands_still(name):
            super().report(name)

    def do(self, orders: object) -> None:
        orders = tuple(orders)  # type: ignore[arg-type]
        alive = [name for name, node in getattr(self, "nodes", {}).items() if node.is_alive]
        super().do(orders)
        for name in filter(self.stands_still, alive):
            self.nodes[name].is_alive = True

    def leases(self, worker: str = PAUSED) -> tuple[Lease, ...]:
        return self.master.ledgers[0].leases(worker)

    def refuse(self, ps: str, *, loses: str = "") -> None:
        """Let one PS alone obey its orders and be heard, where neither orders nor answers are lost."""
        node = self.nodes[ps]
        if loses == "orders":
            node.inbox.clear()
        while node.inbox:
            self.turn(ps)
        if loses == "answers":
            node.outbox.clear()
        while self.hear(ps):
            pass

    def train_one_shard(self, worker: str) -> None:
        """Let a worker finish its shard and be given another one."""
        n_granted = len(self.granted)
        while len(self.granted) == n_granted:
            self.turn(worker)
            while self.hear(worker):
                pass


def frozen(n_ps: int = 1, n_worker: int = 2, **changes: object) -> Frozen:
    """Return a world whose first worker stands still amid a shard."""
    world = Frozen(spec(plan(n_worker, n_ps), **changes), features(1600))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 60)
    shard = world.nodes[PAUSED].shard
    while shard is None or not 0 < world.nodes[PAUSED].n_done < shard.end - 10:
        world.round()
        shard = world.nodes[PAUSED].shard
    world.is_still = True
    return world


def give_up(world: Frozen) -> None:
    while any(world.master.knows(name) for name in world.paused):
        for name in list(world.nodes):
            if world.nodes[name].is_alive:
                world.report(name)
                while world.hear(name):
                    pass
        world.tick(1.0)


@pytest.mark.parametrize("sync", [Sync.ASP, Sync.SSP, Sync.BSP])
@pytest.mark.parametrize("n_ps", [1, 2])
def test_its_shards_are_given_to_others_when_no_ps_listens_to_it_any_more(n_ps: int, sync: Sync) -> None:
    world = frozen(n_ps, sync=sync)
    give_up(world)
    held = world.master.ledgers[0].leases(PAUSED)
    assert held
    assert {fence.worker for fence in world.master.record.fences} == {PAUSED}
    world.run_until(lambda: not world.master.record.fences)
    assert all(PAUSED in ps.forgotten for ps in world.ps.values())
    assert not world.master.ledgers[0].leases(PAUSED)
    world.is_still = False  # it comes back, with gradients of its old shard
    world.nodes[PAUSED].inbox.clear()  # the order to stop is lost, or late
    world.run_to_end()
    assert world.refused == [PAUSED]
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)
    assert max(world.learnt.values()) <= 2  # rows that were done and not yet acknowledged
    again = {shard.lease.shard for name, shard in world.granted if name == PAUSED}
    assert {row // 40 for (_, row), n in world.learnt.items() if n > 1} <= again


@pytest.mark.more
@given(
    turns=st.lists(
        st.tuples(st.sampled_from(SERVERS), st.sampled_from(["", "orders", "answers"])), max_size=8
    )
)
@settings(max_examples=30)
def test_no_row_of_its_shards_is_granted_before_the_last_ps_has_answered(
    turns: list[tuple[str, str]],
) -> None:
    world = frozen(len(SERVERS))
    give_up(world)
    leases, n_granted, answered = world.leases(), len(world.granted), set()
    assert leases
    for ps, lost in (*turns, *((ps, "") for ps in SERVERS)):
        world.refuse(ps, loses=lost)
        answered |= {ps} if not lost else set()
        if answered == set(SERVERS):
            break
        assert world.leases() == leases
        world.train_one_shard("worker-1")
        world.tick(1.0)  # what was lost is ordered again
    shards = {lease.shard for lease in leases}
    assert not shards & {shard.lease.shard for _, shard in world.granted[n_granted:]}
    assert not world.leases()
    world.train_one_shard("worker-1")
    assert world.granted[-1][1].lease.shard in shards


def test_an_answer_about_one_worker_frees_the_shards_of_that_worker_alone() -> None:
    world = frozen(2, n_worker=3)
    world.paused = paused = (PAUSED, "worker-1")
    give_up(world)
    leases = {worker: world.leases(worker) for worker in paused}
    assert all(leases.values())
    for ps in ("ps-0", "ps-1"):
        world.nodes[ps].inbox = deque(each for each in world.nodes[ps].inbox if each == m.Forget(PAUSED))
        world.refuse(ps)
    assert {worker: world.leases(worker) for worker in paused} == leases | {PAUSED: ()}
    world.tick(1.0)  # the other order, which was lost, is repeated
    for ps in ("ps-0", "ps-1"):
        world.refuse(ps)
    assert not any(world.leases(worker) for worker in paused)


def test_the_end_of_another_worker_frees_no_shard_of_one_that_may_push() -> None:
    world = frozen(2, n_worker=3)
    world.paused = (PAUSED, "worker-1")
    give_up(world)
    leases = world.leases()
    world.kill("worker-1")
    assert not world.leases("worker-1")
    assert world.leases() == leases != ()


def silent_worker() -> Frozen:
    """Return a world whose only worker was given up amid a shard, and which its PS has still to refuse."""
    world = Frozen(spec(plan(1)), features(400))
    world.run_until(lambda: any(world.nodes[name].shard for name in world.living(Role.WORKER)))
    world.paused = tuple(world.living(Role.WORKER))
    world.is_still = True
    give_up(world)
    return world


def next_silent_worker(world: Frozen) -> None:
    world.is_still = False
    world.run_until(lambda: any(world.nodes[name].shard for name in world.living(Role.WORKER)))
    world.paused = tuple(world.living(Role.WORKER))
    world.is_still = True
    give_up(world)


def test_rows_at_which_workers_fell_silent_are_not_suspected_and_all_are_trained() -> None:
    """A busy machine makes workers silent; that each of them is killed by its master then proves nothing."""
    world = silent_worker()
    for _ in range(MAX_DEATHS + 1):
        (worker,) = world.paused
        world.run_until(lambda: not world.master.record.fences)
        world.nodes[worker].is_alive = False
        world.do(world.master.on_exit(worker, "exit code -9", world.at_s, was_killed=True, by_its_work=True))
        assert not world.master.quarantined
        assert not world.master.ledgers[0].record().deaths
        next_silent_worker(world)
    world.is_still = False
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world, exactly_once=False)


def test_rows_at_which_silent_workers_are_seen_to_have_crashed_are_isolated_and_cost_no_restart() -> None:
    world = silent_worker()
    for n in range(MAX_DEATHS):
        world.kill(*world.paused, "killed by signal 11 (SIGSEGV)")
        if n < MAX_DEATHS - 1:
            assert not world.master.quarantined
            next_silent_worker(world)
    (isolated,) = world.master.quarantined
    assert isolated.killed == ("worker-0", "worker-1", "worker-2")
    assert sum("the job cannot finish without it" in told.message for told in world.told(PhaseChanged)) == 1
    assert world.master._state.restarts[Role.WORKER].not_before_s(world.at_s, 1) == world.at_s


def test_a_lost_order_or_answer_is_repeated() -> None:
    world = frozen()
    give_up(world)
    ps = world.nodes["ps-0"]
    ps.inbox.clear()
    world.tick(1.0)
    assert [each for each in ps.inbox if isinstance(each, m.Forget)] == [m.Forget(PAUSED)]
    assert world.turn("ps-0")
    ps.outbox.clear()
    world.run_until(lambda: not world.master.record.fences)
    world.nodes[PAUSED].is_alive = world.is_still = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_successor_of_the_master_goes_on_to_fence_and_loses_no_shard() -> None:
    world = frozen()
    give_up(world)
    world.nodes[PAUSED].is_alive = False
    world.is_still = False
    world.nodes["ps-0"].inbox.clear()
    world.crash()
    assert {fence.worker for fence in world.master.record.fences} == {PAUSED}
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)


def test_a_process_that_is_gone_after_all_holds_nothing_up() -> None:
    world = frozen()
    give_up(world)
    world.is_still = False
    world.kill(PAUSED)
    assert not world.master.record.fences
    assert not world.master.ledgers[0].leases(PAUSED)
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_lost_ps_takes_the_fence_along() -> None:
    world = frozen(2)
    give_up(world)
    world.kill("ps-1")
    assert not world.master.record.fences
    world.nodes[PAUSED].is_alive = world.is_still = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_nothing_is_copied_while_a_given_up_worker_may_still_push() -> None:
    world = frozen(heartbeat_timeout_s=10.0)  # less than the limit of a stop
    world.do(world.master.stop("ada", "", world.at_s))
    world.nodes["worker-1"].inbox.clear()
    give_up(world)
    assert world.master.record.fences
    assert world.master.stage is Stage.PAUSING
    for worker in world.living(Role.WORKER):
        if worker != PAUSED:
            world.kill(worker)
    assert world.master.stage is Stage.PAUSING
    world.nodes[PAUSED].is_alive = world.is_still = False
    world.run_until(lambda: world.master.stage is not Stage.PAUSING)
    assert PAUSED in world.ps["ps-0"].forgotten
