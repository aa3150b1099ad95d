"""The page *Jobs*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.dashboard.page import Page
from dlrover_nb.widgets.status import jobs_view

if TYPE_CHECKING:
    from dlrover_nb.dashboard.page import Visit


def body(visit: Visit) -> str:
    """Return the list of jobs."""
    return jobs_view(visit.team.cluster(visit.cluster).jobs().jobs).html()


PAGE = Page("jobs", "Jobs", body)
