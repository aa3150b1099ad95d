"""Growth of memory: the laws, the choice among them, and the forecast.

`laws` is the table of growth curves, `choice` the evidence for one of them against "as now", `forecast` the
future memory in the unit of the reports. `report_series` keeps the reports, `line` converts the forecast for
views and plans; `ceiling` is what no law exceeds, and `right_size` the smaller request that relies on it.
Rejected: a forecast of each embedding table by its keys; no node reports keys per table.
"""

from __future__ import annotations

from dlrover_nb.core.memory.forecast import Band, MemoryForecast, forecast
from dlrover_nb.core.memory.judgement import Course, Judgement, judged, shown, work_course
from dlrover_nb.core.memory.report_series import MemorySeries, Report
from dlrover_nb.core.memory.right_size import COPIES_WITH_PEERS, MemoryUse, most_by_end
from dlrover_nb.core.memory.role_memory import MIN_SPAN_S, Outlook, after_oom_mib, memory_line, needed_mib

__all__ = [
    "COPIES_WITH_PEERS",
    "MIN_SPAN_S",
    "Band",
    "Course",
    "Judgement",
    "MemoryForecast",
    "MemorySeries",
    "MemoryUse",
    "Outlook",
    "Report",
    "after_oom_mib",
    "forecast",
    "judged",
    "memory_line",
    "most_by_end",
    "needed_mib",
    "shown",
    "work_course",
]
