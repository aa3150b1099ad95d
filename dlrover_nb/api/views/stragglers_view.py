"""The results of `Job.stragglers` and `Job.mitigations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets import mitigations
from dlrover_nb.widgets.jobs import straggler_review
from dlrover_nb.widgets.rows import columns as c
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from dlrover_nb.core.straggler.monitor import NodeTimes
    from dlrover_nb.core.straggler.review import Review
    from dlrover_nb.core.structs.decisions.actions import Proposed
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.blocks import View

_OPEN: Columns[JobSnapshot] = Columns(fields("job=spec.name open_mitigation=open_mitigation.id"))
_NODES: Columns[tuple[NodeTimes, float | None]] = Columns(
    {
        **fields("node=0.node role=0.role work_s=0.work_s others_s=1 exchange_s=0.exchange_s"),
        "samples_per_s": lambda n: n[0].samples_per_s or None,
    }
)
_STRAGGLERS: Columns[Straggler] = Columns(fields("node role pace iter_s peers_s ratio window_s since_s rule"))
_PROPOSED: Columns[Proposed] = Columns(fields("action=action.words reason is_global=action.is_global"))
_COSTS: Columns[tuple[str, BatchCost]] = Columns(
    {
        **fields("node=0 fixed_s=1.fixed_s row_s=1.row_s least=1.least most=1.most device=1.device"),
        "measured_by": lambda n: n[1].job or None,
        "measured_at_s": lambda n: n[1].at_s if n[1].job else None,
    }
)
_ERRORS: Columns[NodeErrors] = Columns(fields("node role n_retryable n_unretryable window_s"))


@dataclass(frozen=True, slots=True, repr=False)
class StragglersView(Shown):
    """Who is slow in a job, with the numbers that say so, and what would help."""

    snapshot: JobSnapshot
    review: Review

    def view(self) -> View:
        """Return the content."""
        return straggler_review.stragglers_view(self.review, self.snapshot)

    def tables(self) -> Tables:
        """Return it as data."""
        review = self.review
        tables = {
            "nodes": _NODES.table((each, review.others_s(each)) for each in review.times),
            "stragglers": _STRAGGLERS.table(review.findings),
            "mitigations": _PROPOSED.table(review.proposed),
            "errors": _ERRORS.table(self.snapshot.node_errors),
            "batch_costs": _COSTS.table(self.snapshot.batch_costs.items()),
        }
        return Tables(one(_OPEN, self.snapshot), tables, "stragglers")


@dataclass(frozen=True, slots=True, repr=False)
class MitigationsView(Shown):
    """The actions against stragglers of a job: the one that waits, and those so far."""

    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return mitigations.mitigations_view(self.snapshot)

    def tables(self) -> Tables:
        """Return it as data."""
        snapshot = self.snapshot
        tables = {
            "mitigations": c.actions(snapshot.mitigations, snapshot.decisions),
            "stragglers": _STRAGGLERS.table(snapshot.stragglers),
        }
        return Tables(one(_OPEN, snapshot), tables, "mitigations")
