"""The page *Compare*: some jobs of a cluster over each other. The page *Jobs* shows its part in place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.structs.decisions.commands import Asker, Entry
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.jobs import MOST_COMPARED, check_may_view
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets.clusters.many.comparison import comparison_view

if TYPE_CHECKING:
    from markupsafe import Markup

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.dashboard.page import Visit


def body(visit: Visit) -> Markup:
    """Return the jobs that the address names, side by side.

    Raises
    ------
    InvalidValueError
        When too few or too many are named.
    NotFoundError
        When one is not there.
    """
    check_may_view(visit)
    names = tuple(dict.fromkeys(visit.several.get("job", ())))
    if not 2 <= len(names) <= MOST_COMPARED:
        raise InvalidValueError(f"2 to {MOST_COMPARED} jobs are compared, got {len(names)}; tick as many")
    with ThreadPoolExecutor(len(names)) as pool:
        jobs = list(pool.map(lambda name: _asked(visit, name), names))
    return render(
        "comparison.html",
        back=f"jobs?{urlencode({'cluster': visit.cluster})}",
        root=visit.root,
        view=comparison_view(jobs),
    )


def _asked(visit: Visit, name: str) -> tuple[JobSnapshot, SeriesChunk | None]:
    handle = visit.team.job(visit.cluster, name, Asker(visit.person, Entry.DASHBOARD)).with_short_timeout
    snapshot = handle.snapshot()
    if snapshot.series is not None:
        return snapshot, snapshot.series
    try:
        return snapshot, handle.series()
    except DlroverError:  # its numbers are worth showing without the curve
        return snapshot, None


PAGE = Page("compare", "Compare jobs", body, is_listed=False)
