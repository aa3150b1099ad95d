"""When a step counts: once all have begun the next one, and never where it was given up."""

from __future__ import annotations

import pytest
import torch

from dlrover_nb.client import exchange
from dlrover_nb.client.exchange import Steps
from dlrover_nb.client.group import LeftError, Member, Sum


class Group:
    """Members that do what a test says."""

    def __init__(self):
        self.member, self.sums, self.checkpoints = Member(1, 0, 2), [], []
        self.n_sum = self.n_applied = 0
        self.leaves = False

    def join(self):
        self.member = Member(self.member.number + 1, 0, 1)

    def sum(self, *_, **__):
        total = self.sums.pop(0)
        if total is None:
            self.join()
        self.n_sum += total is not None
        return total

    def applied(self):
        self.n_applied += 1
        if self.leaves:
            raise LeftError("the job ends")

    def keep(self):
        self.checkpoints.append((self.n_applied, self.n_sum))


class Rows:
    """Rows that are taken ten at a time."""

    def __init__(self):
        self.place, self.confirmed, self.is_over = (1, 0), (0, 0), False

    def take(self):
        self.place = 1, self.place[1] + 10

    def confirm(self, place):
        self.confirmed = max(self.confirmed, place)

    def rewind(self):
        self.place = self.confirmed


@pytest.fixture
def made():
    group, rows = Group(), Rows()
    return group, rows, Steps(group, rows, bind=lambda: None, save_every_s=60.0)


def step(made, total, *, counts=True):
    group, rows, steps = made
    rows.take()
    group.sums.append(total)

    def update(_):
        if not counts:
            group.join()  # as `Group.gather` does when a member is lost
        return counts

    return steps.complete(torch.zeros(4), 10, 1.0, update)


def test_a_step_counts_once_the_next_one_is_summed(made):
    step(made, Sum(20, is_over=False))
    assert made[1].confirmed == (0, 0)
    step(made, Sum(20, is_over=False))
    assert made[1].confirmed == (1, 10)


@pytest.mark.parametrize(("total", "counts"), [(None, True), (Sum(20, is_over=False), False)])
def test_a_step_that_is_given_up_is_taken_again_and_never_counts(made, total, counts):
    _, rows, _ = made
    step(made, Sum(20, is_over=False))
    step(made, Sum(20, is_over=False))
    step(made, total, counts=counts)
    before = rows.confirmed
    assert before[1] in {10, 20}
    assert rows.place == before, "from there on rows are taken again"
    step(made, Sum(20, is_over=False))
    assert rows.confirmed == before, "nothing that was not applied is counted"
    step(made, Sum(20, is_over=False))
    assert rows.confirmed == (1, before[1] + 10)


class Session:
    """A process whose master says whether the job stops."""

    def __init__(self, *, should_stop):
        self.should_stop = should_stop

    def state(self, *, fresh):
        assert fresh, "an earlier answer may be of before the stop"
        return {"should_stop": self.should_stop}


@pytest.mark.parametrize("should_stop", [True, False])
def test_the_oldest_keeps_a_checkpoint_when_the_job_stops_and_not_when_it_leaves_others(
    made, monkeypatch, should_stop
):
    monkeypatch.setattr(exchange, "session", lambda: Session(should_stop=should_stop))
    monkeypatch.setattr(exchange, "report", lambda *_: None)
    group, _, _ = made
    group.leaves = True
    with pytest.raises(LeftError):
        step(made, Sum(20, is_over=False))
    assert len(group.checkpoints) == int(should_stop)


def test_a_checkpoint_of_a_step_is_kept_once_all_members_have_begun_the_next_one(made):
    group, rows, _ = made
    steps = Steps(group, rows, bind=lambda: None, save_every_s=1e-9)
    for total in (Sum(20, is_over=False), None, Sum(20, is_over=False), Sum(20, is_over=False)):
        step((group, rows, steps), total)
    assert group.checkpoints == [(0, 1), (1, 2), (2, 3)], "each of n steps after the sum of one more"
