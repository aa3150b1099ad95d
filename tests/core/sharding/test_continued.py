"""The account of rows of an earlier run, continued: no row is lost, none is trained twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.sharding.continued import continued, n_sample_of, untouched
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import Split

SPLITS = st.builds(
    Split,
    n_sample=st.integers(1, 60),
    batch_size=st.integers(1, 7),
    shard_batches=st.integers(1, 4),
    n_epoch=st.integers(1, 3),
    seed=st.integers(0, 5),
)
Rows = Counter[tuple[int, int, int]]


def train(ledger: ShardLedger, n_row: int) -> Rows:
    """Train at most so many rows, and return each as pass, shard and place in it."""
    done: Rows = Counter()
    while n_row and (shard := ledger.grant("w")) is not None:
        n = min(n_row, shard.stop - shard.start - shard.offset)
        done.update((shard.epoch, shard.start, shard.offset + i) for i in range(n))
        ledger.progress("w", shard.lease, shard.offset + n)
        if shard.offset + n == shard.stop - shard.start:
            ledger.complete("w", shard.lease)
        n_row -= n
    return done


@settings(deadline=None, max_examples=100)
@given(SPLITS, st.integers(0, 200), st.integers(0, 2))
def test_two_runs_train_each_row_of_each_pass_once(split: Split, n_row: int, n_more: int) -> None:
    first, longer = ShardLedger(split), replace(split, n_epoch=split.n_epoch + n_more)
    before, account = train(first, n_row), first.checkpoint()
    if first.finished and not n_more:
        with pytest.raises(InvalidValueError, match="left no row to train"):
            continued(account, longer)
        return
    second = ShardLedger(longer)
    second.restore(continued(account, longer))
    assert second.counts().n_sample_done == n_sample_of(account) == sum(before.values())
    after = train(second, 10**6)
    assert second.finished
    assert set((before + after).values()) == {1}
    assert sum((before + after).values()) == split.n_sample * longer.n_epoch  # type: ignore[operator]


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 60))
def test_a_stream_goes_on_behind_the_last_row(batch: int, n_row: int) -> None:
    split = Split(None, batch, 2, is_stream=True)
    first = ShardLedger(split)
    before = train(first, n_row)
    second = ShardLedger(split)
    second.restore(continued(first.checkpoint(), split))
    after = train(second, 300)
    assert sorted((before + after).values()) == [1] * (n_row + 300)


def test_a_run_that_was_ended_early_is_open_again() -> None:
    ledger = ShardLedger(Split(100, 10, 1))
    train(ledger, 30)
    ledger.close()
    again = ShardLedger(ledger.split)
    again.restore(continued(ledger.checkpoint(), ledger.split))
    assert sum(train(again, 1000).values()) == 70


def test_parameters_alone_come_with_an_untouched_account() -> None:
    assert n_sample_of(untouched(Split(100, 10, 1))) == 0


@for_each(
    ("changes", "words"),
    [
        ({"n_sample": 101}, "number of training rows was 100, here it is 101"),
        ({"batch_size": 5}, "batch_size was 10, here it is 5"),
        ({"seed": 1}, "seed was 0, here it is 1"),
        ({"n_epoch": 1}, "is of 2 passes, got 1; set epochs to at least 2"),
    ],
)
def test_rows_that_are_cut_otherwise_are_refused(changes: dict[str, int], words: str) -> None:
    split = Split(100, 10, 1, n_epoch=2)
    with pytest.raises(InvalidValueError, match=words):
        continued(ShardLedger(split).checkpoint(), replace(split, **changes))  # type: ignore[arg-type]
