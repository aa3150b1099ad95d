"""A real master is killed with -9 while it begins another segment of its journal; the next one goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from real_job import LIMIT_S
from test_driver_resume import Comeback, pids

from dlrover_nb.core.rundir.journal import read_snapshot, segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.features import FeatureSpec

SEGMENT = 3_000  # bytes, two or three seconds of this job
KILL = """
import os
from dlrover_nb.core.rundir import journal

journal.SEGMENT_BYTES, journal.EVENT_SHARE = %d, 0
moment, put, write, delete = "%s", journal.replace_synced, os.open, journal.Segment.delete

def die():
    os.kill(os.getpid(), 9)

def replace(temporary, path):
    is_third = path.name == "journal-000003.snapshot"
    if is_third and moment == "half written":
        os.truncate(temporary, os.path.getsize(temporary) // 2)
    if is_third and moment in ("half written", "before its name"):
        die()
    put(temporary, path)
    if is_third and moment == "before its events":
        die()

def deleted(segment):
    if segment.number == 1 and moment == "before the old one goes":
        die()
    if segment.number == 1 and moment == "while the old one goes":
        segment.snapshot.unlink()
        die()
    delete(segment)

journal.replace_synced, journal.Segment.delete = replace, deleted
"""
MOMENTS = {
    "half written": [1, 2],
    "before its name": [1, 2],
    "before its events": [1, 2, 3],
    "before the old one goes": [1, 2, 3],
    "while the old one goes": [1, 2, 3],
}


@pytest.fixture
def killed(tmp_path: Path, features: FeatureSpec) -> Iterator[Callable[[str], Comeback]]:
    jobs = []

    def begin(moment: str) -> Comeback:
        jobs.append(Comeback(tmp_path, features, "ipc", before=KILL % (SEGMENT, moment), n_epoch=20))
        assert jobs[-1].master.wait(LIMIT_S) == -9
        return jobs[-1]

    yield begin
    for job in jobs:
        job.end()


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_next_master_knows_all_whenever_this_one_was_killed(
    killed: Callable[[str], Comeback], moment: str
) -> None:
    job = killed(moment)
    before, kept = job.now, segments(job.folder)
    assert [segment.number for segment in kept] == MOMENTS[moment]
    if moment != "while the old one goes":
        assert all(read_snapshot(segment.snapshot) for segment in kept)
    job.come_back()
    after = job.now
    assert tuple(after.story[: len(before.story)]) == tuple(before.story)
    assert after.decisions == before.decisions
    assert pids(after) == pids(before)
    assert sum("submitted by" in line for line in after.story) == 1
    assert not list(job.folder.glob("journal*.new"))
    job.until(lambda now: now.train.n_sample_done > before.train.n_sample_done + 2_000)
