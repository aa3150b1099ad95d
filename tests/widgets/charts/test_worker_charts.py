"""Charts that compare workers: ages of their gradients, how far they are apart, batches, and rows by speed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bokeh.models import ColumnDataSource
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs import builders as b

from dlrover_nb.api.views.staleness_view import StalenessView
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.gradient_ages import least_age
from dlrover_nb.core.structs.views.snapshot import SeriesChunk
from dlrover_nb.widgets.charts.per_worker import batch_by_worker, distance, rows_by_speed, staleness
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.series import MOST_LINES

CLASSES = st.integers(0, 8).map(least_age)
AGES = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(["worker-0", "worker-1"]), CLASSES, st.integers(1, 50)),
    min_size=1, max_size=30,
)  # fmt: skip


def ages(rows: list[tuple[float, str, float, float]]) -> SeriesChunk:
    columns = {
        "at_s": [b.START_S + t for t, _, _, _ in rows],
        "node": [name for _, name, _, _ in rows],
        "age": [float(age) for _, _, age, _ in rows],
        "n_update": [float(n) for _, _, _, n in rows],
    }
    return SeriesChunk(1, {}, {}, ages=columns)


def reports(rows: list[tuple[float, str, float, float, float]]) -> SeriesChunk:
    """Return reports: when, by which node, its samples, its batch size, and its iteration."""
    return SeriesChunk(1, {}, {
        "at_s": [b.START_S + t for t, *_ in rows],
        "node": [name for _, name, *_ in rows],
        "role": ["ps" if "ps-" in name else "worker" for _, name, *_ in rows],
        "n_sample": [n for _, _, n, _, _ in rows],
        "batch_size": [size for *_, size, _ in rows],
        "iter_s": [iter_s for *_, iter_s in rows],
    })  # fmt: skip


# ages


@settings(deadline=None, max_examples=40)
@given(rows=AGES)
def test_each_curve_of_ages_rises_to_all_gradients_and_none_is_lost(rows):
    data = staleness.columns(b.snapshot(), ages(rows))
    assert data.whole.n == sum(of_worker.n for _, of_worker in data.workers) == sum(n for *_, n in rows)
    for _, of_worker in data.workers:
        assert sorted(of_worker.shares) == [*of_worker.shares]
        assert of_worker.shares[-1] == pytest.approx(1.0)
    assert all(low <= mid <= high for low, mid, high in zip(data.low, data.mid, data.high, strict=True))


def test_the_sentence_names_the_usual_age_and_a_great_one():
    rows = [(5.0, "worker-0", 0, 90), (5.0, "worker-1", 4, 8), (5.0, "worker-1", 12, 2)]
    words = staleness.columns(b.snapshot(), ages(rows)).words
    assert "Of 100 gradients" in words
    assert "half missed at most 0 updates" in words
    assert "95 % at most 5" in words, "a class is as old as its oldest"


def test_in_bsp_it_says_why_no_gradient_is_old():
    snapshot = replace(b.snapshot(), spec=replace(b.snapshot().spec, sync=Sync.BSP))
    assert "in rounds" in staleness.columns(snapshot, ages([(5.0, "worker-0", 0, 90)])).words


def test_in_gba_ages_are_steps_of_global_batches():
    snapshot = replace(b.snapshot(), spec=replace(b.snapshot().spec, sync=Sync.GBA))
    words = staleness.columns(snapshot, ages([(5.0, "worker-0", 0, 90), (5.0, "worker-1", 1, 10)])).words
    assert "half missed at most 0 global batches with gradients of other workers" in words


def test_many_workers_share_one_curve_of_ages():
    rows = [(5.0, f"worker-{i}", 1, 10) for i in range(MOST_LINES + 1)]
    curves = staleness.marks(staleness.columns(b.snapshot(), ages(rows))).panels[0].layers
    assert [line.label for line in curves] == ["all gradients"]


# apart


@settings(deadline=None, max_examples=40)
@given(rows=AGES)
def test_no_worker_is_ahead_of_itself_and_the_slowest_of_none(rows):
    data = distance.columns(b.snapshot(), ages(rows))
    assert min(data.last.values()) == 0
    assert all(lead >= 0 for lead in data.last.values())


def test_a_lead_is_the_difference_of_all_updates_so_far():
    rows = [
        (5.0, "worker-0", 0, 100),
        (5.0, "worker-1", 1, 60),
        (10.0, "worker-0", 0, 50),
        (10.0, "worker-1", 0, 70),
    ]
    assert distance.columns(b.snapshot(), ages(rows)).last == {"worker-0": 20.0, "worker-1": 0.0}


def test_a_worker_that_joins_begins_where_the_slowest_is():
    rows = [(5.0, "worker-0", 0, 100), (10.0, "worker-0", 0, 10), (10.0, "worker-1", 0, 10)]
    assert distance.columns(b.snapshot(), ages(rows)).last == {"worker-0": 0.0, "worker-1": 0.0}


def test_ssp_says_how_far_workers_may_be_apart():
    spec = replace(b.snapshot().spec, sync=Sync.SSP, staleness=3)
    rows = [(5.0, "worker-0", 0, 100), (5.0, "worker-1", 1, 98)]
    words = distance.columns(replace(b.snapshot(), spec=spec), ages(rows)).words
    assert "worker-0 is 2 updates ahead" in words
    assert "3 rounds" in words


# batches


def test_the_size_of_a_batch_is_that_of_full_ones():
    rows = [(float(t), "worker-0", 512.0, 256.0 if t % 3 else 199.5, 0.1) for t in range(30)]
    rows += [(float(t), "worker-1", 128.0, 128.0 if t > 15 else 256.0, 0.1) for t in range(30)]
    data = batch_by_worker.columns(b.snapshot(), reports(rows))
    assert data.last == {"worker-0": 256.0, "worker-1": 128.0}
    assert "128 to 256 samples" in data.words
    assert ("worker-1", "128", "128", "256") in batch_by_worker.data_table(data).rows


def test_a_report_without_a_batch_has_no_size():
    data = batch_by_worker.columns(b.snapshot(), reports([(1.0, "worker-0", 0.0, 0.0, 0.0)]))
    assert data.last == {}
    assert "No worker" in batch_by_worker.CHART.static(b.snapshot(), None).svg


# rows against speed


def test_rows_and_speed_are_those_of_the_time_in_which_it_trained():
    rows = [(1.0, "worker-0", 1000.0, 100.0, 0.1), (2.0, "worker-0", 1000.0, 100.0, 0.1)]
    rows += [
        (1.0, "worker-1", 500.0, 100.0, 0.2),
        (2.0, "worker-1", 0.0, 0.0, 0.0),
        (2.0, "ps-0", 0.0, 0.0, 0.0),
    ]
    data = rows_by_speed.columns(b.snapshot(), reports(rows))
    assert [(each.name, each.n_row) for each in data.workers] == [("worker-0", 2000), ("worker-1", 500)]
    assert [each.samples_per_s for each in data.workers] == pytest.approx([1000.0, 500.0])
    assert "2 workers trained 2,500 rows" in data.words
    assert "4 times the smallest" in data.words


def test_a_job_that_grows_beyond_a_name_each_keeps_its_live_chart_of_rows():
    figure = LiveFigure(rows_by_speed.CHART, b.snapshot())
    few, many = (
        reports([(t, f"worker-{i}", 1000.0, 100.0, 0.1 * (i + 1)) for i in range(n)])
        for t, n in ((1.0, 3), (60.0, MOST_LINES + 1))
    )
    figure.update(b.snapshot(), few)
    (markers,) = (s for s in figure.root.select({"type": ColumnDataSource}) if "name" in s.data)
    assert any(markers.data["name"])
    figure.update(b.snapshot(), many)
    assert len(markers.data["x"]) == MOST_LINES + 1
    assert {*markers.data["name"]} == {""}


# the result


def test_the_result_joins_what_is_known_of_each_worker():
    shown = StalenessView(b.snapshot(), b.series(nodes=("worker-0", "worker-1", "ps-0")))
    first, second = shown.workers
    assert (first.worker, second.worker) == ("worker-0", "worker-1")
    assert first.ages.n == second.ages.n > 0
    assert first.batch_size == 256.0
    assert first.n_row > 0
    text = shown.view().text()
    assert "Age of gradients" in text
    assert "worker-1" in text


def test_a_job_without_counts_of_ages_says_why():
    assert "Simulated nodes" in StalenessView(b.snapshot(simulated=True), None).view().text()
    older = replace(b.series(), ages={})
    assert "every five seconds" in StalenessView(b.snapshot(), older).view().text()
