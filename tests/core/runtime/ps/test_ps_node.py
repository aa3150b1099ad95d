"""A parameter server for itself, and nodes whose master comes back or is gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.runtime.node_world import FEATURES, MODEL, Gate, World, shard, with_heartbeat
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.runtime.exchange.push_pull import (
    Arrive,
    DenseReady,
    Exchange,
    Exchanged,
    ExchangeRefused,
    FinishedRound,
    InitDense,
    Join,
    KeepGradients,
    Leave,
    NotMember,
    Proceed,
    StaleEpoch,
)
from dlrover_nb.core.runtime.exchange.sockets import connect_dealer
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import PartSource
from dlrover_nb.core.structs.training.shards import ShardProgress
from dlrover_nb.core.structs.wire.messages import (
    Drain,
    Granted,
    Hello,
    Left,
    Load,
    Loaded,
    NoShard,
    Save,
    Saved,
    ShardAsked,
    ShardFinished,
)

SHARDS = [shard(n) for n in (4, 0, 2)]


class Client:
    """A bare connection to a PS."""

    def __init__(self, world, endpoint, identity="c"):
        self.socket = connect_dealer(world.context, endpoint, identity, world.keys)

    def ask(self, message, arrays=()):
        self.socket.send_multipart(encode(message, arrays))
        assert self.socket.poll(1000 * LIMIT_S)
        return decode(self.socket.recv_multipart())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


NO_ROWS, NO_FLOATS = np.empty(0, np.int64), np.empty(0, np.float32)
NO_ROW_GRADIENTS = np.zeros((1, MODEL.row_width), np.float32)


def n_dense():
    from dlrover_nb.core.models.built_in import dense_parameter_count  # noqa: PLC0415 - one use

    return dense_parameter_count(MODEL, len(FEATURES.categorical), len(FEATURES.numeric))


def test_a_ps_refuses_other_epochs_and_applies_a_repeated_push_once():
    with World() as world:
        (endpoint,) = world.start_ps(1).endpoints
        rows, ones = np.array([5, 9]), np.ones((2, MODEL.row_width), np.float32)
        gradient = np.ones(n_dense(), np.float32)
        push = [rows, ones, gradient, rows]
        with Client(world, endpoint) as client:
            pull = [NO_ROWS, NO_FLOATS, NO_FLOATS, rows]
            assert client.ask(Exchange(99, 1), push)[0] == StaleEpoch(1)
            assert client.ask(InitDense(99), [gradient])[0] == StaleEpoch(1)
            assert client.ask(InitDense(1), [np.zeros(n_dense(), np.float32)])[0] == DenseReady(1)
            _, before = client.ask(Exchange(1, 1), pull)
            answer, once = client.ask(Exchange(1, 2), push)
            assert isinstance(answer, Exchanged)
            assert (answer.ps_epoch, answer.step) == (1, 2)
            assert answer.update_s > 0
            assert answer.lookup_s > 0
            _, again = client.ask(Exchange(1, 2), push)
            _, then = client.ask(Exchange(1, 3), push)
        step = MODEL.learning_rate / np.sqrt(MODEL.initial_accumulator + 1)
        for first, second in zip(before, once, strict=True):
            np.testing.assert_allclose(first - second, step, rtol=1e-4)
        for first, second, third in zip(once, again, then, strict=True):
            np.testing.assert_array_equal(first, second)
            assert np.all(third < second)


def test_a_ps_refuses_requests_that_can_never_be_served_and_serves_on():
    with World() as world:
        (endpoint,) = world.start_ps(1).endpoints
        with Client(world, endpoint) as client:
            wrong = [
                (Exchange(1, 1), []),
                (Exchange(1, 1), [NO_FLOATS] * 4),
                (Exchange(1, 1), [NO_ROWS, NO_FLOATS, NO_FLOATS, np.array([-1])]),
                (Exchange(1, 2), [np.array([1]), NO_FLOATS, NO_FLOATS, NO_ROWS]),
                (Exchange(1, 3), [np.array([[1]]), np.ones((1, 1), np.float32), NO_FLOATS, NO_ROWS]),
                (InitDense(1), [NO_FLOATS]),
                (Exchange(1, 3), [np.array([1]), np.full((1, 5), np.nan, np.float32), NO_FLOATS, NO_ROWS]),
                (Exchange(1, 3), [np.array([1]), np.full((1, 5), 1e20, np.float32), NO_FLOATS, NO_ROWS]),
                (Exchange(1, 3), [NO_ROWS, NO_FLOATS, np.full(n_dense(), np.inf, np.float32), NO_ROWS]),
                (KeepGradients(1, 3, "w0", 0), []),
                (KeepGradients(1, 3, "w0", 0), [np.array([-1]), NO_ROW_GRADIENTS[:1], NO_FLOATS]),
                (KeepGradients(1, 3, "w0", 0), [NO_ROWS, NO_ROW_GRADIENTS[:0], NO_FLOATS[:0]]),
                (Exchange(1, 4, FinishedRound(0, (("w9", 64),))), [NO_ROWS, NO_FLOATS, NO_FLOATS, NO_ROWS]),
            ]
            for message, arrays in wrong:
                assert isinstance(client.ask(message, arrays)[0], ExchangeRefused)
            assert client.ask(Arrive(1, 5, "w0", 0, 64))[0] == NotMember(1, 5)
            assert isinstance(client.ask(Join(1, 6, "w0"))[0], Proceed)
            assert isinstance(client.ask(Arrive(1, 7, "w0", 5, 64))[0], ExchangeRefused)
            assert client.ask(Leave(1, 8, "w0"))[0] == NotMember(1, 8)
            assert isinstance(
                client.ask(Exchange(1, 9), [NO_ROWS, NO_FLOATS, NO_FLOATS, NO_ROWS])[0], Exchanged
            )


def test_a_ps_that_cannot_save_says_why_and_serves_on():
    with World() as world:
        (endpoint,) = world.start_ps(1).endpoints
        (world.folder / "file").touch()
        world.send("ps0", Save(3, str(world.folder / "file" / "below")))
        saved = world.receive(Saved)[0]
        assert "cannot write the checkpoint" in saved.error
        with Client(world, endpoint) as client:
            assert client.ask(InitDense(1), [np.zeros(n_dense(), np.float32)])[0] == DenseReady(1)
        assert world.save(["ps0"])


def test_a_ps_saves_no_parameters_that_are_not_finite_and_serves_on(words):
    with World() as world:
        (endpoint,) = world.start_ps(1).endpoints
        with Client(world, endpoint) as client:
            values = np.zeros(n_dense(), np.float32)
            values[7] = np.nan
            assert client.ask(InitDense(1), [values])[0] == DenseReady(1)
            world.send("ps0", Save(3, str(world.folder / "3" / "part")))
            assert world.receive(Saved)[0].error == words
            assert not (world.folder / "3").exists()
            assert client.ask(InitDense(1), [values])[0] == DenseReady(1)


def test_a_ps_tells_of_a_damaged_checkpoint_and_loads_another():
    with World() as world:
        (endpoint,) = world.start_ps(1).endpoints
        ((path, sha256),) = world.save(["ps0"])
        with Path(path).open("r+b") as file:
            file.truncate(100)
        world.send("ps0", Load(7, 0, 1, even_bucket_owner(1), (PartSource(path, sha256),)))
        loaded = world.receive(Loaded)[0]
        assert (loaded.ps_epoch, "is damaged" in loaded.error) == (7, True)
        with Client(world, endpoint) as client:
            assert isinstance(client.ask(InitDense(7), [np.zeros(n_dense(), np.float32)])[0], StaleEpoch)
        world.load(["ps0"], (endpoint,))


@pytest.mark.parametrize("listen", ["ipc", "tcp://127.0.0.1"])
def test_nodes_greet_a_master_that_came_back_and_train_on_where_they_were(listen):
    gate = Gate(at=3)
    with World(listen=listen) as world:
        world.start("w0", Role.WORKER, on_loss=gate)
        train = world.start_ps(1)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        gate.reached()
        world.replace_master()
        gate.open()
        assert {world.receive(Hello)[0].node for _ in range(2)} == {"w0", "ps0"}
        world.send("w0", train)
        assert world.receive(ShardFinished)[0].lease == SHARDS[0].lease
        assert len(gate.losses) == 10
        world.replace_master()  # and with it the answer that the worker waits for
        hello = {each.node: each for each in (world.receive(Hello)[0] for _ in range(2))}
        assert hello["w0"].released == (ShardProgress(SHARDS[0].lease, SHARDS[0].end),)
        assert hello["ps0"].ps_epoch == 1
        world.send("w0", train)
        world.train("w0", [SHARDS[1]])
        assert not world.errors


def test_nodes_follow_a_master_that_came_back_elsewhere_and_say_what_it_missed():
    gate = Gate(at=3)
    with World(listen="tcp://127.0.0.1") as world:
        world.start("w0", Role.WORKER, on_loss=gate)
        train = world.start_ps(1)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        gate.reached()
        world.move_master()
        world.router_before.close(linger=0)
        assert (world.receive(Hello, "ps0")[0].endpoint,) == train.endpoints
        gate.open()
        assert world.receive(Hello, "w0")
        assert world.receive(ShardFinished)[0].lease == SHARDS[0].lease
        assert len(gate.losses) == 10
        world.send("w0", train)
        world.train("w0", [SHARDS[1]])
        assert not world.errors


def test_a_worker_that_leaves_says_so_until_a_master_has_heard_it():
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.train("w0", [SHARDS[0]])
        world.send("w0", NoShard(600.0))
        world.send("w0", Drain())
        left = world.receive(Left)[0]
        assert left.released == (ShardProgress(SHARDS[0].lease, SHARDS[0].end),)
        world.replace_master()  # which had not noted it
        assert world.receive(Left)[0] == left
        world.end("w0")
        assert not world.errors


def test_a_part_that_is_loaded_stays_when_the_order_is_repeated():
    with World() as world:
        train = world.start_ps(1)
        world.start("w0", Role.WORKER)
        world.send("w0", train)
        world.train("w0", [SHARDS[0]])
        (before,) = world.save(["ps0"])
        world.send("ps0", Load(1, 0, 1, train.bucket_owner, ()))
        assert world.receive(Loaded)[0] == Loaded("ps0", 1)
        assert world.save(["ps0"]) == [before]


def test_nodes_leave_a_master_that_was_replaced_though_it_lives_on():
    with World(listen="tcp://127.0.0.1") as world:
        endpoint = world.start("ps0", Role.PS).endpoint
        world.move_master()
        assert world.receive(Hello)[0].endpoint == endpoint
        world.load(["ps0"], (endpoint,))


@pytest.mark.more
def test_nodes_end_when_their_master_is_gone():
    with World(spec=with_heartbeat(1.0)) as world:
        train = world.start_ps(1)
        world.start("w0", Role.WORKER)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.router.close(linger=0)
        for thread in world.threads.values():
            thread.join(LIMIT_S)
        assert set(world.errors) == {"ps0", "w0"}
        for error in world.errors.values():
            assert isinstance(error, BackendError)
            assert "no connection to its master" in str(error)
        world.threads.clear()
