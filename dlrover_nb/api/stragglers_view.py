"""The result of `Job.stragglers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views import Shown
from dlrover_nb.widgets import straggler_review
from dlrover_nb.widgets.rows import results

if TYPE_CHECKING:
    from dlrover_nb.core.straggler.review import Review
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.rows.tables import Tables


@dataclass(frozen=True, slots=True, repr=False)
class StragglersView(Shown):
    """Who is slow in a job, with the numbers that say so, and what would help."""

    name: str
    review: Review

    def view(self) -> View:
        """Return the content."""
        return straggler_review.stragglers_view(self.review, self.name)

    def tables(self) -> Tables:
        """Return it as data."""
        return results.stragglers(self.name, self.review)
