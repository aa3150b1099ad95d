"""Copies that another thread makes while the parameters change."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.waiting import LIMIT_S, until

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import buffer
from dlrover_nb.core.runtime.checkpoints.background import CopyEnded, Pace, Persisted
from dlrover_nb.core.runtime.checkpoints.buffer import memory_image
from dlrover_nb.core.runtime.checkpoints.image_files import read_url
from dlrover_nb.core.runtime.checkpoints.keeper import FlashCheckpoint
from dlrover_nb.core.runtime.checkpoints.memory_names import sweep_memory
from dlrover_nb.core.structs.training.checkpoints import MemoryPart


@pytest.fixture
def flash(shm):
    made = FlashCheckpoint("a", "/jobs/a-run", "ps-0", shm=shm)
    yield made
    made.close(unlink=True)
    assert list(shm.iterdir()) == []


class Gate:
    """Copies arrays when it is opened; with `why` it fails then."""

    def __init__(self, arrays, why=""):
        self.arrays, self.why, self.opened = arrays, why, threading.Event()

    def __call__(self, views):
        assert self.opened.wait(LIMIT_S)
        for name, view in views.items():
            np.copyto(view, self.arrays[name])
        if self.why:
            raise CheckpointError(self.why)


def ended(flash):
    assert select.select([flash], [], [], LIMIT_S)[0]
    (result,) = flash.poll()
    return result


def assert_holds(shm, part, number, arrays):
    with memory_image(part, shm=shm) as image:
        assert image.header == {"n": number}
        for name, array in arrays.items():
            np.testing.assert_array_equal(image.arrays[name], array)


def test_a_copy_counts_when_it_is_complete_and_is_written_then(flash, shm, arrays, tmp_path):
    gate = Gate(arrays(1))
    assert flash.begin(1, {"n": 1}, arrays(0), gate)
    assert flash.is_copying
    with pytest.raises(CheckpointError, match="no longer in memory"):
        flash.persist(1, str(tmp_path / "part"))
    gate.opened.set()
    result = ended(flash)
    assert isinstance(result, CopyEnded)
    assert_holds(shm, result.memory, 1, arrays(1))
    flash.persist(1, str(tmp_path / "part"))
    written = ended(flash)
    assert isinstance(written, Persisted)
    np.testing.assert_array_equal(read_url(written.url, written.sha256).arrays["table"], arrays(1)["table"])


def test_a_copy_in_the_background_is_that_at_once_byte_for_byte(flash, shm, arrays):
    at_once, gate = flash.copy(1, {"n": 1}, arrays(1, 333)), Gate(arrays(1, 333))
    gate.opened.set()
    flash.begin(2, {"n": 1}, arrays(0, 333), gate)
    one, other = (
        (shm / part.name).read_bytes()[4096 : 4096 + part.n_byte] for part in (at_once, ended(flash).memory)
    )
    assert one == other


def test_the_copy_before_stays_until_the_next_one_is_complete(flash, shm, arrays):
    first = flash.copy(1, {"n": 1}, arrays(1))
    for number, why in ((2, "not finite"), (3, "not finite"), (4, "")):
        gate = Gate(arrays(number), why)
        flash.begin(number, {"n": number}, arrays(0), gate)
        flash.give_way()
        flash.expect(1 << 20)
        assert_holds(shm, first, 1, arrays(1))
        gate.opened.set()
        result = ended(flash)
        assert result.why == why
        assert_holds(shm, first, 1, arrays(1))
    assert_holds(shm, result.memory, 4, arrays(4))


def test_copies_are_freed_for_parameters_but_not_the_one_that_is_being_made(shm, arrays):
    most = [1 << 30]
    flash = FlashCheckpoint("a", "/jobs/a-run", "ps-0", shm=shm, most_bytes=lambda: most[0])
    flash.copy(1, {"n": 1}, arrays(1))
    gate = Gate(arrays(2))
    flash.begin(2, {"n": 2}, arrays(0), gate)
    until(lambda: flash._buffers.is_busy and not flash._buffers.is_choosing)
    most[0] = 0
    flash.give_way()
    assert len(list(shm.iterdir())) == 1
    gate.opened.set()
    assert_holds(shm, ended(flash).memory, 2, arrays(2))
    flash.give_way()
    assert list(shm.iterdir()) == []
    assert not flash.begin(3, {"n": 3}, arrays(3), gate), "there is no room"
    flash.close(unlink=True)


KILLED = """
import os, select, signal, sys
import numpy as np
from pathlib import Path
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.checkpoints.keeper import FlashCheckpoint
from dlrover_nb.core.runtime.store import ParameterStore, cut
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import image_of
from dlrover_nb.core.structs.job.job import Embedding, ModelSpec
shm, url, dies = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
flash = FlashCheckpoint("a", "/jobs/a-run", "ps-0", shm=shm)
store = ParameterStore(ModelSpec(embedding_dim=3, embedding=Embedding.HASH), 1, 5)
store.init_dense(np.zeros(5, np.float32))
cut.CHUNK_BYTES, cut.PAUSE_S = 40000, 0.0
ids = np.arange(100_000)
def push():
    store.push(ids, np.ones((len(ids), 4), np.float32))
