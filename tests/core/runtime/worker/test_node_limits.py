"""How long a node waits for servers, for another node's copy and for its data; in virtual time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.runtime.exchange.push_pull import DenseReady
from dlrover_nb.core.runtime.worker.ps_client import Pending
from dlrover_nb.core.runtime.worker.worker import Orders, Worker
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.checkpoints import MemoryPart
from dlrover_nb.core.structs.wire.messages import Drain, Pause, Stop, Train

if TYPE_CHECKING:
    from collections.abc import Callable

TRAIN = Train(1, ("tcp://10.0.0.2:1",), (0,) * N_BUCKET)


class SilentLink:
    """A connection to a server that answers nothing; it notes when something is sent."""

    is_between_hosts, is_sealed = True, False

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.sent_at_s: list[float] = []
        self.n_unsealed = 0

    def send(self, _: object) -> None:
        self.sent_at_s.append(round(self._time.now_s()))

    def unseal(self) -> None:
        self.n_unsealed += 1

    def answers(self, _: object) -> list[object]:
        return []


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def link(time: VirtualTime) -> SilentLink:
    return SilentLink(time)


OTHER_SERVERS = replace(TRAIN, ps_epoch=2)


@pytest.mark.parametrize(
    ("orders", "pending"),
    [
        ((), Pending.NONE),
        ((TRAIN,), Pending.NONE),  # a restarted master repeats it
        ((replace(TRAIN, drop_shard=True),), Pending.AT_ONCE),
        ((OTHER_SERVERS,), Pending.AT_ONCE),
        ((Pause(1, 1),), Pending.BETWEEN_BATCHES),
        ((Pause(1, 1), TRAIN), Pending.NONE),  # the pause was given up
        ((Pause(1, 1), Pause(1, 1, drops=True)), Pending.AT_ONCE),
        ((Drain(),), Pending.NONE),
        ((Drain(at_once=True),), Pending.BETWEEN_BATCHES),
        ((Stop(),), Pending.AT_ONCE),
    ],
)
def test_an_exchange_is_void_by_other_servers_and_goes_on_through_a_pause(
    time: VirtualTime, orders: tuple[Any, ...], pending: Pending
) -> None:
    of_worker = Orders(time)
    of_worker.train = of_worker.obeyed = TRAIN
    for order in orders:
        of_worker.note(order)
    assert of_worker.pending is pending


def test_an_order_to_train_after_a_rollback_is_the_same_when_it_comes_again_without_it(
    time: VirtualTime,
) -> None:
    orders = Orders(time)
    orders.train = orders.obeyed = replace(TRAIN, drop_shard=True)
    orders.note(TRAIN)
    assert orders.pending is Pending.NONE


def client_of(time: VirtualTime, link: SilentLink, pending: Callable[[], str]) -> Any:
    """Return a worker's client of one silent server, and its module; `pending` names what waits."""
    module = as_shipped("dlrover_nb.core.runtime.worker.ps_client", time)
    module.PsLink = lambda *_, **__: link
    agent = SimpleNamespace(wait=time.advance)
    client = module.PsClient(
        None, keys=None, identity="w0", agent=agent, train=TRAIN, dense_length=4,
        pending=lambda: module.Pending[pending()],
    )  # fmt: skip
    return client, module.ExchangeDroppedError


def test_a_request_without_an_answer_is_sent_again_through_a_pause_until_its_step_is_void(
    time: VirtualTime, link: SilentLink, error_words
) -> None:
    client, dropped = client_of(time, link, lambda: "AT_ONCE" if time.now_s() >= 65.0 else "BETWEEN_BATCHES")
    client._send(0, DenseReady, [b"request"], ())
    with error_words(dropped):
        client._answers(DenseReady)
    assert time.now_s() == 65.0
    assert link.sent_at_s == [0, 10, 20, 30, 40, 50, 60]
    assert link.n_unsealed == 6


def test_a_copy_is_asked_for_under_curve_again_and_again_until_it_is_given_up(
    time: VirtualTime, link: SilentLink, error_words
) -> None:
    module = as_shipped("dlrover_nb.core.runtime.peers.reading", time)
    poller = SimpleNamespace(ready=lambda: time.sleep(0.05))
    part = MemoryPart("name", 1, "0" * 32, 8)
    copying = module._Reading(link, poller, part, np.empty(8, np.uint8), "tcp://10.0.0.2:1")
    with error_words(CheckpointError):
        copying.run(lambda: None)
    assert 20.0 < time.now_s() < 20.2
    assert link.sent_at_s == [2, 5, 10, 15]


def test_a_shard_that_is_not_read_in_time_ends_its_worker_and_names_it(
    time: VirtualTime, error_words
) -> None:
    worker: Any = object.__new__(Worker)
    worker._clock, worker._reads_since_s = time, None
    worker._prefetcher = SimpleNamespace(is_reading=True, position=("shard 7", 0))
    worker._check_reading()
    time.advance(600.0)
    worker._check_reading()
    time.advance(0.1)
    with error_words(BackendError):
        worker._check_reading()
