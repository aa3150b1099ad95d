from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest
from support.waiting import LIMIT_S

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import buffer, increments, keeper
from dlrover_nb.core.runtime.checkpoints.buffer import memory_image
from dlrover_nb.core.runtime.checkpoints.image_files import read_url
from dlrover_nb.core.runtime.checkpoints.keeper import FlashCheckpoint, Persisted, PersistFailed
from dlrover_nb.core.runtime.checkpoints.memory_names import sweep_memory
from dlrover_nb.core.structs.training.checkpoints import MemoryPart


@pytest.fixture
def make(shm):
    made = []

    def _make(node="ps-0", **arguments):
        made.append(FlashCheckpoint("a", "/jobs/a-run", node, shm=shm, **arguments))
        return made[-1]

    yield _make
    for flash in made:
        flash.close(unlink=True)
    assert list(shm.iterdir()) == []


def results(flash, n=1):
    found = []
    while len(found) < n:
        assert select.select([flash], [], [], LIMIT_S)[0], f"{found} only"
        found += flash.poll()
    return found


def assert_image(image, number, arrays):
    assert image.header == {"n": number}
    assert list(image.arrays) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(image.arrays[name], array)


@pytest.fixture
def gate(monkeypatch):
    """Hold back the thread that writes files until the gate is opened."""
    opened, write = threading.Event(), increments.write_url

    def wait_and_write(*arguments, **named):
        assert opened.wait(LIMIT_S)
        return write(*arguments, **named)

    monkeypatch.setattr(increments, "write_url", wait_and_write)
    yield opened
    opened.set()


def test_a_copy_is_read_from_memory_and_from_its_file(make, shm, arrays, tmp_path):
    flash, url = make(), str(tmp_path / "deep" / "part")
    part = flash.copy(3, {"n": 3}, arrays())
    with memory_image(part, shm=shm) as image:
        assert_image(image, 3, arrays())
    flash.persist(3, url)
    (done,) = results(flash)
    assert done == Persisted(3, url, done.sha256, Path(url).stat().st_size)
    assert_image(read_url(url, done.sha256), 3, arrays())
    with memory_image(part, shm=shm) as image:  # now under its checksum
        assert_image(image, 3, arrays())
    assert (shm / part.name).stat().st_mode & 0o777 == 0o600


def test_a_part_may_change_as_soon_as_it_is_copied(make, arrays, tmp_path, gate):
    flash, live = make(), arrays()
    flash.copy(1, {"n": 1}, live)
    flash.persist(1, str(tmp_path / "part"))
    live["table"][:] = -1
    gate.set()
    (done,) = results(flash)
    assert_image(read_url(done.url, done.sha256), 1, arrays())


def test_saves_without_a_gap_are_late_and_never_lost(make, shm, arrays, tmp_path):
    flash, n = make(), 20
    for number in range(0, 2 * n, 2):
        flash.copy(number, {"n": number}, arrays(number))
        part = flash.copy(number + 1, {"n": number + 1}, arrays(number + 1))
        flash.persist(number + 1, str(tmp_path / f"{number + 1}"))
    done = results(flash, n)
    assert [result.number for result in done] == list(range(1, 2 * n, 2))
    for result in done:
        assert_image(read_url(result.url, result.sha256), result.number, arrays(result.number))
    with memory_image(part, shm=shm) as image:
        assert_image(image, 2 * n - 1, arrays(2 * n - 1))


def test_a_copy_waits_while_both_buffers_are_on_their_way(make, arrays, tmp_path, gate):
    flash, waits = make(), []

    def between():
        waits.append(1)
        gate.set()

    for number in (1, 2):
        flash.copy(number, {"n": number}, arrays(number))
        flash.persist(number, str(tmp_path / f"{number}"))
    assert not waits
    flash.copy(3, {"n": 3}, arrays(3), between=between)
    assert waits
    flash.persist(3, str(tmp_path / "3"))
    for result in results(flash, 3):
        assert_image(read_url(result.url, result.sha256), result.number, arrays(result.number))


