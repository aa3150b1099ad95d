"""A worker: asks for shards, trains them, and does what the master says between two iterations.

The loop in `run` looks at the orders that came so far and takes the one step that they call for. Orders
arrive while the worker waits, wherever that is (`Agent.wait`), and are only noted then (`Orders`); the
training loop returns at the next batch boundary when something else is wanted, after all that was computed is
applied. So a pause leaves the shards in hand, with an exact count of the rows whose gradients the PS have
acknowledged.

A worker asks for its next shard before the present one ends (`shelf`) and says which ones it holds, so that
a grant that was lost on the way is found. A drained worker ends the shard that it has begun; the other goes
back to the queue when it leaves.

Reports, which are the heartbeat, come from the thread that trains, so that user code which never returns is
noticed. What may rightly take long is waited for beside them, up to a limit: reading a shard, and the first
batch, in which a model may be compiled.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.runtime.ps_client import ExchangeDroppedError, PsClient
from dlrover_nb.core.runtime.shard_prefetcher import ShardPrefetcher
from dlrover_nb.core.runtime.synchronous_clients import BspClient, SspClient
from dlrover_nb.core.runtime.time_accounting import Part, TimeAccounting
from dlrover_nb.core.runtime.wire import JobKeys
from dlrover_nb.core.structs.job import Sync
from dlrover_nb.core.structs.messages import (
    Adjust,
    Drain,
    Granted,
    Left,
    NodeConfig,
    NoShard,
    Pause,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
    Stop,
    StreamEnded,
    ToNode,
    Train,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.runtime.agent import Agent
    from dlrover_nb.core.runtime.batches import Layout, ShardWork
    from dlrover_nb.core.runtime.trainer import Taken, Trainer
    from dlrover_nb.core.runtime.wire import Context
    from dlrover_nb.core.structs.samples import NodeSample
    from dlrover_nb.core.structs.shards import Shard

_log = logging.getLogger(__name__)

GRACE_S = 3.0  # for the answers of the iteration at hand when the master wants a pause
READ_LIMIT_S = 600.0  # for the rows of one shard
LOOK_EVERY_S = 0.005  # whether the next shard is read, when nothing else can be done


class Orders:
    """What the master wants, as far as it is known.

    `train` is the latest order to train, `obeyed` the one that the worker follows; `must_drop` stands from an
    order that makes the shard in hand void until that shard is dropped, whatever is ordered in between.
    `ask_at_s` says when to ask for a shard, if none came until then.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.train: Train | None = None
        self.obeyed: Train | None = None
        self.pause: Pause | None = None
        self.must_drop = False
        self.drained = False
        self.stopped = False
        self.granted: deque[Shard] = deque()
        self.ask_at_s = 0.0
        self.has_nothing = False  # the answer to the last question was NoShard

    @property
    def patience_s(self) -> float:
        """How long a silent PS may be waited for: for ever, unless something else is wanted."""
        if self.stopped or self.train != self.obeyed:  # other PS serve: the step is void
            return 0.0
        return GRACE_S if self.pause is not None else math.inf

    def note(self, order: ToNode) -> None:
        """Take one order."""
        match order:
            case Train():
                self._note_train(order)
            case Pause():
                self.pause = order
            case Granted(shard=shard):
                self.granted.append(shard)
                self.has_nothing, self.ask_at_s = False, 0.0
            case NoShard(wait_s=wait_s):
                self.ask_at_s = self._clock.now_s() + wait_s
                self.has_nothing = True
            case Drain():
                self.drained = True
            case Stop():
                self.stopped = True
            case _:
                _log.warning("%s is no order for a worker", type(order).__name__)

    def _note_train(self, train: Train) -> None:
        self.train, self.pause = train, None
        if train.drop_shard:
            self.must_drop = True
            self.granted.clear()
            self.ask_at_s = 0.0


