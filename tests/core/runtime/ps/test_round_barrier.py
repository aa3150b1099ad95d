from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import BatchShare, FinishedRound, Go
from dlrover_nb.core.runtime.ps.round_barrier import TAKEN_AHEAD, Release, RoundBarrier
from dlrover_nb.core.structs.job.spec_choices import Sync

WORKERS = st.sampled_from(["w0", "w1", "w2", "w3"])


def go_of(told, worker):
    (go,) = [each.go for each in told if each.worker == worker]
    return go


def test_a_round_ends_when_all_members_have_arrived():
    barrier = RoundBarrier(Sync.BSP, 1)
    assert barrier.join("w0") == (Release("w0", Go(0, None, ())),)
    barrier.join("w1")
    assert barrier.arrive("w0", 0, 64) == ()
    told = barrier.arrive("w1", 0, 32)
    done = FinishedRound(0, (("w0", 64), ("w1", 32)))
    assert {each.worker: each.go for each in told} == {"w0": Go(1, done, ()), "w1": Go(1, done, ())}


@pytest.mark.parametrize("rejoins", [False, True])
def test_who_goes_sets_the_others_free_and_has_no_part_in_the_round(rejoins):
    barrier = RoundBarrier(Sync.BSP, 1)
    for name in ("w0", "w1"):
        barrier.join(name)
    barrier.arrive("w0", 0, 64)
    told = barrier.join("w1") if rejoins else barrier.leave("w1")
    assert go_of(told, "w0").done == FinishedRound(0, (("w0", 64),))
    if rejoins:
        assert go_of(told, "w1") == Go(1, FinishedRound(0, (("w0", 64),)), ())


def test_a_repeated_arrival_is_answered_again_and_a_wrong_one_refused():
    barrier = RoundBarrier(Sync.BSP, 1)
    barrier.join("w0")
    first = barrier.arrive("w0", 0, 64)
    assert barrier.arrive("w0", 0, 64) == first
    for worker, number in (("w0", 2), ("w0", -1), ("w1", 0)):
        with pytest.raises(WireError, match="arrived in round"):
            barrier.arrive(worker, number, 64)


def test_a_stale_synchronous_worker_waits_when_it_is_too_far_ahead():
    barrier = RoundBarrier(Sync.SSP, 2)
    barrier.join("fast")
    barrier.join("slow")
    assert [bool(barrier.arrive("fast", number, 1)) for number in range(3)] == [True, True, False]
    told = barrier.arrive("slow", 0, 1)
    assert {each.worker: each.go.round for each in told} == {"fast": 3, "slow": 1}


def of(*names, backups=0):
    """Return a barrier with these members."""
    barrier = RoundBarrier(Sync.BSP, 1)
    for name in names:
        barrier.join(name)
    barrier.set_backups(backups)
    return barrier


def test_with_a_backup_worker_a_round_ends_without_the_last_member():
    barrier = of("w0", "w1", "w2", backups=1)
    assert barrier.arrive("w0", 0, 64) == ()
    done = FinishedRound(0, (("w0", 64), ("w1", 32)))
    told = barrier.arrive("w1", 0, 32)
    assert {each.worker: each.go for each in told} == dict.fromkeys(("w0", "w1"), Go(1, done, ()))
    late = Release("w2", Go(1, done, (), is_late=True))
    assert barrier.arrive("w2", 0, 64) == (late,)
    assert barrier.arrive("w2", 0, 64) == (late,), "the answer was lost"
    barrier.arrive("w2", 1, 64)
    told = barrier.arrive("w0", 1, 64)
    assert go_of(told, "w2") == Go(2, FinishedRound(1, (("w0", 64), ("w2", 64))), ())


def test_a_late_member_goes_on_in_the_open_round_however_many_have_ended():
    barrier = of("w0", "w1", backups=1)
    for number in range(5):
        assert go_of(barrier.arrive("w0", number, 8), "w0").round == number + 1
    go = go_of(barrier.arrive("w1", 0, 8), "w1")
    assert (go.round, go.is_late, go.done) == (5, True, FinishedRound(4, (("w0", 8),)))
    assert go_of(barrier.arrive("w1", 5, 8), "w1") == Go(6, FinishedRound(5, (("w1", 8),)), ())
    assert go_of(barrier.arrive("w0", 5, 8), "w0").is_late


@pytest.mark.parametrize("n", [1, 2, 9])
def test_at_least_one_member_is_waited_for(n):
    barrier = of("w0", "w1", backups=n)
    assert barrier.leave("w1") == ()
    assert go_of(barrier.arrive("w0", 0, 8), "w0").done == FinishedRound(0, (("w0", 8),))


def test_more_backup_workers_end_the_open_round_at_once():
    barrier = of("w0", "w1", "w2")
    barrier.arrive("w0", 0, 8)
    assert barrier.set_backups(1) == ()
    assert go_of(barrier.set_backups(2), "w0").done == FinishedRound(0, (("w0", 8),))


def test_who_joins_or_goes_counts_among_those_that_are_waited_for():
    barrier = of("w0", "w1", "w2", backups=1)
    barrier.join("w3")
    barrier.arrive("w0", 0, 8)
    assert barrier.arrive("w1", 0, 8) == ()
    assert {each.worker for each in barrier.leave("w3")} == {"w0", "w1"}


