"""Charts of workers, stragglers, shards and scores: pure columns, words, and live figures of many nodes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import Outcome, ProposalKind
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound, NodePhase, SeriesChunk
from dlrover_nb.widgets import oom
from dlrover_nb.widgets.charts import CHARTS, memory, rounds, scores, shards, stragglers, throughput, workers
from dlrover_nb.widgets.jobs.status import memory_blocks, memory_table, nodes_blocks, status_view
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.series import MOST_LINES, MOST_ROWS, N_STATIC, spread
from dlrover_nb.widgets.svg import svg_drawing

FIFTY = (*(f"worker-{i}" for i in range(50)), *(f"ps-{i}" for i in range(8)))


def rows(told: list[tuple[float, str, float]], column: str) -> SeriesChunk:
    return SeriesChunk(1, {}, {
        "at_s": [b.START_S + t for t, _, _ in told],
        "node": [name for _, name, _ in told],
        "role": ["ps" if "ps-" in name else "worker" for _, name, _ in told],
        column: [value for _, _, value in told],
    })  # fmt: skip


# workers


def test_a_ps_has_no_throughput_of_its_own():
    data = workers.columns(b.snapshot(), b.series(nodes=("worker-0", "ps-0")))
    assert list(data.workers.values) == ["worker-0"]


def test_a_dead_worker_leaves_a_gap_in_its_line():
    told = [(float(t), "worker-0", 5.0) for t in range(30)] + [(float(t), "worker-1", 5.0) for t in range(9)]
    data = workers.columns(b.snapshot(), rows(told, "samples_per_s"))
    assert math.isnan(data.workers.values["worker-1"][-1])


@pytest.mark.parametrize("n", [MOST_LINES, MOST_LINES + 1])
def test_a_few_workers_have_a_line_each_and_many_a_band(n):
    told = [(float(t), f"worker-{i}", 100.0 + i) for t in range(20) for i in range(n)]
    picture = workers.CHART.static(b.snapshot(), rows(told, "samples_per_s"))
    assert ("median worker" in picture.svg) == (n > MOST_LINES)
    assert (f"slowest, median and fastest of {n}" in picture.svg) == (n > MOST_LINES)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(1, 1e6), min_size=12, max_size=12), min_size=9, max_size=20))
def test_the_band_of_many_workers_holds_each_of_them(speeds):
    told = [(2.0 * t, f"worker-{i}", v) for i, line in enumerate(speeds) for t, v in enumerate(line)]
    data = workers.columns(b.snapshot(), rows(told, "samples_per_s"))
    all_of = spread(data.workers)
    for low, mid, high, *values in zip(
        all_of.low, all_of.mid, all_of.high, *data.workers.values.values(), strict=True
    ):
        heard = [v for v in values if math.isfinite(v)]
        if heard:
            assert (low, high) == (min(heard), max(heard))
            assert low <= mid <= high


def test_the_table_of_many_workers_names_the_slowest():
    told = [(float(t), f"worker-{i}", 100.0 - i) for t in range(20) for i in range(40)]
    twin = workers.CHART.static(b.snapshot(), rows(told, "samples_per_s")).data_table
    assert len(twin.rows) == MOST_ROWS
    assert twin.rows[0][0] == "worker-39"
    assert "24 more workers" in twin.note


def test_a_live_chart_that_gets_crowded_hides_its_lines_behind_the_band():
    figure = LiveFigure(workers.CHART, b.snapshot())
    figure.update(b.snapshot(), b.series(30, nodes=("worker-0", "worker-1")))
    lines = [r for r in figure.root.renderers if r.name and r.name.startswith("worker")]
    assert [line.visible for line in lines] == [True] * 2
    assert figure.update(b.snapshot(), b.series(30, nodes=FIFTY))
    assert not any(line.visible for line in lines)


def test_nodes_named_after_their_job_are_shown_without_its_name():
    told = [(float(t), "quick-start-ps-1", 100.0) for t in range(5)]
    data = memory.columns(b.snapshot(), rows(told, "memory_mib"))
    assert data.role_of == {"ps-1": Role.PS}


# memory


def test_the_clock_counts_down_with_its_band_in_title_table_and_status():
    words = "a ps is full in 1.72 min (5 %: 85 s, 95 %: 2.17 min)"
    picture = memory.CHART.static(b.snapshot(), b.series())
    assert "Memory: a ps is full in 1.72 min</text>" in picture.svg, "short: charts may be narrow"
    assert words in picture.data_table.note
    assert words in " ".join(status_view(b.snapshot(), b.series()).text().split())
    assert "a ps is full</text>" in picture.svg


@pytest.mark.parametrize(("n_node", "named"), [(3, True), (8, False)])
def test_a_live_legend_names_nodes_as_long_as_they_fit(n_node, named):
    told = [(float(t), f"worker-{i}", 100.0) for t in range(5) for i in range(n_node)]
    figure = LiveFigure(memory.CHART, b.snapshot())
    figure.update(b.snapshot(memory=()), rows(told, "memory_mib"))
    assert figure.root.legend[0].visible is named
    assert len(figure.root.title.text) < 50


def test_a_job_that_has_ended_runs_no_clock():
    assert oom.running_out(b.snapshot(phase=JobPhase.STOPPED)) == ()
    assert memory.columns(b.snapshot(phase=JobPhase.STOPPED), b.series()).clock == ""


def test_an_unsure_end_is_said_as_such(words):
    line = replace(b.snapshot().memory[1], full_in_high_s=None)
    assert oom.countdown(line).endswith("(5 %: 85 s, 95 %: not during the job)")
    line = replace(line, full_in_s=None, oom_probability=0.2)
    assert oom.countdown(line) == words
    assert oom.running_out(b.snapshot(memory=(replace(line, oom_probability=0.01),))) == ()


def test_title_table_and_status_agree_on_how_likely_memory_is_to_be_full():
    line = replace(b.snapshot().memory[1], full_in_s=None, full_in_low_s=None, full_in_high_s=None)
    for chance, (title, cells, words) in {
        0.1: (
            "Memory: a ps may be full before the end",
            ("probably not during the job", "10 %"),
            "10 % chance",
        ),
        0.0: ("Memory per node", ("not during the job", "< 1 %"), ""),
    }.items():
        job = b.snapshot(memory=(replace(line, oom_probability=chance),))
        drawn = memory.marks(memory.columns(job, b.series()))
        assert drawn.title == title
        (row,) = memory_table(job.memory).rows
        assert row[-2:] == cells
        assert ("chance to run out" in drawn.desc) == bool(words)
        assert words in drawn.desc
        assert "0 %" not in drawn.desc.replace("10 %", "")


def test_the_smallest_change_that_avoids_it_is_named_where_a_proposal_says_it(words):
    more = ResourcePlan(b.NOW_PLAN.worker, RolePlan(1, 0.25, 768))
    protecting = b.snapshot(proposals=(b.proposal("p3", kind=ProposalKind.PROTECT, target=more),))
    assert oom.remedy(protecting) == words
    assert any("p3 avoids it" in getattr(block, "text", "") for block in memory_blocks(protecting))
    assert oom.remedy(b.snapshot()) == ""


def test_memory_of_many_nodes_is_a_range_and_the_table_lists_the_fullest():
    picture = memory.CHART.static(b.snapshot(), b.series(60, nodes=FIFTY))
    assert "largest ps" in picture.svg
    assert len(picture.data_table.rows) == MOST_ROWS
    assert "42 more nodes" in picture.data_table.note


# stragglers


def iterations(slow: dict[str, float], n_worker: int = 4, n_s: int = 60) -> SeriesChunk:
    return rows(
        [
            (float(t), f"worker-{i}", slow.get(f"worker-{i}", 0.01))
            for t in range(n_s)
            for i in range(n_worker)
        ],
        "iter_s",
    )


def test_a_slow_worker_is_marked_and_named_in_words(words):
    picture = stragglers.CHART.static(b.snapshot(), iterations({"worker-2": 0.02}))
    assert "Stragglers: worker-2" in picture.svg
    assert picture.data_table.note == words
    assert picture.data_table.rows[0][0] == "worker-2"
    assert picture.data_table.rows[0][3:] == ("2.00", "straggler")


def test_where_the_controller_has_found_somebody_the_marks_are_its_findings(words):
    found = b.straggler("worker-1")
    chunk = iterations({"worker-2": 0.02}, n_s=300)
    data = stragglers.columns(b.snapshot(stragglers=(found, b.straggler("ps-0", Role.PS))), chunk)
    assert data.now == ("worker-1",)
    marked = [cell for cell in data.cells if cell.is_over]
    assert {cell.node for cell in marked} == {"worker-1"}
    assert (
        min(cell.to_s for cell in marked)
        > found.since_s - b.START_S
        >= max(cell.to_s for cell in data.cells if cell.node == "worker-1" and not cell.is_over)
    )
    assert data.state == words
    picture = stragglers.CHART.static(b.snapshot(stragglers=(found,)), chunk)
    assert "straggler: found slow by the controller" in picture.svg
    assert picture.data_table.head[-1] == "found slow"


def test_a_parameter_server_that_is_slow_leaves_the_chart_of_workers_as_it_is():
    chunk = iterations({"worker-2": 0.02})
    data = stragglers.columns(b.snapshot(stragglers=(b.straggler("ps-0", Role.PS),)), chunk)
    assert data.now == ("worker-2",)


def test_cells_are_over_exactly_from_the_threshold_on_and_each_has_a_cross():
    data = stragglers.columns(b.snapshot(), iterations({"worker-2": 0.0175, "worker-3": 0.0155}, 9))
    assert all(cell.is_over == (cell.ratio >= data.threshold) for cell in data.cells)
    over = sum(cell.is_over for cell in data.cells)
    assert over
    crosses = svg_drawing.draw(stragglers.marks(data)).count("l6 6m0 -6l-6 6")
    assert crosses == over + 1  # and one in the legend


def test_waiting_for_a_slow_peer_makes_no_straggler():
    chunk = iterations({"worker-0": 0.03, "worker-1": 0.03}, 2)
    chunk.node["peers_s"] = [0.0 if name == "worker-0" else 0.02 for name in chunk.node["node"]]
    assert stragglers.columns(b.snapshot(), chunk).now == ("worker-0",)


def test_one_worker_alone_has_nobody_to_be_compared_with():
    assert "alone" in stragglers.CHART.static(b.snapshot(), iterations({}, 1)).svg


def test_of_many_workers_the_slowest_are_shown():
    data = stragglers.columns(b.snapshot(), iterations({"worker-44": 0.02}, 50))
    assert len(data.rows) == MOST_ROWS
    assert "worker-44" in dict(data.rows)


# shards


def test_the_queue_says_its_rate_and_when_it_is_empty(words):
    job = {
        "at_s": [b.START_S + t for t in range(0, 121, 10)],
        "done": [float(t // 10) for t in range(0, 121, 10)],
    }
    n = len(job["at_s"])
    job |= {"doing": [2.0] * n, "todo": [float(34 - t) for t in range(n)]}
    snapshot = b.snapshot(train=ShardCounts(todo=22, doing=2, done=12, returned=3, quarantined=1))
    data = shards.columns(snapshot, SeriesChunk(1, job, {}))
    assert data.per_min == pytest.approx(6.0)
    assert data.left_s == pytest.approx(240.0)
    assert data.title == words
    assert "3 came back" in shards.data_table(data).note


def test_the_layers_of_the_queue_sum_to_all_shards_at_any_time():
    data = shards.columns(b.snapshot(), b.series())
    wholes = {
        round(sum(row), 6)
        for row in zip(data.done, data.doing, data.todo, strict=True)
        if math.isfinite(row[0])
    }
    assert wholes == {57.0}


def test_the_queue_of_a_finished_job_promises_no_end(words):
    done = shards.columns(b.snapshot(train=ShardCounts(done=57)), b.series())
    assert done.title == words
    assert "nothing left to do" in shards.words(done)


def test_counts_of_an_older_master_are_no_counts():
    chunk = b.series()
    old = SeriesChunk(1, {k: v for k, v in chunk.job.items() if k not in {"todo", "doing", "done"}}, {})
    assert "No counts over time yet." in shards.CHART.static(b.snapshot(), old).svg


# scores and rounds


def test_a_hit_and_a_miss_differ_in_shape_and_words():
    hit = b.snapshot().outcomes[0]
    miss = replace(hit, decision="d9", measured_samples_per_s=2 * hit.measured_samples_per_s)
    data = scores.columns(b.snapshot(outcomes=(hit, miss)))
    assert [d.is_hit for d in data.dots] == [True, False]
    assert "1 of 2 measurements" in data.words
    svg = svg_drawing.draw(scores.marks(data))
    assert "inside the 90 % band" in svg
    assert "outside" in svg
    assert [row[-1] for row in scores.data_table(data).rows] == ["yes", "no"]


def test_outcomes_without_a_prediction_are_counted_and_not_drawn():
    bare = Outcome("d1", b.NOW_PLAN, None, 100.0, None, 5, b.START_S, 0.0)
    data = scores.columns(b.snapshot(outcomes=(bare,)))
    assert data.dots == ()
    assert "none of them with a prediction" in svg_drawing.draw(scores.marks(data))


def test_a_job_that_stood_still_has_no_error():
    still = replace(b.snapshot().outcomes[0], measured_samples_per_s=0.0)
    assert scores.data_table(scores.columns(b.snapshot(outcomes=(still,)))).rows[0][5] == "-"


def test_each_evaluation_stands_in_the_table():
    three = tuple(
        EvaluationRound(i, b.START_S + i, Evaluation(0.9 + i / 100, 0.2 - i / 100, 500)) for i in (1, 2, 3)
    )
    picture = rounds.CHART.static(b.snapshot(rounds=three), None)
    assert [row[1] for row in picture.data_table.rows] == ["0.9100", "0.9200", "0.9300"]
    assert "AUC: last 0.9300" in picture.svg


# all


@pytest.mark.more
@for_each("name", CHARTS)
def test_fifty_workers_fit_into_every_chart_live_and_saved(name):
    names = tuple(b.node(n, Role.PS if n.startswith("ps") else Role.WORKER, memory=400.0) for n in FIFTY)
    snapshot, series = b.snapshot(nodes=names), b.series(60, nodes=FIFTY)
    assert len(CHARTS[name].static(snapshot, series).svg) < 40_000
    figure = LiveFigure(CHARTS[name], b.snapshot())
    figure.update(snapshot, series)
    assert not figure.update(snapshot, series)


@for_each("name", CHARTS)
def test_a_chart_without_any_data_says_so_in_words(name):
    empty = b.snapshot(
        nodes=(), memory=(), curves=(), front=None, fit=None, proposals=(), outcomes=(), markers=(), rounds=()
    )
    picture = CHARTS[name].static(empty, None)
    words = ("yet", "nothing", "No ", "only where", "alone")
    assert any(word in picture.svg for word in words)


@pytest.mark.more
def test_an_hour_of_ten_nodes_stays_a_small_status():
    names = (*(f"worker-{i}" for i in range(8)), "ps-0", "ps-1")
    nodes = tuple(b.node(n, Role.PS if n.startswith("ps") else Role.WORKER, memory=400.0) for n in names)
    html = status_view(b.snapshot(at_s=b.START_S + 3600, nodes=nodes), b.series(3600, nodes=names)).html()
    assert len(html) < 65_000


def test_of_many_nodes_the_table_shows_those_that_are_not_ready_and_the_fullest():
    nodes = [b.node(n, Role.WORKER, memory=400.0 + i) for i, n in enumerate(FIFTY)]
    nodes[3] = replace(nodes[3], phase=NodePhase.DRAINING)
    (table,) = nodes_blocks(b.snapshot(nodes=tuple(nodes)))
    shown = [row[0] for row in table.rows]
    assert shown[0] == "worker-3"
    assert shown[-1] == "ps-7"
    assert "worker-4" not in shown
    assert f"{58 - len(shown)} more nodes" in table.note


def test_thinning_for_a_picture_keeps_the_greatest_value_of_every_node():
    told = [(float(t), "worker-0", 9000.0 if t == 1234 else 100.0) for t in range(3000)]
    data = memory.columns(b.snapshot(), rows(told, "memory_mib"), n_bucket=N_STATIC)
    assert len(data.nodes.t_s) <= N_STATIC + 1
    assert max(v for v in data.nodes.values["worker-0"] if math.isfinite(v)) == 9000.0


def test_throughput_without_rows_says_that_nothing_was_measured():
    assert "nothing measured yet" in throughput.CHART.static(b.snapshot(), None).svg


@pytest.mark.parametrize("chart", [workers, memory])
def test_nodes_that_come_one_by_one_get_lines_that_differ(chart):
    figure = LiveFigure(chart.CHART, b.snapshot())
    for names in (("worker-2",), ("worker-1", "worker-2")):
        figure.update(b.snapshot(), b.series(30, nodes=names))
    lines = [r.glyph for r in figure.root.renderers if r.name and r.name.startswith("worker-")]
    assert len({(line.line_color, tuple(line.line_dash)) for line in lines}) == 2


@pytest.mark.parametrize("chart", [workers, memory])
def test_a_legend_is_in_its_place_before_the_first_node_comes(chart):
    figure = LiveFigure(chart.CHART, b.snapshot())
    before = [*figure.root.above]
    figure.update(b.snapshot(), b.series(30, nodes=("worker-1",)))
    assert [*figure.root.legend] == before
    assert [*figure.root.above] == before
