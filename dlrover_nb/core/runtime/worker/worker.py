"""A worker: requests shards, trains them, and executes orders of the master between two iterations.

The loop in `run` reads the orders received so far and takes the one step that they require. Orders arrive
whenever the worker waits (`Agent.wait`) and are only recorded then (`Orders`). The training loop returns at
the next batch boundary when an order is pending, after all computed gradients are applied. So in a pause the
worker keeps its shards, with an exact count of the rows whose gradients the PS have acknowledged. One that
is to leave at once, as it is slow, gives that count with its last message.

A worker requests its next shard before the current one ends (`shard_prefetcher`) and names the leases that it
holds, so that a lost grant is found. A drained worker finishes the shard that it has begun; the other one
returns to the queue when it leaves.

Reports, which are the heartbeat, are sent by the training thread, so that user code which never returns is
noticed. Two things may take long and are waited for with a limit while reports go on: reading a shard, and
the first batch, in which a model may be compiled.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.runtime.exchange.push_pull import BatchShare
from dlrover_nb.core.runtime.exchange.sockets import JobKeys
from dlrover_nb.core.runtime.process.agent import LEAVING_ALONE_S, REPORT_EVERY_S
from dlrover_nb.core.runtime.process.time_accounting import Part, TimeAccounting
from dlrover_nb.core.runtime.worker.ps_client import (
    ExchangeDroppedError,
    FencedError,
    GbaClient,
    Pending,
    PsClient,
    StepClient,
)
from dlrover_nb.core.runtime.worker.shard_prefetcher import ShardPrefetcher, untouched
from dlrover_nb.core.runtime.worker.synchronous_clients import BspClient, SspClient
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Need
from dlrover_nb.core.structs.training.resize_messages import Resize
from dlrover_nb.core.structs.wire.messages import (
    Adjust,
    BatchSkipped,
    Drain,
    Granted,
    Hello,
    Left,
    NoShard,
    Pause,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
    StepOpened,
    Stop,
    StreamEnded,
    ToNode,
    Train,
)
from dlrover_nb.core.structs.wire.mitigation_messages import SetRate, ShardReturned

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.runtime.exchange.sockets import Context
    from dlrover_nb.core.runtime.process.agent import Agent
    from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork
    from dlrover_nb.core.runtime.worker.trainer import TakenBatch, Trainer
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.training.shards import Shard, SkippedBatch
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

_log = logging.getLogger(__name__)

READ_LIMIT_S = 600.0  # for the rows of one shard
POLL_EVERY_S = 0.005  # polling for the next shard to be read, while there is nothing else to do
N_LINK_PROBE, LINK_PROBE_EVERY_S = 8, 5.0  # a quota that is used up lasts a tenth of a second


class Orders:
    """The orders of the master that were received and not executed.

    `train` is the latest order to train, `obeyed` the one in force. `must_drop` is set by an order that makes
    the current shards void, until they are dropped. `ask_at_s` is when to request a shard if none arrives
    before. `n_step` are the steps that are complete, in deterministic training; None: it is not known.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.train: Train | None = None
        self.obeyed: Train | None = None
        self.pause: Pause | None = None
        self.must_drop = False
        self.drained = self.leaves_at_once = False
        self.stopped = False
        self.granted: deque[Shard] = deque()
        self.ask_at_s = 0.0
        self.has_nothing = False  # the answer to the last request was NoShard
        self.n_step: int | None = None

    @property
    def pending(self) -> Pending:
        """What the orders that are not executed mean for the exchange in progress."""
        drops = self.pause is not None and self.pause.drops
        if self.stopped or drops or not is_same(self.train, self.obeyed):
            return Pending.AT_ONCE
        is_between = self.leaves_at_once or self.pause is not None
        return Pending.BETWEEN_BATCHES if is_between else Pending.NONE

    def note(self, order: ToNode) -> None:
        """Record one order."""
        match order:
            case Train():
                self._note_train(order)
            case Pause():
                self.pause = order
            case Granted(shard=shard):
                self.granted.append(shard)
                self.has_nothing, self.ask_at_s, self.n_step = False, 0.0, order.n_step
            case NoShard(wait_s=wait_s):
                self.ask_at_s = self._clock.now_s() + wait_s
                self.has_nothing, self.n_step = True, order.n_step
            case StepOpened(n_step=n_step):
                self.n_step, self.ask_at_s = n_step, 0.0
            case Drain(at_once=at_once):
                self.drained = True
                self.leaves_at_once |= at_once
            case Stop():
                self.stopped = True
            case _:
                _log.warning("ignored %s: it is not an order for a worker", type(order).__name__)

    def _note_train(self, train: Train) -> None:
        self.train, self.pause = train, None
        if train.drop_shard:
            self.must_drop, self.n_step = True, None
            self.granted.clear()
            self.ask_at_s = 0.0


