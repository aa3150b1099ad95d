"""Requests to the barrier that come again, after later ones of their worker: they change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.runtime.node_world import FEATURES, MODEL, SPEC
from support.runtime.played_router import PlayedRouter

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.runtime.exchange.push_pull import Arrive, BarrierMessage, Join, Leave, NotMember, Proceed
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps.serving import Serving, connection_number
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.spec_choices import Sync

FIRST, SECOND = b"w0/7/9", b"w0/7/10"  # connections of a worker


class Coordinator:
    """A PS of index 0, whose answers a test reads."""

    def __init__(self) -> None:
        self._router = PlayedRouter()
        spec = replace(SPEC, sync=Sync.SSP, staleness=2)
        self.serving = Serving(self._router, TimeAccounting(SystemClock()), "ps-0", spec, AttachedSlabs())  # type: ignore[arg-type]
        self.serving.open(ParameterStore(MODEL, FEATURES.n_table_row, 1), 1)

    def answers(self, identity: bytes, message: BarrierMessage) -> list[object]:
        """Return what is answered to a message."""
        before = len(self._router.sent)
        self._router.take(identity, encode(message))
        self.serving.serve()
        return [decode(frames)[0] for _, *frames in self._router.sent[before:]]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_a_join_that_comes_again_after_its_leave_makes_no_member(coordinator: Coordinator) -> None:
    (joined,) = coordinator.answers(FIRST, Join(1, 1, "w0"))
    assert isinstance(joined, Proceed)
    assert coordinator.answers(FIRST, Leave(1, 2, "w0")) == [NotMember(1, 2)]
    assert not coordinator.answers(FIRST, Join(1, 1, "w0"))
    assert not coordinator.serving.members


def test_a_leave_of_an_earlier_connection_removes_no_member(coordinator: Coordinator) -> None:
    coordinator.answers(FIRST, Join(1, 1, "w0"))
    coordinator.answers(FIRST, Leave(1, 5, "w0"))
    coordinator.answers(SECOND, Join(1, 1, "w0"))
    assert not coordinator.answers(FIRST, Leave(1, 5, "w0"))
    assert coordinator.serving.members == ("w0",)


def test_an_arrival_that_comes_again_after_the_next_one_refuses_nobody(coordinator: Coordinator) -> None:
    coordinator.answers(FIRST, Join(1, 1, "w0"))
    for step, number in ((2, 0), (3, 1)):
        (on,) = coordinator.answers(FIRST, Arrive(1, step, "w0", number, 10))
        assert isinstance(on, Proceed)
    assert not coordinator.answers(FIRST, Arrive(1, 2, "w0", 0, 10))


def test_the_last_request_is_answered_again(coordinator: Coordinator) -> None:
    coordinator.answers(FIRST, Join(1, 1, "w0"))
    arrival = Arrive(1, 2, "w0", 0, 10)
    assert coordinator.answers(FIRST, arrival) == coordinator.answers(FIRST, arrival)


@pytest.mark.parametrize(("identity", "number"), [(b"w0/7/10", 10), (b"w0", 0), (b"", 0), (b"w0/7/\xb2", 0)])
def test_connections_are_numbered_by_their_workers(identity: bytes, number: int) -> None:
    assert connection_number(identity) == number