def test_accumulated_batches_are_in_force_from_the_round_of_their_sizes_on():
    barrier = of("w0", "w1")
    first = barrier.adjust({"w0": 96, "w1": 32}, {"w0": 3})
    barrier.arrive("w0", 0, 8)
    go = go_of(barrier.arrive("w1", 0, 8), "w0")
    assert (go.sizes, go.accumulate) == (((first, 96),), (3,))
    assert go.share(first - 1) is None
    assert go.share(first) == BatchShare(96, 3)
    assert [BatchShare(97, 3).most_at_once, BatchShare(96, 3).most_at_once] == [33, 32]


def test_workers_that_accumulate_nothing_any_more_are_told_so():
    barrier = of("w0")
    barrier.adjust({"w0": 96}, {"w0": 3})
    last = barrier.adjust({"w0": 64})
    go = go_of(barrier.arrive("w0", 0, 8), "w0")
    assert go.share(last) == BatchShare(64)


class Paces(RuleBasedStateMachine):
    """Workers join, train, leave and die in any order; each takes batches as far ahead as it may."""

    @initialize(sync=st.sampled_from([Sync.BSP, Sync.SSP]), staleness=st.integers(1, 4))
    def begin(self, sync, staleness):
        self.n_backup, self.n_ever, self.arrived = 0, 0, {}  # the round of each worker's last arrival
        self.barrier, self.sync, self.staleness = RoundBarrier(sync, staleness), sync, staleness
        self.round, self.waiting = {}, set()  # of members
        self.taken = {}  # worker -> {round: size}
        self.announced = {}  # number -> Round
        self.pushed = {}  # (number, worker) -> rows
        self.changes = []

    def receive(self, told):
        n_waited = max(1, len(self.round) - self.n_backup)
        for worker, go in [(each.worker, each.go) for each in told]:
            if go.is_late:
                assert worker in self.waiting
                assert go.round >= self.round[worker]
                self.round[worker] = go.round
                self.taken.pop(worker)  # what it had taken it takes again
            assert go.round == self.round.setdefault(worker, go.round)
            if self.sync is Sync.BSP and go.done is not None:
                if go.done.number not in self.announced:
                    assert len(go.done.contributors) >= n_waited
                assert self.announced.setdefault(go.done.number, go.done) == go.done
                assert go.done.number == go.round - 1
                for name, n_row in go.done.contributors:
                    assert self.pushed[go.done.number, name] == n_row
            if worker in self.waiting:
                self.check_use(worker, go)
            self.waiting.discard(worker)
            self.take(worker, go)
            slowest = min(self.round.values())
            if self.sync is Sync.SSP or not self.n_ever:
                assert go.round - slowest <= (0 if self.sync is Sync.BSP else self.staleness)

    def check_use(self, worker, go):
        """A worker is told the truth about the gradients that it arrived with."""
        number = self.arrived[worker]
        if self.sync is Sync.SSP:
            assert not go.is_late
        elif go.is_late:
            assert worker not in dict(self.announced[number].contributors)
        else:
            assert worker in dict(go.done.contributors)
            assert go.done.number == number

    def take(self, worker, go):
        """Take what is taken until the next word of the coordinator."""
        mine = self.taken.setdefault(worker, {})
        for number in range(go.round, go.round + 1 + TAKEN_AHEAD):
            size = [size for first, size in go.sizes if first <= number][-1:]
            mine.setdefault(number, size)

    @rule(worker=WORKERS)
    def join(self, worker):
        self.round.pop(worker, None)
        self.waiting.discard(worker)
        self.taken.pop(worker, None)  # what it had taken it takes again
        told = self.barrier.join(worker)
        self.receive(told)
        assert worker in {each.worker for each in told}

    @precondition(lambda self: len(self.round) > len(self.waiting))
    @rule(data=st.data(), n_row=st.integers(1, 9))
    def arrive(self, data, n_row):
        worker = data.draw(st.sampled_from(sorted(set(self.round) - self.waiting)))
        self.pushed[self.round[worker], worker] = n_row
        number = self.arrived[worker] = self.round[worker]
        self.round[worker] += 1
        self.waiting.add(worker)
        self.receive(self.barrier.arrive(worker, number, n_row))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def repeat(self, data):
        worker = data.draw(st.sampled_from(sorted(self.waiting)))
        assert self.barrier.arrive(worker, self.round[worker] - 1, 5) == ()

    @rule(worker=WORKERS)
    def leave(self, worker):
        self.round.pop(worker, None)
        self.waiting.discard(worker)
        self.taken.pop(worker, None)
        self.receive(self.barrier.leave(worker))

    @rule(n=st.integers(0, 4))
    def back_up(self, n):
        self.n_backup, self.n_ever = n, self.n_ever + n
        self.receive(self.barrier.set_backups(n))

    @rule(sizes=st.dictionaries(WORKERS, st.integers(1, 9), min_size=1))
    def adjust(self, sizes):
        self.changes.append((self.barrier.adjust(sizes), sizes))

    @invariant()
    def somebody_can_go_on(self):
        if hasattr(self, "round"):
            assert not self.round or set(self.round) - self.waiting
            assert {name for name in self.round if self.barrier.is_member(name)} == set(self.round)

    @invariant()
    def a_size_is_in_force_from_the_same_round_on_for_all(self):
        for worker, taken in getattr(self, "taken", {}).items():
            for number, size in taken.items():
                due = [sizes[worker] for first, sizes in self.changes if first <= number and worker in sizes]
                assert size == due[-1:]


Paces.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)
test_paces = Paces.TestCase
