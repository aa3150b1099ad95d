"""Schedules failures and slow episodes of simulated nodes on the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from dlrover_nb.core.simulator.engine import Engine
    from dlrover_nb.core.simulator.faults import Faults
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode


class FaultListener(Protocol):
    """Receiver of faults."""

    def lose(self, node: SimNode, why: str) -> None:
        """Handle the loss of a node."""
        ...

    def change_speed(self, node: SimNode, factor: float) -> None:
        """Handle a change of a node's speed."""
        ...


class Losses:
    """Counts nodes lost in a row, without a sample trained between."""

    def __init__(self) -> None:
        self._n, self._n_done = 0, -1.0

    def count(self, n_done: float) -> int:
        """Count a loss at `n_done` samples; return the number of losses at this point."""
        self._n, self._n_done = (self._n + 1 if n_done == self._n_done else 1), n_done
        return self._n


class FaultSchedule:
    """Random faults of the nodes of one job."""

    def __init__(
        self, faults: Faults, *, engine: Engine, rng: np.random.Generator, listener: FaultListener
    ) -> None:
        self._faults, self._engine, self._rng, self._listener = faults, engine, rng, listener

    def expect(self, node: SimNode) -> None:
        """Draw the faults of a node that has just started."""
        self._engine.after(self._faults.until_failure_s(self._rng), lambda: self._fail(node))
        self._engine.after(self._faults.until_slow_s(self._rng), lambda: self._slow(node))

    def _fail(self, node: SimNode) -> None:
        if not node.is_gone:
            self._listener.lose(node, "its machine failed")

    def _slow(self, node: SimNode) -> None:
        if node.is_gone:
            return
        factor, length_s = self._faults.episode(self._rng)
        self._engine.after(length_s, lambda: self._recover(node))
        self._listener.change_speed(node, factor)

    def _recover(self, node: SimNode) -> None:
        if node.is_gone:
            return
        self._engine.after(self._faults.until_slow_s(self._rng), lambda: self._slow(node))
        self._listener.change_speed(node, 1.0)
