"""What a mini-batch costs on this node: as an earlier job measured it, while that holds, or measured here.

The times of a program on a kind of device are the same in later jobs, so they come from the history. They are
held against the first batches that the node trains anyhow: where those take another time altogether, the node
measures itself. Their sums are compared and not single batches, since a quota stops a node now and then.
What fits into memory is counted anew in any case. That takes two mini-batches and no clock, and an outdated
number would end the process.

A kind of device is the name of the processor or GPU, with the cores, memory and GPUs that the node may use.
"""

from __future__ import annotations

import logging
import platform
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from dlrover_nb.core.models.processor import cpu_info
from dlrover_nb.core.runtime.process.limits import MOST_USED
from dlrover_nb.core.runtime.worker.batch_probe import CLOCKS, Clocks, Room, measure, most_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.models.learner import Learner
    from dlrover_nb.core.runtime.store.batches import PreparedBatch
    from dlrover_nb.core.structs.plan.resources import Need
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

_log = logging.getLogger(__name__)

CHECKED_S, N_CHECKED = 1.0, 5  # of training, and mini-batches, before a kept cost counts as right
MOST_OFF = 1.5  # times longer or shorter than that: it is wrong here


class BatchCosts:
    """The costs of one node's mini-batches.

    Parameters
    ----------
    need
        What the node may use.
    is_due
        Whether the job asks for the cost.
    clocks
        Of measurements.

    Attributes
    ----------
    need
        As above; with another size the node is another kind of device.
    is_due
        Whether the cost is to be found before the next batch.
    current
        The cost; None: it is not known.
    """

    def __init__(self, need: Need, *, is_due: bool, clocks: Clocks = CLOCKS) -> None:
        self.need, self.is_due = need, is_due
        self.current: BatchCost | None = None
        self._clocks = clocks
        self._of_device: dict[str, BatchCost] = {}
        self._checked: tuple[int, float, float] | None = None  # batches, seconds, and those expected

    def take(self, costs: Iterable[BatchCost]) -> None:
        """Take what earlier jobs of this program measured, each on its kind of device."""
        self._of_device |= {cost.device: cost for cost in costs if cost.device}

    def resized(self, need: Need) -> None:
        """Take another size of the node."""
        self.need, self.is_due = need, self.is_due or self.current is not None

    def find(
        self,
        learner: Learner,
        rows: NDArray[np.float32],
        batch: PreparedBatch,
        used_mib: float,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Find the cost: that of an earlier job, or else by computing some batches.

        Parameters
        ----------
        rows, batch, between
            As in `batch_probe.measure`.
        used_mib
            Memory that the node uses.
        """
        self.is_due, self._checked = False, None
        device, room = self._device(learner), Room(MOST_USED * self.need.memory_mib, used_mib)
        before = self._of_device.get(device)
        if before is not None:
            self.current = replace(before, most=most_rows(learner, rows, batch, room))
            self._checked = (0, 0.0, 0.0) if before.job else None
            _log.info("mini-batches cost what job %s measured on %s", before.job or "this", device)
            return
        cost = measure(learner, rows, batch, room, clocks=self._clocks, between=between)
        if cost is not None:
            self.current = self._of_device[device] = replace(cost, device=device)

    def check(self, n_row: int, n_batch: int, seconds: float) -> None:
        """Hold the cost of an earlier job against so many rows that were computed in so many mini-batches."""
        if self._checked is None or self.current is None:
            return
        n, took_s, expected_s = self._checked
        n, took_s = n + n_batch, took_s + seconds
        expected_s += n_batch * self.current.fixed_s + n_row * self.current.row_s
        self._checked = n, took_s, expected_s
        if n < N_CHECKED or max(took_s, expected_s) < CHECKED_S:
            return
        self._checked = None
        if not expected_s / MOST_OFF <= took_s <= expected_s * MOST_OFF:
            _log.info(
                "mini-batches took %.3g s where job %s had %.3g s: they are measured here",
                took_s / n,
                self.current.job,
                expected_s / n,
            )
            self._of_device.pop(self.current.device, None)
            self.is_due = True

    def _device(self, learner: Learner) -> str:
        name = torch.cuda.get_device_name() if learner.is_on_gpu else cpu_info("model name")
        gpus = f", {self.need.gpu} GPU" if self.need.gpu else ""
        size = f"{self.need.cpu:g} cores, {self.need.memory_mib:.0f} MiB{gpus}"
        return f"{name or platform.machine()}, {size}"
