"""A PS that serves while its part of a checkpoint is copied: real sockets, memory and files."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from support.runtime.node_world import FEATURES, MODEL, World
from support.waiting import LIMIT_S

from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.checkpoints import increments, memory_image, read_url
from dlrover_nb.core.runtime.checkpoints.memory_names import buffers_of, run_name
from dlrover_nb.core.runtime.checkpoints.pair import BufferPair
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import fill, part_of
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, Exchanged, InitDense
from dlrover_nb.core.runtime.exchange.sockets import connect_dealer
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.ps import migration as ps_migration
from dlrover_nb.core.runtime.ps import server as ps
from dlrover_nb.core.runtime.store import ParameterStore, even_bucket_owner
from dlrover_nb.core.runtime.store import store as store_module
from dlrover_nb.core.runtime.store.cut import Cut as StoreCut
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.checkpoints import PartSource
from dlrover_nb.core.structs.wire.copy_messages import Cut
from dlrover_nb.core.structs.wire.messages import (
    Copied,
    Load,
    Loaded,
    Moved,
    MoveEnd,
    MoveOut,
    MoveTarget,
    Save,
    Saved,
)

ROWS = np.arange(40)
N_DENSE = dense_parameter_count(MODEL, len(FEATURES.categorical), len(FEATURES.numeric))


class Trainer:
    """Pushes the same rows, one step after the other."""

    def __init__(self, world, endpoint):
        self._socket = connect_dealer(world.context, endpoint, "w0", world.keys)
        self._step, self._epoch = 0, world.epoch
        self._ask(InitDense(self._epoch), [np.zeros(N_DENSE, np.float32)])

    def push(self, n=1, rows=ROWS):
        for _ in range(n):
            self._step += 1
            ones = np.ones((len(rows), MODEL.row_width), np.float32)
            arrays = [rows, ones, np.ones(N_DENSE, np.float32), rows]
            answer = self._ask(Exchange(self._epoch, self._step), arrays)
            assert isinstance(answer, Exchanged), answer

    def follow(self, epoch):
        """Push under another epoch, as workers do after a return to a checkpoint."""
        self._epoch = epoch

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


def test_parameters_that_are_not_finite_are_noticed_while_training_goes_on(
    world, trainer, gate, monkeypatch, words
):
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
    assert world.receive(Saved)[0].error == words
    assert not Path(path).exists()
    trainer.push()


def test_a_ps_that_loads_others_gives_the_copy_up_and_says_so(world, trainer, gate, monkeypatch, words):
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
    assert world.receive(Saved)[0].error == words
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


def give_half_away(world, endpoint):
    """Let `ps0` give the rows from the middle on to another PS, and not free them before long."""
    joins, middle = world.start("ps1", Role.PS).endpoint, len(ROWS) // 2
    owner = tuple(int(bucket >= middle) for bucket in range(N_BUCKET))
    move = MoveOut(2, (MoveTarget(joins, tuple(range(middle, N_BUCKET))),))
    world.send("ps0", move)
    while not world.receive(Moved)[0].is_ready:
        pass
    for index, sources in enumerate(((), ("ps0",))):
        world.send(f"ps{index}", MoveEnd(2, index, (endpoint, joins), owner, sources))
    assert {world.receive(Loaded)[0].node for _ in range(2)} == {"ps0", "ps1"}


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_checkpoint_amid_freeing_rows_is_cut_at_once_and_holds_its_own(
    world, gate, monkeypatch, has_memory
):
    monkeypatch.setattr(ps_migration, "TIDY_EVERY_S", 1e6)
    monkeypatch.setattr(store_module, "_DROP", 4)
    (endpoint,) = world.start_ps(1).endpoints
    trainer = Trainer(world, endpoint)
    trainer.push(3)
    trainer.close()
    give_half_away(world, endpoint)
    steps, drop_some = [], ParameterStore.drop_some
    monkeypatch.setattr(ParameterStore, "drop_some", lambda self: steps.append(id(self)) or drop_some(self))
    if not has_memory:
        monkeypatch.setattr(BufferPair, "has_room", lambda *_: False)
    path = str(world.folder / "1" / "part")
    world.send("ps0", Save(1, path))
    if has_memory:
        assert world.receive(Cut)[0] == Cut("ps0", 1)
        assert len(steps) == len(set(steps))  # of each PS at most the one that was due
        gate.set()
    assert (world.receive(Copied)[0].memory is not None) == has_memory
    saved = world.receive(Saved)[0]
    assert (saved.error, saved.n_row) == ("", len(ROWS) // 2)
    part = part_of(read_url(path, saved.sha256))
    assert sorted(part.ids.tolist()) == ROWS[: len(ROWS) // 2].tolist()
    assert n_step(part) == 3


def test_a_stop_amid_a_copy_leaves_no_memory(world, trainer, gate):
    trainer.push()
    save(world, 1)
    gate.set()
    world.end("ps0")


@pytest.mark.parametrize("loads_between", [False, True])
def test_a_later_file_holds_what_changed_and_is_loaded_as_a_whole_one(
    world, trainer, gate, monkeypatch, loads_between
):
    monkeypatch.setattr(increments, "LEAST_BYTES", 0)
    gate.set()
    trainer.push(rows=np.arange(6000))
    for number in (1, 2, 3):
        save(world, number)
        memory, saved = world.receive(Copied)[0].memory, world.receive(Saved)[0]
        with memory_image(memory) as image:
            expected = {name: array.copy() for name, array in image.arrays.items()}
        if loads_between and number == 2:
            source = PartSource(saved.file, saved.sha256)
            trainer.follow(world.epoch + 1)
            world.send("ps0", Load(world.epoch + 1, 0, 1, even_bucket_owner(1), (source,)))
            assert not world.receive(Loaded)[0].error
        trainer.push(rows=np.arange(7 * number, 7 * number + 20))
    base = read_url(saved.file, saved.sha256).header.get("base", "")
    assert base == ("" if loads_between else "part.2"), "a store that was loaded begins with a whole file"
    store = ParameterStore(MODEL, FEATURES.n_table_row, N_DENSE)
    found = fill(lambda: store, [PartSource(saved.file, saved.sha256)], np.ones(N_BUCKET, np.bool_))
    for name, array in expected.items():
        np.testing.assert_array_equal(getattr(found.store.export(), name), array)
