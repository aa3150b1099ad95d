"""Slabs as files: who may map them, and that none is left, whoever is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.runtime.slab_world import MODEL, N_DENSE, World, n_open
from support.waiting import until

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.checkpoints import MemoryClaim, run_name, sweep_memory
from dlrover_nb.core.runtime.exchange.push_pull import (
    DescriptorName,
    Exchange,
    Exchanged,
    ExchangeRefused,
    KeepGradients,
    OfferSlab,
)
from dlrover_nb.core.runtime.exchange.shared_block import SharedArray, SharedBlock
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
from dlrover_nb.core.runtime.exchange.slab.descriptors import named
from dlrover_nb.core.runtime.exchange.slab.memory import Slab, make_slab
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.kernels.bell_requests import wait

N_BYTE = 1 << 16


def offer_of(slab: Slab) -> OfferSlab:
    return OfferSlab(os.getpid(), slab.name, slab.block.number, slab.token.hex(), slab.n_byte)


@pytest.fixture
def slab():
    made = make_slab(1, N_BYTE)
    yield made
    made.close()


def n_slab() -> int:
    """Return how many descriptors of this process are of slabs."""
    n = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder, and those of other threads
            n += "dlrover-nb-slab" in str(descriptor.readlink())
    return n


def test_both_sides_see_the_same_bytes(slab):
    ps = AttachedSlabs()
    assert ps.attach(b"w", offer_of(slab))
    slab.block.data[5000] = 7
    assert ps.block(b"w").data[5000] == 7
    ps.block(b"w").data[5001] = 8
    assert slab.block.data[5001] == 8
    ps.close()


def test_an_offer_that_is_repeated_changes_nothing(slab):
    ps = AttachedSlabs()
    assert ps.attach(b"w", offer_of(slab))
    block = ps.block(b"w")
    assert ps.attach(b"w", offer_of(slab))
    assert ps.block(b"w") is block
    ps.close()


@pytest.mark.parametrize("n_byte", [0, 4096, N_BYTE - 1, 2 * N_BYTE])
def test_a_worker_cannot_change_the_length_of_what_a_ps_reads(slab, n_byte):
    ps = AttachedSlabs()
    assert ps.attach(b"w", offer_of(slab))
    with pytest.raises(PermissionError):
        os.ftruncate(slab._handle, n_byte)
    assert ps.block(b"w").data.sum() >= 0  # each byte can be read
    ps.close()


OTHERS = {
    "another token": lambda offer: replace(offer, token="00" * 16),
    "no token": lambda offer: replace(offer, token=""),
    "no hexadecimal token": lambda offer: replace(offer, token="x" * 32),
    "more bytes than it has": lambda offer: replace(offer, n_byte=N_BYTE + 1),
    "no bytes": lambda offer: replace(offer, n_byte=0),
    "fewer than none": lambda offer: replace(offer, n_byte=-N_BYTE),
    "another process": lambda offer: replace(offer, pid=1),
    "no process": lambda offer: replace(offer, pid=-1),
    "another descriptor": lambda offer: replace(offer, memory=replace(offer.memory, descriptor=0)),
    "no descriptor": lambda offer: replace(offer, memory=replace(offer.memory, descriptor=-1)),
    "another inode": lambda offer: replace(offer, memory=replace(offer.memory, inode=1)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_memory_than_was_offered_is_not_mapped(slab, other):
    ps, before = AttachedSlabs(), n_slab()
    assert not ps.attach(b"w", other(offer_of(slab)))
    assert ps.block(b"w") is None
    assert n_slab() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_memory_that_others_may_open_is_not_mapped(slab, mode):
    os.fchmod(slab._handle, mode)
    assert not AttachedSlabs().attach(b"w", offer_of(slab))


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW])
def test_memory_whose_length_may_change_is_not_mapped(slab, seals):
    handle = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.fchmod(handle, 0o600)
    os.write(handle, slab.block.data.tobytes())
    fcntl.flock(handle, fcntl.LOCK_EX)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
    offer = replace(offer_of(slab), memory=named(handle))
    assert not AttachedSlabs().attach(b"w", offer)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    assert AttachedSlabs().attach(b"w", offer)
    os.close(handle)


def test_a_file_is_not_mapped(slab, tmp_path):
    with (tmp_path / "file").open("w+b") as file:
        file.write(slab.block.data.tobytes())
        file.flush()
        os.fchmod(file.fileno(), 0o600)
        assert not AttachedSlabs().attach(b"w", replace(offer_of(slab), memory=named(file.fileno())))


def test_a_slab_of_a_worker_that_has_let_go_of_it_is_not_mapped(slab):
    fcntl.flock(slab._handle, fcntl.LOCK_UN)
    assert not AttachedSlabs().attach(b"w", offer_of(slab))


def test_a_ps_lets_go_of_slabs_that_were_closed_and_no_others():
    ps, slabs = AttachedSlabs(), {}
    for name in ("a", "b"):
        slabs[name] = make_slab(1, N_BYTE)
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


@given(
    offset=PLACES,
    shape=st.lists(st.integers(-(2**40), 2**40) | st.integers(0, 300) | st.integers(-3, 3), max_size=4),
)
@example(offset=0, shape=[-1, 4])
@example(offset=0, shape=[-2, -2])
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
    frames = encode(OfferSlab(1, DescriptorName(1, 1), 1, "", 1), [SharedArray(1, 4096, array)])
    assert len(frames) == 1
    np.testing.assert_array_equal(decode(frames, BLOCK)[1][0], array)
    for other in (None, SharedBlock(2, BLOCK.data), SharedBlock(1, BLOCK.data[:4100])):
        with pytest.raises(WireError, match=r"not mapped here|does not lie in"):
            decode(frames, other)


def test_ids_of_a_slab_are_copied_as_they_become_addresses_and_numbers_are_not():
    ids = BLOCK.view(4096, np.dtype(np.int64), (10,))
    numbers = BLOCK.view(8192, np.dtype(np.float32), (10,))
    frames = encode(
        OfferSlab(1, DescriptorName(1, 1), 1, "", 1),
        [SharedArray(1, 4096, ids), SharedArray(1, 8192, numbers)],
    )
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
        with World(folder / "s", 1) as world:
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
import sys
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.exchange.slab import OfferedSlab
import numpy as np
slab = OfferedSlab(is_wanted=True)
size = 1 << 14
while True:
    offer = slab.offer([np.zeros(size)], size)
    size *= 4
    print(to_json(offer).decode(), flush=True)
    if sys.stdin.readline() != "more\\n":
        break
"""
PS = """
import sys
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.runtime.exchange.push_pull import OfferSlab
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
ps = AttachedSlabs()
for line in sys.stdin:
    print(ps.attach(b"w", from_json(line, OfferSlab)) and len(ps.bells) == 1, flush=True)
"""


