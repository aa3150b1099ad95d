"""A supervised program and all that it starts end together, however they are ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest
from support.waiting import until

from dlrover_nb.core.backends.programs import supervisor

# Starts a program in a session of its own, as torchrun does, which no signal to its group reaches.
STARTER = """
import pathlib, subprocess, sys
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(str(left.pid))
"""
# It is deaf before its file can be seen.
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)" + STARTER + "left.wait()\n"


@pytest.fixture
def started(tmp_path):
    processes = []

    def start(how, *command, **options):
        python = [sys.executable, "-I", "-S", supervisor.__file__]
        processes.append(
            subprocess.Popen(
                [*python, str(tmp_path / "code"), how, *command], start_new_session=True, **options
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_its_exit_code_is_noted_as_a_shell_tells_it(started, tmp_path, script, code):
    assert started(supervisor.BY_ITSELF, "/bin/sh", "-c", script).wait() == code
    assert (tmp_path / "code").read_text() == str(code)


def left_by(process, tmp_path):
    pid = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the program")
    return psutil.Process(int(pid))


def test_what_a_program_leaves_ends_with_it(started, tmp_path):
    process = started(supervisor.BY_ITSELF, sys.executable, "-c", STARTER, str(tmp_path / "pid"))
    assert process.wait() == 0
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_all_end_with_the_process_that_holds_the_pipe(started, tmp_path):
    holder = subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE)
    process = started(
        supervisor.WHILE_STDIN, sys.executable, "-c", DEAF, str(tmp_path / "pid"), stdin=holder.stdout
    )
    left = left_by(process, tmp_path)
    holder.kill()
    holder.wait()
    assert process.wait() == supervisor.KILLED
    assert not left.is_running()
    assert not (tmp_path / "code").exists()
    holder.stdout.close()


@pytest.mark.more
def test_a_program_that_does_not_end_when_asked_is_ended_by_force(started, tmp_path):
    process = started(supervisor.BY_ITSELF, sys.executable, "-c", DEAF, str(tmp_path / "pid"))
    left = left_by(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == supervisor.KILLED
    assert not left.is_running()


def test_a_program_that_was_asked_may_save_first(started, tmp_path):
    saves = f"trap 'echo saved >{tmp_path / 'saved'}; exit 3' TERM; touch {tmp_path / 'pid'}; while :; do sleep 0.1; done"
    process = started(supervisor.BY_ITSELF, "/bin/sh", "-c", saves)
    until((tmp_path / "pid").exists, what="the program")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 3
    assert (tmp_path / "saved").read_text() == "saved\n"
