"""A process is recognized by its id and start time, whatever the machine's clock is set to meanwhile."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from dlrover_nb.core.driver.detached import has_started_at, has_started_since, is_alive, start_time

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_S = 3600.0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("step_s", [-HOUR_S, 24 * HOUR_S])
def test_a_set_clock_makes_no_other_process_of_a_living_one(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    started_s, boot_s = start_time(sleeper.pid), psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot_s + step_s)  # as the kernel has it then
    assert start_time(sleeper.pid) == started_s
    assert is_alive(sleeper.pid, started_s)
    assert has_started_since(sleeper.pid, started_s)


def test_another_start_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    started_s = start_time(sleeper.pid)
    assert not has_started_at(sleeper.pid, started_s - 1.0)
    assert not has_started_since(sleeper.pid, started_s + 1.0)


def test_records_of_release_0_1_hold_dates_and_are_understood(sleeper: subprocess.Popen[bytes]) -> None:
    date_s = psutil.Process(sleeper.pid).create_time()
    assert is_alive(sleeper.pid, date_s)
    assert has_started_since(sleeper.pid, date_s)
    assert not is_alive(sleeper.pid, date_s - 99)


def test_an_ended_process_has_no_start(sleeper: subprocess.Popen[bytes]) -> None:
    started_s = start_time(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert not is_alive(sleeper.pid, started_s)
    with pytest.raises(psutil.NoSuchProcess):
        start_time(sleeper.pid)
