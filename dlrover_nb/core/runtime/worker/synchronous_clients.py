"""Clients of workers in synchronous training: BSP and SSP.

Both register with the coordinator, the PS of index 0, and arrive there once per round (`round_barrier`). In
SSP the arrival is sent beside the exchange, which is applied at once. In BSP an iteration takes three
requests: all PS keep the gradients, the coordinator answers who took part in the round, and the rows of the
next batch are read after that round was applied. So a barrier costs two more round trips than an asynchronous
exchange.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.exchange.push_pull import (
    NO_SLAB,
    Arrive,
    Go,
    GradientsKept,
    Join,
    KeepGradients,
    Leave,
    NotMember,
    Proceed,
)
from dlrover_nb.core.runtime.worker.ps_client import PsClient

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import BatchShare
    from dlrover_nb.core.runtime.store.batches import PreparedBatch
    from dlrover_nb.core.runtime.worker.trainer import Push

    Floats = NDArray[np.float32]

COORDINATOR = 0


class SspClient(PsClient):
    """A client that waits when it is too far ahead of the slowest worker; `worker` is its own name."""

    def __init__(self, *args: Any, worker: str, **more: Any) -> None:  # noqa: ANN401 - those of `PsClient`
        super().__init__(*args, **more)
        self._worker = worker
        self._go = Go(0, None, ())
        self._first_round = 0

    def begin(self) -> None:
        """Join the rounds."""
        self._step += 1
        self._ask(COORDINATOR, Proceed, Join(self._epoch, self._step, self._worker))
        self._await_proceed()
        self._first_round = self._go.round

    def end(self) -> None:
        """Leave the rounds, so that no worker waits for this one."""
        super().end()
        self._step += 1
        self._ask(COORDINATOR, NotMember, Leave(self._epoch, self._step, self._worker))
        self._answers(NotMember)

    def batch_share(self, n_taken: int) -> BatchShare | None:
        """Return what is in force in the round of the batch."""
        return self._go.share(self._first_round + n_taken)

    def start(self, push: Push | None, pull: PreparedBatch | None) -> None:
        """Send gradients, ask for rows, and arrive in the round of the gradients."""
        super().start(push, pull)
        if push is not None:
            self._arrive(push)

    def finish(self, dense: Floats) -> Floats:
        """Wait for all answers, and until the slowest worker is close enough."""
        began_s = time.monotonic()
        rows = self._rows(dense)
        waits_s = time.monotonic()
        self._await_proceed()
        free_s = time.monotonic()
        self._share_out(self.last.push_share * (waits_s - began_s), free_s - waits_s, free_s - began_s)
        return rows

    def _arrive(self, push: Push) -> None:
        number, n_row = self._go.round, len(push.batch.labels)
        arrival = Arrive(self._epoch, self._step, self._worker, number, n_row)
        self._ask(COORDINATOR, Proceed, arrival)

    def _await_proceed(self) -> None:
        """Wait for the answer of the coordinator, if one is due."""
        for message, _ in self._answers(Proceed):
            self._go = message.go

    def _share_out(self, push_s: float, peers_s: float, total_s: float) -> None:
        """Record the shares of a wait for the push and for peers."""
        total_s = max(total_s, 1e-9)
        self.last = replace(self.last, push_share=push_s / total_s, peers_share=peers_s / total_s)


class BspClient(SspClient):
    """A client whose gradients are applied together with those of all others."""

    _push: Push | None = None
    _pull: PreparedBatch | None = None

    @property
    def was_late(self) -> bool:
        """Whether the round of the last gradients had ended without them."""
        return self._push is not None and self._go.is_late

    def start(self, push: Push | None, pull: PreparedBatch | None) -> None:
        """Send gradients for all PS to keep; rows are read when the round has ended."""
        self._push, self._pull = push, pull
        self._step += 1
        if push is not None:
            is_skipped = push.refusal is not None
            for i, link in enumerate(self._links):
                parts, at = link.share(self._gradients(i, push), 0)
                keep = KeepGradients(
                    self._epoch, self._step, self._worker, self._go.round, is_skipped, at != NO_SLAB
                )
                self._ask(i, GradientsKept, keep, parts)

    def finish(self, dense: Floats) -> Floats:
        """Wait until the round has ended and is applied."""
        began_s = time.monotonic()
        self._answers(GradientsKept)
        held_s = time.monotonic()
        if self._push is not None:
            self._arrive(self._push)
        self._await_proceed()
        if self.was_late:
            self._first_round = self._go.round  # the next batch is of that round
        free_s = time.monotonic()
        self._exchange(None, None if self.was_late else self._pull, self._go.done)  # else it takes others
        rows = self._rows(dense)
        end_s = time.monotonic()
        push_s = held_s - began_s + self.last.push_share * (end_s - free_s)
        self._share_out(push_s, free_s - held_s, end_s - began_s)
        return rows
