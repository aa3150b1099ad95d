"""A real job whose checkpoints lie on a real disk that is full, freed, read-only and writable again."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, plan
from support.waiting import until

from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST, CheckpointFolder
from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZE_MIB = 9


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small disk."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0700", "tmpfs", path)
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk of its own can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(("umount", "--lazy", path), check=True)


def remounted(disk: Path, how: str) -> bool:
    """Mount it in another way; whether that was possible, as a file that is written to keeps it writable."""
    done = subprocess.run(("mount", "-o", f"remount,{how}", disk), check=False, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def written(disk: Path) -> set[int]:
    return {int(path.parent.name) for path in disk.glob(f"run/*/{MANIFEST}")}


@pytest.mark.more
def test_a_full_and_a_read_only_disk_cost_no_training_and_later_checkpoints_succeed(
    start: Callable[..., Job], disk: Path
) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes((SIZE_MIB << 20) - (512 << 10)))
    job = start(plan=plan(1, 3, ps_cpu=0.3), n_epoch=1000, checkpoint_every_s=0.5, checkpoint_url=str(disk))
    job.until(lambda _now: job.story_has("checkpoint 2 could not be written"))
    assert not job.story_has("was lost")
    filler.unlink()
    job.until(lambda _now: written(disk))
    job.until(lambda _now: job.story_has("was written, after"))
    until(lambda: remounted(disk, "ro"), what="a moment at which no file is open for writing")
    n_trained = job.now.train.n_sample_done
    job.until(lambda _now: job.story_has("could not be written", "Read-only file system"))
    job.until(lambda now: now.train.n_sample_done > n_trained)
    last_good = max(written(disk))
    assert remounted(disk, "rw")
    job.until(lambda _now: max(written(disk)) > last_good)
    job.driver.stop("ada", "enough")
    end = job.until_end()
    assert (end.phase, end.message) == (JobPhase.STOPPED, "stopped by ada: enough")
    newest = CheckpointFolder(job.folder, str(disk)).latest()
    assert newest is not None
    assert newest.number == max(written(disk))
    until(lambda: {int(path.name) for path in (disk / "run").iterdir()} == written(disk))
