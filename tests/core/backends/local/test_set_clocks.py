"""Real masters and nodes whose wall clock is set while they run, and between one master and the next."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.conformance.cluster import PLAN
from support.driver.kill_master import kill_for_good
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.local.record import read_master
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_S, DAY_S = 3600.0, 86_400.0
SOURCE = Path(__file__).with_name("set_clock.c")


class WallClock:
    """The wall clock of the processes that are started from now on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        library, self._file = folder / "set_clock.so", folder / "step"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
        self.set(0.0)
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("SET_CLOCK_FILE", str(self._file))

    def set(self, step_s: float) -> None:
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("d", step_s))  # in place: processes have it mapped


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(tmp_path, monkeypatch)


@pytest.fixture
def local(own_home: Path) -> Iterator[object]:
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


def test_the_clock_of_other_processes_is_set_and_their_monotonic_one_is_not(wall: WallClock) -> None:
    wall.set(-HOUR_S)
    told = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"],
        capture_output=True,
        text=True,
        check=True,
    )
    wall_s, up_s = map(float, told.stdout.split())
    assert time.time() - wall_s > HOUR_S - 1
    assert up_s <= time.monotonic()


@pytest.mark.release_variants("60.0")
@pytest.mark.more
@pytest.mark.parametrize("step_s", [-60.0, 60.0])
def test_nodes_with_another_clock_are_seen_to_train(local, wall, monkeypatch, step_s: float) -> None:
    monkeypatch.setenv("SET_CLOCK_ONLY", "core.runtime.node")
    wall.set(step_s)
    began_s = time.time()
    handle = local.submit(
        JobSpec("skewed", plan=PLAN, mode=Mode.MANUAL, n_epoch=1000, heartbeat_timeout_s=LIMIT_S)
    )
    now = until(lambda: (now := handle.snapshot()).samples_per_s > 0 and now, what="throughput")
    assert all(now.started_at_s <= node.last.at_s <= now.at_s for node in now.nodes if node.last)
    lines = until(lambda: handle.logs("worker-0"), what="its log")
    ended_s = time.time()
    assert all(began_s + step_s - 1 <= line.at_s <= ended_s + step_s for line in lines)  # by its own clock


@pytest.mark.release
def test_a_job_goes_on_whatever_its_masters_clock_is_set_to(local, wall) -> None:
    began_s = time.monotonic()
    spec = JobSpec(
        "steps",
        plan=PLAN,
        mode=Mode.MANUAL,
        n_epoch=1000,
        checkpoint_every_s=1.0,
        heartbeat_timeout_s=LIMIT_S,
    )
    handle = local.submit(spec)
    folder = handle.link.folder

    def newest() -> int:
        return max((int(p.parent.name) for p in folder.glob("checkpoints/*/manifest.json")), default=0)

    def goes_on(after: int) -> bool:
        return handle.snapshot().samples_per_s > 0 and newest() > after  # a call starts a killed master

    until(lambda: goes_on(0), what="the first checkpoint")
    before = handle.snapshot()
    for step_s in (DAY_S, -HOUR_S):
        wall.set(step_s)  # while it runs
        known = newest()
        until(lambda known=known: goes_on(known), what="a checkpoint")
    for step_s in (-2 * HOUR_S, DAY_S):
        known, master = newest(), kill_for_good(folder)
        wall.set(step_s)  # between two masters
        until(lambda known=known: goes_on(known), what="a checkpoint")
        assert read_master(folder).pid != master.pid
    now = handle.snapshot()
    assert {node.id: node.pid for node in now.nodes} == {node.id: node.pid for node in before.nodes}
    assert now.started_at_s == before.started_at_s
    assert before.at_s < now.at_s <= now.started_at_s + time.monotonic() - began_s
    assert not any("was lost" in line for line in now.story), now.story
