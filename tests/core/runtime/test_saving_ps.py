"""A PS that serves while its part of a checkpoint is copied: real sockets, memory and files."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from node_world import FEATURES, MODEL, World
from waiting import LIMIT_S

from dlrover_nb.core.models.table import dense_parameter_count
from dlrover_nb.core.runtime import ps
from dlrover_nb.core.runtime.checkpoint import part_of
from dlrover_nb.core.runtime.exchange import Exchange, Exchanged, InitDense
from dlrover_nb.core.runtime.flash import memory_image, read_url
from dlrover_nb.core.runtime.flash.names import buffers_of, run_name
from dlrover_nb.core.runtime.flash.pair import BufferPair
from dlrover_nb.core.runtime.sockets import connect_dealer
from dlrover_nb.core.runtime.store import ParameterStore, even_bucket_owner
from dlrover_nb.core.runtime.store.cut import Cut as StoreCut
from dlrover_nb.core.runtime.wire import decode, encode
from dlrover_nb.core.structs.copy_messages import Cut
from dlrover_nb.core.structs.messages import Copied, Load, Loaded, Save, Saved

ROWS = np.arange(40)
N_DENSE = dense_parameter_count(MODEL, len(FEATURES.categorical), len(FEATURES.numeric))


class Trainer:
    """Pushes the same rows, one step after the other."""

    def __init__(self, world, endpoint):
        self._socket = connect_dealer(world.context, endpoint, "w0", world.keys)
        self._step, self._epoch = 0, world.epoch
        self._ask(InitDense(self._epoch), [np.zeros(N_DENSE, np.float32)])

    def push(self, n=1):
        for _ in range(n):
            self._step += 1
            ones = np.ones((len(ROWS), MODEL.row_width), np.float32)
            arrays = [ROWS, ones, np.ones(N_DENSE, np.float32), ROWS]
            answer = self._ask(Exchange(self._epoch, self._step), arrays)
            assert isinstance(answer, Exchanged), answer

    def close(self):
        self._socket.close(linger=0)

    def _ask(self, message, arrays):
        self._socket.send_multipart(encode(message, arrays))
        assert self._socket.poll(1000 * LIMIT_S)
        return decode(self._socket.recv_multipart())[0]


@pytest.fixture
def gate(monkeypatch):
    """Let copies in the background, of parts of any size, wait until the gate is opened."""
    opened, copy = threading.Event(), StoreCut.copy_to

    def wait_and_copy(self, arrays):
        assert opened.wait(LIMIT_S)
        copy(self, arrays)

    monkeypatch.setattr(StoreCut, "copy_to", wait_and_copy)
    monkeypatch.setattr(ps, "_COPY_AT_ONCE_BYTES", -1)
    yield opened
    opened.set()


@pytest.fixture
def world():
    with World() as made:
        yield made
    assert not buffers_of(run_name("test", str(made.folder)))


@pytest.fixture
def trainer(world):
    (endpoint,) = world.start_ps(1).endpoints
    made = Trainer(world, endpoint)
    yield made
    made.close()


def save(world, number):
    path = str(world.folder / str(number) / "part")
    world.send("ps0", Save(number, path))
    assert world.receive(Cut)[0] == Cut("ps0", number)
    return path


def n_step(part):
    """How many steps of Adagrad each row, and the dense slice, holds: the sums begin with the same number."""
    sums = np.concatenate([part.table[:, MODEL.row_width :].ravel(), part.dense[1]])
    (found,) = np.unique(np.rint(sums))
    return int(found)


def test_requests_are_answered_while_a_part_is_copied_and_are_not_in_it(world, trainer, gate):
    trainer.push(3)
    path = save(world, 1)
    trainer.push(4)
    assert not Path(path).exists()
    gate.set()
    memory = world.receive(Copied)[0].memory
    with memory_image(memory) as image:
        assert n_step(part_of(image)) == 3
    trainer.push()
    saved = world.receive(Saved)[0]
    assert (saved.error, saved.n_row) == ("", len(ROWS))
    assert n_step(part_of(read_url(path, saved.sha256))) == 3
    save(world, 2)
    saved = world.receive(Saved)[0]
    assert n_step(part_of(read_url(saved.file, saved.sha256))) == 8


def test_a_second_order_to_save_waits_for_the_first_copy_and_loses_nothing(world, trainer, gate):
    trainer.push(2)
    first = save(world, 1)
    trainer.push()
    second = str(world.folder / "2" / "part")
    world.send("ps0", Save(2, second))
    gate.set()
    assert [world.receive(Copied)[0].checkpoint for _ in range(2)] == [1, 2]
    found = [world.receive(Saved)[0] for _ in range(2)]
    assert [each.file for each in found] == [first, second]
    assert [n_step(part_of(read_url(each.file, each.sha256))) for each in found] == [2, 3]


def test_parameters_that_are_not_finite_are_noticed_while_training_goes_on(world, trainer, gate, monkeypatch):
    trainer.push()
    cut = ParameterStore.cut

    def cut_with_nan(self, *, is_awaited):
        self.export().table[3, 1] = np.nan
        return cut(self, is_awaited=is_awaited)

    monkeypatch.setattr(ParameterStore, "cut", cut_with_nan)
    path = save(world, 1)
    trainer.push()
    gate.set()
    assert world.receive(Copied)[0].memory is None
    assert "not all of its parameters are finite" in world.receive(Saved)[0].error
    assert not Path(path).exists()
    trainer.push()


def test_a_ps_that_loads_others_gives_the_copy_up_and_says_so(world, trainer, gate, monkeypatch):
    stop = StoreCut.stop

    def stop_and_go_on(self):
        stop(self)
        gate.set()

    monkeypatch.setattr(StoreCut, "stop", stop_and_go_on)
    trainer.push(2)
    save(world, 1)
    trainer.push()
    world.send("ps0", Load(5, 0, 1, even_bucket_owner(1), ()))
    assert world.receive(Copied)[0].memory is None
    assert "before it had copied these" in world.receive(Saved)[0].error
    assert world.receive(Loaded)[0].ps_epoch == 5


def test_without_memory_for_a_copy_training_waits_for_the_file(world, trainer, gate, monkeypatch):
    monkeypatch.setattr(BufferPair, "has_room", lambda *_: False)
    trainer.push(2)
    path = str(world.folder / "1" / "part")
    world.send("ps0", Save(1, path))
    assert world.receive(Copied)[0].memory is None
    saved = world.receive(Saved)[0]
    assert n_step(part_of(read_url(path, saved.sha256))) == 2
    trainer.push()


def test_a_stop_amid_a_copy_leaves_no_memory(world, trainer, gate):
    trainer.push()
    save(world, 1)
    gate.set()
    world.end("ps0")
