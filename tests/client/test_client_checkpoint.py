"""Checkpoints of programs of others: whole copies or none, whatever is killed when."""

import json
import logging
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from support.waiting import until

from dlrover_nb.client import checkpoint
from dlrover_nb.client.checkpoint import Head, Saver, read_head, write_copy
from dlrover_nb.client.memory import Memory
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, free_run, run_name, sweep_memory

MIB = 1 << 20


@pytest.fixture
def run(tmp_path):
    """The name of a run's memory, which is freed at the end."""
    name = run_name("client-test", tmp_path)
    yield name
    free_run(name)


def saver(tmp_path, run):
    return Saver(str(tmp_path / "files"), Memory(run, "worker-0.0.ab"))


def loaded(tmp_path, run):
    found = saver(tmp_path, run).load()
    return found and (found[1], found[0].step)


def files(tmp_path):
    return sorted((tmp_path / "files").iterdir())


def test_the_newest_is_loaded_from_memory_or_from_the_folder(tmp_path, run):
    assert loaded(tmp_path, run) is None
    one = saver(tmp_path, run)
    for step in range(1, 6):
        one.save(lambda step=step: bytes([step]) * MIB, step)
    one.wait()
    assert loaded(tmp_path, run) == (b"\5" * MIB, 5)
    assert [path.name for path in files(tmp_path)] == ["checkpoint-00000004.dlnb", "checkpoint-00000005.dlnb"]
    for path in files(tmp_path):
        path.unlink()
    assert loaded(tmp_path, run) == (b"\5" * MIB, 5), "the memory outlives the one that filled it"
    one.save(b"six", 6)
    one.wait()
    free_run(run)
    assert loaded(tmp_path, run) == (b"six", 6)


def test_what_was_saved_before_a_restart_is_older_though_its_step_is_higher(tmp_path, run):
    saver(tmp_path, run).save(b"old", 900)
    one = saver(tmp_path, run)
    one.save(b"new", 100)
    one.wait()
    assert loaded(tmp_path, run) == (b"new", 100)


@pytest.mark.parametrize("n_byte", [0, 10, 60, 200])
def test_a_copy_that_is_cut_is_not_used(tmp_path, run, n_byte, caplog):
    one = saver(tmp_path, run)
    one.save(b"1" * 300, 1)
    one.save(b"2" * 300, 2)
    one.wait()
    newest = [
        path for path in (*files(tmp_path), *map(Path, one._memory.places)) if read_head(path).step == 2
    ]
    assert len(newest) == 2
    for path in newest:
        os.truncate(path, n_byte)
    with caplog.at_level(logging.WARNING):
        assert loaded(tmp_path, run) == (b"1" * 300, 1)


def test_a_copy_with_another_byte_is_not_used(tmp_path):
    checkpoint.save(b"1" * 300, 1, folder=str(tmp_path / "files"))
    checkpoint.save(b"2" * 300, 2, folder=str(tmp_path / "files"))
    checkpoint.wait(folder=str(tmp_path / "files"))
    data = files(tmp_path)[1].read_bytes()
    files(tmp_path)[1].write_bytes(data[:-1] + b"3")
    assert checkpoint.load(folder=str(tmp_path / "files")) == (b"1" * 300, 1)


def test_without_room_in_memory_the_folder_is_enough(tmp_path, run, monkeypatch, caplog):
    def full(path):
        raise OSError(28, "No space left on device")

    one = saver(tmp_path, run)
    monkeypatch.setattr(one._memory, "open", full)
    with caplog.at_level(logging.WARNING):
        one.save(b"state", 7)
    one.wait()
    assert "not kept in memory" in caplog.text
    assert loaded(tmp_path, run) == (b"state", 7)


def test_a_folder_that_cannot_be_written_to_does_not_end_the_training(tmp_path, run, caplog):
    (tmp_path / "files").write_text("a file where the folder should be")
    one = saver(tmp_path, run)
    with caplog.at_level(logging.WARNING):
        one.save(b"state", 7)
        one.wait()
    assert "could not be written; the one before is kept" in caplog.text
    assert loaded(tmp_path, run) == (b"state", 7)


