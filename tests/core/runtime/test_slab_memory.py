"""Slabs as files: who may map them, and that none is left, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slab_world import MODEL, N_DENSE, World, n_open
from waiting import until

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange import (
    BellName,
    Exchange,
    Exchanged,
    ExchangeRefused,
    KeepGradients,
    OfferSlab,
)
from dlrover_nb.core.runtime.flash import MemoryClaim, free_run, run_name, sweep_memory
from dlrover_nb.core.runtime.kernels.requests import wait
from dlrover_nb.core.runtime.shared_block import SharedArray, SharedBlock
from dlrover_nb.core.runtime.slab import AttachedSlabs, OfferedSlab, SlabPlace
from dlrover_nb.core.runtime.slab.memory import Slab, make_slab
from dlrover_nb.core.runtime.wire import decode, encode

N_BYTE = 1 << 16


@pytest.fixture
def place(tmp_path):
    return SlabPlace(run_name("a", "/jobs/a"), tmp_path)


def offer_of(slab: Slab) -> OfferSlab:
    return OfferSlab(slab.path.name, slab.block.number, slab.token.hex(), slab.n_byte)


@pytest.fixture
def slab(place):
    made = make_slab(place.path("worker-0.1.1.ps0.1"), 1, N_BYTE)
    yield made
    made.close()


def test_both_sides_see_the_same_bytes_and_the_name_is_gone(place, slab):
    ps = AttachedSlabs(place)
    assert slab.path.stat().st_mode & 0o777 == 0o600
    assert ps.attach(b"w", offer_of(slab))
    assert list(place.shm.iterdir()) == []
    slab.block.data[5000] = 7
    assert ps.block(b"w").data[5000] == 7
    ps.block(b"w").data[5001] = 8
    assert slab.block.data[5001] == 8
    ps.close()


def test_an_offer_that_is_repeated_changes_nothing(place, slab):
    ps = AttachedSlabs(place)
    assert ps.attach(b"w", offer_of(slab))
    block = ps.block(b"w")
    assert ps.attach(b"w", offer_of(slab))
    assert ps.block(b"w") is block
    ps.close()


OTHERS = {
    "another token": lambda offer: replace(offer, token="00" * 16),
    "no token": lambda offer: replace(offer, token=""),
    "no hexadecimal token": lambda offer: replace(offer, token="x" * 32),
    "more bytes than it has": lambda offer: replace(offer, n_byte=N_BYTE + 1),
    "no bytes": lambda offer: replace(offer, n_byte=0),
    "fewer than none": lambda offer: replace(offer, n_byte=-N_BYTE),
    "another folder": lambda offer: replace(offer, name=f"../{offer.name}"),
    "a folder in its name": lambda offer: replace(offer, name=offer.name.replace("worker", "x/../worker")),
    "an end of text in its name": lambda offer: replace(offer, name=offer.name.replace("worker", "x\0")),
    "another run": lambda offer: replace(offer, name=offer.name.replace("-a-", "-b-")),
    "a claim": lambda offer: replace(offer, name=f"{run_name('a', '/jobs/a')}.claim"),
    "a buffer": lambda offer: replace(offer, name=f"{run_name('a', '/jobs/a')}-ps-0-a"),
    "nothing": lambda offer: replace(offer, name=""),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_another_file_than_was_offered_is_not_mapped_and_stays(place, slab, other):
    ps = AttachedSlabs(place)
    assert not ps.attach(b"w", other(offer_of(slab)))
    assert ps.block(b"w") is None
    assert slab.path.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_open_is_not_mapped(place, slab, mode):
    slab.path.chmod(mode)
    assert not AttachedSlabs(place).attach(b"w", offer_of(slab))


def test_a_link_is_not_followed(place, slab, tmp_path):
    target = tmp_path / "elsewhere"
    slab.path.rename(target)
    slab.path.symlink_to(target)
    assert not AttachedSlabs(place).attach(b"w", offer_of(slab))


def test_a_slab_of_a_worker_that_has_ended_is_freed(place):
    slab = make_slab(place.path("w"), 1, N_BYTE)
    os.close(slab._handle)
    slab._map = None
    slab.block = SharedBlock(
        1, np.empty(0, np.uint8)
    )  # the last that holds the file open, as in a process that ends
    assert not AttachedSlabs(place).attach(b"w", OfferSlab(slab.path.name, 1, slab.token.hex(), N_BYTE))
    assert list(place.shm.iterdir()) == []


def test_a_ps_lets_go_of_slabs_that_were_closed_and_no_others(place):
    ps, slabs = AttachedSlabs(place), {}
    for name in ("a", "b"):
        slabs[name] = make_slab(place.path(name), 1, N_BYTE)
        assert ps.attach(name.encode(), offer_of(slabs[name]))
    view = slabs["a"].block.data[:8]
    slabs["a"].close()  # though rows of it are still used
    ps.release()
    assert (ps.block(b"a"), ps.n_byte) == (None, N_BYTE)
    view[:] = 1
    slabs["b"].close()
    ps.release()
    assert ps.n_byte == 0


# places in messages

BLOCK = SharedBlock(1, np.zeros(N_BYTE, np.uint8))
PLACES = (
    st.integers(-(2**64), 2**64) | st.integers(0, 2 * N_BYTE) | st.integers(0, 2048).map(lambda n: 64 * n)
)


@given(offset=PLACES, shape=st.lists(st.integers(0, 2**40) | st.integers(0, 300), max_size=4))
def test_a_view_lies_inside_or_is_refused(offset, shape):
    try:
        view = BLOCK.view(offset, np.dtype(np.float32), tuple(shape))
    except WireError:
        return
    begins = view.ctypes.data - BLOCK.data.ctypes.data
    assert view.shape == tuple(shape)
    assert not view.size or 0 <= begins <= begins + view.nbytes <= N_BYTE


def test_an_array_of_another_slab_is_refused():
    array = BLOCK.view(4096, np.dtype(np.float32), (10,))
    frames = encode(OfferSlab("", 1, "", 1), [SharedArray(1, 4096, array)])
    assert len(frames) == 1
    np.testing.assert_array_equal(decode(frames, BLOCK)[1][0], array)
    for other in (None, SharedBlock(2, BLOCK.data), SharedBlock(1, BLOCK.data[:4100])):
        with pytest.raises(WireError, match=r"not mapped here|does not lie in"):
            decode(frames, other)


def test_ids_of_a_slab_are_copied_as_they_become_addresses_and_numbers_are_not():
    ids = BLOCK.view(4096, np.dtype(np.int64), (10,))
    numbers = BLOCK.view(8192, np.dtype(np.float32), (10,))
    frames = encode(OfferSlab("", 1, "", 1), [SharedArray(1, 4096, ids), SharedArray(1, 8192, numbers)])
    _, (mine, shared) = decode(frames, BLOCK)
    ids[:], numbers[:] = 5, 5.0
    assert not mine.any()
    assert shared.all()
    ids[:], numbers[:] = 0, 0.0


class Router:
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []

    def send_multipart(self, frames: list[bytes], *, copy: bool) -> None:
        assert not copy
        self.sent.append(frames)


@settings(deadline=None, max_examples=60)
@given(
    offsets=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 800).map(lambda n: 64 * n), min_size=4, max_size=4),
    rows=st.integers(0, 2**20) | st.integers(0, 50),
    answer_at=st.integers(-(2**62), 2**62) | st.integers(0, 800).map(lambda n: 64 * n),
    keeps=st.booleans(),
)  # fmt: skip
def test_no_place_in_a_message_ends_a_ps_or_is_written_outside(offsets, rows, answer_at, keeps):
    with tempfile.TemporaryDirectory(prefix="ds") as name:
        folder = Path(name)
        (folder / "shm").mkdir()
        with World(folder / "s", folder / "shm", 1) as world:
            rng, client = np.random.default_rng(0), world.client("w0")
            for _ in range(3):
                world.exchange("w0", world.push(rng, 50), world.batch(rng, 50))
            size = world.slabs[0].n_byte
            shapes = (
                (np.int64, (rows,)),
                (np.float32, (rows, MODEL.row_width)),
                (np.float32, (N_DENSE,)),
                (np.int64, (rows,)),
            )
            arrays = [
                SharedArray(1, at, np.lib.stride_tricks.as_strided(np.empty(1, kind), shape, [0] * len(shape)))
                for at, (kind, shape) in zip(offsets, shapes, strict=True)
            ]  # fmt: skip
            request = Exchange(1, 99, answer_at=answer_at)
            if keeps:
                request, arrays = KeepGradients(1, 99, "w0", 0, in_slab=True), arrays[:3]
            identity = f"w0/1/{world.n_client}".encode()
            world.servings[0]._router = router = Router()
            world.servings[0]._serve(identity, encode(request, arrays))
            world.servings[0]._router = world.routers[0]
            n_dropped = world.servings[0].n_dropped
            assert len(router.sent) + n_dropped == 1
            assert world.slabs[0].n_byte == size
            if router.sent:
                answer, found = decode(router.sent[0][1:], client._links[0].slab.block)
                assert isinstance(answer, ExchangeRefused) or keeps or isinstance(answer, Exchanged)
                assert all(len(array) in (rows, N_DENSE) for array in found)


# kills

WORKER = """
import sys, pathlib
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.slab import OfferedSlab, SlabPlace
import numpy as np
slab = OfferedSlab(SlabPlace(sys.argv[1], pathlib.Path(sys.argv[2])), sys.argv[3])
size = 1 << 14
while True:
    offer = slab.offer([np.zeros(size)], size)
    size *= 4
    print(offer.name, offer.number, offer.token, offer.n_byte, to_json(offer.bell).decode(), flush=True)
    if sys.stdin.readline() != "more\\n":
        break
