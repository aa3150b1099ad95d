"""The pages, in the order of the navigation. A page is one module with one `Page`, and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.dashboard.alerts import views as alerts
from dlrover_nb.dashboard.pages import cluster, comparison, decisions, history, job, jobs, proposals, waiting

if TYPE_CHECKING:
    from dlrover_nb.dashboard.page import Page

PAGES: tuple[Page, ...] = (
    jobs.PAGE,
    comparison.PAGE,
    job.PAGE,
    job.CONFIRM,
    proposals.PAGE,
    alerts.PAGE,
    waiting.PAGE,
    cluster.PAGE,
    decisions.PAGE,
    history.PAGE,
)