KILLED = """
import sys
from dlrover_nb.client.checkpoint import Saver
from dlrover_nb.client.memory import Memory
one = Saver(sys.argv[1], Memory(sys.argv[2], "worker-0.0.ab"))
step = 0
while True:
    step += 1
    one.save(step.to_bytes(4, "big") * (1 << 20), step)
    if step == 3:
        print("ready", flush=True)
"""


@pytest.mark.parametrize("delay", range(4))
def test_a_kill_at_any_moment_leaves_a_whole_one(tmp_path, run, delay):
    program = subprocess.Popen(
        (sys.executable, "-c", KILLED, str(tmp_path / "files"), run), stdout=subprocess.PIPE
    )
    program.stdout.readline()
    seen = len(files(tmp_path))
    for _ in range(delay):  # a few writes later, each at another moment of them
        before = files(tmp_path)
        until(lambda before=before: files(tmp_path) != before)
    program.send_signal(signal.SIGKILL)
    program.wait()
    program.stdout.close()
    assert seen
    state, step = loaded(tmp_path, run)
    assert step >= 2
    assert state == step.to_bytes(4, "big") * MIB
    one = saver(tmp_path, run)
    one.save(b"next", step + 1)
    one.wait()
    assert not [path for path in files(tmp_path) if path.suffix == ".tmp"]
    assert loaded(tmp_path, run) == (b"next", step + 1)


def test_memory_is_swept_once_no_process_of_the_job_is_left(tmp_path, run):
    program = (
        "from dlrover_nb.client.memory import Memory; import sys\n"
        f"m = Memory({run!r}, 'worker-0.0.ab')\nm.open(m.places[0]).close()\nprint('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    other = subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    other.stdout.readline()
    sweep_memory()
    assert list(SHM.glob(f"{run}-worker-0.0.ab-a*"))
    other.communicate()
    sweep_memory()  # nodes of other tests sweep, too
    assert not list(SHM.glob(f"{run}*"))


def test_the_head_of_a_copy_is_a_line_of_json(tmp_path):
    checkpoint.save(b"state", 7, folder=str(tmp_path / "files"))
    checkpoint.wait(folder=str(tmp_path / "files"))
    (path,) = files(tmp_path)
    head, state = path.read_bytes().split(b"\n", 1)
    assert json.loads(head)[:4] == ["dlrover-nb-checkpoint-2", 1, 7, 5]
    assert state == b"state"


def test_no_bit_of_a_copy_changes_unnoticed_be_it_of_the_state_or_of_the_account_of_rows(tmp_path):
    (tmp_path / "files").mkdir()
    kept = {}
    for number in (1, 2):
        state, path = bytes([number]) * 20, tmp_path / "files" / f"checkpoint-{number:08d}.dlnb"
        head = Head(number, 10 * number, len(state), zlib.crc32(state), f'{{"done": "{number}f00"}}')
        kept[number] = head, state
        with path.open("wb") as file:
            write_copy(file, head, state)
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        at = bit // 8
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit % 8]) + data[at + 1 :])
        assert Saver(str(tmp_path / "files"), None).load() == kept[1], f"bit {bit}"
    path.write_bytes(data)
    assert Saver(str(tmp_path / "files"), None).load() == kept[2]


def test_a_copy_of_an_earlier_release_is_loaded(tmp_path):
    state, folder = b"state", tmp_path / "files"
    folder.mkdir()
    head = ["dlrover-nb-checkpoint-1", 3, 7, len(state), zlib.crc32(state), "rows"]
    (folder / "checkpoint-00000003.dlnb").write_bytes(json.dumps(head).encode() + b"\n" + state)
    assert checkpoint.load(folder=str(folder)) == (state, 7)
    checkpoint.save(b"next", 8, folder=str(folder))
    checkpoint.wait(folder=str(folder))
    assert checkpoint.load(folder=str(folder)) == (b"next", 8)