def test_a_copy_that_was_overwritten_is_refused(make, shm, arrays, error_words):
    flash = make()
    first = flash.copy(1, {"n": 1}, arrays(1))
    second = flash.copy(2, {"n": 2}, arrays(2))
    with memory_image(first, shm=shm) as image:  # the one before is still there
        assert_image(image, 1, arrays(1))
    flash.copy(3, {"n": 3}, arrays(3))
    with pytest.raises(CheckpointError, match="expected checkpoint 1"), memory_image(first, shm=shm):
        pass
    with memory_image(second, shm=shm) as image:
        assert_image(image, 2, arrays(2))
    with error_words(CheckpointError):
        flash.persist(1, "anywhere")


def test_a_copy_that_is_overwritten_while_it_is_read_is_void(make, shm, arrays):
    flash = make()
    part = flash.copy(1, {"n": 1}, arrays(1))
    reading = memory_image(part, shm=shm)
    reading.__enter__()
    flash.copy(2, {"n": 2}, arrays(2))
    flash.copy(3, {"n": 3}, arrays(3))
    with pytest.raises(CheckpointError, match="expected checkpoint 1"):
        reading.__exit__(None, None, None)


@pytest.mark.parametrize("at", [0, 10, 500, -1])
def test_a_stray_write_shows_once_the_checksum_is_known(make, shm, arrays, tmp_path, at):
    flash = make()
    part = flash.copy(1, {"n": 1}, arrays())
    flash.persist(1, str(tmp_path / "part"))
    results(flash)
    with (shm / part.name).open("r+b") as file:
        file.seek(buffer.CONTROL_BYTES + at % part.n_byte)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(CheckpointError, match="damaged"), memory_image(part, shm=shm):
        pass


def test_memory_of_another_host_is_refused(shm):
    with pytest.raises(CheckpointError, match="on this host"):
        memory_image(MemoryPart("dlrover-nb-none", 1, "00" * 16, 64), shm=shm).__enter__()


def test_a_larger_part_gets_a_larger_buffer(make, shm, arrays):
    flash = make()
    for number, n in ((1, 10), (2, 10), (3, 200_000), (4, 100), (5, 400_000)):
        part = flash.copy(number, {"n": number}, arrays(number, n))
        with memory_image(part, shm=shm) as image:
            assert_image(image, number, arrays(number, n))
    assert flash.n_byte == sum(path.stat().st_size for path in shm.iterdir())


def test_memory_that_was_expected_is_there_before_the_first_copy(make, shm, arrays):
    flash = make()
    flash.expect(1 << 20)
    flash.expect(1 << 20)  # once is enough
    part = flash.copy(1, {"n": 1}, arrays())
    (path,) = shm.iterdir()  # not the other one, though the thread may still be at work on this one
    assert path.name == part.name
    assert path.stat().st_size > 1 << 20


def test_memory_that_is_expected_in_vain_is_no_error(make, arrays):
    flash = make(most_bytes=lambda: 100)
    flash.expect(1 << 20)
    assert flash.copy(1, {"n": 1}, arrays()) is None


def test_what_is_expected_or_freed_amid_a_copy_leaves_its_buffer_alone(make, arrays, tmp_path):
    """The node reports, and so expects the next copy, at every pause for breath of this one."""
    flash, n_call = make(most_bytes=lambda: 1 << 30), 0

    def between() -> None:
        nonlocal n_call
        n_call += 1
        flash.expect(1 << 20)
        flash.give_way()

    for number in (1, 2, 3):
        before = n_call
        assert flash.copy(number, {"n": number}, arrays(), between=between) is not None
        assert n_call > before
        flash.persist(number, str(tmp_path / f"{number}.part"), between=between)
        (told,) = results(flash)
        assert isinstance(told, Persisted)
        assert_image(read_url(told.url, told.sha256), number, arrays())


