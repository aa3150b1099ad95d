"""Charts, one file each; a new one is added by its file and one line in this table."""

from __future__ import annotations

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

CHARTS: dict[str, Chart] = {
    module.CHART.name: module.CHART
    for module in (throughput, workers, memory, breakdown, stragglers, shards, front, curve, scores, rounds)
}

__all__ = ["CHARTS", "Chart", "chart"]
