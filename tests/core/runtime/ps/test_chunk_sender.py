"""Chunks of a move reach the other PS in order, whenever the sealed session opens or breaks."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.runtime.exchange.push_pull import ChunkTaken, MoveChunk
from dlrover_nb.core.runtime.ps.chunk_sender import _Way
from dlrover_nb.core.runtime.ps.migration_source import WINDOW


class TwoWays:
    """A link of two connections, each of which keeps the order of its own messages only."""

    def __init__(self):
        self.is_sealed, self.is_broken = False, False
        self.sealed, self.clear = deque(), deque()

    def send(self, frames):
        if not self.is_sealed:
            self.clear.append(frames)
        elif not self.is_broken:
            self.sealed.append(frames)

    def unseal(self):
        self.is_sealed = False


EVENTS = st.lists(st.sampled_from(["send", "send", "clear arrives", "sealed arrives", "opens"]), max_size=60)


def settle(link, taken, way):
    """Let everything that travels arrive, sealed messages first."""
    while link.sealed or link.clear:
        taken = arrive(link.sealed or link.clear, taken, way)
    return taken


def arrive(queue, taken, way):
    """Let the other PS take the next message of a connection, as `PsMigration.receive` does."""
    if queue:
        number = queue.popleft()
        if number == taken + 1:
            taken = number
        way.take(ChunkTaken(1, taken))
    return taken


@settings(deadline=None, max_examples=300)
@given(events=EVENTS)
def test_no_chunk_overtakes_another_one(events):
    link = TwoWays()
    way, n_sent, taken = _Way(link), 0, 0
    for event in events:
        match event:
            case "send" if n_sent - taken < WINDOW:
                n_sent += 1
                way.send(MoveChunk(1, "ps-0", n_sent, 0), n_sent)
            case "clear arrives":
                taken = arrive(link.clear, taken, way)
            case "sealed arrives":
                taken = arrive(link.sealed, taken, way)
            case "opens":
                link.is_sealed = True
    assert settle(link, taken, way) == n_sent, "none was refused, so none has to be repeated"


@settings(deadline=None, max_examples=100)
@given(n_before=st.integers(0, 3), n_lost=st.integers(1, WINDOW))
def test_what_a_broken_session_lost_comes_over_curve_when_it_is_repeated(n_before, n_lost):
    link = TwoWays()
    way, taken = _Way(link), 0
    for number in range(1, n_before + 1):
        way.send(MoveChunk(1, "ps-0", number, 0), number)
        taken = settle(link, taken, way)
    link.is_sealed = link.is_broken = True
    lost = range(n_before + 1, n_before + 1 + n_lost)
    for number in lost:
        way.send(MoveChunk(1, "ps-0", number, 0), number)
    assert settle(link, taken, way) == n_before
    for number in lost:  # `Channel.overdue`
        way.send(MoveChunk(1, "ps-0", number, 0), number)
    assert settle(link, taken, way) == lost[-1]


def test_the_first_chunk_of_the_next_move_waits_for_nothing():
    link = TwoWays()
    way = _Way(link)
    for number in (1, 2):
        way.send(MoveChunk(1, "ps-0", number, 0), number)
    link.is_sealed = True
    way.send(MoveChunk(2, "ps-0", 1, 0), "first")
    assert list(link.sealed) == ["first"]
