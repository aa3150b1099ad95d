"""Past runs as views."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b
from support.jobs.past_jobs import fit, past, row, run

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.widgets.past import history


def test_a_run_shows_its_speed_decisions_outcomes_and_fits():
    text = " ".join(history.history_view(past()).text().split())
    for part in ("succeeded", "30,000", "reject p1", "+4.2 %", "gradient", "Fits (2 in all)"):
        assert part in text
    assert "90 % band" in history.history_view(past()).html()


def test_a_run_shows_its_actions_against_stragglers_where_there_were_any():
    view = history.history_view(past())
    text = " ".join(view.text().split())
    for part in ("Actions against stragglers", "m1", "restart worker-1", "in effect", "Actions so far"):
        assert part in text
    assert "restart worker-1" in view.html()
    assert "stragglers" not in history.history_view(past(mitigations=())).text()


def test_spans_that_do_not_meet_leave_a_gap():
    t_s, y = history.series_line(past().series, b.START_S, "samples_per_s")
    assert sum(map(math.isnan, y)) == 1
    assert t_s == sorted(t_s)


def test_a_run_shows_the_memory_of_its_largest_nodes():
    twin = history.memory_chart(past()).data_table
    assert twin.rows[0][1:] == ("400 MiB", "300 MiB")
    assert "Greatest memory over time" in history.history_view(past()).text()


def test_a_run_that_left_nothing_says_so():
    text = history.history_view(past(proposals=(), decisions=(), outcomes=(), fits=(), series=())).text()
    assert "No plan was proposed or decided." in text
    assert "nothing was measured" in history.speed_chart(past(series=())).svg


def test_runs_are_listed_with_how_they_ended():
    text = history.runs_view((run(), run(run="quick-start@2", phase=JobPhase.TRAINING))).text()
    assert "10 min" in text
    assert "(end" in text
    assert "unknown)" in text
    assert "%dlrover history quick-start --run quick-start@1" in text
    assert "No runs are recorded yet." in history.runs_view(()).text()


@for_each("n", [1, 12, 13, 100])
def test_the_table_of_fits_stays_short_and_keeps_the_newest(n):
    fits = tuple(fit(i + 1) for i in range(n))
    rows = history.fits_table(fits, b.START_S).rows
    assert len(rows) == min(n, history.N_TWIN_ROW)
    assert rows[-1][1] == f"{n}"


@given(st.lists(st.integers(1, 60), min_size=1, unique=True))
def test_every_span_is_on_the_line_once(minutes):
    rows = tuple(row(m, 100.0 + m) for m in sorted(minutes))
    _, y = history.series_line(rows, b.START_S, "samples_per_s")
    assert [v for v in y if math.isfinite(v)] == [r.samples_per_s for r in rows]


def test_what_an_earlier_run_left_is_told_as_before_the_start_and_never_as_a_negative_time():
    early = replace(b.snapshot().outcomes[0], applied_at_s=b.START_S - 300)
    view = history.history_view(past(fits=(fit(-90), fit(2)), outcomes=(early,)))
    assert "before the start" in view.text()
    assert not re.search(r"(?<![\w.])-\d+:\d\d", view.html())
    chart = history.speed_chart(past(outcomes=(early,)))
    assert "0 min</text>" in chart.svg
    assert ">-" not in re.sub(r">-<", "", chart.svg)


def test_a_run_tells_what_it_began_from():
    spec = replace(run().spec, start_from=StartFrom("daily", rows=True))
    assert "daily, with its rows" in " ".join(history.history_view(past(run=run(spec=spec))).text().split())
    assert "began from" not in history.history_view(past()).text()
