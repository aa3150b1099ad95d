"""Lab files, traces and histories: what is read, and what is refused with which words."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from suite.missing import shared
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.lab import Contender, LabFile, PastRun, Workload, contender_of, read_lab, run_lab
from dlrover_nb.core.lab.measured_speeds import read_tables
from dlrover_nb.core.lab.own_history import past_runs
from dlrover_nb.core.lab.traces import chosen, read_trace
from dlrover_nb.core.lab.workload import described_jobs, past_jobs_again, traced_jobs
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import PhaseChanged

DAY_S = 86_400.0
TEXT = """
name: my-month
workload: {jobs: 7, days: 2, hours: [1, 0.5], deadlines: 0.2, prices: {cpu_hour: 0.1}}
machines: [{count: 4, cpu: 16, memory_gib: 64}]
contenders:
  - fixed-plan
  - {policy: optimus, scheduler: shortest, stragglers: antdt-nd}
  - {policy: optimus, name: plain}
seeds: 2
world: {noise: 0.01, slow_per_day: 1}
notes: [Prices are ours.]
published: {Fig. 7: 28 % sooner}
"""


def test_a_lab_file_says_all_that_is_compared() -> None:
    lab = read_lab(TEXT)
    assert (lab.name, lab.workload.jobs, lab.workload.hours) == ("my-month", 7, (1, 0.5))
    assert lab.machines == (NodeShape(16.0, 64 * 1024, 4),)
    assert [each.name for each in lab.contenders] == ["fixed-plan", "optimus, shortest, antdt-nd", "plain"]
    assert lab.seeds == (0, 1)
    assert (lab.world.noise, lab.world.slow_per_day) == (0.01, 1)
    assert lab.workload.prices.cpu_hour == 0.1
    assert not lab.workload.prices.assumed
    assert dict(lab.published) == {"Fig. 7": "28 % sooner"}


def test_a_file_is_read_with_paths_from_where_it_lies(tmp_path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("workload: {trace: philly.csv}\nseeds: [4, 9]\n")
    lab = read_lab(str(path))
    assert lab.workload.trace == str(tmp_path / "philly.csv")
    assert lab.seeds == (4, 9)
    assert read_lab(path) == lab
    assert read_lab(None) == LabFile()


@for_each(
    ("text", "words"),
    [
        ("policies: [optimus]", "unknown key 'policies'"),
        ("workload: {job: 3}", "did you mean jobs"),
        ("workload: {jobs: many}", "workload.jobs must be like 100"),
        ("workload: {jobs: 0}", "jobs of a workload must be >= 1"),
        ("workload: {hours: [1]}", "workload.hours must be like"),
        ("workload: {trace: a.csv, history_days: 3}", "a trace or a history"),
        ("machines: [{cpu: 4}]", "numbers for cpu and memory_gib"),
        ("contenders: [{policy: optimus, scheduler: shortes}]", "did you mean shortest"),
        ("contenders: [{policy: optimus, stragglers: backup}]", "did you mean backup-workers"),
        ("contenders: [optimus, optimus]", "'optimus' twice"),
        ("contenders: [3]", "a contender is the name of a policy"),
        ("contenders: optimus", "contenders must be a list"),
        ("seeds: 0", "number of seeds"),
        ("seeds: [a]", "seeds are a number of seeds"),
        ("world: {start_share: 2}", "start_share must be <= 1"),
    ],
)
def test_what_is_wrong_in_a_lab_file_is_said(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        read_lab(text)


def test_a_lab_file_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"nowhere\.yaml"):
        read_lab("nowhere.yaml")


def test_a_function_is_a_contender_by_its_own_name() -> None:
    def night_shift(analysis, settings, context):
        return None

    contender = contender_of(night_shift)
    assert contender.name == "night-shift"
    assert contender.own is not None
    assert contender.own.decide is night_shift
    with pytest.raises(InvalidValueError, match="got 2 arguments"):
        contender_of(lambda a, b: a or b)


# traces


def test_a_trace_of_durations_is_read_in_the_order_of_time(tmp_path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n2017-10-09 06:01:55,2951,4\n")
    first, second = read_trace(path, {})
    assert (first.at_s, first.lasts_s, first.workers) == (0.0, 2951.0, 4)
    assert (second.at_s, second.lasts_s) == (3600.0, 66.0)


def test_a_trace_of_begins_and_ends_gives_durations_and_cores(tmp_path) -> None:
    path = tmp_path / "pods.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("creation_time,deletion_time,cpu_milli\n10,70,4000\n,90,1000\n20,,2000\n30,25,500\n")
    (row,) = read_trace(
        path, {}
    )  # rows without begin, without end, or that end before they begin are left out
    assert (row.at_s, row.lasts_s, row.cpu) == (0.0, 60.0, 4.0)


def test_a_trace_of_counts_gives_as_many_arrivals_evenly(tmp_path) -> None:
    path = tmp_path / "helios.csv"
    path.write_text(
        "time,submit_job_all\n2020-04-01 00:00:00,2\n2020-04-01 00:10:00,0\n2020-04-01 00:20:00,3\n"
    )
    rows = read_trace(path, {})
    assert [row.at_s for row in rows] == [0, 300, 1200, 1400, 1600]
    assert all(row.lasts_s is None for row in rows)


@for_each(
    ("text", "columns", "words"),
    [
        ("a,b\n1,2\n", {}, "must have a column of arrivals, got a, b"),
        ("time,x\n1,2\n", {"lasts_s": "y"}, "has no column y; its columns are time, x"),
        ("time\n1\n", {"speed": "time"}, "columns may name at, lasts_s"),
        ("time,duration\n1,0\n", {}, "at least one job"),
    ],
)
def test_a_trace_that_cannot_be_read_says_why(tmp_path, text: str, columns, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=words):
        read_trace(path, columns)


def test_a_trace_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.csv"):
        read_trace(tmp_path / "none.csv", {})


def test_a_job_of_a_trace_takes_on_its_own_plan_what_it_took_there(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,duration,workers,worker_cpu\n0,3600,8,4\n5,7200,2,2\n")
    jobs = traced_jobs(read_trace(path, {}), Workload(), {}, np.random.default_rng(0))
    assert [job.alone_s for job in jobs] == pytest.approx([3600, 7200], rel=1e-3)
    assert [(job.spec.plan.worker.count, job.spec.plan.worker.cpu) for job in jobs] == [(8, 4.0), (2, 2.0)]
    assert [job.spec.plan.ps.count for job in jobs] == [2, 1]


@for_each(
    ("name", "n_least"),
    [
        (("pollux_adaptdl", "philly_before_nov.csv.xz"), 50_000),
        (("helios_lucid", "venus_arrivals_10min.csv.xz"), 50_000),
        (("alibaba", "v2023_openb_pod_list_default.csv.xz"), 4_000),
        (("alibaba", "v2025_dlrm_instances.csv.xz"), 500),
    ],
)
def test_public_traces_are_read_as_they_come(name, n_least: int) -> None:
    rows = read_trace(shared("data", *name), {})
    assert len(rows) >= n_least
    at_s = [row.at_s for row in rows]
    assert at_s[0] == 0
    assert at_s == sorted(at_s)
    few = chosen(rows, 50, 1e6, np.random.default_rng(0))
    assert len(few) == 50
    assert [row.at_s for row in few] == sorted(row.at_s for row in few)


def test_jobs_with_measured_tables_are_as_fast_as_measured() -> None:
    tables = read_tables(shared("data", "dl2_ps_speed", "ps_worker_speed.csv"))
    jobs = described_jobs(Workload(jobs=20), tables, np.random.default_rng(0))
    by_size = {each.truth.name: each.truth for each in tables.values()}
    for job in jobs:
        truth = by_size[job.truth.name]
        p, w = truth.plans[0]
        plan = ResourcePlan(RolePlan(w, 2.0, 1024), RolePlan(p, 2.0, 1024))
        assert job.speed(plan) == truth.speed(plan, 1)
        worker, ps = job.truth.used_cores(plan, 1)
        assert 0 < worker <= 2.0
        assert 0 < ps <= 2.0


# history

SPEC = JobSpec("ads", plan=ResourcePlan(RolePlan(2, 2.0, 1024), RolePlan(1, 1.0, 1024)))


def test_runs_of_the_history_are_jobs_with_the_work_that_they_did() -> None:
    runs = (
        PastRun(SPEC, 1000.0, 600.0),
        PastRun(SPEC, 400.0, 1200.0),
        PastRun(SPEC, 900.0, 60.0, None, 5000),
    )
    jobs = past_jobs_again(runs, Workload(), np.random.default_rng(0))
    assert [job.at_s for job in jobs] == [0.0, 500.0, 600.0]
    assert [job.spec.plan for job in jobs] == [SPEC.plan] * 3
    assert jobs[0].alone_s == pytest.approx(1200, rel=1e-3)
    assert jobs[1].n_sample == 5000
    with pytest.raises(InvalidValueError, match="no finished runs"):
        past_jobs_again((), Workload(), np.random.default_rng(0))


def test_the_last_days_of_a_history_are_counted_from_its_newest_run(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'history.db'}"
    store = HistoryStore(url)
    for name, at_s in (("old", 0.0), ("mid", 9 * DAY_S), ("new", 10 * DAY_S), ("open", 10 * DAY_S)):
        store.remember(name, at_s, replace(SPEC, name=name))
        if name != "open":
            store.remember(name, at_s + 600.0, PhaseChanged(at_s + 600.0, JobPhase.SUCCEEDED))
    store.close()
    runs = past_runs(5.0, url)
    assert sorted(run.spec.name for run in runs) == ["mid", "new"]
    assert {run.lasted_s for run in runs} == {600.0}
    lab = LabFile(workload=Workload(history_days=5.0), contenders=(Contender("fixed-plan"),), seeds=(0,))
    result = run_lab(lab, history=runs)
    assert result.n_job == 2
    assert "own jobs of 5 days" in result.workload
