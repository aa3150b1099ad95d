"""Carries out the orders of master and controller in sequence, for every kind of job.

Orders are carried out in the order in which they were decided. Carrying one out may cause further facts and
orders (a node that could not be started, a plan that the controller orders on a fact): these are written
ahead at once and queued behind the waiting orders. Recursion was rejected: it carries out the newer orders
first, so that a node would be started after the newer order that stops it, and run without a master.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Generic, assert_never

from dlrover_nb.core.driver.loop.parts import ActionT
from dlrover_nb.core.errors import DlroverError, InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.decisions.actions import MitigationChoice
from dlrover_nb.core.structs.views.events import EndJob, Mitigate, MitigationEnded, Remember, Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import BatchChoice
    from dlrover_nb.core.structs.views.events import Event, Instruction

logger = logging.getLogger(__name__)


class OrderExecutor(Generic[ActionT]):
    """Carries out the orders of one job; for its loop alone.

    Parameters
    ----------
    write_ahead
        Records the state behind orders.
    perform
        Carries out one action and returns the orders that follow from it.
    record
        Passes a fact to the controller, records it, and returns the controller's instructions.
    set_target
        Returns the master's orders for a plan.
    choose
        Returns the master's orders for other batch sizes; `InvalidValueError` where they are impossible.
    mitigate
        Returns the master's orders for an action against stragglers; `InvalidValueError` or
        `StaleDecisionError` where it cannot be done now.
    stop
        Returns the master's orders to save a checkpoint and end the job, by its reason.
    now_s
        Returns the time.
    """

    def __init__(  # noqa: PLR0913 - what it calls, all by keyword
        self,
        *,
        write_ahead: Callable[[Sequence[ActionT | Emit]], None],
        perform: Callable[[ActionT], tuple[ActionT | Emit, ...]],
        record: Callable[[Event], tuple[Instruction, ...]],
        set_target: Callable[[ResourcePlan], tuple[ActionT | Emit, ...]],
        choose: Callable[[BatchChoice], tuple[ActionT | Emit, ...]],
        mitigate: Callable[[MitigationChoice, float], tuple[ActionT | Emit, ...]],
        stop: Callable[[str], tuple[ActionT | Emit, ...]],
        now_s: Callable[[], float],
    ) -> None:
        self._write_ahead, self._perform = write_ahead, perform
        self._record, self._set_target, self._choose = record, set_target, choose
        self._mitigate, self._stop, self._now_s = mitigate, stop, now_s
        self._queue: deque[ActionT | Emit] = deque()
        self._is_busy = False

    def carry_out(self, orders: Iterable[ActionT | Emit]) -> None:
        """Carry out orders and all that follow from them; a nested call only queues.

        Raises
        ------
        RuntimeError
            When an order fails. The orders behind it are dropped: the job cannot go on without it.
        """
        orders = tuple(orders)
        self._write_ahead(orders)
        self._queue.extend(orders)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._queue:
                self._do(self._queue.popleft())
        finally:
            self._queue.clear()
            self._is_busy = False

    def carry_out_despite_errors(self, orders: Iterable[ActionT | Emit]) -> None:
        """Carry out the last orders of a job that failed, each whether or not the others fail."""
        for order in orders:
            try:
                self._do(order)
            except Exception:
                logger.exception("%s could not be carried out", order)

    def emit(self, event: Event) -> tuple[Instruction, ...]:
        """Pass a fact to the controller and carry out its instructions.

        Raises
        ------
        DlroverError
            Why the controller refuses it; then nothing has changed.
        """
        instructions = self._record(event)
        for instruction in instructions:
            match instruction:
                case Scale(_, target):
                    self.carry_out(self._set_target(target))
                case Mitigate(choice):
                    self._apply(choice)
                case EndJob(why):
                    self.carry_out(self._stop(why))
                case Remember():
                    pass  # recorded already
                case _ as never:
                    assert_never(never)
        return instructions

    def _apply(self, choice: BatchChoice | MitigationChoice) -> None:
        if isinstance(choice, MitigationChoice):
            self.carry_out(begun(choice, self._mitigate, self._now_s()))
        else:
            self._set_batches(choice)

    def _set_batches(self, choice: BatchChoice) -> None:
        """Set workers' batch sizes, unless the master refuses, for example as one of them has exited."""
        try:
            orders = self._choose(choice)
        except InvalidValueError as error:
            logger.warning("batch sizes were not changed: %s", error)
            return
        self.carry_out(orders)

    def _do(self, order: ActionT | Emit) -> None:
        try:
            if isinstance(order, Emit):
                self.emit(order.event)
            else:
                self.carry_out(self._perform(order))
        except DlroverError as error:  # not an answer to the user's command during which it may happen
            raise RuntimeError(f"{type(order).__name__} could not be carried out: {error}") from error


def begun(
    choice: MitigationChoice,
    mitigate: Callable[[MitigationChoice, float], tuple[ActionT | Emit, ...]],
    at_s: float,
) -> tuple[ActionT | Emit, ...]:
    """Return the master's orders for an action; where it refuses, the action has ended with its reason."""
    try:
        return mitigate(choice, at_s)
    except (InvalidValueError, StaleDecisionError) as error:
        logger.warning("%s: not done: %s", choice.action.words, error)
        return (Emit(MitigationEnded(at_s, choice.decision, str(error))),)
