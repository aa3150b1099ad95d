"""The results of `Job.stragglers` and `Job.mitigations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets import mitigations
from dlrover_nb.widgets.jobs import straggler_review
from dlrover_nb.widgets.rows import results

if TYPE_CHECKING:
    from dlrover_nb.core.straggler.review import Review
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.rows.tables import Tables


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
        return results.stragglers(self.snapshot, self.review)


@dataclass(frozen=True, slots=True, repr=False)
class MitigationsView(Shown):
    """The actions against stragglers of a job: the one that waits, and those so far."""

    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return mitigations.mitigations_view(self.snapshot)

    def tables(self) -> Tables:
        """Return it as data."""
        return results.mitigations(self.snapshot)
