"""The pages, in the order of the navigation. A page is one module with one `Page`, and one line here."""

from __future__ import annotations

from dlrover_nb.dashboard.pages import job, jobs, proposals

PAGES = (
    jobs.PAGE,
    job.PAGE,
    job.CONFIRM,
    proposals.PAGE,
)
