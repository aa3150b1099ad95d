"""A master that restarts from a snapshot and its tail is the master that replays everything, or never stopped."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.rundir import journal
from dlrover_nb.core.rundir.journal import JOURNAL, segments
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import (
    Decided,
    Event,
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    Scale,
    Ticked,
)

if TYPE_CHECKING:
    from pathlib import Path

PLAN = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.5, 512))
SMALL = 6_000  # bytes of a segment, some ten events


class Life:
    """Events of a job that does what it is ordered, with users and losses drawn by chance."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.draw, self.plan, self.at_s, self.n_done = random.Random(seed), PLAN, 0.0, 0
        spec = JobSpec("long", owner="ada", plan=PLAN, mode=mode)
        self.first = JobSubmitted(0.0, spec, Capacity((NodeShape(4.0, 16_000),)), 10**8, 100_000, 16)

    def start(self) -> list[Event]:
        return [self.first, PhaseChanged(0.0, JobPhase.TRAINING), PlanApplied(0.0, PLAN, 0.0)]

    def second(self) -> list[Event]:
        """Return the events of one second, before any that follow from orders."""
        self.at_s += 1.0
        self.n_done += 1000
        reports = [self._report(node) for node in self._nodes()]
        other: list[Event] = [self._other()] if self.draw.random() < 0.2 else []
        return [ProgressMade(self.at_s, self.n_done), *reports, *other, Ticked(self.at_s)]

    def obey(self, order: Scale) -> Event:
        self.at_s += 0.5
        if self.draw.random() < 0.2:
            return PlanFailed(self.at_s, order.target, "no room")
        self.plan = order.target
        return PlanApplied(self.at_s, order.target, 0.5)

    def _nodes(self) -> list[tuple[str, Role]]:
        workers = [(f"worker-{i}", Role.WORKER) for i in range(self.plan.worker.count)]
        return workers + [(f"ps-{i}", Role.PS) for i in range(self.plan.ps.count)]

    def _report(self, node: tuple[str, Role]) -> Event:
        name, role = node
        n_sample = int(1000 * self.draw.uniform(0.97, 1.03)) if role is Role.WORKER else 0
        mib = 300 + self.at_s
        sample = NodeSample(name, role, self.at_s, 1.0, 20, n_sample, 0.05, TimeSplit(), 0.5, mib)
        return NodeReported(self.at_s, sample, self.plan)

    def _other(self) -> Event:
        if self.draw.random() < 0.2:
            return NodeOutOfMemory(self.at_s, "ps-0", Role.PS, 500.0)
        plan = replace(self.plan, worker=replace(self.plan.worker, count=self.draw.randint(1, 4)))
        fields = self.draw.choice(
            [
                {"verdict": Verdict.SCALE, "plan": plan},
                {"verdict": Verdict.MODE, "mode": self.draw.choice(list(Mode))},
                {"verdict": Verdict.ACCEPT, "proposal": f"p{self.draw.randint(1, 3)}"},
                {"verdict": Verdict.REJECT, "proposal": f"p{self.draw.randint(1, 3)}"},
            ]
        )
        return Decided(self.at_s, Decision(by="ada", at_s=self.at_s, **fields))


def opened(folder: Path) -> RecordedController:
    folder.mkdir(exist_ok=True)
    return RecordedController("long", folder, f"sqlite:///{folder / 'history.db'}")


def outcome(controller: RecordedController, event: Event) -> object:
    try:
        return controller.emit(event)
    except DlroverError as error:
        return str(error)


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
    killed._journal.close()  # as the system does: what was flushed is in the file
    killed._memory.close()
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
    life, steady, killed = Life(seed, mode), opened(root / "a"), opened(root / "b")

    def both(event: Event) -> None:
        monkeypatch.setattr(journal, "SEGMENT_BYTES", 1 << 30)
        orders = outcome(steady, event)
        monkeypatch.setattr(journal, "SEGMENT_BYTES", SMALL)
        assert outcome(killed, event) == orders
        for order in orders if isinstance(orders, tuple) else ():
            if isinstance(order, Scale):
                both(life.obey(order))

    killed._journal._due_byte = SMALL
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
    first._journal.close()
    first._memory.close()
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = submitted(tmp_path)
    first.emit(Decided(1.0, Decision(Verdict.MODE, "ada", 1.0, mode=Mode.AUTO)))
    first.emit(Decided(2.0, Decision(Verdict.MODE, "bea", 2.0, mode=Mode.MANUAL)))
    first.emit(Decided(3.0, Decision(Verdict.MODE, "cyd", 3.0, mode=Mode.SUGGEST)))
    first._journal.close()
    first._memory.close()
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join([*lines[:3], b"\xff\n", *lines[4:]]))
    with caplog.at_level(logging.WARNING):
        second = opened(tmp_path)
        second.replay()
    assert [decision.by for decision in second.controller.view().decisions] == ["cyd"]
    assert "Decided at 2.0 is left out" in caplog.text
    second.close()


def test_a_journal_without_a_readable_beginning_lets_the_job_begin_its_records_anew(tmp_path: Path) -> None:
    first = submitted(tmp_path)
    for _ in range(3):
        first._begin_segment()
    first._journal.close()
    first._memory.close()
    for segment in segments(tmp_path):
        damage(segment.snapshot)
    second = opened(tmp_path)
    second.replay()
    assert not second.is_submitted
    life = Life(0, Mode.AUTO)
    for event in [*life.start(), *life.second()]:
        second.emit(event)
    second._journal.close()
    second._memory.close()
    third = opened(tmp_path)
    third.replay()
    assert seen(third) == seen(second)
    third.close()


def test_a_policy_that_no_snapshot_can_hold_costs_room_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    assert "cannot be kept over a restart" in caplog.text
    recorded._journal.close()
    recorded._memory.close()
    again = opened(tmp_path)
    again.replay()
    assert seen(again) == seen(recorded)
    again.close()
