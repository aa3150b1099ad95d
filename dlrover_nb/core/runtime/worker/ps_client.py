"""The connection of a worker to its PS: one request to each and one answer from each, per iteration.

A PS that does not answer must not block its worker, and a worker must not decide that a PS is dead: the
master does. So the worker waits for both at once. Without an answer within some seconds the request is
repeated (the PS identifies it by its step). The step is dropped only when the master's orders make it void:
a PS that cannot be reached may have applied it, and the batch would be trained twice. A pause waits for the
step; the master gives up one that takes too long. The connection of a dropped step is closed, so that nothing
of it can arrive later; `Train` opens a new one.

With a PS on the same host arrays are exchanged in shared memory (`slab`), and messages only say where.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.packing import Packer, unpack_answer
from dlrover_nb.core.runtime.exchange.ps_link import PsLink, SentRequest
from dlrover_nb.core.runtime.exchange.push_pull import (
    NO_SLAB,
    DenseReady,
    Exchange,
    ExchangeCost,
    Exchanged,
    ExchangeRefused,
    Fenced,
    FinishedRound,
    Form,
    InitDense,
    NotMember,
    Probe,
    Probed,
    Proceed,
    StaleEpoch,
    UnitGradients,
    exchange_cost,
)
from dlrover_nb.core.runtime.exchange.shared_block import aligned, carried_bytes
from dlrover_nb.core.runtime.exchange.wire import encode
from dlrover_nb.core.runtime.store import averages_in, dense_slice
from dlrover_nb.core.runtime.store.batches import BucketLayout, PreparedBatch
from dlrover_nb.core.structs.job.exchange_spec import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import BatchShare, FromPs
    from dlrover_nb.core.runtime.exchange.slab.of_worker import Parts
    from dlrover_nb.core.runtime.exchange.sockets import Context, JobKeys, Socket
    from dlrover_nb.core.runtime.process.agent import Agent
    from dlrover_nb.core.runtime.worker.trainer import Push
    from dlrover_nb.core.structs.job.exchange_spec import ExchangeSpec
    from dlrover_nb.core.structs.wire.messages import Train

    Floats = NDArray[np.float32]
    Arrays = list[NDArray[Any]]
    _Question = tuple[int, type[Any]]  # to which PS, and what answers it

_log = logging.getLogger(__name__)

ASK_AGAIN_S = 10.0  # far above any iteration: only lost messages are repeated
_POLL_EVERY_S = 0.5  # polling of the time while PS are silent
_NO_ROWS = np.empty(0, np.int64)
PROBE_BYTES, N_PROBE = 1 << 21, 3


class Pending(Enum):
    """What the orders of the master that wait mean for the exchange in progress."""

    NONE = auto()
    BETWEEN_BATCHES = auto()  # they are executed when it has ended
    AT_ONCE = auto()  # it is void


class ExchangeDroppedError(Exception):
    """The step in progress was dropped; the worker waits for orders. Never shown to a user."""


class FencedError(Exception):
    """PS refuse this worker because its master gave it up; the worker ends. Never shown to a user."""


class PsClient:
    """Sockets to all PS of one `Train` order.

    Parameters
    ----------
    context, keys, identity
        For the sockets; an identity is used once.
    agent
        Connection to the master; its orders are received while PS are awaited.
    train
        The PS and the buckets that they own.
    dense_length, n_average
        Of the flat vector, and how many of its last elements are averages.
    pending
        Whether orders of the master wait.
    shares_memory
        Whether memory may be shared with PS of this host.
    packing
        What exchanges with other hosts carry.
    """

    def __init__(  # noqa: PLR0913 - the composition of a worker's parts
        self,
        context: Context,
        *,
        keys: JobKeys,
        identity: str,
        agent: Agent,
        train: Train,
        dense_length: int,
        pending: Callable[[], Pending],
        shares_memory: bool = False,
        n_average: int = 0,
        packing: ExchangeSpec = PLAIN,
    ) -> None:
        n_ps = len(train.endpoints)
        self.layout = BucketLayout(np.array(train.bucket_owner, np.int64), n_ps)
        self._agent, self._epoch, self._orders_pending = agent, train.ps_epoch, pending
        self._slices = [dense_slice(dense_length, i, n_ps) for i in range(n_ps)]
        self._n_averages = [averages_in(part, dense_length, n_average) for part in self._slices]
        self._no_dense = np.empty(0, np.float32)
        self._links = [
            PsLink(context, at, identity=identity, keys=keys, agent=agent, shares_memory=shares_memory)
            for at in train.endpoints
        ]
        self._packers = [
            Packer(packing, part.stop - part.start, n)
            if not packing.is_plain and link.is_between_hosts
            else None
            for part, n, link in zip(self._slices, self._n_averages, self._links, strict=True)
        ]
        self._forms: list[Form | None] = [None] * n_ps  # of the answers that are due
        self._packing = packing
        self._row_bytes = 0  # of a row in an answer; 0: there was none yet
        self._step = 0
        self._pending: dict[_Question, SentRequest] = {}  # unanswered requests as they were sent
        self._answered: dict[_Question, tuple[Any, Arrays]] = {}
        self._n_byte_sent = 0
        self._asked_s = 0.0
        self.last = ExchangeCost()

    @property
    def interrupted(self) -> bool:
        """Whether an order of the master other than to train is pending."""
        return self._orders_pending() is not Pending.NONE

    @property
    def carrier(self) -> str:
        """What carries arrays to the PS, in words."""
        return ", ".join(dict.fromkeys(map(self._carrier, self._links)))

    def _carrier(self, link: PsLink) -> str:
        """Return what carries arrays to one PS, and in which form where the job asks for one."""
        if self._packing.is_plain:
            return link.carrier
        is_packed = link.is_between_hosts and not link.slab.is_used
        return f"{link.carrier} ({self._packing.words if is_packed else 'all float32 on one host'})"

    @property
    def was_late(self) -> bool:
        """Whether the last gradients came too late: here all are applied."""
        return False

    def init_dense(self, values: Floats) -> None:
        """Send every PS initial values of its dense slice."""
        for i, part in enumerate(self._slices):
            self._ask(i, DenseReady, InitDense(self._epoch), [values[part]])
        self._answers(DenseReady)

    def probe_link(self, i: int) -> float:
        """Return what the connection to PS `i` carries in one direction, in Gbit/s; 0.0: not measurable.

        Encryption and copies count, as they do for each exchange: a fast network behind a slow processor
        carries no more. The time of an empty probe is taken off, and of each kind the fastest counts, since
        other workers and processes only ever make them slower.
        """
        full_s, empty_s = (min(self._probe_s(i, n) for _ in range(N_PROBE)) for n in (PROBE_BYTES, 0))
        self._n_byte_sent = 0  # they are no cost of the next exchange
        return 2 * 8 * PROBE_BYTES / (full_s - empty_s) / 1e9 if full_s > empty_s else 0.0

    def _probe_s(self, i: int, n_probe_byte: int) -> float:
        """Return how long so many bytes take to PS `i` and back."""
        began_s = time.monotonic()
        self._ask(i, Probed, Probe(self._epoch), [np.zeros(n_probe_byte // 8, np.int64)])
        self._answers(Probed)
        return time.monotonic() - began_s

    def begin(self) -> None:
        """Begin a stream of batches."""

    def end(self) -> None:
        """End the stream; what was kept of dense gradients is sent."""
        if any(packer is not None and packer.owes for packer in self._packers):
            self._exchange(None, None)
            self._answers(Exchanged)

    def batch_share(self, n_taken: int) -> BatchShare | None:  # noqa: ARG002 - here all batches are alike
        """Return what the batch after `n_taken` of this stream has; None: unchanged."""
        return None

    def start(self, push: Push | None, pull: PreparedBatch | None) -> None:
        """Send gradients and ask for rows."""
        self._exchange(push, pull)

    def finish(self, dense: Floats) -> Floats:
        """Wait for all answers: fill `dense`, return the rows grouped by PS.

        Raises
        ------
        ExchangeDroppedError
            When an order makes the exchange void while a PS is silent, or the PS serve another epoch.
        WireError
            When a PS can never serve the request.
        """
        return self._rows(dense)

    def _exchange(
        self, push: Push | None, pull: PreparedBatch | None, done: FinishedRound | None = None
    ) -> None:
        self._step += 1
        self._asked_s = time.monotonic()
        rate = 1.0 if push is None else push.rate
        for i in range(len(self._links)):
            pull_rows = _NO_ROWS if pull is None else pull.rows[_part(pull, i)]
            is_last = push is None and pull is None
            gradients, form = self._packed(i, self._gradients(i, push), is_last=is_last)
            arrays = [*gradients, pull_rows]
            parts, answer_at = self._links[i].share(arrays, self._answer_bytes(i, len(pull_rows)))
            self._forms[i] = form if answer_at == NO_SLAB else None
            exchange = self._marked(Exchange(self._epoch, self._step, done, rate, answer_at, form), push)
            self._send(i, Exchanged, self._links[i].exchange(exchange, parts), parts)

    def _marked(self, exchange: Exchange, push: Push | None) -> Exchange:  # noqa: ARG002 - here none
        """Return the exchange with what PS have to know of gradients that they do not apply at once."""
        return exchange

    def _packed(self, i: int, gradients: Arrays, *, is_last: bool) -> tuple[Arrays, Form | None]:
        """Return gradients as they travel to PS i, and their form; None: they are not packed."""
        packer, is_shared = self._packers[i], self._links[i].slab.is_used
        if packer is None or (is_shared and not packer.owes):
            return gradients, None
        return packer.pack(gradients, is_last=is_last or is_shared)

    def _answer_bytes(self, i: int, n_row: int) -> int | None:
        """Return the bytes that the answer of PS i takes of a slab; None: not known before the first one."""
        if n_row and not self._row_bytes:
            return None
        part = self._slices[i]
        return aligned(n_row * self._row_bytes) + aligned(4 * (part.stop - part.start))

    def _rows(self, dense: Floats) -> Floats:
        answers = self._answers(Exchanged)
        self._row_bytes = self._row_bytes or 4 * answers[0][1][0].shape[1]
        by_ps = []
        slices = zip(self._slices, self._n_averages, self._forms, answers, strict=True)
        for part, n, form, (answer, arrays) in slices:
            rows, values = unpack_answer(arrays, form, answer.scale, answer.dense_scale, n)
            if len(values):
                dense[part] = values
            by_ps.append(rows)
        self._measure(answers)
        return by_ps[0] if len(by_ps) == 1 else np.concatenate(by_ps)

    def _measure(self, answers: list[tuple[Any, Arrays]]) -> None:
        """Record how the time of the exchange divides, as reported by the slowest PS."""
        received = sum(array.nbytes for _, arrays in answers for array in arrays)
        slowest = max((answer for answer, _ in answers), key=lambda answer: answer.update_s + answer.lookup_s)
        took_s = time.monotonic() - self._asked_s
        self.last = exchange_cost(slowest, took_s, sent=self._n_byte_sent, received=received)
        self._n_byte_sent = 0

    def read(self, ready: Container[Socket | int]) -> None:
        """Read the answers that have come; one to a request that was repeated may come when none is due."""
        for i, link in enumerate(self._links):
            for message, arrays in link.answers(ready):
                self._accept(i, message, arrays)

    def close(self) -> None:
        """Close the sockets; what was not sent is dropped."""
        for link in self._links:
            link.close()

    def _gradients(self, i: int, push: Push | None) -> Arrays:
        """Return the rows that are pushed to PS i, their gradients, and that of its dense slice."""
        if push is None or push.refusal is not None:
            return [_NO_ROWS, self._no_dense, self._no_dense]
        mine = _part(push.batch, i)
        return [push.batch.rows[mine], push.rows[mine], push.dense[self._slices[i]]]

    def _ask(self, i: int, kind: type[Any], request: object, arrays: Parts = ()) -> None:
        """Send a request to PS i that a message of this kind answers."""
        self._send(i, kind, encode(request, arrays), arrays)

    def _send(self, i: int, kind: type[Any], request: SentRequest, arrays: Parts) -> None:
        self._pending[i, kind] = request
        self._n_byte_sent += carried_bytes(request, arrays)
        self._links[i].send(request)

    def _answers(self, kind: type[Any]) -> list[tuple[Any, Arrays]]:
        """Wait until all requests of this kind are answered; return the answers in the order of the PS."""
        again_at_s = time.monotonic() + ASK_AGAIN_S
        while any(question[1] is kind for question in self._pending):
            self.read(self._agent.wait(_POLL_EVERY_S))
            if self._pending and self._orders_pending() is Pending.AT_ONCE:
                raise ExchangeDroppedError("other orders have come while a PS was silent")
            if time.monotonic() >= again_at_s:
                again_at_s = time.monotonic() + ASK_AGAIN_S
                self._ask_again()
        indices = sorted(question[0] for question in self._answered if question[1] is kind)
        return [self._answered.pop((i, kind)) for i in indices]

    def _ask_again(self) -> None:
        for (i, kind), request in self._pending.items():
            _log.info("PS %d sent no %s for %g s: request repeated", i, kind.__name__, ASK_AGAIN_S)
            self._links[i].unseal()
            self._links[i].send(request)

    def _accept(self, i: int, message: FromPs, arrays: Arrays) -> None:
        question = i, type(message)
        if isinstance(message, StaleEpoch):
            raise ExchangeDroppedError(f"a PS serves epoch {message.ps_epoch}, not {self._epoch}")
        if isinstance(message, Fenced):
            raise FencedError
        if isinstance(message, ExchangeRefused):
            raise WireError(f"a PS refused the exchange: {message.why}")
        if question in self._pending and self._is_of_now(message):
            del self._pending[question]
            self._answered[question] = message, arrays
        elif isinstance(message, NotMember) and (i, Proceed) in self._pending and self._is_of_now(message):
            raise ExchangeDroppedError("the coordinator has removed this worker")

    def _is_of_now(self, message: FromPs) -> bool:
        """Whether it answers the current request, not a repeated one."""
        of_epoch = getattr(message, "ps_epoch", None) == self._epoch
        return of_epoch and getattr(message, "step", self._step) == self._step


class GbaClient(PsClient):
    """A client whose gradients PS gather into global batches."""

    def _marked(self, exchange: Exchange, push: Push | None) -> Exchange:
        n_row = 0 if push is None or push.refusal is not None else len(push.batch.labels)
        return replace(exchange, n_row=n_row)


class StepClient(PsClient):
    """A client in deterministic training: PS keep gradients by unit, and answer from a complete step.

    `n_step` returns how many steps the master has called complete.
    """

    def __init__(self, *args: Any, n_step: Callable[[], int], **more: Any) -> None:  # noqa: ANN401 - as `PsClient`
        super().__init__(*args, **more)
        self._n_step = n_step

    def _marked(self, exchange: Exchange, push: Push | None) -> Exchange:
        part = None
        if push is not None and push.unit is not None:
            part = UnitGradients(push.unit, len(push.batch.labels), push.refusal is not None)
        return replace(exchange, n_step=self._n_step(), part=part)


def _part(batch: PreparedBatch, i: int) -> slice:
    return slice(batch.bounds[i], batch.bounds[i + 1])
