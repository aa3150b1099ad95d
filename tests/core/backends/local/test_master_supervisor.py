"""A killed master is started again without a client: the rule in virtual time, and real processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.driver.noted_rows import N_TRAIN, Numbered, noting_model, rows_in
from support.virtual_time import VirtualTime, as_shipped
from support.waiting import until

from dlrover_nb.core.alerts import RESTART_TOLD_S, JobMemory, findings
from dlrover_nb.core.backends.local import cluster as local_cluster
from dlrover_nb.core.backends.local import master_supervisor
from dlrover_nb.core.backends.local.master_supervisor import DAMAGED, PAUSES_S, TERMINATED
from dlrover_nb.core.backends.local.record import (
    END,
    MASTER,
    end_supervisor,
    read_end,
    read_master,
    read_supervisor,
)
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.alerts import DEFAULT_RULES, AlertKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLED = -signal.SIGKILL
NIGHT_S = 3 * 3600.0
FIRST = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
while len(sys.argv) > 2 and not (folder / "was read").exists():
    time.sleep(.01)
(folder / "words").write_text(" ".join(sys.argv[2:]))
(folder / "new").write_text(str(os.getpid()))
(folder / "new").rename(folder / "master.json")
if len(sys.argv) == 2:
    os.kill(os.getpid(), signal.SIGKILL)
(folder / "end.bin").touch()
"""
DYING = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
(folder / "new").write_text(str(os.getpid()))
(folder / "new").rename(folder / "master.json")
os.kill(os.getpid(), signal.SIGKILL)
"""
LASTING = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
(folder / "new").write_text(str(os.getpid()))
(folder / "new").rename(folder / "master.json")
signal.pause()
"""


class Night:
    """A supervisor in virtual time, whose masters are played: each lives for so long, and ends with a code."""

    def __init__(self, folder: Path, life_s: float, code: int = KILLED, *, begins: bool = True) -> None:
        self.time = VirtualTime()
        self.module = as_shipped(master_supervisor.__name__, self.time)
        self.folder, self._life_s, self._code, self._begins = folder, life_s, code, begins
        self.n_begun, self.words = 0, list[str]()
        self.module._run = self._run
        (folder / END).unlink(missing_ok=True)
        (folder / MASTER).write_text("the first")

    def _run(self, folder: Path, command: list[str], *on_begun: Callable[[], None]) -> object:
        self.n_begun += 1
        if self._begins:
            (folder / MASTER).write_text(f"{command}")
            for call in on_begun:
                call()
        self.time.advance(self._life_s)
        return self.module.Ended(self._code, self.time.now_s(), (folder / MASTER).exists())

    def pass_by(self) -> None:
        """Let the supervisor work until the job ends, after some hours, or it leaves by itself."""
        self.time.at(NIGHT_S, (self.folder / END).touch)
        self.module.supervise(self.folder, ["master"], lambda step: self.words.append(step.words))

    @property
    def lasts(self) -> bool:
        """Whether it still was there in the morning."""
        return self.time.now_s() >= NIGHT_S


@settings(max_examples=20)
@given(life_s=st.floats(min_value=30.0, max_value=NIGHT_S))
def test_masters_that_live_half_a_minute_are_started_again_all_night(
    tmp_path_factory: pytest.TempPathFactory, life_s: float
) -> None:
    night = Night(tmp_path_factory.mktemp("night"), life_s)
    night.pass_by()
    assert night.lasts
    assert night.n_begun * (life_s + max(PAUSES_S)) >= NIGHT_S - life_s


@settings(max_examples=20)
@given(
    life_s=st.floats(min_value=0.0, max_value=20.0),
    code=st.sampled_from([KILLED, 1, 127, -signal.SIGSEGV]),
    begins=st.booleans(),
)
def test_masters_that_die_at_once_are_given_up_and_it_is_said(
    tmp_path_factory: pytest.TempPathFactory, life_s: float, code: int, *, begins: bool
) -> None:
    night = Night(tmp_path_factory.mktemp("night"), life_s, code, begins=begins)
    night.pass_by()
    assert not night.lasts
    assert night.n_begun == 1 + len(PAUSES_S)
    assert f"restarted {len(PAUSES_S)} times" in night.words[-1]
    assert night.words[-1].endswith(master_supervisor.how_ended(code))


@pytest.mark.parametrize("code", [0, TERMINATED, -signal.SIGTERM])
def test_who_asked_the_master_to_end_gets_no_other(tmp_path: Path, code: int) -> None:
    night = Night(tmp_path, 100.0, code)
    night.pass_by()
    assert (night.n_begun, night.words[-1]) == (1, "")


def test_damaged_files_are_not_tried_again(tmp_path: Path, words) -> None:
    night = Night(tmp_path, 1.0, DAMAGED, begins=False)
    night.pass_by()
    assert night.n_begun == 1
    assert night.words[-1] == words


