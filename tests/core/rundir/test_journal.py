"""A journal gives back what was written, whatever became of some of its lines."""

from __future__ import annotations

import json
import logging
import math
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.rundir import journal as rundir_journal
from dlrover_nb.core.rundir.journal import (
    JOURNAL,
    RETRY_S,
    Journal,
    compress,
    read_events,
    read_journal,
    read_snapshot,
    segments,
)
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import Decided, NodeReported

if TYPE_CHECKING:
    from pathlib import Path


def _reported(at_s: float, loss: float | None = None) -> NodeReported:
    sample = NodeSample("worker-0", Role.WORKER, at_s, 1.0, 3, 300, 0.3, TimeSplit(), 0.5, 300.0, loss=loss)
    return NodeReported(at_s, sample, None)


def _write(folder: Path, n_event: int) -> list[NodeReported]:
    journal = Journal(folder)
    events = [_reported(float(at)) for at in range(n_event)]
    for event in events:
        journal.append(event)
    journal.close()
    return events


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(damaged=st.integers(0, 4), junk=st.binary(min_size=1, max_size=40))
def test_a_damaged_line_costs_one_event(
    tmp_path: Path, damaged: int, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / JOURNAL).unlink(missing_ok=True)
    events = _write(tmp_path, 5)
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    lines[damaged] = b"\xff" + junk.replace(b"\n", b" ") + b"\n"
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))
    with caplog.at_level(logging.WARNING):
        assert list(read_journal(tmp_path / JOURNAL)) == events[:damaged] + events[damaged + 1 :]
    assert f"line {damaged + 1} of" in caplog.text


@given(data=st.data())
def test_a_line_with_a_flipped_bit_costs_its_event_and_is_counted(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    events = _write(folder, 3)
    path = folder / JOURNAL
    first, second, third = path.read_bytes().splitlines(keepends=True)
    changed = bytearray(second)
    changed[data.draw(st.integers(0, len(second) - 2))] ^= data.draw(st.sampled_from([1, 4, 16, 64]))
    path.write_bytes(first + bytes(changed).replace(b"\n", b"?")[:-1] + b"\n" + third)
    damaged: list[int] = []
    assert list(read_journal(path, on_damaged=damaged.append)) == [events[0], events[2]]
    assert damaged == [2]


def test_lines_of_releases_without_checksums_are_read(tmp_path: Path) -> None:
    events = _write(tmp_path, 3)
    path = tmp_path / JOURNAL
    pairs = [json.loads(line)[:2] for line in path.read_bytes().splitlines()]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    assert list(read_journal(path)) == events


def test_a_loss_that_is_no_number_is_read_back_as_unknown(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(_reported(1.0, loss=float("nan")))
    journal.close()
    assert list(read_journal(tmp_path / JOURNAL)) == [_reported(1.0)]


@for_each("name", ["at_s", "window_s", "iter_s", "cpu_cores", "memory_mib", "parameter_mib", "copy_mib"])
@for_each("value", [float("nan"), float("inf")])
def test_a_report_without_finite_measurements_is_refused(name: str, value: float, error_words) -> None:
    fields = {
        "at_s": 1.0,
        "window_s": 1.0,
        "iter_s": 0.1,
        "cpu_cores": 0.5,
        "memory_mib": 1.0,
        "parameter_mib": 0.0,
        "copy_mib": 0.0,
    }
    with error_words(InvalidValueError):
        NodeSample("w", Role.WORKER, n_iter=1, n_sample=1, split=TimeSplit(), **(fields | {name: value}))


def test_segments_follow_each_other_and_two_are_kept(tmp_path: Path) -> None:
    journal, events = Journal(tmp_path), [_reported(float(at)) for at in range(5)]
    for number, event in enumerate(events, 1):
        journal.append(event)
        journal.begin_segment(b"state %d" % number)
    journal.close()
    assert [segment.number for segment in segments(tmp_path)] == [4, 5]
    assert [read_snapshot(segment.snapshot) for segment in segments(tmp_path)] == [b"state 4", b"state 5"]
    assert list(read_events(tmp_path)) == events[4:]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.snapshot")} == {0o600}


def test_a_segment_is_due_by_its_size_and_by_that_of_one_from_before(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rundir_journal, "SEGMENT_BYTES", 1000)
    journal = Journal(tmp_path)
    n_event = 0
    while not journal.is_due:
        journal.append(_reported(0.0))
        n_event += 1
    journal.close()
    assert n_event == math.ceil(1000 / ((tmp_path / JOURNAL).stat().st_size / n_event))
    again = Journal(tmp_path)
    assert again.is_due
    again.begin_segment(b"state")
    assert not again.is_due
    again.close()


def test_segments_before_the_one_that_a_restart_began_with_go_and_those_after_it_stay(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for state in (b"1", b"2", b"3"):
        journal.begin_segment(state)
    journal.close()
    (tmp_path / "journal-000003.snapshot").write_bytes(b"damaged")
    again = Journal(tmp_path)
    again.begun_with(2)
    again.begin_segment(b"4")
    assert [segment.number for segment in segments(tmp_path)] == [2, 3, 4]
    again.begin_segment(b"5")
    assert [segment.number for segment in segments(tmp_path)] == [4, 5]
    again.close()


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=50), st.integers(0, 80), st.integers(1, 255))
def test_a_snapshot_with_any_byte_changed_or_missing_is_refused(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, at: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    journal = Journal(folder)
    journal.begin_segment(body)
    journal.close()
    path = segments(folder)[-1].snapshot
    assert read_snapshot(path) == body
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[: at % len(whole)])
    with pytest.raises(WireError, match=r"cannot be read|is damaged"):
        read_snapshot(path)
    whole[at % len(whole)] ^= flip
    path.write_bytes(whole)
    with pytest.raises(WireError, match="is damaged"):
        read_snapshot(path)


def test_a_last_line_that_was_torn_costs_itself_alone(tmp_path: Path) -> None:
    events = _write(tmp_path, 3)
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes()[:-9])
    journal = Journal(tmp_path)
    journal.append(_reported(9.0))
    journal.close()
    assert list(read_events(tmp_path)) == [*events[:2], _reported(9.0)]