class Process(subprocess.Popen):
    def __init__(self, code: str) -> None:
        super().__init__(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> str:
        self.stdin.write(f"{line}\n")
        self.stdin.flush()
        return self.stdout.readline().strip()

    def end(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()
        self.stdin.close()
        self.stdout.close()


@pytest.mark.more
def test_a_ps_of_another_process_maps_ever_larger_slabs():
    worker, ps = Process(WORKER), Process(PS)
    try:
        offer = worker.stdout.readline().strip()
        for _ in range(5):
            assert ps.ask(offer) == "True"
            offer = worker.ask("more")
    finally:
        worker.end()
        assert ps.ask(offer) == "False"  # of a process that is gone
        ps.end()


def test_a_ps_lets_go_of_the_slab_of_a_worker_that_was_killed():
    worker, ps = Process(WORKER), AttachedSlabs()
    offer = from_json(worker.stdout.readline(), OfferSlab)
    assert ps.attach(b"w", offer)
    ps.release()
    assert (ps.n_byte, len(ps.bells), n_open(offer.bell)) == (offer.n_byte, 1, 2)
    worker.end()
    wait(list(ps.bells.values()), (), 0.0)
    assert not any(each.pending for each in ps.bells.values())  # its end is no request
    until(lambda: ps.release() or not ps.n_byte)
    assert n_open(offer.bell) == 0


def test_a_sweep_frees_slabs_of_earlier_releases(tmp_path):
    (tmp_path / f"{run_name('a', '/jobs/a')}-worker-0.1.1.ps0.1-s").write_bytes(b"")
    assert sweep_memory(shm=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_a_claim_is_not_followed(tmp_path):
    target, shm = tmp_path / "of-somebody", tmp_path / "shm"
    shm.mkdir()
    (shm / f"{run_name('a', '/jobs/a')}.claim").symlink_to(target)
    claim = MemoryClaim("a", "/jobs/a", shm=shm)
    assert sweep_memory(shm=shm) == ()
    claim.close()
    assert not target.exists()