def test_a_job_that_never_began_is_left_to_the_client_that_submits_it(tmp_path: Path) -> None:
    night = Night(tmp_path, 1.0, KILLED, begins=False)
    (tmp_path / MASTER).unlink()
    night.pass_by()
    assert (night.n_begun, night.words[-1]) == (1, "")


def test_the_words_say_what_happened_and_when_it_goes_on(tmp_path: Path, words) -> None:
    night = Night(tmp_path, 3.0)
    night.time.at(6.5, (tmp_path / END).touch)
    night.pass_by()
    assert night.n_begun == 2
    assert night.words == [words, "", words]


@pytest.mark.parametrize("what", ["ended", "deleted", "a client's master"])
def test_what_clients_did_in_the_pause_is_respected(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    night = Night(folder, 3.0)

    def act() -> None:
        if what == "ended":
            (folder / END).touch()
        elif what == "deleted":
            shutil.rmtree(folder)
        else:
            (folder / "new").write_text("of a client")
            (folder / "new").replace(folder / MASTER)

    night.time.at(6.5, act)
    night.pass_by()
    assert night.n_begun == 2
    assert night.time.now_s() == 11.0


def supervisor_of(folder: Path, master: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", master_supervisor.__file__, str(folder)]
    return subprocess.Popen([*command, sys.executable, "-S", "-c", master, str(folder)])


def test_a_killed_process_is_started_again_with_the_reason_and_its_orderly_end_is_the_end(
    tmp_path: Path,
    words,
) -> None:
    with supervisor_of(tmp_path, FIRST) as supervisor:
        until(lambda: (note := read_supervisor(tmp_path)) and note.words, what="the end of the first")
        assert local_cluster._goes_on(tmp_path)
        text = local_cluster._why_without("ads", tmp_path)
        assert text.partition(" UTC: ")[2] == words
        (tmp_path / "was read").touch()
        until((tmp_path / END).exists, what="the second")
        assert not supervisor.wait()
    assert (tmp_path / "words").read_text() == words
    note = read_supervisor(tmp_path)
    assert note is not None
    assert (note.is_alive, note.words) == (False, "")
    assert not local_cluster._goes_on(tmp_path)


def test_a_supervisor_is_ended_with_the_master_that_it_runs(tmp_path: Path) -> None:
    with supervisor_of(tmp_path, LASTING) as supervisor:
        until((tmp_path / MASTER).exists, what="the master")
        master = int((tmp_path / MASTER).read_text())
        end_supervisor(tmp_path)
        supervisor.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(master, 0)


def test_a_killed_supervisor_promises_nothing(tmp_path: Path, words) -> None:
    with supervisor_of(tmp_path, DYING) as supervisor:
        until(lambda: (n := read_supervisor(tmp_path)) and re.search(r" in \d+ s$", n.words), what="a pause")
        supervisor.kill()
    assert not local_cluster._goes_on(tmp_path)
    assert local_cluster._why_without("ads", tmp_path) == words


# a real job


@pytest.fixture(scope="module")
def local(own_home):
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


@pytest.mark.more
def test_a_job_whose_master_is_killed_goes_on_without_any_client_and_trains_every_row_once(
    local, tmp_path, words
):
    notes, gate = tmp_path / "rows", tmp_path / "gate"
    spec = JobSpec(
        "night",
        plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.4, 256)),
        mode=Mode.MANUAL,
        model=ModelSpec(embedding_dim=4, hash_size=1 << 10),
        batch_size=20,
        shard_batches=10,
    )
    slow = noting_model(str(notes), gate=str(gate), slow_s=0.1)
    handle = local.submit(spec, model=slow, data=Numbered)
    folder = handle.link.folder
    until(lambda: handle.snapshot().train.n_sample_done > 400, what="training")
    killed = read_master(folder)
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: (now := read_master(folder)).pid != killed.pid and now.is_alive, what="another master")
    gate.touch()
    end = until(lambda: read_end(folder), what="the end of the job, without a call")
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == N_TRAIN
    assert rows_in(notes, folder) == Counter(range(N_TRAIN))
    assert end.restart.how_ended == words
    assert any(end.restart.words in line for line in end.story)
    running = replace(end, phase=JobPhase.TRAINING)
    (alert,) = (each for each in findings(running, JobMemory(), DEFAULT_RULES) if each.is_bad)
    assert (alert.kind, alert.text) == (AlertKind.MASTER_RESTARTED, end.restart.words)
    later = replace(running, at_s=end.restart.at_s + RESTART_TOLD_S)
    assert not any(f.is_bad for f in findings(later, JobMemory(), DEFAULT_RULES) if f.kind is alert.kind)