def test_a_journal_that_could_not_be_written_is_whole_again_with_the_next_segment(
    tmp_path: Path, caplog
) -> None:
    (tmp_path / JOURNAL).symlink_to("/dev/full")
    (tmp_path / "journal-000001.new").mkdir()
    journal = Journal(tmp_path)
    for began_s in (0.0, 100.0):
        for at_s in (0.0, 1.0, RETRY_S):
            assert not journal.is_due
            journal.append(_reported(began_s + at_s))
        journal.append(_reported(began_s + 1.0 + RETRY_S))
        assert journal.is_due
        journal.begin_segment(b"not to be written")
        assert [segment.number for segment in segments(tmp_path)] == [0]
    (tmp_path / "journal-000001.new").rmdir()
    journal.append(_reported(200.0))
    assert not journal.is_due
    journal.append(Decided(200.0, Decision(Verdict.MODE, "ada", 200.0, mode=Mode.AUTO)))
    assert journal.is_due, "a client is told that it was taken"
    journal.begin_segment(b"all of it")
    journal.append(_reported(77.0))
    journal.close()
    assert read_snapshot(segments(tmp_path)[-1].snapshot) == b"all of it"
    assert list(read_journal(tmp_path / "journal-000001.jsonl")) == [_reported(77.0)]
    assert caplog.text.count("is incomplete from here on") == 1


def test_the_journal_of_an_ended_job_is_compressed_and_says_the_same(tmp_path: Path) -> None:
    packed = []
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        events = _write(folder, 200)
        plain = (folder / JOURNAL).stat()
        os.utime(folder / JOURNAL, (1e9, 1e9))
        compress(folder)
        (segment,) = segments(folder)
        assert segment.compressed.stat().st_size < plain.st_size / 10
        assert segment.compressed.stat().st_mtime == 1e9
        assert [path.name for path in folder.iterdir()] == [f"{JOURNAL}.gz"]
        assert list(read_events(folder)) == list(read_journal(folder / JOURNAL)) == events
        assert Journal(folder).is_closed
        packed.append(segment.compressed.read_bytes())
    assert packed[0] == packed[1]
    whole = packed[0]
    segment.compressed.write_bytes(whole[: len(whole) // 2])
    assert events[:50] == list(read_events(folder))[:50]