def test_a_copy_whose_buffer_was_taken_is_never_written_as_a_file(make, arrays, tmp_path):
    flash, file = make(), tmp_path / "1.part"
    flash.copy(1, {"n": 1}, arrays())
    taken = flash._buffers.holding(1)
    taken.reserve(taken.n_byte * 2)
    told = flash._carry_out(keeper._Write(taken, 1, str(file)))
    assert isinstance(told, PersistFailed)
    assert "no longer in memory" in told.why
    assert not file.exists()


def test_where_memory_is_short_the_file_is_written_before_training_goes_on(make, shm, arrays, tmp_path):
    room = [1 << 30]
    flash = make(most_bytes=lambda: room[0])
    assert flash.copy(1, {"n": 1}, arrays(1))
    room[0] = 5000
    assert flash.copy(2, {"n": 2}, arrays(2)) is None
    flash.persist(2, str(tmp_path / "2"))
    (done,) = flash.poll()
    assert_image(read_url(done.url, done.sha256), 2, arrays(2))
    assert flash.copy(3, {"n": 3}, arrays(3)) is None
    assert flash.n_byte <= 2 << 20
    room[0] = 1 << 30
    assert flash.copy(4, {"n": 4}, arrays(4)) is not None


@pytest.fixture
def disk_that_fills(tmp_path):
    """A real limit of the kernel on the length of a file, in force while entered."""

    @contextlib.contextmanager
    def limited(n_byte):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_byte, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


def test_copies_give_way_to_parameters_that_grow(make, shm, arrays):
    room = [1 << 30]
    flash = make(most_bytes=lambda: room[0])
    older, newer = flash.copy(1, {"n": 1}, arrays(1)), flash.copy(2, {"n": 2}, arrays(2))
    flash.give_way()
    assert len(list(shm.iterdir())) == 2
    room[0] = flash.n_byte - 1
    flash.give_way()
    with pytest.raises(CheckpointError, match="on this host"):
        memory_image(older, shm=shm).__enter__()
    with memory_image(newer, shm=shm) as image:
        assert_image(image, 2, arrays(2))
    room[0] = 0
    flash.give_way()
    assert flash.n_byte == 0
    room[0] = 1 << 30
    assert flash.copy(3, {"n": 3}, arrays(3)) is not None


def test_what_is_on_its_way_to_a_file_does_not_give_way(make, arrays, tmp_path, gate):
    room = [1 << 30]
    flash = make(most_bytes=lambda: room[0])
    flash.copy(1, {"n": 1}, arrays())
    flash.persist(1, str(tmp_path / "part"))
    room[0] = 0
    flash.give_way()
    gate.set()
    (done,) = results(flash)
    assert_image(read_url(done.url, done.sha256), 1, arrays())


def test_a_disk_that_fills_leaves_the_last_good_file_and_the_next_one_is_written(
    make, arrays, tmp_path, disk_that_fills, words
):
    flash, url = make(), str(tmp_path / "disk" / "part")
    for number in (1, 2, 3):
        flash.copy(number, {"n": number}, arrays(number))
        with disk_that_fills(20_000) if number == 2 else contextlib.nullcontext():
            flash.persist(number, url)
            (result,) = results(flash)
        if number == 1:
            good = result
        if number == 2:
            assert isinstance(result, PersistFailed)
            assert result.why == words
            assert_image(read_url(url, good.sha256), 1, arrays(1))
            assert [path.name for path in (tmp_path / "disk").iterdir()] == ["part"]
    assert_image(read_url(url, result.sha256), 3, arrays(3))


def test_shared_memory_that_is_full_is_found_before_the_copy(make, shm, arrays, tmp_path, disk_that_fills):
    flash = make()
    with disk_that_fills(1 << 19):  # as a /dev/shm of this size
        assert flash.copy(1, {"n": 1}, arrays()) is None
    assert list(shm.iterdir()) == []
    flash.persist(1, str(tmp_path / "part"))
    (done,) = flash.poll()
    assert_image(read_url(done.url, done.sha256), 1, arrays())


