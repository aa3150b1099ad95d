"""Gradients that a PS keeps until all of their step are there, in deterministic training.

A step has a fixed number of units, and any worker may compute any of them. Sums of floats follow the order
of their terms. So gradients are kept by unit, and added in the order of units when the master says that the
step is complete: all PS hold all of its units then. A worker names the steps that its parameters shall have,
so each PS brings itself up to them before it reads, and no worker ever reads parameters amid a step.

A unit that comes twice has the same bits, since it is computed from the same rows and parameters: it replaces
itself. What was kept for a step that is not complete is void when parameters are copied or move, and the
master has taken its units back then (`ShardLedger.reopen_step`): they are computed again, from the same
parameters. So a checkpoint and a move always have whole steps, and nothing of a step has to travel with them.

The first request of an epoch says how many steps its parameters have: none of a later step comes before all
units of this one are here.

To apply each gradient as it comes, in the order of units, was rejected: floats that are added to parameters
one after the other are another sum, and the optimizer would make as many steps as there are units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.ps.gradient_rounds import weighted_sum

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange.push_pull import Exchange, UnitGradients
    from dlrover_nb.core.runtime.ps.gradient_rounds import Gradients
    from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
    from dlrover_nb.core.runtime.store import ParameterStore

    UnitOfWorker = tuple[str, UnitGradients, Gradients]  # of a skipped unit there are no gradients


class OrderedSteps:
    """Steps of one PS while it serves an epoch.

    Parameters
    ----------
    ages
        Counts the gradients of each step.
    store
        What steps are applied to.
    """

    def __init__(self, ages: UpdateAges, store: ParameterStore) -> None:
        self._ages, self._store = ages, store
        self._units: dict[int, dict[int, UnitOfWorker]] = {}  # by step and number of the unit
        self._n_step: int | None = None  # applied; None: no request has said it
        self._workers: set[str] = set()

    @property
    def members(self) -> tuple[str, ...]:
        """Workers that have brought gradients."""
        return tuple(sorted(self._workers))

    def forget(self, worker: str) -> None:
        """Do not count a worker any more; its gradients stay, as any worker would have brought the same."""
        self._workers.discard(worker)

    def take(self, _identity: bytes, worker: str, request: Exchange, gradients: Gradients) -> None:
        """Apply the steps that a request calls complete, and keep the gradients that it brings.

        Raises
        ------
        WireError
            When it does not say how many steps are complete, or its gradients cannot be applied.
        """
        if request.n_step is None:
            raise WireError("an exchange came without its step; all nodes need the same job and release")
        self._apply_up_to(request.n_step)
        part = request.part
        if part is None:
            return
        if not part.is_skipped:
            self._store.check_push(*gradients)
        self._workers.add(worker)
        if self._n_step is not None and part.unit.step >= self._n_step:  # else its step has it already
            self._units.setdefault(part.unit.step, {})[part.unit.number] = worker, part, gradients

    def settle(self, n_step: int | None) -> None:
        """Apply what is kept of the first `n_step` steps, and drop the rest, before parameters leave."""
        if n_step is not None:
            self._apply_up_to(n_step)
        self._units = {}

    def _apply_up_to(self, n_step: int) -> None:
        if self._n_step is None:
            self._n_step = n_step
        for step in sorted(step for step in self._units if step < n_step):
            self._apply(self._units.pop(step))
        self._n_step = max(self._n_step, n_step)

    def _apply(self, units: dict[int, UnitOfWorker]) -> None:
        """Apply one step: the mean over all rows of its units, which are added in their order."""
        parts = [units[number] for number in sorted(units)]
        used = [(part.n_row, gradients) for _, part, gradients in parts if not part.is_skipped]
        total = sum(n_row for n_row, _ in used)
        if used:
            rows, row_gradients, dense = weighted_sum(
                [gradients for _, gradients in used], [n_row / total for n_row, _ in used]
            )
            self._store.push(rows, row_gradients)
            if len(dense):
                self._store.push_dense(dense)
        self._ages.count_round(worker for worker, _, _ in parts)
