"""What the view of many jobs says, and in which order."""

from dataclasses import replace

import pytest
from support.jobs.builders import HOSTILE, NOW_PLAN

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.summary import JobSummary
from dlrover_nb.widgets.clusters.many import live_table, static
from dlrover_nb.widgets.clusters.many.grid import Grid
from dlrover_nb.widgets.clusters.many.job_rows import N_ENDED, JobReading, JobsViewState, columns, drawn
from dlrover_nb.widgets.rows.job_cells import Rank

BASE = JobSummary("ads", JobPhase.TRAINING, "ada", 0.0, NOW_PLAN, 1234.0, 0.25, None, live=True, simulated=True,
                  at_s=100.0, left_s=3725.0, cpu=8.0, memory_mib=4096)  # fmt: skip
WARNED = replace(
    BASE, memory_needs=("each ps has 512 MiB, with a 98 % chance of running out before the end",)
)
KINDS = {
    "opened": replace(BASE, open_proposal="p2"),
    "filling": WARNED,
    "broken": replace(BASE, phase=JobPhase.FAILED, message="no room"),
    "silent": BASE,
    "fine": BASE,
    "done": replace(BASE, phase=JobPhase.SUCCEEDED, done=1.0, left_s=None),
}


def heard(name: str, age_s: float = 0.5) -> JobReading:
    return JobReading(replace(KINDS[name], name=name), 14.0 if name == "silent" else age_s)


def state(jobs=None, **changes) -> JobsViewState:
    jobs = tuple(map(heard, KINDS)) if jobs is None else jobs
    grid = Grid()
    for at in range(30):
        grid.add(float(at), {job.summary.name: 100.0 + at for job in jobs})
    base = JobsViewState("a test cluster", Capacity((NodeShape(16.0, 16_384, 2),)), tuple(jobs), grid.copy())
    return replace(base, **changes)


@pytest.mark.parametrize("order", [tuple(KINDS), tuple(reversed(KINDS))])
def test_what_needs_somebody_comes_first(order):
    rows = columns(state(tuple(map(heard, order)))).rows
    assert [row.name for row in rows] == ["opened", "filling", "silent", "fine", "broken", "done"]
    assert [row.rank for row in rows] == sorted({row.rank for row in rows}), "each is of another rank"


def test_within_a_rank_order_is_by_name_so_that_rows_keep_their_places():
    jobs = [JobReading(replace(BASE, name=f"job-{i}", samples_per_s=i), 0.0) for i in (10, 9, 1)]
    assert [row.name for row in columns(state(jobs)).rows] == ["job-1", "job-9", "job-10"]


def test_a_row_says_all_in_words(words):
    rows = {row.name: row.cells for row in columns(state()).rows}
    plan = NOW_PLAN.short
    assert rows["opened"] == (
        "opened", "training (simulated)", plan, "1,234", "25 %", "61.7 min", "answer p2", "-",
    )  # fmt: skip
    assert rows["broken"][1] == "failed (simulated): no room"
    assert rows["silent"][1] == words
    assert rows["silent"][3] == "-"
    assert rows["silent"][6] == "master silent"
    assert "98 %" in rows["filling"][7]
    assert rows["done"][3:] == ("-", "100 %", "-", "-", "-")


def test_an_ended_job_waits_for_nobody():
    job = replace(WARNED, phase=JobPhase.SUCCEEDED, open_proposal="p1")
    row = columns(state([JobReading(job, 99.0)])).rows[0]
    assert row.rank is Rank.ENDED
    assert row.cells[6:] == ("-", "-")


def test_totals_count_what_runs_against_the_capacity(words):
    told = dict(columns(state()).totals)
    assert told["jobs"] == words
    assert told["waiting for you"] == words
    assert told["cores"] == words
    assert told["memory"] == words
    assert told["throughput"] == "4,936 samples/s"


def test_a_silent_cluster_is_told_with_its_age(words):
    assert columns(state()).badge == ""
    assert columns(state(silent_s=14.2, error="Ray cannot be reached")).badge == words


def test_all_that_runs_has_a_line_and_of_the_ended_the_newest():
    running = [JobReading(replace(BASE, name=f"r{i}"), 0.0) for i in range(30)]
    ended = [JobReading(replace(KINDS["done"], name=f"e{i}", at_s=float(i)), 0.0) for i in range(30)]
    names = drawn((*ended, *running))
    assert {f"r{i}" for i in range(30)} <= set(names)
    assert [name for name in names if name[0] == "e"] == [f"e{i}" for i in range(29, 29 - N_ENDED, -1)]


def test_the_saved_view_shows_chart_numbers_and_table_and_escapes_names():
    jobs = [JobReading(replace(BASE, name=HOSTILE), 0.0), *map(heard, KINDS)]
    bundle = static.view(state(jobs)).mimebundle()
    assert "All jobs of a test cluster" in bundle["text/plain"]
    assert "no answer for 15 s" in static.view(state(jobs)).text(200)
    assert "<svg" in bundle["text/html"]
    assert "simulated time" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert "<script" not in live_table.html(columns(state(jobs)).rows)


def test_without_jobs_the_view_says_how_to_start_one():
    assert "%dlrover submit" in static.view(state(())).text()


def test_a_saved_view_of_two_hundred_jobs_stays_small():
    jobs = [JobReading(replace(BASE, name=f"job-{i}"), 0.0) for i in range(200)]
    assert len(static.view(state(jobs)).html()) < 500_000
