"""The pages, in the order of the navigation. A page is one module with one `Page`, and one line here."""

from __future__ import annotations

from dlrover_nb.dashboard.alerts import views as alerts
from dlrover_nb.dashboard.pages import jobs

PAGES = (jobs.PAGE, alerts.PAGE)
