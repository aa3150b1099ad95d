"""Work on checkpoint folders beside the job's loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from support.waiting import LIMIT_S

from dlrover_nb.core.driver.own.checkpoint_thread import CheckpointThread, Outcome
from dlrover_nb.core.master.shared.orders import (
    DropCheckpoint,
    PrepareCheckpoint,
    SweepCheckpoints,
    WriteManifest,
)
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.journal import JOURNAL
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.sharding.split import Split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LEDGER = ShardLedger(Split(100, 10, 2)).checkpoint()


def manifest(number: int) -> WriteManifest:
    return WriteManifest(Manifest(number, 5.0, 1, (0,), (("a", "b"),), 3, 4, LEDGER))


class Hanging(CheckpointFolder):
    """A folder whose disk answers when it is let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answers = threading.Event()

    def prepare(self, number: int, n_byte: int, spare: Sequence[int] = ()) -> tuple[int, ...]:
        assert self.answers.wait(LIMIT_S)
        return super().prepare(number, n_byte, spare)


def test_actions_are_carried_out_in_order_and_outcomes_wake_the_loop(tmp_path: Path) -> None:
    woken = threading.Semaphore(0)
    folder = CheckpointFolder(tmp_path)
    thread = CheckpointThread(folder, woken.release)
    actions = [PrepareCheckpoint(1, 0), manifest(1), PrepareCheckpoint(2, 1 << 60), PrepareCheckpoint(3, 0)]
    for action in (*actions, manifest(3), DropCheckpoint(3), SweepCheckpoints((1,), 3)):
        thread.do(action)
    for _ in range(5):
        assert woken.acquire(timeout=LIMIT_S)
    outcomes = list(thread.outcomes())
    assert [each.action for each in outcomes] == [*actions, manifest(3)]
    assert [bool(each.error) for each in outcomes] == [False, False, True, False, False]
    thread.close()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1"]


def test_a_disk_that_hangs_stops_neither_the_loop_nor_its_end(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b"one\n")
    folder = Hanging(tmp_path)
    woken = threading.Event()
    thread = CheckpointThread(folder, woken.set)
    thread.do(PrepareCheckpoint(1, 0))
    (tmp_path / JOURNAL).write_bytes(b"one\ntwo\n")
    thread.do(manifest(1))
    assert list(thread.outcomes()) == []
    folder.answers.set()
    assert woken.wait(LIMIT_S)
    thread.close(LIMIT_S)
    assert list(thread.outcomes()) == [Outcome(PrepareCheckpoint(1, 0)), Outcome(manifest(1))]
    assert folder.read(1).n_journal_byte == len(b"one\n")
    folder.answers.clear()
    other = CheckpointThread(folder, woken.set)
    other.do(PrepareCheckpoint(2, 0))
    other.close(patience_s=0.01)
    folder.answers.set()
