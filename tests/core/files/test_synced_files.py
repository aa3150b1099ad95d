"""What a job must find after a power failure is on the disk before anyone relies on it."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from dlrover_nb.core.backends.local.record import write_private
from dlrover_nb.core.data.objects.stored import store_rows
from dlrover_nb.core.disk import files
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.own.write_ahead_log import Entry, WriteAheadLog
from dlrover_nb.core.models.metrics import evaluate
from dlrover_nb.core.rundir.external_state import StateFile
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG, JobFile, write_job
from dlrover_nb.core.rundir.journal import JOURNAL, Journal, compress
from dlrover_nb.core.rundir.log_file import WriteAheadLogFile
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.events import Decided, Ticked
from dlrover_nb.core.usercode import Packed

DECIDED = Decided(1.0, Decision(Verdict.MODE, "ada", 1.0, mode=Mode.AUTO))


class Disk:
    """Knows how much of each file is on the disk, and whether a name came before its content."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_disk: dict[int, int] = {}
        self.n_name = 0
        sync, replace = os.fdatasync, Path.replace

        def synced(file: int) -> None:
            sync(file)
            state = os.fstat(file)
            self.on_disk[state.st_ino] = state.st_size

        def named(path: Path, target: Path) -> Path:
            assert self.holds(path), f"{target} gets its name before its content is on the disk"
            self.n_name += 1
            return replace(path, target)

        monkeypatch.setattr(os, "fdatasync", synced)
        monkeypatch.setattr(Path, "replace", named)

    def holds(self, path: Path) -> bool:
        """Whether all of a file is on the disk."""
        state = path.stat()
        return self.on_disk.get(state.st_ino) == state.st_size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def _begin_log(folder: Path) -> None:
    log = WriteAheadLogFile(folder)
    log.begin(Entry(None))
    log.close()


def _begin_segment(folder: Path) -> None:
    journal = Journal(folder)
    journal.append(Ticked(1.0))
    journal.begin_segment(b"state")
    journal.close()


def _compress(folder: Path) -> None:
    journal = Journal(folder)
    journal.append(Ticked(1.0))
    journal.close()
    compress(folder)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: files.write(folder / "a", "text"),
        lambda folder: write_job(
            folder, JobFile(JobSpec("a"), FeatureSpec("label", (), (), 1, 0), 0.0, "", "", "")
        ),
        _begin_log,
        _begin_segment,
        _compress,
        lambda folder: write_private(folder / "a.json", b"{}"),
        lambda folder: Packed("pickle:" + 64 * "0", b"code").write(folder),
        lambda folder: StateFile(folder).save("any"),
    ],
)
def test_a_file_gets_its_name_when_its_content_is_on_the_disk(disk: Disk, tmp_path: Path, write) -> None:
    write(tmp_path)
    assert disk.n_name == 1


def test_rows_from_memory_are_on_the_disk_before_a_job_names_them(disk: Disk, tmp_path: Path) -> None:
    assert disk.holds(Path(store_rows(pd.DataFrame({"a": [1, 2]}), tmp_path)))


def test_a_state_that_others_act_on_is_on_the_disk_and_what_ends_with_the_nodes_is_not_waited_for(
    disk: Disk, tmp_path: Path
) -> None:
    features, capacity = FeatureSpec("label", (), (), 1000, 0), Capacity((NodeShape(8.0, 32_000),))
    master = JobMaster(JobSpec("a"), features, capacity, folder=str(tmp_path), evaluate=evaluate)
    log, file = WriteAheadLog(master), WriteAheadLogFile(tmp_path)
    file.begin(log.first())
    orders = master.start(1.0)
    entry = log.entry(orders)
    assert entry is not None
    assert entry.state is not None
    file.append(entry)
    assert disk.holds(tmp_path / WRITE_AHEAD_LOG)
    file.append(Entry(None, changes=(b"granted", b"")))
    assert not disk.holds(tmp_path / WRITE_AHEAD_LOG)
    file.close()


def test_a_decision_is_on_the_disk_before_it_is_carried_out(disk: Disk, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(Ticked(0.5))
    assert not disk.holds(tmp_path / JOURNAL)
    journal.append(DECIDED)
    assert disk.holds(tmp_path / JOURNAL)
    journal.close()
