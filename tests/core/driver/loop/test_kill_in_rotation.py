"""A master is killed while it begins another segment of its journal; the next one goes on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import succeeded

from dlrover_nb.core.rundir import journal
from dlrover_nb.core.rundir.journal import Segment, read_snapshot, segments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.driver.driver_world import DriverWorld

MOMENTS = {
    "half written": [1, 2],
    "before its name": [1, 2],
    "before its events": [1, 2, 3],
    "before the old one goes": [1, 2, 3],
    "while the old one goes": [1, 2, 3],
}


class Killed(BaseException):
    """The end of a master, which nothing in it can handle."""


@pytest.fixture
def killed(play: Callable[..., DriverWorld], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], DriverWorld]:
    """Let a master train until it is killed at a moment of its third segment."""
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 3_000)  # two or three seconds of this job
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)
    put, delete = journal.replace_synced, Segment.delete

    def begin(moment: str) -> DriverWorld:
        job = play(n_epoch=10)

        def die() -> None:
            job.cut_off()
            raise Killed

        def replace(temporary: Path, path: Path) -> None:
            is_third = path.name == "journal-000003.snapshot"
            if is_third and moment == "half written":
                os.truncate(temporary, temporary.stat().st_size // 2)
            if is_third and moment in ("half written", "before its name"):
                die()
            put(temporary, path)
            if is_third and moment == "before its events":
                die()

        def deleted(segment: Segment) -> None:
            if segment.number == 1 and moment == "before the old one goes":
                die()
            if segment.number == 1 and moment == "while the old one goes":
                segment.snapshot.unlink()
                die()
            delete(segment)

        with monkeypatch.context() as patch:
            patch.setattr(journal, "replace_synced", replace)
            patch.setattr(Segment, "delete", deleted)
            with pytest.raises(Killed):
                job.until_end()
        job.crash()
        return job

    return begin


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_next_master_knows_all_whenever_this_one_was_killed(
    killed: Callable[[str], DriverWorld], moment: str
) -> None:
    job = killed(moment)
    before, kept = job.last_seen, segments(job.folder)
    assert [segment.number for segment in kept] == MOMENTS[moment]
    if moment != "while the old one goes":
        assert all(read_snapshot(segment.snapshot) for segment in kept)
    job.come_back()
    after = job.now
    assert tuple(after.story[: len(before.story)]) == tuple(before.story)
    assert after.decisions == before.decisions
    assert {node.id for node in after.nodes} == {node.id for node in before.nodes}
    assert sum("submitted by" in line for line in after.story) == 1
    assert not list(job.folder.glob("journal*.new"))
    succeeded(job)
