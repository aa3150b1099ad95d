"""A worker's line to its PS: one message to each and one answer from each, per iteration.

A PS that does not answer must not hang its worker, and a worker must not decide that a PS is dead: the
master does. So the worker waits for both at once. No answer within some seconds: the request is sent again
(the PS knows it by its step). An order of the master while PS are still silent: they get a little longer,
then the step is dropped, which is safe because nothing of it was acknowledged. A dropped line is closed, so
that nothing of the step can arrive later; `Train` opens a new one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.batches import Layout, Prepared
from dlrover_nb.core.runtime.exchange import (
    DenseReady,
    Exchange,
    Exchanged,
    InitDense,
    Refused,
    StaleEpoch,
    Trip,
    trip_of,
)
from dlrover_nb.core.runtime.store import dense_slice
from dlrover_nb.core.runtime.wire import JobKeys, connect_dealer, decode, encode, n_byte

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.agent import Agent
    from dlrover_nb.core.runtime.trainer import Push
    from dlrover_nb.core.runtime.wire import Context, Socket
    from dlrover_nb.core.structs.messages import Train

    Floats = NDArray[np.float32]
    Arrays = list[NDArray[Any]]

_log = logging.getLogger(__name__)

ASK_AGAIN_S = 10.0  # far above any iteration, so a repetition means that a message was lost
_LOOK_EVERY_S = 0.5  # at the time, while PS are silent
_NO_ROWS = np.empty(0, np.int64)


class ExchangeDroppedError(Exception):
    """The step on its way was dropped; the worker asks its master what to do. Never shown to a user."""


class PsLine:
    """Sockets to all PS of one `Train` order.

    Parameters
    ----------
    context, keys, identity
        Where sockets are made, and under which name; an identity is used once.
    agent
        The line to the master, which is heard while PS are awaited.
    train
        Which PS, and what they own.
    dense_length
        Of the flat vector.
    patience_s
        How long a silent PS may be waited for; infinite unless the master wants something else.
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
        patience_s: Callable[[], float],
    ) -> None:
        n_ps = len(train.endpoints)
        self.layout = Layout(np.array(train.bucket_owner, np.int64), n_ps)
        self._agent, self._epoch, self._patience_s = agent, train.ps_epoch, patience_s
        self._slices = [dense_slice(dense_length, i, n_ps) for i in range(n_ps)]
        self._no_dense = np.empty(0, np.float32)
        self._sockets = [connect_dealer(context, at, identity, keys) for at in train.endpoints]
        for socket in self._sockets:
            agent.watch(socket)
        self._step = 0
        self._requests: list[list[Any]] = []
        self._asked_s = 0.0
        self._awaited: type[Exchanged | DenseReady] = DenseReady
        self._latest = Exchanged(0, 0)
        self.last = Trip()

    @property
    def interrupted(self) -> bool:
        """Whether the master wants the worker for something else than the next batch."""
        return self._patience_s() < math.inf

    def init_dense(self, values: Floats) -> None:
        """Offer every PS first values of its dense slice."""
        self._ask([encode(InitDense(self._epoch), [values[part]]) for part in self._slices], DenseReady)
        self._answers()

    def start(self, push: Push | None, pull: Prepared | None) -> None:
        """Send gradients and ask for rows."""
        self._step += 1
        request = Exchange(self._epoch, self._step)
        frames = [encode(request, self._arrays(i, push, pull)) for i in range(len(self._sockets))]
        self._ask(frames, Exchanged)

    def finish(self, dense: Floats) -> Floats:
        """Wait for all answers: fill `dense`, return the rows grouped by PS.

        Raises
        ------
        ExchangeDroppedError
            When the master wants something else and a PS is silent, or the PS serve another epoch.
        WireError
            When a PS can never serve the request.
        """
        answers = self._answers()
        for part, (_, values) in zip(self._slices, answers, strict=True):
            dense[part] = values
        self._measure(answers)
        return answers[0][0] if len(answers) == 1 else np.concatenate([rows for rows, _ in answers])

    def _measure(self, answers: list[Arrays]) -> None:
        """Say where the time of the exchange went, as the PS that answered last tells it."""
        sent = sum(map(n_byte, self._requests))
        received = sum(array.nbytes for arrays in answers for array in arrays)
        self.last = trip_of(self._latest, time.monotonic() - self._asked_s, sent=sent, received=received)

    def close(self) -> None:
        """Close the sockets; what was not sent is dropped."""
        for socket in self._sockets:
            self._agent.unwatch(socket)
            socket.close(linger=0)

    def _arrays(self, i: int, push: Push | None, pull: Prepared | None) -> Arrays:
        """Return the arrays of an `Exchange` with PS i."""
        pull_rows = _NO_ROWS if pull is None else pull.rows[_part(pull, i)]
        if push is None:
            return [_NO_ROWS, self._no_dense, self._no_dense, pull_rows]
        mine = _part(push.batch, i)
        return [push.batch.rows[mine], push.rows[mine], push.dense[self._slices[i]], pull_rows]

    def _ask(self, requests: list[list[Any]], awaited: type[Exchanged | DenseReady]) -> None:
        self._requests, self._awaited = requests, awaited
        self._asked_s = time.monotonic()
        for socket, frames in zip(self._sockets, requests, strict=True):
            _send(socket, frames)

    def _answers(self) -> list[Arrays]:
        answers: dict[Socket, Arrays] = {}
        again_at_s = time.monotonic() + ASK_AGAIN_S
        wanted_since_s: float | None = None
        while len(answers) < len(self._sockets):
            for socket in self._agent.wait(_LOOK_EVERY_S):
                self._read(socket, answers)
            now_s = time.monotonic()
            if self.interrupted and wanted_since_s is None:
                wanted_since_s = now_s
            if wanted_since_s is not None and len(answers) < len(self._sockets):
                self._keep_patience(now_s - wanted_since_s)
            if now_s >= again_at_s:
                again_at_s = now_s + ASK_AGAIN_S
                self._ask_again(answers)
        return [answers[socket] for socket in self._sockets]

    def _keep_patience(self, waited_s: float) -> None:
        if waited_s >= self._patience_s():
            raise ExchangeDroppedError(f"a PS is silent and the master has waited for {waited_s:.1f} s")

    def _ask_again(self, answers: dict[Socket, Arrays]) -> None:
        for i, (socket, frames) in enumerate(zip(self._sockets, self._requests, strict=True)):
            if socket not in answers:
                _log.info("PS %d has not answered step %d for %g s: asked again", i, self._step, ASK_AGAIN_S)
                _send(socket, frames)

    def _read(self, socket: Socket, answers: dict[Socket, Arrays]) -> None:
        message, arrays = decode(socket.recv_multipart(copy=False))
        if self._is_awaited(message):
            answers[socket] = arrays
        elif isinstance(message, StaleEpoch):
            raise ExchangeDroppedError(f"a PS serves epoch {message.ps_epoch}, not {self._epoch}")
        elif isinstance(message, Refused):
            raise WireError(f"a PS refused the exchange: {message.why}")

    def _is_awaited(self, message: object) -> bool:
        """Whether it answers the request at hand, and not one that was asked again."""
        if isinstance(message, Exchanged):
            self._latest = message
            answers_step = message.step == self._step
        else:
            answers_step = True
        return answers_step and isinstance(message, self._awaited) and message.ps_epoch == self._epoch


def _part(batch: Prepared, i: int) -> slice:
    return slice(batch.bounds[i], batch.bounds[i + 1])


def _send(socket: Socket, frames: list[Any]) -> None:
    with contextlib.suppress(zmq.Again):  # full, as the PS is away: asked again later
        socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