for number in (1, 2):
    push()
    made = store.cut()
    image = image_of(made.part)
    copies = os.pipe()
    def fill(views):
        os.write(copies[1], b"1")
        made.copy_to(views)
    flash.begin(number, image.header, image.arrays, fill)
    if number == 2:
        os.read(copies[0], 1)
        for _ in range(dies):
            push()
        os.kill(os.getpid(), signal.SIGKILL)
    push()
    select.select([flash], [], [])
    memory = flash.poll()[0].memory
    flash.persist(number, url)
    select.select([flash], [], [])
    print(to_json(memory).decode(), flash.poll()[0].sha256, flush=True)
"""


@pytest.mark.more
@pytest.mark.parametrize("dies", [0, 1, 3])
def test_a_kill_amid_a_copy_leaves_the_last_whole_one(shm, tmp_path, dies):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(shm), str(tmp_path / "part"), str(dies)],
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    text, sha256 = ran.stdout.decode().split(" ")
    part = from_json(text, MemoryPart)
    with memory_image(part, shm=shm) as image:
        in_memory = image.arrays["table"].copy()
    in_file = read_url(str(tmp_path / "part"), sha256.strip()).arrays["table"]
    np.testing.assert_array_equal(in_memory, in_file)
    assert (in_memory[:, 4:] == in_memory[0, 4]).all(), "one step of each row, none of what came after it"
    assert len(list(tmp_path.glob("*part*"))) == 1
    sweep_memory(shm=shm)
    assert not list(Path(shm).iterdir())


@pytest.mark.parametrize(("share", "times"), [(1.0, 0.0), (0.5, 1.0), (0.1, 9.0)])
def test_a_paced_thread_waits_for_its_share_of_a_core(share, times):
    class Ending:
        waited = 0.0

        def wait(self, seconds):
            self.waited += seconds

    ending, least_s = Ending(), 0.0
    start_s = time.thread_time()
    pace = Pace(share, ending)
    for _ in range(5):
        began_s = now_s = time.thread_time()
        while now_s < began_s + 0.004:
            now_s = time.thread_time()
        least_s += now_s - began_s
        pace()
    used_s = time.thread_time() - start_s
    assert times * least_s <= ending.waited + 1e-9
    assert ending.waited <= times * used_s + 1e-9


def test_where_memory_is_gone_after_all_nothing_waits_for_the_copy(flash, shm, arrays, monkeypatch):
    def is_full(*_arguments, **_named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(buffer.os, "posix_fallocate", is_full)
    given_up = threading.Event()
    assert flash.begin(1, {"n": 1}, arrays(0), Gate(arrays(1)), given_up.set)
    result = ended(flash)
    assert given_up.is_set()
    assert (result.memory, "there is no memory for a copy" in result.why) == (None, True)
    assert list(shm.iterdir()) == []