def test_any_file_system_of_fsspec_will_do(make, arrays):
    flash, url = make(), "memory://bucket/a/1/part"
    flash.copy(1, {"n": 1}, arrays())
    flash.persist(1, url)
    (done,) = results(flash)
    assert_image(read_url(url, done.sha256), 1, arrays())
    assert fsspec.filesystem("memory").ls("/bucket/a/1", detail=False) == ["/bucket/a/1/part"]
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_an_end_amid_writing_gives_the_file_up(make, shm, arrays, tmp_path, gate):
    flash = FlashCheckpoint("a", "/jobs/a-run", "ps-0", shm=shm)
    part = flash.copy(1, {"n": 1}, arrays())
    flash.persist(1, str(tmp_path / "part"))
    threading.Timer(0, gate.set).start()
    flash.close(unlink=False)
    with memory_image(part, shm=shm) as image:
        assert_image(image, 1, arrays())
    (shm / part.name).unlink()


def test_what_dead_ps_left_is_freed_when_nobody_will_load_it(make, shm, arrays, tmp_path):
    dead = FlashCheckpoint("a", "/jobs/a-run", "ps-9", shm=shm)
    left = [dead.copy(number, {}, arrays()) for number in (1, 2)]
    dead.close(unlink=False)
    flash = make()
    for number, gone in ((2, 0), (3, 1), (4, 2)):
        flash.copy(number, {"n": number}, arrays())
        flash.persist(number, str(tmp_path / "part"))
        results(flash)
        assert [(shm / part.name).exists() for part in left] == [n >= gone for n in range(2)]


KILLED = """
import os, select, signal, sys
import numpy as np
from pathlib import Path
from dlrover_nb.core.runtime.checkpoints import keeper
from dlrover_nb.core.codec import to_json
flash = keeper.FlashCheckpoint("a", "/jobs/a-run", "ps-0", shm=Path(sys.argv[1]))
arrays = lambda n: {"a": np.full((4 << 20,), n, np.uint8), "b": np.full((8 << 20,), n, np.uint8)}
calls = []
def die():
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
for number in (1, 2):
    part = flash.copy(number, {"n": number}, arrays(number))
    flash.persist(number, sys.argv[2] + str(number))
    select.select([flash], [], [])
    print(to_json(part).decode(), flash.poll()[0].sha256, flush=True)
if sys.argv[3] == "copy":
    flash.copy(3, {"n": 3}, arrays(3), between=die)
else:
    part = flash.copy(3, {"n": 3}, arrays(3))
    print(to_json(part).decode(), "-", flush=True)
    flash._go_on = lambda pace: die()
    flash.persist(3, sys.argv[2] + "3")
    flash._thread.join()
"""


@pytest.mark.parametrize("amid", ["copy", "persist"])
def test_a_kill_amid_saving_leaves_the_last_good_one(shm, tmp_path, amid):
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(shm), str(tmp_path / "part-"), amid],
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    lines = [line.rsplit(" ", 1) for line in ended.stdout.decode().splitlines()]
    parts = [from_json(line[0], MemoryPart) for line in lines]
    with memory_image(parts[-1], shm=shm) as image:
        assert image.header == {"n": len(parts)}
        assert all((array == len(parts)).all() for array in image.arrays.values())
    with pytest.raises(
        CheckpointError, match="no complete copy" if amid == "copy" else "expected checkpoint 1"
    ):
        memory_image(parts[0], shm=shm).__enter__()
    assert read_url(f"{tmp_path}/part-2", lines[1][1]).header == {"n": 2}
    assert not Path(f"{tmp_path}/part-3").exists()
    sweep_memory(shm=shm)
    assert list(shm.iterdir()) == []