class Worker:
    """One worker of a job; see the module.

    Parameters
    ----------
    context
        Where sockets are made.
    config
        Who it is.
    agent, meter, clock
        Its line to the master, and where its time is noted.
    trainer
        Model and data.
    """

    def __init__(
        self,
        context: Context,
        config: NodeConfig,
        *,
        agent: Agent,
        meter: TimeAccounting,
        clock: Clock,
        trainer: Trainer,
    ) -> None:
        self._context, self._config, self._agent = context, config, agent
        self._meter, self._clock, self._trainer = meter, clock, trainer
        self._orders = Orders(clock)
        self._line: PsClient | None = None
        self._n_line = 0
        self._shelf = ShardPrefetcher(trainer.read, seed=config.spec.seed)
        self._reads_since_s: float | None = None  # None: no step waits for a shard to be read
        self._left = False
        agent.obey, agent.describe, trainer.between = self._obey, self._describe, agent.tick

    def run(self) -> None:
        """Work until the master says stop, or the worker is drained."""
        while not self._orders.stopped and not self._left:
            try:
                self._take_step()
            except ExchangeDroppedError as error:
                _log.info("%s dropped a step: %s", self._config.node, error)
                self._disconnect()

    def close(self) -> None:
        """Close the sockets to the PS, and end the reading."""
        self._disconnect()
        self._shelf.close()

    def take(self, size: int, layout: Layout) -> Taken | None:
        """Return the next batch that is there; ask for another shard when it is time (`trainer.Source`)."""
        self._look_after_shards()
        return self._shelf.take(size, layout)

    def finish(self, work: ShardWork) -> None:
        """Tell that a shard is done; one that holds no other asks for the next with it."""
        self._shelf.remove(work)
        if not self._shelf.leases:
            self._expect_answer()
        arrays = () if work.trains else (_concatenate(work.scores), work.labels)
        self._agent.send(ShardFinished(self._config.node, work.shard.lease), arrays)

    def _obey(self, order: ToNode) -> None:
        if isinstance(order, Adjust):
            self._trainer.batch_size = dict(order.sizes).get(self._config.node, self._trainer.batch_size)
        else:
            self._orders.note(order)

    def _take_step(self) -> None:
        """Do what is wanted most: pause, connect, train, leave, or wait for a shard."""
        if self._orders.pause is not None:
            self._pause(self._orders.pause)
        elif self._orders.train is not None and self._orders.train is not self._orders.obeyed:
            self._connect(self._orders.train)
        elif self._line is None:
            self._leave_or_wait(1.0)
        elif (work := self._shelf.done_work()) is not None:
            self.finish(work)
        elif self._shelf.is_ready:
            self._trainer.run(self, self._line)
        else:
            self._leave_or_wait(self._look_after_shards())

    def _look_after_shards(self) -> float:
        """Begin to read what was granted, ask when it is time; return how long may be waited then."""
        orders, shelf = self._orders, self._shelf
        shelf.is_closing = orders.drained
        while orders.granted and not orders.must_drop:
            shelf.add(orders.granted.popleft())
        is_reading = shelf.is_reading
        while shelf.ended:
            self._expect_answer()
            self._agent.send(StreamEnded(self._config.node, *shelf.ended.popleft()))
        now_s = self._clock.now_s()
        if shelf.is_short and not orders.drained and now_s >= orders.ask_at_s:
            self._expect_answer()
            self._agent.send(ShardAsked(self._config.node, shelf.leases))
        return LOOK_EVERY_S if is_reading else max(0.0, orders.ask_at_s - now_s)

    def _expect_answer(self) -> None:
        """Ask again only if nothing comes for so long that the answer must be lost."""
        self._orders.ask_at_s = self._clock.now_s() + self._config.spec.heartbeat_timeout_s
        self._orders.has_nothing = False

    def _leave_or_wait(self, timeout_s: float) -> None:
        """Leave if drained with nothing begun; else sleep until an order comes.

        Waiting for a shard to be granted or read counts as data, else as idle.
        """
        if self._orders.drained and not self._shelf.is_begun:
            self._left = True
            _log.info("%s is drained and leaves", self._config.node)
            self._agent.send(Left(self._config.node))
            return
        self._check_reading()
        is_asking = self._line is not None and not self._orders.has_nothing
        self._meter.switch(Part.DATA if is_asking else Part.IDLE)
        self._agent.wait(timeout_s)

    def _check_reading(self) -> None:
        """End when a shard cannot be read: the thread that reads it cannot be stopped."""
        now_s = self._clock.now_s()
        if not self._shelf.is_reading:
            self._reads_since_s = None
        elif self._reads_since_s is None:
            self._reads_since_s = now_s
        elif now_s > self._reads_since_s + READ_LIMIT_S:
            lease, _ = self._shelf.position
            raise BackendError(
                f"the rows of {lease} were not read within {READ_LIMIT_S:g} s; look at the data"
            )

    def _pause(self, pause: Pause) -> None:
        self._follow(self._orders.train)
        self._orders.pause = None
        position = self._shelf.position
        self._agent.send(Paused(self._config.node, pause.ps_epoch, *position, number=pause.number))

    def _follow(self, train: Train | None) -> None:
        """Let go of the PS of before, and of shards that went back with the parameters."""
        self._disconnect()
        self._orders.obeyed = train
        if self._orders.must_drop:
            self._shelf.clear()
            self._orders.must_drop = False

    def _connect(self, train: Train) -> None:
        """Work with the PS of an order; an order repeated by a master that came back changes nothing."""
        if train == self._orders.obeyed and self._line is not None and not self._orders.must_drop:
            self._orders.obeyed = train
            self._orders.ask_at_s = 0.0  # the answer may have been lost with the master before it
            return
        self._follow(train)
        self._n_line += 1
        self._line = self._new_line(train)
        _log.info("%s trains with %d PS, epoch %d", self._config.node, len(train.endpoints), train.ps_epoch)
        self._line.init_dense(self._trainer.learner.values)

    def _new_line(self, train: Train) -> PsClient:
        kind: Callable[..., PsClient] = PsClient
        if self._config.spec.sync is not Sync.ASP:
            paced = BspClient if self._config.spec.sync is Sync.BSP else SspClient
            kind = partial(paced, worker=self._config.node)
        return kind(
            self._context,
            keys=JobKeys(self._config.public_key, self._config.secret_key),
            identity=f"{self._config.node}/{os.getpid()}/{self._n_line}",
            agent=self._agent,
            train=train,
            dense_length=len(self._trainer.learner.values),
            patience_s=lambda: self._orders.patience_s,
        )

    def _disconnect(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
            self._meter.forget()  # what was not acknowledged is of no iteration
        self._shelf.rewind()

    def _describe(self, sample: NodeSample) -> Report:
        return Report(sample, *self._shelf.position)


def _concatenate(scores: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate(scores) if scores else np.empty(0, np.float32)
