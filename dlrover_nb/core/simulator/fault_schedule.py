"""When nodes fail and when they are slow, put on the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from dlrover_nb.core.simulator.engine import Engine
    from dlrover_nb.core.simulator.faults import Faults
    from dlrover_nb.core.simulator.sim_nodes import SimNode


class FaultListener(Protocol):
    """What hears of trouble."""

    def lose(self, node: SimNode, why: str) -> None:
        """Go on without a node."""
        ...

    def change_speed(self, node: SimNode, factor: float) -> None:
        """Go on with a node of another speed."""
        ...


class Losses:
    """Counts nodes that a job lost one after the other, without a sample trained between."""

    def __init__(self) -> None:
        self._n, self._n_done = 0, -1.0

    def count(self, n_done: float) -> int:
        """Count a loss at so many samples trained; return how many there were at this point."""
        self._n, self._n_done = (self._n + 1 if n_done == self._n_done else 1), n_done
        return self._n


class FaultSchedule:
    """Troubles the nodes of one job at random."""

    def __init__(
        self, faults: Faults, *, engine: Engine, rng: np.random.Generator, listener: FaultListener
    ) -> None:
        self._faults, self._engine, self._rng, self._listener = faults, engine, rng, listener

    def expect(self, node: SimNode) -> None:
        """Draw what a node that has just started will suffer."""
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
