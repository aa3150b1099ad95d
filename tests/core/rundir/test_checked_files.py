"""Files that steer a job: what a disk changes of them is refused with what to do, and old ones are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.local.record import (
    END,
    MASTER,
    SUBMISSION,
    MasterRecord,
    Submission,
    read_end,
    read_master,
    read_submission,
    write_master,
    write_submission,
)
from dlrover_nb.core.codec import from_checked_json, from_json, to_checked_json, to_json
from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST, CheckpointFolder
from dlrover_nb.core.rundir.external_state import STATE_FILE, SavedState, StateFile
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG
from dlrover_nb.core.rundir.shard_log import ShardLog, read_shard_log
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.sharding.split import LedgerCheckpoint, Split
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUBMITTED = Submission(JobSpec("job", n_epoch=5), FeatureSpec("label", (), (), 90, 10))
N_CHECKSUM = len(b',"crc32":"00000000"}')


@given(st.data())
def test_a_record_of_which_anything_changed_is_refused(data: st.DataObject) -> None:
    whole = to_checked_json(SUBMITTED)
    start = data.draw(st.integers(0, len(whole) - N_CHECKSUM - 1))
    changed = (
        data.draw(st.binary(max_size=40)) + whole[data.draw(st.integers(start, len(whole) - N_CHECKSUM)) :]
    )
    damaged = whole[:start] + changed
    if damaged == whole:
        assert from_checked_json(damaged, Submission) == SUBMITTED
        return
    with pytest.raises(WireError):
        from_checked_json(damaged, Submission)


def test_a_record_is_read_by_and_of_releases_that_know_no_checksum() -> None:
    assert from_json(to_checked_json(SUBMITTED), Submission) == SUBMITTED
    assert from_checked_json(to_json(SUBMITTED), Submission) == SUBMITTED


def _manifest(folder: Path) -> None:
    ledger = LedgerCheckpoint(Split(10, 1, 1), b"", ())
    CheckpointFolder(folder).write(Manifest(1, 9.0, 1, (0,), (("part", "0" * 64),), 1, 8, ledger))


def _state(folder: Path) -> None:
    plan, phase = SUBMITTED.spec.plan, JobPhase.TRAINING
    record = ExternalRecord(plan, None, None, False, 0.0, 0, (), (), 9.0, phase, "", (), (), 5, ())
    StateFile(folder).save(SavedState(record))


WRITTEN = (
    (
        SUBMISSION,
        lambda folder: write_submission(folder, SUBMITTED),
        read_submission,
        r"start_from: .*rows: true",
    ),
    (STATE_FILE, _state, lambda folder: StateFile(folder).read(), "submit the job again"),
    (
        f"checkpoints/1/{MANIFEST}",
        _manifest,
        lambda folder: CheckpointFolder(folder).read(1),
        "use another checkpoint",
    ),
)


@pytest.mark.parametrize(("name", "write", "read", "way_out"), WRITTEN, ids=[each[0] for each in WRITTEN])
def test_one_flipped_bit_of_a_file_is_refused_with_what_to_do(
    tmp_path: Path,
    name: str,
    write: Callable[[Path], None],
    read: Callable[[Path], object],
    way_out: str,
) -> None:
    write(tmp_path)
    read(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for at in range(0, len(whole) - N_CHECKSUM, 3):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(CheckpointError, match=f"{name} is damaged: .*{way_out}"):
            read(tmp_path)


def test_a_lost_submission_is_refused_with_what_to_do(tmp_path: Path, error_words) -> None:
    with error_words(CheckpointError):
        read_submission(tmp_path)


def test_a_changed_address_of_a_master_is_none(tmp_path: Path) -> None:
    write_master(tmp_path, MasterRecord(100, 1.0, 8000, "token"))
    path = tmp_path / MASTER
    path.write_bytes(path.read_bytes().replace(b"8000", b"8001"))
    assert read_master(tmp_path) is None


def test_a_damaged_last_snapshot_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / END).write_bytes(b"a disk lost this")
    with pytest.raises(CheckpointError, match=r"end.bin.* is damaged: .*delete that file, and attach"):
        read_end(tmp_path)


def test_damaged_manifests_are_passed_over_and_swapped_ones_keep_their_numbers(tmp_path: Path) -> None:
    ledger = LedgerCheckpoint(Split(10, 1, 1), b"", ())
    folder, known = CheckpointFolder(tmp_path), Manifest(1, 9.0, 1, (0,), (("part", "0" * 64),), 1, 8, ledger)
    for number in (1, 2, 3):
        folder.write(replace(known, number=number))
    places = [tmp_path / "checkpoints" / str(number) / MANIFEST for number in (1, 2, 3)]
    texts = [place.read_bytes() for place in places]
    places[0].write_bytes(texts[1])
    places[1].write_bytes(texts[0])
    places[2].write_bytes(texts[2].replace(b'"number":3', b'"number":7'))
    assert [each.number for each in folder.complete()] == [1, 2]
    assert folder.last_number() == 3


def test_a_damaged_log_of_shards_is_refused_with_what_to_do(tmp_path: Path, error_words) -> None:
    ledger, log = ShardLedger(Split(100, 5, 2)), ShardLog(tmp_path)
    log.append(ledger)
    for _ in range(4):
        ledger.grant("worker-0")
        log.append(ledger)
    log.close()
    assert read_shard_log(tmp_path)[0].counts() == ledger.counts()
    path = tmp_path / WRITE_AHEAD_LOG
    path.write_bytes(path.read_bytes()[:-30])
    with error_words(CheckpointError):
        read_shard_log(tmp_path)
