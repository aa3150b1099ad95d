"""Outlooks on a deadline: met, saved by another plan, and hopeless."""

from __future__ import annotations

from dataclasses import replace

from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
from support.jobs import builders as b

MET = DeadlineOutlook(3600.0, 0.9, 0.97, 3000.0, b.NOW_PLAN, 0.97, 3000.0, 2500.0)
SAVED = replace(MET, in_time=0.4, finish_s=3700.0, best_plan=b.BETTER_PLAN)
HOPELESS = replace(SAVED, best_in_time=0.2, best_finish_s=3650.0, earliest_s=3640.0)
