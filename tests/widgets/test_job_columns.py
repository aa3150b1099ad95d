"""One row of a job: the same words in every list of jobs, and the values behind them as data."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.snapshot import Evaluation
from dlrover_nb.core.structs.views.summary import UNKNOWN, summarize
from dlrover_nb.dashboard.jobs_board.rows import row_of
from dlrover_nb.widgets import units
from dlrover_nb.widgets.clusters.many.job_rows import JobReading
from dlrover_nb.widgets.jobs.status import jobs_view
from dlrover_nb.widgets.rows.job_cells import (
    MOST_LETTERS,
    Rank,
    band_words,
    coarse_s,
    line_of,
    needs,
    off_band,
    quality_cell,
    started_cell,
)
from dlrover_nb.widgets.rows.job_columns import (
    COLUMNS,
    DASHBOARD,
    JOBS,
    LIVE,
    NOTEBOOK,
    job_cells,
    whole_cells,
)

JOB = summarize(b.snapshot())
QUIET = replace(JOB, open_proposal=None, memory_needs=(), outlook=UNKNOWN)

jobs = st.builds(
    lambda phase, live, simulated, message, n_waiting: replace(
        JOB,
        phase=phase,
        live=live,
        simulated=simulated,
        message=message,
        outlook=replace(JOB.outlook, n_waiting=n_waiting),
    ),
    st.sampled_from(list(JobPhase)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "no memory", "no memory\nTraceback", "\n"]),
    st.integers(0, 2),
)


@given(jobs, st.sampled_from([0.0, 12.0]))
def test_a_column_reads_the_same_in_every_list_that_draws_it(job, silent_s):
    line = line_of(job, silent_s)
    lists = {
        "dashboard": dict(zip((c.key for c in DASHBOARD), row_of(job, silent_s).cells, strict=True)),
        "live": dict(zip((c.key for c in LIVE), whole_cells(LIVE, line), strict=True)),
        "notebook": dict(zip((c.key for c in NOTEBOOK), job_cells(NOTEBOOK, line), strict=True)),
    }
    for column in COLUMNS:
        words = {name: cells[column.key] for name, cells in lists.items() if column.key in cells}
        reasoned = {name: cell.whole if cell.why else cell for name, cell in words.items()}
        assert len(set(reasoned.values())) == 1


@given(jobs)
def test_what_a_notebook_lists_is_told_with_its_reasons_below(job):
    text = " ".join(jobs_view([job]).text().split())
    if job.phase is JobPhase.FAILED:
        assert " ".join(job.message.split()) in text
    if not job.live and not job.phase.is_final:
        assert f"No answer from {job.name}" in text


def test_every_column_is_drawn_in_a_list_and_has_values_behind_it():
    assert {c.key for c in COLUMNS} == {c.key for c in (*NOTEBOOK, *LIVE, *DASHBOARD)}
    names = [name for column in COLUMNS for name in column.data]
    assert all(column.data for column in COLUMNS)
    assert sorted(names) == sorted(set(names)), "no value has two columns"
    assert tuple(names) == JOBS.names


def test_a_list_as_data_holds_what_the_dashboard_says():
    row = JOBS.row(JOB)
    assert row["needs"] == row_of(JOB).cell("needs").text
    assert row["mode"] == row_of(JOB).cell("mode").text
    assert JOBS.row(QUIET)["needs"] == ""


def test_only_the_notebook_and_the_command_line_have_room_for_a_reason_below_the_list():
    failed = replace(JOB, phase=JobPhase.FAILED, message="x" * 500)
    assert job_cells(NOTEBOOK, line_of(failed))[1].text == "failed"
    assert row_of(failed).cell("state").text == f"failed: {'x' * MOST_LETTERS}"


def test_a_job_that_gives_no_answer_yet_says_so_and_why_in_every_list():
    starting = replace(QUIET, phase=JobPhase.STARTING, live=False, message="its master waits: ErrImagePull")
    words = "starting (no answer): its master waits: ErrImagePull"
    assert row_of(starting).cell("state").text == words
    assert whole_cells(LIVE, JobReading(starting, 0.0).line)[1].text == words
    assert row_of(starting).cell("rate").text == "-"


def test_a_silent_master_can_take_no_answer_but_what_waits_is_not_forgotten():
    line = line_of(JOB, 12.0)
    assert line.rank is Rank.SILENT
    assert [words for _, words in line.needs][:2] == ["master silent", "answer p2"]


def test_what_has_failed_needs_a_look_but_stands_below_what_runs():
    failed, running = line_of(replace(QUIET, phase=JobPhase.FAILED)), line_of(QUIET)
    ended, waiting = line_of(replace(QUIET, phase=JobPhase.SUCCEEDED)), line_of(JOB)
    assert sorted((ended, failed, running, waiting), key=lambda line: line.rank) == [
        waiting,
        running,
        failed,
        ended,
    ]
    assert [line.rank.needs_person for line in (waiting, running, failed, ended)] == [
        True,
        False,
        True,
        False,
    ]


@for_each(
    ("seconds", "words"),
    [
        (0.0, "just now"), (59.9, "just now"), (60.0, "1 min ago"), (3599.0, "59 min ago"), (3600.0, "1 h ago"),
        (86_400.0, "24 h ago"), (200_000.0, "2 days ago"), (-5.0, "just now"),
    ],
)  # fmt: skip
def test_how_long_ago_is_said_in_the_largest_unit(seconds, words):
    assert units.ago(seconds) == words


def test_when_a_job_started_is_told_as_long_ago_where_the_list_lives_and_exactly_where_it_is_saved():
    began_s = JOB.started_at_s
    cell = started_cell(line_of(JOB, now_s=began_s + 200.0))
    assert (cell.text, cell.exact, cell.value) == ("3 min ago", units.clock(began_s), began_s)
    assert started_cell(line_of(JOB)).text == units.clock(began_s)
    later = replace(JOB, simulated=True, at_s=began_s + 7200.0)
    assert started_cell(line_of(later, now_s=0.0)).text == "2 h ago", "by its own clock, which is no real one"


def test_quality_is_that_on_held_out_rows_else_the_loss(words):
    judged = replace(JOB.outlook, evaluation=Evaluation(0.7812, 0.41, 5_400), loss=0.5)
    cell = quality_cell(line_of(replace(JOB, outlook=judged)))
    assert (cell.text, cell.exact) == ("AUC 0.7812", words)
    assert quality_cell(line_of(replace(JOB, outlook=replace(judged, evaluation=None)))).text == "loss 0.5"
    for loss in (None, float("nan")):
        assert quality_cell(line_of(replace(JOB, outlook=replace(UNKNOWN, loss=loss)))).text == "-"


@given(jobs)
def test_only_the_first_need_of_a_silent_job_stands_out_of_order(job):
    ranks = [rank for rank, _ in needs(job)]
    assert ranks == sorted(ranks)
    assert needs(job, 12.0)[1:] == tuple(need for need in needs(job) if need[0] is not Rank.SLOW) or (
        job.phase.is_final and needs(job, 12.0) == needs(job)
    )


@for_each(
    ("rate", "words"),
    [
        (90.0, "within the band"),
        (100.0, "within the band"),
        (70.4, "12 % below the band"),
        (121.0, "10 % above the band"),
    ],
)
def test_throughput_is_compared_with_the_band_in_words(rate, words):
    assert band_words(off_band(rate, Prediction(95.0, 80.0, 110.0, extrapolates=False))) == words


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9), st.floats(1e-3, 1e9))
def test_a_job_is_off_the_band_on_the_side_where_it_is(rate, one, other):
    low, high = sorted((one, other))
    off = off_band(rate, Prediction((low + high) / 2, low, high, extrapolates=False))
    assert off <= 0 or rate > high
    assert off >= 0 or rate < low


@for_each(("seconds", "coarse"), [(3725.0, 3700.0), (7.26, 7.3), (0.0, 0.0), (None, None)])
def test_times_to_the_end_are_told_to_two_digits(seconds, coarse):
    assert coarse_s(seconds) == coarse
