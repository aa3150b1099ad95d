"""A lab shows how right starts were where a contender starts jobs warm, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.lab import MEASURES, Contender, LabFile, Workload, run_lab
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.past.lab import STARTS, lab_view

LAB = LabFile(workload=Workload(jobs=4, days=1.0, hours=(0.5, 0.1), families=1), seeds=(0,))


@pytest.mark.parametrize("warm", [True, False])
def test_starts_are_shown_beside_ends_where_some_are_warm(warm: bool) -> None:  # noqa: FBT001 - a case
    contenders = Contender("fixed-plan"), Contender("fixed-plan", name="warm", warm_start=warm)
    view = lab_view(run_lab(replace(LAB, contenders=contenders)))
    (figures,) = (each for each in view.blocks if isinstance(each, Table) and each.title == "Figures")
    for name in STARTS:
        assert (MEASURES[name].words in figures.head) is warm
