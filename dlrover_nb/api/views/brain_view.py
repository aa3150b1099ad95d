"""The result of the verb `brain`: one round of planning for all jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.clusters import brain
from dlrover_nb.widgets.rows import results

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.brain import BrainRound
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.rows.tables import Tables


@dataclass(frozen=True, slots=True, repr=False)
class BrainView(Shown):
    """What every job of a cluster is meant to have."""

    newest: BrainRound

    def view(self) -> View:
        """Return the content."""
        return brain.brain_view(self.newest)

    def tables(self) -> Tables:
        """Return it as data."""
        return results.brain(self.newest)
