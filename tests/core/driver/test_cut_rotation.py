"""A master is lost at each step of beginning another segment of its journal: the next one knows all that it knew."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from test_journal_segments import Life, after_kill, opened, outcome, seen

from dlrover_nb.core.rundir import journal
from dlrover_nb.core.rundir.journal import read_snapshot, segments
from dlrover_nb.core.structs.events import Scale
from dlrover_nb.core.structs.job import Mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.structs.events import Event

SEGMENT = 3_000  # bytes, a few seconds of a life
MOMENTS = {
    "half written": [1, 2],
    "before its name": [1, 2],
    "before its events": [1, 2, 3],
    "before the old one goes": [1, 2, 3],
    "while the old one goes": [1, 2, 3],
}


class LostError(BaseException):
    """The master is gone: none of its code handles that."""


@pytest.fixture
def lose_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a master be lost at a moment of beginning its third segment."""
    put, delete = journal.replace_synced, journal.Segment.delete

    def lose(moment: str) -> None:
        def named(temporary: Path, path: Path) -> None:
            is_third = path.name == "journal-000003.snapshot"
            if is_third and moment == "half written":
                os.truncate(temporary, temporary.stat().st_size // 2)
            if is_third and moment in {"half written", "before its name"}:
                raise LostError
            put(temporary, path)
            if is_third and moment == "before its events":
                raise LostError

        def deleted(segment: journal.Segment) -> None:
            is_old = segment.number == 1
            if is_old and moment == "while the old one goes":
                segment.snapshot.unlink()
            if is_old and moment.endswith("the old one goes"):
                raise LostError
            delete(segment)

        monkeypatch.setattr(journal, "replace_synced", named)
        monkeypatch.setattr(journal.Segment, "delete", deleted)

    def restore() -> None:
        monkeypatch.setattr(journal, "replace_synced", put)
        monkeypatch.setattr(journal.Segment, "delete", delete)

    lose.restore = restore  # type: ignore[attr-defined]  # of the function that tests call
    return lose


@pytest.mark.more
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_next_master_knows_all_whenever_this_one_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose_at: Callable[[str], None], moment: str
) -> None:
    life, steady = Life(7, Mode.SUGGEST), opened(tmp_path / "a")
    monkeypatch.setattr(journal, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)
    killed = [opened(tmp_path / "b")]
    lose_at(moment)

    def emit(event: Event) -> None:
        orders = outcome(steady, event)
        try:
            assert outcome(killed[-1], event) == orders
        except LostError:
            lose_at.restore()  # type: ignore[attr-defined]  # as above
            kept = segments(tmp_path / "b")
            assert [segment.number for segment in kept] == MOMENTS[moment]
            whole = kept[1:] if moment == "while the old one goes" else kept
            assert all(read_snapshot(segment.snapshot) for segment in whole)
            killed.append(after_kill(killed[-1], tmp_path / "b", is_damaged=False))
            assert seen(killed[-1]) == seen(steady)
            assert not list((tmp_path / "b").glob("journal*.new"))
        for order in orders if isinstance(orders, tuple) else ():
            if isinstance(order, Scale):
                emit(life.obey(order))

    for event in life.start():
        emit(event)
    for _ in range(20):
        for event in life.second():
            emit(event)
    assert len(killed) == 2, "it was lost once"
    assert seen(killed[-1]) == seen(steady)
    for each in (steady, killed[-1]):
        each.close()