"""
PS = """
import sys, pathlib
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.runtime.exchange import BellName, OfferSlab
from dlrover_nb.core.runtime.slab import AttachedSlabs, SlabPlace
ps = AttachedSlabs(SlabPlace(sys.argv[1], pathlib.Path(sys.argv[2])))
for line in sys.stdin:
    name, number, token, n_byte, bell = line.split()
    offer = OfferSlab(name, int(number), token, int(n_byte), from_json(bell, BellName))
    print(ps.attach(b"w", offer) and len(ps.bells) == 1, flush=True)
"""


class Process(subprocess.Popen):
    def __init__(self, code: str, place: SlabPlace, *more: str) -> None:
        command = [sys.executable, "-c", code, place.run, str(place.shm), *more]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> str:
        self.stdin.write(f"{line}\n")
        self.stdin.flush()
        return self.stdout.readline().strip()

    def end(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()
        self.stdin.close()
        self.stdout.close()


def test_a_worker_that_is_killed_before_a_ps_knows_its_slab_leaves_it_to_the_next_worker(place):
    worker = Process(WORKER, place, "first")
    assert worker.stdout.readline()
    assert len(list(place.shm.iterdir())) == 1
    worker.end()
    survivor = OfferedSlab(place, "second")
    offer = survivor.offer([np.zeros(9)], 9)
    assert [path.name for path in place.shm.iterdir()] == [offer.name]
    survivor.close()
    assert list(place.shm.iterdir()) == []


@pytest.mark.parametrize("n_byte", [0, 100, N_BYTE])
def test_what_a_kill_between_two_calls_leaves_is_freed_too(place, n_byte):
    place.path("of-a-dead-worker").write_bytes(bytes(n_byte))  # made, and not locked, filled or marked yet
    survivor = OfferedSlab(place, "next")
    offer = survivor.offer([np.zeros(9)], 9)
    assert [path.name for path in place.shm.iterdir()] == [offer.name]
    survivor.close()


def test_the_slab_of_a_living_worker_is_left_alone_by_the_next(place):
    first, second = OfferedSlab(place, "first"), OfferedSlab(place, "second")
    assert first.offer([np.zeros(9)], 9).name
    assert second.offer([np.zeros(9)], 9).name
    assert len(list(place.shm.iterdir())) == 2
    first.close()
    second.close()


def test_a_sweep_frees_it_when_no_process_of_the_job_is_left(place):
    with tempfile.TemporaryDirectory() as folder:
        claimed = SlabPlace(run_name("a", folder), place.shm)
        claim = MemoryClaim("a", folder, shm=place.shm)
        worker = Process(WORKER, claimed, "first")
        name = worker.stdout.readline().split()[0]
        worker.end()
        assert sweep_memory(shm=place.shm) == ()
        claim.close()
        assert name not in {path.name for path in place.shm.iterdir()}


def test_the_end_of_a_run_frees_it(place):
    worker = Process(WORKER, place, "first")
    assert worker.stdout.readline()
    worker.end()
    free_run(place.run, shm=place.shm)
    assert list(place.shm.iterdir()) == []


@pytest.mark.more
@pytest.mark.parametrize("killed", ["worker", "ps", "worker, then ps", "ps, then worker"])
def test_once_a_ps_knows_a_slab_no_kill_leaves_anything(place, killed):
    processes = {"worker": Process(WORKER, place, "w"), "ps": Process(PS, place)}
    try:
        offer = processes["worker"].stdout.readline().strip()
        for _ in range(5):  # ever larger ones
            assert processes["ps"].ask(offer) == "True"
            assert list(place.shm.iterdir()) == []
            offer = processes["worker"].ask("more")
        assert processes["ps"].ask(offer) == "True"
    finally:
        for name in killed.split(", then "):
            processes.pop(name).end()
        assert list(place.shm.iterdir()) == []
        for process in processes.values():
            process.end()
    assert list(place.shm.iterdir()) == []


def test_a_ps_lets_go_of_the_slab_of_a_worker_that_was_killed(place):
    worker, ps = Process(WORKER, place, "w"), AttachedSlabs(place)
    name, number, token, n_byte, bell = worker.stdout.readline().split()
    pipes = from_json(bell, BellName)
    assert ps.attach(b"w", OfferSlab(name, int(number), token, int(n_byte), pipes))
    ps.release()
    assert (ps.n_byte, len(ps.bells), n_open(pipes)) == (int(n_byte), 1, 2)
    worker.end()
    wait(list(ps.bells.values()), (), 0.0)
    assert not any(each.pending for each in ps.bells.values())  # its end is no request
    until(lambda: ps.release() or not ps.n_byte)
    assert n_open(pipes) == 0
