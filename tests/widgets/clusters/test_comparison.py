"""Jobs side by side: the curves are those of the jobs, and so are the numbers and what differs."""

from __future__ import annotations

from dataclasses import replace

from support.dashboard.team_clusters import job_snapshot
from support.jobs import builders as b

from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.clusters.many.comparison import comparison_view

ADS, FEED = job_snapshot("ads"), job_snapshot("feed", owner="bob")
WIDER = replace(FEED, spec=replace(FEED.spec, batch_size=1024))


def rounds(*aucs: float) -> tuple[EvaluationRound, ...]:
    return tuple(
        EvaluationRound(i, b.START_S + 60.0 * i, Evaluation(auc, 0.4, 5_000)) for i, auc in enumerate(aucs, 1)
    )


def test_each_job_has_a_line_a_column_and_its_own_name_is_not_code():
    hostile = replace(ADS, spec=replace(ADS.spec, owner=b.HOSTILE))
    view = comparison_view([(hostile, b.series()), (WIDER, b.series())])
    charts = [block for block in view.blocks if isinstance(block, StaticChart)]
    assert len(charts) == 1, "no job is evaluated between its passes"
    assert charts[0].data_table.head == ("until (m:ss)", "ads", "feed")
    side, keys = (block for block in view.blocks if isinstance(block, Table))
    assert side.head == ("", "ads", "feed")
    assert ("Owner", b.HOSTILE, "bob") in side.rows
    assert ("batch_size", "512", "1024") in keys.rows
    assert b.HOSTILE not in view.html()


def test_the_quality_of_jobs_that_are_evaluated_between_passes_has_a_chart():
    judged = replace(ADS, rounds=rounds(0.61, 0.74, 0.78))
    view = comparison_view([(judged, None), (FEED, b.series())])
    speeds, quality = (block for block in view.blocks if isinstance(block, StaticChart))
    assert [row[1] for row in speeds.data_table.rows if row[1] != "-"] == [], "nothing is known of its speed"
    assert quality.data_table.title == "Mean AUC over time"
    told = {row[1] for row in quality.data_table.rows} - {"-"}
    assert told == {"0.61", "0.74", "0.78"}


def test_jobs_that_are_alike_are_said_to_be():
    assert "differ only in their names and owners" in comparison_view([(ADS, None), (FEED, None)]).text()
