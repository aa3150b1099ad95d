"""Charts, one file each; a new one is added by its file and its name in the table of pages.

The page says under which heading of the live view it stands. A report has it too, below the parts that place
theirs by hand.

An installed package adds charts by entry points of the group `dlrover_nb.charts`, each a `Chart` that `chart`
made. They are offered in live views beside ours.
"""

from __future__ import annotations

import logging
from functools import cache

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.extensions import load
from dlrover_nb.widgets.charts import (
    breakdown,
    curve,
    front,
    memory,
    rounds,
    scores,
    shards,
    stragglers,
    throughput,
    workers,
)
from dlrover_nb.widgets.charts.chart import Chart, chart
from dlrover_nb.widgets.charts.per_worker import batch_by_worker, distance, rows_by_speed, staleness

PLANS, STALENESS = "Plans", "Staleness"
_BY_PAGE = {
    "": (throughput,),  # it stands below the sentence, on no page
    PLANS: (curve, front),
    "Memory": (memory,),
    "Nodes": (workers, breakdown, stragglers),
    "Rows": (shards, rounds),
    STALENESS: (staleness, distance, batch_by_worker, rows_by_speed),
    "Scores": (scores,),
}
PAGES = {page: tuple(each.CHART.name for each in modules) for page, modules in _BY_PAGE.items() if page}
CHARTS: dict[str, Chart] = {
    module.CHART.name: module.CHART for modules in _BY_PAGE.values() for module in modules
}

GROUP = "dlrover_nb.charts"
_log = logging.getLogger(__name__)


@cache
def all_charts() -> dict[str, Chart]:
    """Return our charts and those that installed packages add; a broken package is logged and left out."""
    try:
        added = load(GROUP)
    except InvalidValueError as error:
        _log.warning("charts of other packages are not shown: %s", error)
        return CHARTS
    charts = {name: chart for name, chart in added.items() if isinstance(chart, Chart) and name not in CHARTS}
    for name in added.keys() - charts.keys():
        _log.warning("%s must be a Chart with a name of its own, got %r by %r", GROUP, added[name], name)
    return CHARTS | charts


__all__ = ["CHARTS", "PAGES", "PLANS", "STALENESS", "Chart", "all_charts", "chart"]
