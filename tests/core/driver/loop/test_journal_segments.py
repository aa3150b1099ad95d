"""A master that restarts from a snapshot and its tail is the master that replays everything, or never stopped."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.driver.recorded_life import SMALL, Life, outcome

from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.rundir import journal
from dlrover_nb.core.rundir.journal import JOURNAL, segments
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import Decided, Event, Scale, Ticked

if TYPE_CHECKING:
    from pathlib import Path


def opened(folder: Path) -> RecordedController:
    folder.mkdir(exist_ok=True)
    return RecordedController("long", folder, f"sqlite:///{folder / 'history.db'}")


def seen(recorded: RecordedController) -> tuple:
    """Return all that views read of a job, and what may still be decided."""
    controller = recorded.controller
    return controller.view(), controller.story(), controller.under_way, controller.queries().context


def fresh(folder: Path) -> Path:
    """Return a folder that is not there yet."""
    return next(path for i in count() if not (path := folder / str(i)).exists())


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def after_kill(killed: RecordedController, folder: Path, *, is_damaged: bool) -> RecordedController:
    """Return the controller of the master after one that was killed, perhaps with its disk damaged."""
    if is_damaged and (newest := segments(folder)[-1].snapshot).exists():
        damage(newest)
    killed.close()  # as the system does: what was flushed is in the file
    recorded = opened(folder)
    recorded.replay()
    return recorded


def same_history(*folders: Path) -> None:
    a, b = stores = [HistoryStore(f"sqlite:///{folder / 'history.db'}") for folder in folders]
    for kind in ("decisions", "proposals", "outcomes", "fits", "series"):
        assert getattr(a, kind)("long") == getattr(b, kind)("long"), kind
    for store in stores:
        store.close()


@pytest.mark.release
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a life takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(Mode),
    kills=st.sets(st.integers(0, 29), max_size=5),
    is_damaged=st.booleans(),
)
def test_a_restart_from_snapshot_and_tail_equals_a_full_replay_and_no_restart(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    mode: Mode,
    kills: set[int],
    *,
    is_damaged: bool,
) -> None:
    root = fresh(tmp_path)
    root.mkdir()
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)
    life, steady = Life(seed, mode), opened(root / "a")
    monkeypatch.setattr(journal, "SEGMENT_BYTES", SMALL)
    killed = opened(root / "b")

    def both(event: Event) -> None:
        monkeypatch.setattr(journal, "SEGMENT_BYTES", 1 << 30)
        orders = outcome(steady, event)
        monkeypatch.setattr(journal, "SEGMENT_BYTES", SMALL)
        assert outcome(killed, event) == orders
        for order in orders if isinstance(orders, tuple) else ():
            if isinstance(order, Scale):
                both(life.obey(order))

    for event in life.start():
        both(event)
    for second in range(30):
        for event in life.second():
            both(event)
        if second in kills:
            killed = after_kill(killed, root / "b", is_damaged=is_damaged)
            assert seen(killed) == seen(steady)
    replayed = opened(root / "a")
    replayed.replay()
    assert seen(replayed) == seen(steady) == seen(killed)
    for each in (steady, killed, replayed):
        each.close()
    n_kept = len(segments(root / "b"))
    assert n_kept >= 2
    assert n_kept <= 3 or is_damaged  # all since the one that a restart began with
    same_history(root / "a", root / "b")


def submitted(folder: Path, **fields: object) -> RecordedController:
    recorded = opened(folder)
    life = Life(0, Mode.MANUAL)
    for event in [replace(life.first, spec=replace(life.first.spec, **fields)), *life.start()[1:]]:
        recorded.emit(event)
    return recorded


def test_a_master_that_continues_a_job_knows_its_secrets(tmp_path: Path) -> None:
    secret = "hunter2-of-the-bucket"
    first = submitted(tmp_path, checkpoint_url=f"https://ada:{secret}@store.example/models")
    first.emit(Ticked(1000.0))
    first.close()
    second = opened(tmp_path)
    second.replay()
    why = f"it said {secret}"
    second.emit(Decided(1001.0, Decision(Verdict.MODE, "ada", 1001.0, mode=Mode.SUGGEST, why=why)))
    second.close()
    store = HistoryStore(f"sqlite:///{tmp_path / 'history.db'}")
    (decision,) = store.decisions("long")
    store.close()
    assert decision.why == "it said ***redacted***"


def test_what_cannot_follow_from_damaged_lines_is_left_out_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words
) -> None:
    first = submitted(tmp_path)
    first.emit(Decided(1.0, Decision(Verdict.MODE, "ada", 1.0, mode=Mode.AUTO)))
    first.emit(Decided(2.0, Decision(Verdict.MODE, "bea", 2.0, mode=Mode.MANUAL)))
    first.emit(Decided(3.0, Decision(Verdict.MODE, "cyd", 3.0, mode=Mode.SUGGEST)))
    first.close()
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join([*lines[:3], b"\xff\n", *lines[4:]]))
    with caplog.at_level(logging.WARNING):
        second = opened(tmp_path)
        second.replay()
    assert [decision.by for decision in second.controller.view().decisions] == ["cyd"]
    assert caplog.messages[-1] == words
    second.close()


def test_a_journal_without_a_readable_beginning_lets_the_job_begin_its_records_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(journal, "SEGMENT_BYTES", 1)
        short.setattr(journal, "EVENT_SHARE", 0)
        first = submitted(tmp_path)
        for second in range(3):
            first.emit(Ticked(1000.0 + second))
        first.close()
    assert segments(tmp_path)[0].number > 0
    for segment in segments(tmp_path):
        damage(segment.snapshot)
    second = opened(tmp_path)
    second.replay()
    assert not second.is_submitted
    life = Life(0, Mode.AUTO)
    for event in [*life.start(), *life.second()]:
        second.emit(event)
    second.close()
    third = opened(tmp_path)
    third.replay()
    assert seen(third) == seen(second)
    third.close()


def test_a_policy_that_no_snapshot_can_hold_costs_room_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, words
) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", SMALL)
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)
    recorded = submitted(tmp_path)
    recorded.controller._advisor._unexplained = open
    life = Life(0, Mode.MANUAL)
    for _ in range(40):
        for event in life.second():
            outcome(recorded, event)
    assert [segment.number for segment in segments(tmp_path)] == [0]
    (message,) = set(caplog.messages)
    assert message == words
    recorded.close()
    again = opened(tmp_path)
    again.replay()
    assert seen(again) == seen(recorded)
    again.close()
