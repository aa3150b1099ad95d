"""Finished jobs as training rows: only what the history holds, one row for each pair of counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.deadline.training_rows import n_param_of, rows_of_history
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob, SeriesRow

TRAITS = JobTraits("wide_deep", 2, 16, 1000, 4000, batch_size=64, n_sample=10_000, name="clicks")
FIRST = ResourcePlan(RolePlan(2, 1.0, 1024), RolePlan(1, 0.5, 1024))
FINAL = ResourcePlan(RolePlan(4, 2.0, 1024), RolePlan(2, 1.0, 1024))
JOB = PastJob(TRAITS, FIRST, FINAL)


def piece(at_s, speed, workers, ps, memory=300.0, *, span_s=60.0, cores=0.0):
    return SeriesRow(at_s, span_s, speed, workers, ps, memory, memory / 2, cores, cores / 4)


def test_each_pair_of_counts_is_a_row_with_the_cores_of_its_plan():
    series = [
        piece(60, 0, 2, 1),
        piece(120, 128, 2, 1),
        piece(180, 128, 2, 1, 400),
        piece(240, 512, 4, 2),
        piece(300, 64, 3, 1),
    ]
    rows = rows_of_history([(JOB, series)])
    found = [(r.setting.n_worker, r.setting.n_ps, r.setting.worker_cores, r.setting.ps_cores) for r in rows]
    assert found == [(2, 1, 1.0, 0.5), (3, 1, None, None), (4, 2, 2.0, 1.0)]
    assert [row.measured.iter_s for row in rows] == pytest.approx([1.0, 3.0, 0.5])
    assert (rows[0].measured.worker_memory_mib, rows[0].measured.ps_memory_mib) == (400.0, 200.0)


def test_what_the_history_does_not_hold_stays_unknown():
    (row,) = rows_of_history([(JOB, [piece(60, 128, 2, 1)])])
    assert (row.measured.worker_cpu, row.measured.ps_cpu) == (None, None)
    assert (row.setting.cpu_share, row.setting.memory_share, row.setting.cluster_load) == (None, None, None)


def test_operations_are_two_a_dense_parameter_and_sample():
    (row,) = rows_of_history([(JOB, [piece(60, 128, 2, 1)])])
    assert row.features.flops == 2 * 64 * 1000


def test_the_cores_that_a_node_used_are_a_peak_where_it_had_more():
    series = [
        piece(60, 128, 2, 1, cores=0.5),
        piece(120, 128, 2, 1, cores=0.8),
        piece(180, 512, 4, 2, cores=1.95),
    ]
    small, full = rows_of_history([(JOB, series)])
    assert (small.measured.worker_cpu, small.measured.ps_cpu) == (0.8, 0.2)
    assert (full.measured.worker_cpu, full.measured.ps_cpu) == (None, 1.95 / 4), (
        "it might have used more than 2"
    )
    (unknown,) = rows_of_history([(JOB, [piece(60, 64, 3, 1, cores=0.5)])])
    assert unknown.measured.worker_cpu is None, "it is not known what it was given"


def test_runs_of_one_name_are_two_jobs_and_jobs_without_progress_none():
    series = [piece(60, 128, 2, 1)]
    assert [r.job for r in rows_of_history([(JOB, series), (JOB, series)])] == ["clicks#0", "clicks#1"]
    assert rows_of_history([(JOB, [piece(60, 0, 2, 1)]), (JOB, [])]) == ()
    unknown = JobTraits("custom", 0, 0, 0, 0, batch_size=64, n_sample=10)
    assert rows_of_history([(PastJob(unknown, FIRST, FINAL), series)]) == ()


def test_parameters_are_the_dense_ones_and_the_tables():
    assert n_param_of(TRAITS) == 4000 // 4 + 1000 * 8


@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(1, 600)), min_size=1, max_size=20))
def test_iteration_time_is_that_of_all_samples_together(pieces):
    series = [piece(i, speed, 4, 2, span_s=span_s) for i, (speed, span_s) in enumerate(pieces)]
    (row,) = rows_of_history([(JOB, series)])
    n_iteration = sum(speed * span_s for speed, span_s in pieces) / (4 * 64)
    assert row.measured.iter_s * n_iteration == pytest.approx(sum(span_s for _, span_s in pieces))
