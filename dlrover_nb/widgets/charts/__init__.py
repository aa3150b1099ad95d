"""Charts, one file each; a new one is added by its file and one line in this table."""

from __future__ import annotations

from dlrover_nb.widgets.charts import curve, front, memory, throughput
from dlrover_nb.widgets.charts.chart import Chart, LiveFigure

CHARTS: dict[str, Chart] = {
    chart.name: chart for chart in (throughput.CHART, memory.CHART, curve.CHART, front.CHART)
}

__all__ = ["CHARTS", "Chart", "LiveFigure"]