class Worker:
    """One worker of a job; see the module.

    Parameters
    ----------
    context
        Where sockets are made.
    config
        Name and job of the node.
    agent, accounting, clock
        Connection to the master, and accounting of the time of the node.
    trainer
        Model and data.
    """

    def __init__(
        self,
        context: Context,
        config: NodeConfig,
        *,
        agent: Agent,
        accounting: TimeAccounting,
        clock: Clock,
        trainer: Trainer,
    ) -> None:
        self._context, self._config, self._agent = context, config, agent
        self._accounting, self._clock, self._trainer = accounting, clock, trainer
        self._orders = Orders(clock)
        self._client: PsClient | None = None
        self._n_client = self._n_link_probe = 0
        self._next_link_probe_s = 0.0
        self._first_dense = trainer.learner.values.copy()  # what it holds later was trained
        self._prefetcher = ShardPrefetcher(trainer.read, seed=config.spec.seed)
        self._reads_since_s: float | None = None  # None: no shard is being read
        self._left = False
        agent.obey, agent.describe, agent.introduce = self._obey, self._describe, self._introduce
        trainer.between, trainer.costs.need = agent.tick, config.need
        trainer.costs.take(config.batch_costs)

    def run(self) -> None:
        """Work until the master orders a stop, the worker is drained, or it learns that it was given up."""
        while not self._orders.stopped and not self._left:
            try:
                self._take_step()
            except ExchangeDroppedError as error:
                _log.info("%s dropped a step: %s", self._config.node, error)
                self._disconnect()
            except FencedError:
                _log.warning(
                    "%s was given up by its master and ends: others train its shards", self._config.node
                )
                self._left = True

    def leave(self) -> None:
        """Finish the current shard and end, as if the master had ordered it: its cluster ends it soon."""
        self._orders.note(Drain())

    def close(self) -> None:
        """Close the sockets to the PS and end the reader thread."""
        self._disconnect()
        self._prefetcher.close()

    def take(self, share: BatchShare, layout: BucketLayout) -> TakenBatch | None:
        """Return the next batch if one is ready; request another shard when due (`trainer.Source`)."""
        self._update_shards()
        return self._prefetcher.take(share, layout)

    def skip(self, work: ShardWork, batch: SkippedBatch) -> None:
        """Report a batch that was not trained."""
        _log.warning("%s skipped %s", self._config.node, batch)
        work.skipped_batches.append(batch)
        self._agent.send(BatchSkipped(self._config.node, work.shard.lease, batch))

    def rewind(self) -> None:
        """Take batches again that are not done."""
        self._prefetcher.rewind()

    def give_back(self, work: ShardWork) -> None:
        """Return the rest of a shard to the queue: the gradients of this worker come too late."""
        _log.info("%s gives %s back: its gradients came too late", self._config.node, work.shard.lease)
        self._prefetcher.remove(work)
        self._orders.ask_at_s = 0.0
        self._agent.send(ShardReturned(self._config.node, work.shard.lease, work.n_row_done))

    def finish(self, work: ShardWork) -> None:
        """Report a finished shard; without another shard this also requests the next."""
        self._prefetcher.remove(work)
        if not self._prefetcher.leases:
            self._expect_answer()
        arrays = () if work.trains else (_concatenate(work.scores), work.labels)
        self._agent.send(ShardFinished(self._config.node, work.shard.lease), arrays)
        train = self._orders.obeyed
        if self._client is not None and train is not None and not self._client.interrupted:
            self._probe_link(self._client, len(train.endpoints))

    def _obey(self, order: ToNode) -> None:
        if isinstance(order, Adjust):
            self._adjust(order)
        elif isinstance(order, SetRate):
            self._trainer.rate = order.factor
        elif isinstance(order, Resize):
            self._agent.resize(order)
            self._trainer.costs.resized(Need(order.cpu, order.memory_mib, self._config.gpu))
        else:
            self._orders.note(order)

    def _adjust(self, order: Adjust) -> None:
        n_row = dict(order.sizes).get(self._config.node)
        if n_row is not None:
            self._trainer.share = BatchShare(n_row, dict(order.accumulate).get(self._config.node, 1))

    def _take_step(self) -> None:
        """Take one step, by priority: leave at once, pause, connect, finish, train, or wait for a shard."""
        if self._orders.leaves_at_once:
            self._leave()
        elif self._orders.pause is not None:
            self._pause(self._orders.pause)
        elif self._orders.train is not None and self._orders.train is not self._orders.obeyed:
            self._connect(self._orders.train)
        elif self._client is None:
            self._leave_or_wait(1.0)
        elif (work := self._prefetcher.done_work()) is not None:
            self.finish(work)
        elif self._prefetcher.is_ready:
            self._trainer.run(self, self._client)
        else:
            self._leave_or_wait(self._update_shards())

    def _update_shards(self) -> float:
        """Start to read granted shards and request one when due; return how long to wait afterwards."""
        orders, prefetcher = self._orders, self._prefetcher
        prefetcher.is_closing, prefetcher.n_step = orders.drained, orders.n_step
        while orders.granted and not orders.must_drop:
            prefetcher.add(orders.granted.popleft())
        is_reading = prefetcher.is_reading
        while prefetcher.ended:
            self._expect_answer()
            self._agent.send(StreamEnded(self._config.node, *prefetcher.ended.popleft()))
        now_s = self._clock.now_s()
        if prefetcher.is_short and not orders.drained and now_s >= orders.ask_at_s:
            self._expect_answer()
            self._agent.send(ShardAsked(self._config.node, prefetcher.leases, prefetcher.released))
        return POLL_EVERY_S if is_reading else max(0.0, orders.ask_at_s - now_s)

    def _expect_answer(self) -> None:
        """Repeat the request only after a time in which the answer must be lost."""
        self._orders.ask_at_s = self._clock.now_s() + self._config.spec.heartbeat_timeout_s
        self._orders.has_nothing = False

    def _leave_or_wait(self, timeout_s: float) -> None:
        """Leave if drained and no shard is begun; else wait for an order.

        Waiting for a shard to be granted or read counts as data time, else as idle time.
        """
        if self._orders.drained and not self._prefetcher.is_begun:
            self._leave()
            return
        self._check_reading()
        is_asking = self._client is not None and not self._orders.has_nothing
        if self._prefetcher.waits_for_step:
            self._accounting.switch(Part.PEERS)
        else:
            self._accounting.switch(Part.DATA if is_asking else Part.IDLE)
        ready = self._agent.wait(timeout_s)
        if self._client is not None:  # what is left unread would end each wait at once
            self._client.read(ready)

    def _leave(self) -> None:
        """End here, with the exact position in the shard that is left unfinished, if any.

        That is said until the master has heard it, or for as long as it may take another master to come.
        """
        self._disconnect()
        self._left = True
        position = (None, 0) if self._orders.must_drop else self._prefetcher.position
        left = Left(self._config.node, *position, self._prefetcher.released)
        _log.info("%s is drained and leaves", self._config.node)
        end_s = self._clock.now_s() + LEAVING_ALONE_S
        while not self._orders.stopped and self._clock.now_s() < end_s:
            self._agent.send(left)
            self._agent.wait(REPORT_EVERY_S)

    def _check_reading(self) -> None:
        """Fail when a shard cannot be read: the thread that reads it cannot be stopped."""
        now_s = self._clock.now_s()
        if not self._prefetcher.is_reading:
            self._reads_since_s = None
        elif self._reads_since_s is None:
            self._reads_since_s = now_s
        elif now_s > self._reads_since_s + READ_LIMIT_S:
            lease, _ = self._prefetcher.position
            raise BackendError(
                f"the rows of {lease} were not read within {READ_LIMIT_S:g} s; check access to the data"
            )

    def _pause(self, pause: Pause) -> None:
        self._follow(self._orders.train)
        self._orders.pause = None
        position, released = self._prefetcher.position, self._prefetcher.released
        paused = Paused(self._config.node, pause.ps_epoch, *position, number=pause.number, released=released)
        self._agent.send(paused)

    def _follow(self, train: Train | None) -> None:
        """Disconnect from the previous PS, and drop shards that a rollback has returned."""
        self._disconnect()
        self._orders.obeyed = train
        if self._orders.must_drop:
            self._prefetcher.clear()
            self._orders.must_drop = False

    def _connect(self, train: Train) -> None:
        """Connect to the PS of an order; an order that a restarted master repeats changes nothing."""
        is_repeated = is_same(train, self._orders.obeyed) and not self._orders.must_drop
        if is_repeated and self._client is not None:
            self._orders.obeyed = train
            self._orders.ask_at_s = 0.0  # the answer may have been lost with the previous master
            return
        self._follow(train)
        self._n_client += 1
        self._client = self._new_client(train)
        _log.info("%s trains with %d PS, epoch %d", self._config.node, len(train.endpoints), train.ps_epoch)
        self._client.init_dense(self._first_dense)
        if self._n_client == 1:
            self._probe_link(self._client, len(train.endpoints))

    def _probe_link(self, client: PsClient, n_ps: int) -> None:
        """Measure what a connection to a PS carries, where the job does not say; the most of several counts.

        One worker for each PS does: all at once would measure each other, and delay the start of a large job.
        That of a PS that joins later is measured after a shard: all wait for each other when it begins. The
        first probe comes after all imports, when a quota of processor time may be used up, and measures that
        wait instead of the link; so the next ones come after later shards.
        """
        named = re.search(r"\d+$", self._config.node)
        number = int(named[0]) if named else n_ps
        is_known = self._config.spec.link_gbit_per_s is not None or self._n_link_probe >= N_LINK_PROBE
        if is_known or number >= n_ps or self._clock.now_s() < self._next_link_probe_s:
            return
        gbit_per_s = client.probe_link(number)
        self._n_link_probe += 1
        self._next_link_probe_s = self._clock.now_s() + LINK_PROBE_EVERY_S
        if gbit_per_s > self._accounting.link_gbit_per_s:
            self._accounting.link_gbit_per_s = gbit_per_s
            _log.info("the connection to PS %d carries %.2g Gbit/s", number, gbit_per_s)

    def _new_client(self, train: Train) -> PsClient:
        kind: Callable[..., PsClient] = PsClient
        if self._config.spec.sync is Sync.GBA:
            kind = GbaClient
        elif self._config.spec.deterministic:
            kind = partial(StepClient, n_step=lambda: self._orders.n_step or 0)
        elif self._config.spec.sync.waits:
            synchronous = BspClient if self._config.spec.sync is Sync.BSP else SspClient
            kind = partial(synchronous, worker=self._config.node)
        return kind(
            self._context,
            keys=JobKeys(self._config.public_key, self._config.secret_key),
            identity=f"{self._config.node}/{os.getpid()}/{self._n_client}",
            agent=self._agent,
            train=train,
            dense_length=len(self._trainer.learner.values),
            pending=lambda: self._orders.pending,
            shares_memory=True,
            n_average=self._config.spec.model.n_average,
            packing=self._config.spec.exchange,
        )

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            self._accounting.forget()  # unacknowledged work belongs to no iteration
        self._prefetcher.rewind()

    def _introduce(self, hello: Hello) -> Hello:
        """Add what was done in its shards: what it said of that may be lost with the connection."""
        unfinished = (*self._prefetcher.unfinished, *untouched(self._orders.granted))
        return replace(hello, released=self._prefetcher.released, unfinished=unfinished)

    def _describe(self, sample: NodeSample) -> Report:
        sample = replace(sample, batch_cost=self._trainer.costs.current)
        if self._client is not None:
            sample = replace(sample, carrier=self._client.carrier)
        return Report(sample, *self._prefetcher.position)


def is_same(train: Train | None, obeyed: Train | None) -> bool:
    """Whether an order leaves a worker with the servers and the shards that it has by the one in force."""
    if train is None or obeyed is None:
        return train is obeyed
    return train in (obeyed, replace(obeyed, drop_shard=False))


def _concatenate(scores: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate(scores) if scores else np.empty(0, np.float32)
