"""Laws of the shard ledger: nothing lost, nothing counted twice, whatever happens in which order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core import codec
from dlrover_nb.core.errors import CheckpointError, InvalidValueError
from dlrover_nb.core.sharding.changes import apply_changes
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerRecord, Split
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

SPLITS = st.builds(
    Split,
    n_sample=st.integers(0, 60),
    batch_size=st.integers(1, 7),
    shard_batches=st.integers(1, 4),
    n_epoch=st.integers(1, 3),
    seed=st.integers(0, 5),
    first_row=st.sampled_from([0, 100]),
)
STREAMS = st.builds(
    Split,
    n_sample=st.none(),
    batch_size=st.integers(1, 7),
    shard_batches=st.integers(1, 4),
    first_row=st.sampled_from([0, 100]),
    is_stream=st.just(True),
)
OWNERS = st.sampled_from(["worker-0", "worker-1", "worker-2"])


@settings(deadline=None, max_examples=100)
@given(SPLITS)
def test_shards_of_a_pass_cover_every_row_once(split: Split) -> None:
    for epoch in range(split.n_epoch):
        rows = [row for shard in split.order(epoch) for row in range(*split.rows(int(shard)))]
        assert sorted(rows) == list(range(split.first_row, split.first_row + split.n_sample))
        assert split.order(epoch).nbytes == 4 * split.n_shard_per_epoch
    assert split.n_shard_per_epoch == math.ceil(split.n_sample / (split.batch_size * split.shard_batches))


def test_a_lone_worker_gets_the_passes_in_order_and_each_in_another_order() -> None:
    ledger = ShardLedger(Split(1000, 10, 5, n_epoch=2, seed=3))
    shards = [ledger.grant("worker-0") for _ in range(40)]
    assert [s.epoch for s in shards if s] == [0] * 20 + [1] * 20
    starts = [s.start for s in shards if s]
    assert starts[:20] != starts[20:]
    assert starts[:20] != sorted(starts[:20])
    assert ledger.grant("worker-0") is None
    again = ShardLedger(ledger.split)
    assert shards == [again.grant("worker-0") for _ in range(40)]


def test_done_is_ceil_n_over_bm_and_samples_are_exact() -> None:
    ledger = ShardLedger(Split(179_569, 512, 20))
    while shard := ledger.grant("worker-0"):
        assert ledger.complete("worker-0", shard.lease)
    counts = ledger.counts()
    assert counts.done == 18  # ceil(179569 / 10240)
    assert (counts.n_sample_done, counts.finished, ledger.finished) == (179_569, True, True)


def test_a_returned_shard_keeps_acknowledged_rows_and_comes_first() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    shard = _granted(ledger)
    assert ledger.progress("worker-0", shard.lease, 30)
    assert ledger.release("worker-0") == 1
    again = ledger.grant("worker-1")
    assert again is not None
    assert (again.start, again.offset, again.lease.grant) == (shard.start, 30, 2)
    assert ledger.counts().n_sample_done == 30


def test_late_and_double_reports_are_refused_and_counted() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    shard = _granted(ledger)
    ledger.release("worker-0")
    again = ledger.grant("worker-0")
    assert again is not None
    assert not ledger.complete("worker-0", shard.lease)
    assert not ledger.complete("worker-1", again.lease)
    assert ledger.complete("worker-0", again.lease)
    assert not ledger.complete("worker-0", again.lease)
    assert not ledger.progress("worker-0", Lease(Purpose.TRAIN, 99, 1), 1)
    assert (ledger.counts().refused, ledger.counts().done) == (4, 1)


def test_a_returned_shard_that_a_restored_checkpoint_knows_as_done_is_not_handed_out_again() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    empty = ledger.checkpoint()
    shard = _granted(ledger)
    ledger.complete("worker-0", shard.lease)
    one_done = ledger.checkpoint()
    ledger.restore(empty)
    assert _granted(ledger).start == shard.start
    ledger.release("worker-0")
    ledger.restore(one_done)
    assert _granted(ledger).start != shard.start
    assert ledger.grant("worker-0") is None


def test_an_empty_split_is_finished() -> None:
    ledger = ShardLedger(Split(0, 10, 5, purpose=Purpose.EVALUATE))
    assert ledger.finished
    assert ledger.grant("worker-0") is None
    ledger.restore(ledger.checkpoint())
    assert ledger.finished


def test_a_checkpoint_of_another_split_is_refused() -> None:
    with pytest.raises(CheckpointError, match="continues only with its original data"):
        ShardLedger(Split(100, 10, 5)).restore(ShardLedger(Split(100, 10, 4)).checkpoint())


def test_a_split_refuses_a_batch_of_nothing(error_words) -> None:
    with error_words(InvalidValueError):
        Split(100, 0, 5)


def test_an_end_without_a_stream_and_a_stream_of_passes_are_refused(error_words) -> None:
    with error_words(InvalidValueError):
        Split(None, 1, 1)
    with error_words(InvalidValueError):
        Split(None, 1, 1, n_epoch=2, is_stream=True)
    with pytest.raises(InvalidValueError, match="make them larger"):
        Split(2**31, 1, 1)
    assert Split(2**31 - 1, 1, 1).n_shard == 2**31 - 1


def test_a_shard_is_granted_in_pieces_and_its_rest_comes_first() -> None:
    ledger = ShardLedger(Split(95, 10, 5, seed=1))
    first = _granted(ledger, most_batches=2)
    assert (first.offset, first.until, first.end) == (0, 20, 20)
    assert ledger.complete("worker-0", first.lease)
    assert (ledger.counts().done, ledger.counts().todo, ledger.counts().n_sample_done) == (0, 2, 20)
    rest = _granted(ledger, most_batches=5)
    assert (rest.start, rest.lease.shard, rest.offset, rest.until) == (
        first.start,
        first.lease.shard,
        20,
        None,
    )
    assert ledger.complete("worker-0", rest.lease)
    assert ledger.counts().done == 1


def test_a_report_of_more_than_the_piece_acknowledges_the_piece() -> None:
    ledger = ShardLedger(Split(50, 10, 5))
    piece = _granted(ledger, most_batches=2)
    assert ledger.progress("worker-0", piece.lease, 50)
    assert ledger.counts().n_sample_done == 20


def test_an_evaluation_shard_is_granted_whole() -> None:
    ledger = ShardLedger(Split(50, 10, 5, purpose=Purpose.EVALUATE))
    assert _granted(ledger, most_batches=1).until is None


def _killed(ledger: ShardLedger, n_death: int, *, n_row_done: int = 0) -> Shard:
    for n in range(n_death):
        shard = ledger.grant(f"worker-{n}")
        assert shard is not None
        if n_row_done:
            ledger.progress(f"worker-{n}", shard.lease, n_row_done)
        ledger.release(f"worker-{n}", killed=True)
    return shard


def test_a_shard_that_kills_three_holders_is_not_dropped_but_blocks_the_end_until_it_is_decided(
    words,
) -> None:
    ledger = ShardLedger(Split(100, 10, 10))
    bad = _killed(ledger, 3)
    assert ledger.grant("worker-3") is None
    assert not ledger.finished
    assert not ledger.counts().finished
    (told,) = ledger.quarantined()
    assert (told.shard, told.start, told.stop) == (bad.lease.shard, bad.start, bad.stop)
    assert str(told) == words
    ledger.retry(0)
    assert (ledger.quarantined(), ledger.counts().todo) == ((), 1)
    _killed(ledger, 3)
    ledger.skip(0)
    counts = ledger.counts()
    assert ledger.finished
    assert (counts.done, counts.skipped, counts.n_sample_skipped, counts.n_sample_done) == (0, 1, 100, 0)


def test_a_shard_of_which_a_row_is_done_between_deaths_is_not_suspected() -> None:
    ledger = ShardLedger(Split(100, 10, 10))
    for n in range(9):
        _killed(ledger, 1, n_row_done=n + 1)
    assert ledger.counts().todo == 1


def test_drained_workers_are_no_deaths_and_of_two_shards_the_one_at_work_is_suspected() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    for _ in range(5):
        _granted(ledger)
        ledger.release("worker-0")
    assert ledger.counts().quarantined == 0
    at_work = {}
    for _ in range(3):
        first, _ = _granted(ledger), _granted(ledger)
        at_work[first.lease.shard] = True
        ledger.release("worker-0", killed=True)
    assert [told.shard for told in ledger.quarantined()] == list(at_work)
    assert ledger.counts().todo == 1


def test_only_a_shard_in_quarantine_can_be_decided() -> None:
    ledger = ShardLedger(Split(200, 10, 10))
    bad = _killed(ledger, 3).lease.shard
    with pytest.raises(InvalidValueError, match=f"not in quarantine; {bad} is"):
        ledger.skip(1 - bad)


def test_quarantine_outlives_a_restore_and_a_shard_done_before_is_free_of_it() -> None:
    ledger = ShardLedger(Split(200, 10, 10))
    empty = ledger.checkpoint()
    bad = _killed(ledger, 3).lease.shard
    ledger.restore(empty)
    assert [told.shard for told in ledger.quarantined()] == [bad]
    ledger.skip(bad)
    ledger.restore(empty)
    assert (ledger.counts().skipped, ledger.counts().todo) == (1, 1)
    assert ShardLedger(ledger.split).counts().skipped == 0
    resumed = ShardLedger(ledger.split)
    resumed.restore(ledger.checkpoint())
    assert resumed.counts().skipped == 1


def test_quarantine_and_a_skip_in_a_stream_outlive_a_restore_to_a_time_before_their_shard() -> None:
    ledger = ShardLedger(Split(None, 10, 10, is_stream=True))
    empty = ledger.checkpoint()
    ledger.complete("worker-0", _granted(ledger).lease)
    bad = _quarantined(ledger)
    ledger.restore(empty)
    assert [each.shard for each in ledger.quarantined()] == [bad] == [1]
    assert ledger.counts().todo == 1
    ledger.skip(bad)
    resumed = ShardLedger(ledger.split)
    resumed.restore(ledger.checkpoint())
    assert (resumed.counts().todo, resumed.counts().skipped, resumed.counts().n_sample_total) == (1, 1, 200)


def test_a_decision_outlives_the_job_master() -> None:
    ledger = ShardLedger(Split(300, 10, 10))
    ledger.changes.keep()
    written = ledger.record()
    ledger.retry(_quarantined(ledger))
    ledger.skip(_quarantined(ledger))
    back = ShardLedger.from_record(written)
    apply_changes(back, ledger.changes.drain())
    assert (back.counts(), back.counts().skipped) == (ledger.counts(), 1)


def test_a_rollback_outlives_the_job_master() -> None:
    ledger = ShardLedger(Split(300, 10, 10))
    ledger.changes.keep()
    written, empty = ledger.record(), ledger.checkpoint()
    ledger.complete("worker-0", _granted(ledger).lease)
    ledger.restore(empty)
    back = ShardLedger.from_record(written)
    apply_changes(back, ledger.changes.drain())
    assert (back.counts(), back.counts().done) == (ledger.counts(), 0)


def test_a_record_of_a_shard_that_is_not_there_is_refused() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    _granted(ledger)
    (held,) = ledger.record().held
    with pytest.raises(CheckpointError, match="expected a shard below 2, got "):
        ShardLedger.from_record(replace(ledger.record(), held=(replace(held, shard=2),)))


def test_an_owner_holds_its_shards_oldest_first_from_their_next_row_on() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    first, second = _granted(ledger), _granted(ledger, most_batches=2)
    ledger.progress("worker-0", first.lease, 30)
    assert ledger.held("worker-0") == (replace(first, offset=30), second)
    assert ledger.held("worker-1") == ()


def test_all_before_a_shard_is_done_when_each_is_done_or_skipped() -> None:
    ledger = ShardLedger(Split(None, 10, 10, is_stream=True))
    ledger.complete("worker-0", _granted(ledger).lease)
    ledger.skip(_quarantined(ledger))
    doing = _granted(ledger)
    assert [ledger.is_done_before(shard) for shard in range(4)] == [True, True, True, False]
    ledger.complete("worker-0", doing.lease)
    assert ledger.is_done_before(3)


def _quarantined(ledger: ShardLedger) -> int:
    return _killed(ledger, 3).lease.shard


def test_close_lets_what_is_doing_end_and_counts_the_rest_as_skipped() -> None:
    ledger = ShardLedger(Split(1000, 10, 10))
    done, doing = _granted(ledger), _granted(ledger, most_batches=4)
    ledger.complete("worker-0", done.lease)
    ledger.close()
    assert ledger.grant("worker-0") is None
    assert not ledger.finished
    assert ledger.counts().n_sample_skipped == 800
    assert ledger.complete("worker-0", doing.lease)
    counts = ledger.counts()
    assert ledger.finished
    assert counts.finished
    assert (counts.done, counts.skipped, counts.n_sample_done, counts.n_sample_skipped) == (1, 9, 140, 860)


def test_a_stream_goes_on_until_its_end_is_told(error_words) -> None:
    ledger = ShardLedger(Split(None, 10, 10, first_row=7, is_stream=True))
    shards = [_granted(ledger) for _ in range(5)]
    assert [(s.start, s.stop) for s in shards] == [(7 + 100 * n, 107 + 100 * n) for n in range(5)]
    for shard in shards[:2]:
        assert ledger.complete("worker-0", shard.lease)
    assert ledger.progress("worker-0", shards[2].lease, 30)
    assert not ledger.counts().finished
    with error_words(InvalidValueError):
        ledger.close_at(150)
    ledger.close_at(257)
    assert not ledger.complete("worker-0", shards[2].lease)  # the end cut it
    last = _granted(ledger)
    assert (last.start, last.stop, last.offset) == (207, 257, 0)
    assert ledger.complete("worker-0", last.lease)
    assert ledger.finished
    assert ledger.counts().n_sample_done == 250
    with error_words(InvalidValueError):
        ledger.close_at(257)


def test_a_stream_that_ends_at_any_row_grants_all_rows_before_it_once() -> None:
    for end in range(70):
        ledger = ShardLedger(Split(None, 10, 2, first_row=7, is_stream=True))
        for _ in range(3):
            _granted(ledger)
        ledger.release("worker-0")
        ledger.close_at(7 + end)
        granted: list[int] = []
        while shard := ledger.grant("worker-0"):
            granted.extend(range(shard.start, shard.stop))
        assert sorted(granted) == list(range(7, 7 + end))
        assert ledger.counts().doing == ledger.split.n_shard


def test_a_stream_goes_back_to_a_checkpoint_of_before_its_end() -> None:
    ledger = ShardLedger(Split(None, 10, 10, is_stream=True))
    ledger.complete("worker-0", _granted(ledger).lease)
    shard = _granted(ledger)
    ledger.progress("worker-0", shard.lease, 20)
    before = ledger.checkpoint()
    ledger.close_at(150)
    ledger.restore(before)
    assert (_granted(ledger).offset, ledger.split.n_sample, ledger.counts().done) == (0, 150, 1)
    resumed = ShardLedger(Split(None, 10, 10, is_stream=True))
    resumed.restore(ledger.checkpoint())
    assert resumed.split.n_sample == 150


def test_a_job_master_that_comes_back_knows_the_present_holder_and_refuses_all_others() -> None:
    """DLRover numbers tasks anew: a late report completes another shard there, which is never trained."""
    ledger = ShardLedger(Split(600, 10, 10))
    ledger.changes.keep()
    written = ledger.record()
    for _ in range(2):
        ledger.complete("worker-0", _granted(ledger).lease)
    late = _granted(ledger)
    ledger.release("worker-0")
    held = _granted(ledger)
    back = ShardLedger.from_record(codec.from_json(codec.to_json(written), LedgerRecord))
    apply_changes(back, ledger.changes.drain())
    assert held.lease.shard == late.lease.shard
    assert not back.complete("worker-0", late.lease)
    assert not back.complete("worker-9", held.lease)
    assert back.complete("worker-0", held.lease)
    trained = [held.lease.shard]
    while shard := back.grant("worker-1"):
        trained.append(shard.lease.shard)
        assert back.complete("worker-1", shard.lease)
    assert sorted(trained) == sorted(set(trained))
    assert (len(trained), back.counts().n_sample_done) == (4, 600)


def test_a_half_written_change_is_left_out_and_nonsense_is_refused() -> None:
    ledger = ShardLedger(Split(600, 10, 10))
    apply_changes(ledger, b"grant worker-0 0\ngrant wor")
    assert ledger.counts().doing == 1
    for line in (
        b"fly\n",
        b"skip 99\n",
        b"complete worker-0 1 77\n",
        b"grant a b\n",
        b"\xff\n",
        b"restore {}\n",
    ):
        with pytest.raises(CheckpointError, match="expected a change"):
            apply_changes(ledger, line)


def _granted(ledger: ShardLedger, *, most_batches: int | None = None) -> Shard:
    shard = ledger.grant("worker-0", most_batches=most_batches)
    assert shard is not None
    return shard
