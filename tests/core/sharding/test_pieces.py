from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.master.own.nodes.shard_requests import piece_batches, usual_speed

SPEEDS = st.floats(0, 1e7)


def test_half_and_a_quarter_of_the_usual_speed_get_half_and_a_quarter_of_a_shard() -> None:
    sizes = [piece_batches(speed, 100.0, 256) for speed in (300, 100, 80, 50, 25, 10, 1)]
    assert sizes == [None, None, None, 128, 64, 64, 64]


def test_a_worker_of_unknown_speed_gets_a_whole_shard() -> None:
    assert piece_batches(0.0, 100.0, 256) is None
    assert piece_batches(10.0, 0.0, 256) is None


def test_the_usual_speed_is_the_median_of_those_that_are_known() -> None:
    assert usual_speed([]) == usual_speed([0.0]) == 0.0
    assert usual_speed([0.0, 1.0, 100.0, 3.0]) == 3.0


@given(SPEEDS, SPEEDS, st.floats(0, 1e7), st.integers(1, 1000))
def test_the_slower_never_gets_more_and_everybody_something(
    one: float, other: float, usual: float, shard_batches: int
) -> None:
    slow, fast = sorted(s for s in (max(one, 1e-9), max(other, 1e-9)))
    pieces = [piece_batches(speed, usual, shard_batches) or shard_batches for speed in (slow, fast)]
    assert 1 <= pieces[0] <= pieces[1] <= shard_batches
