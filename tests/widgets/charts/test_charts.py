import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from bokeh.document import Document
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound, SeriesChunk
from dlrover_nb.widgets.charts import CHARTS, curve, front, memory, throughput
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure, Throttle
from dlrover_nb.widgets.live.live_charts.live_series import keyed
from dlrover_nb.widgets.live.live_charts.sources import with_gaps
from dlrover_nb.widgets.series import Window
from dlrover_nb.widgets.svg.marks import Area, Band, Line


@for_each("name", CHARTS)
@for_each(
    ("snapshot", "series"),
    [
        pytest.param(b.snapshot(), b.series(), id="full"),
        pytest.param(b.snapshot(), None, id="no telemetry"),
        pytest.param(
            b.snapshot(front=None, curves=(), fit=None, memory=(), markers=(), proposals=(), nodes=()),
            b.series(1),
            id="just started",
        ),
    ],
)
def test_each_chart_draws_well_formed_svg_of_less_than_30_kb(name, snapshot, series):
    picture = CHARTS[name].static(snapshot, series)
    ET.fromstring(picture.svg)
    assert len(picture.svg) < 30_000


@pytest.mark.more
def test_a_day_of_telemetry_still_gives_less_than_30_kb():
    day = 86_400
    snapshot, series = b.snapshot(at_s=b.START_S + day), b.series(day)
    for name in ("throughput", "memory"):
        assert len(CHARTS[name].static(snapshot, series).svg) < 30_000, name


def test_throughput_level_lasts_until_the_next_plan():
    data = throughput.columns(b.snapshot(), b.series())
    first, second = data.levels
    assert first.predicted is None
    assert first.to_s == second.from_s == 150
    assert second.to_s == 300


def test_predicted_levels_are_separate_lines():
    snapshot = b.snapshot(
        markers=tuple(replace(m, predicted=b.prediction(b.NOW_PLAN)) for m in b.snapshot().markers)
    )
    x, level, low, high = throughput.band(throughput.columns(snapshot, b.series()).levels)
    assert len(x) == len(level) == len(low) == len(high) == 6
    assert sum(map(math.isnan, level)) == 2


def test_two_limits_alike_have_one_name_at_their_line():
    apart = CHARTS["memory"].static(b.snapshot(), b.series()).svg
    assert "limit of a worker: 1.00 GiB" in apart
    plan = replace(b.NOW_PLAN, ps=replace(b.NOW_PLAN.ps, memory_mib=1024))
    alike = CHARTS["memory"].static(replace(b.snapshot(), target=plan), b.series()).svg
    assert "limit of a worker and of a ps: 1.00 GiB" in alike
    assert "limit of a worker:" not in alike


def test_memory_forecast_starts_at_the_present_use_and_never_passes_the_limit():
    data = memory.columns(b.snapshot(), b.series())
    for forecast, line in zip(data.forecasts, data.lines, strict=True):
        assert forecast.mib[0] == line.now_mib
        assert max(forecast.mib) <= line.limit_mib * 1.001
        assert all(
            low <= mid <= high
            for low, mid, high in zip(forecast.low, forecast.mib, forecast.high, strict=True)
        )


def test_memory_that_cannot_be_forecast_yet_has_no_fan():
    few = tuple(replace(m, fan=()) for m in b.snapshot().memory)
    assert memory.columns(b.snapshot(memory=few), b.series()).forecasts == ()


def test_the_fan_is_drawn_live_and_in_the_picture():
    figure = LiveFigure(memory.CHART, b.snapshot())
    figure.update(b.snapshot(), b.series())
    labels = {item.label.value for item in figure.root.legend[0].items}
    assert "forecast (90 %)" in labels
    bands = [r for r in figure.root.renderers if r.name in {"band", "band 2"}]
    assert [len(band.data_source.data["t"]) > 1 for band in bands] == [True, True]
    assert "forecast (90 %)" in memory.CHART.static(b.snapshot(), b.series()).svg


def test_a_finished_job_has_no_forecast():
    assert memory.columns(b.snapshot(phase=JobPhase.SUCCEEDED), b.series()).forecasts == ()


def test_curve_parts_cover_the_curve_and_meet():
    data = curve.columns(b.snapshot())[0]
    for y, inside, outside in zip(data.y, data.inside, data.outside, strict=True):
        assert y in (inside, outside)
    assert any(math.isfinite(i) and math.isfinite(o) for i, o in zip(data.inside, data.outside, strict=True))
    assert all(low <= y <= high for low, y, high in zip(data.low, data.y, data.high, strict=True))


def test_front_names_its_picks_and_shows_the_open_proposal():
    data = front.columns(b.snapshot())
    assert {n for d in data.front for n in d.names} == {"cheapest", "best value", "knee", "fastest"}
    assert data.proposal is not None
    assert data.proposal.names == ("proposal p2 as proposed",)
    assert front.columns(b.snapshot(proposals=())).proposal is None


@for_each("name", [name for name in CHARTS if name not in {"breakdown", "stragglers"}])
def test_a_layer_has_the_same_color_dash_and_label_live_and_saved(name):
    """Both renderers are given the same marks."""
    rounds = tuple(EvaluationRound(i, b.START_S + i, Evaluation(0.9, 0.1, 100)) for i in (1, 2, 3))
    snapshot, series = b.snapshot(rounds=rounds), b.series()
    figure = LiveFigure(CHARTS[name], snapshot)
    figure.update(snapshot, series)
    saved = CHARTS[name].static(snapshot, series).svg
    plot, root = CHARTS[name].drawing(snapshot, series).panels[0], figure.panels[0].root
    assert root.title.text == plot.title
    drawn = {r.name: r.glyph for r in root.renderers if r.name and r.visible}
    series_layers = keyed([la for la in plot.layers if isinstance(la, (Line, Band, Area)) and len(la.x)])
    assert drawn.keys() == series_layers.keys()
    for key, layer in series_layers.items():
        assert layer.color in saved
        assert layer.label in saved
        if isinstance(layer, Line):
            glyph = drawn[key]
            assert (glyph.line_color, glyph.line_dash) == (layer.color, [int(d) for d in layer.dash.split()])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([f"worker-{i}" for i in range(20)]), unique=True, min_size=1))
def test_a_node_keeps_its_look_when_others_join_or_leave(names):
    all_names = [f"worker-{i}" for i in range(20)]
    few = CHARTS["memory"].drawing(b.snapshot(memory=()), b.series(5, nodes=tuple(names))).panels[0]
    many = CHARTS["memory"].drawing(b.snapshot(memory=()), b.series(5, nodes=tuple(all_names))).panels[0]
    look = {layer.label: (layer.color, layer.dash) for layer in many.layers if isinstance(layer, Line)}
    for layer in few.layers:
        if isinstance(layer, Line):
            assert look[layer.label] == (layer.color, layer.dash)
    assert len(set(look.values())) == len(look)


@for_each("name", CHARTS)
def test_a_drawing_lists_all_of_its_panels_before_the_first_row(name):
    empty = b.snapshot(
        nodes=(), memory=(), curves=(), front=None, proposals=(), outcomes=(), markers=(), rounds=()
    )
    first, later = CHARTS[name].drawing(empty, None), CHARTS[name].drawing(b.snapshot(), b.series())
    assert first.panels
    if not later.one_at_a_time:
        assert [type(p) for p in first.panels] == [type(p) for p in later.panels]


@pytest.mark.more
@for_each("name", CHARTS)
def test_live_figure_shows_nothing_new_as_no_change_and_new_rows_as_one(name):
    figure = LiveFigure(CHARTS[name], b.snapshot())
    two = b.series(nodes=("worker-0", "worker-1", "ps-0"))
    figure.update(b.snapshot(), two)
    assert not figure.update(b.snapshot(), two)
    assert figure.update(
        b.snapshot(
            at_s=b.START_S + 301,
            curves=b.snapshot().curves[:0] or (b.curve("workers", (1.0, 2.0), 2.0),),
            proposals=(),
            outcomes=(),
            rounds=tuple(
                EvaluationRound(n, b.START_S + 100 * n, Evaluation(0.93, 0.14, 20_000)) for n in (1, 2)
            ),
        ),
        b.series(301, nodes=("worker-0", "worker-1", "ps-0")),
    )


def test_live_throughput_appends_instead_of_sending_all_again():
    figure = LiveFigure(throughput.CHART, b.snapshot())
    window = Window()
    window.add(b.series(200))
    figure.update(b.snapshot(), window.chunk())
    source = figure.root.select({"name": "measured"})[0].data_source
    sent: list[str] = []
    document = Document()
    document.add_root(figure.root)
    document.on_change(lambda event: sent.append(getattr(event, "kind", "")))
    n = len(source.data["t"])
    window.add(b.series(203, start=200))
    figure.update(b.snapshot(), window.chunk())
    assert "ColumnsStreamed" in sent
    assert len(source.data["t"]) == n + 3
    assert source.data["t"][-1] == 202


def kind_of_wide(event) -> str:
    """Return the kind of an event about a source of lines: marks of plans are few, and move with the axis."""
    is_wide = "t" in getattr(event.model, "data", ())
    return getattr(event, "kind", "") if is_wide else ""


@pytest.mark.more
@for_each("name", ["workers", "memory", "shards"])
@for_each("n_worker", [2, 50])
def test_new_rows_are_appended_to_the_wide_source_of_any_number_of_nodes(name, n_worker):
    nodes = tuple(f"worker-{i}" for i in range(n_worker))
    figure, window = LiveFigure(CHARTS[name], b.snapshot()), Window()
    window.add(b.series(41, nodes=nodes))
    figure.update(b.snapshot(), window.chunk())
    sent: list[str] = []
    document = Document()
    document.add_root(figure.root)
    document.on_change(lambda event: sent.append(kind_of_wide(event)))
    window.add(b.series(49, nodes=nodes, start=41))
    assert figure.update(b.snapshot(), window.chunk())
    assert "ColumnsStreamed" in sent
    assert "ColumnDataChanged" not in sent


def test_a_joining_node_gets_its_own_line_from_the_same_source():
    figure = LiveFigure(memory.CHART, b.snapshot())
    figure.update(b.snapshot(), b.series())
    figure.update(b.snapshot(), b.series(nodes=("worker-0", "worker-1", "ps-0")))
    lines = [r for r in figure.root.renderers if r.name in {"worker-0", "worker-1", "ps-0"}]
    assert len(lines) == 3
    assert len({id(r.data_source) for r in lines}) == 1


def test_a_tap_tells_which_candidate():
    tapped = []
    figure = LiveFigure(front.CHART, b.snapshot(), tapped.append)
    figure.update(b.snapshot(), None)
    sources = {r.data_source for r in figure.root.renderers if "words" in r.data_source.data}
    by_plan = {words: (source, i) for source in sources for i, words in enumerate(source.data["words"])}
    third = front.columns(b.snapshot()).front[2]
    source, i = by_plan[front.words(third, "USD/h")]
    source.selected.indices = [i]
    assert tapped == [third.candidate]


@given(st.lists(st.one_of(st.just(math.nan), st.floats(1, 100)), max_size=20))
def test_live_areas_have_no_height_in_a_gap_and_keep_every_value(y):
    t_s = [float(i) for i in range(len(y))]
    columns = with_gaps(t_s, {"high": y}, {"mid": y})
    assert [v for v in columns["high"] if v] == [v for v in y if math.isfinite(v)]
    assert all(
        math.isnan(mid) == (high == 0) for mid, high in zip(columns["mid"], columns["high"], strict=True)
    )
    assert columns["t"] == sorted(columns["t"])
    for (t0, h0), (t1, h1) in pairwise(zip(columns["t"], columns["high"], strict=True)):
        if t1 - t0 > 1:  # what is known is a second apart: further than that nothing may be drawn
            assert h0 == h1 == 0


def test_hover_on_the_front_tells_plan_speed_band_and_cost():
    dot = front.columns(b.snapshot()).front[0]
    words = front.words(dot, "USD/h")
    for part in (dot.candidate.plan.short, "samples/s", "USD/h", "finish in", "cheapest"):
        assert part in words


def test_a_few_reports_are_drawn_as_they_come_and_many_in_turns_but_never_left_out():
    pace = Throttle()
    assert [pace.is_due(b.series(t, cursor=t)) for t in (1, 2, 3)] == [True] * 3

    def crowd(t: int) -> SeriesChunk:
        return SeriesChunk(t, {}, {"at_s": [b.START_S + t] * 10_000})

    pace = Throttle()
    assert [pace.is_due(crowd(t)) for t in range(6)] == [True, False, True, False, True, False]
    assert pace.is_due(crowd(5))  # no more comes: what was left out is drawn, once
    assert not pace.is_due(crowd(5))


def test_rows_that_start_anew_are_drawn_at_once():
    pace = Throttle()
    assert pace.is_due(SeriesChunk(9, {}, {"at_s": [b.START_S + 99] * 10_000}))
    assert pace.is_due(SeriesChunk(1, {}, {"at_s": [b.START_S] * 10_000}))


@for_each("name", ["throughput", "memory", "curve", "workers", "shards"])
def test_entries_of_a_legend_refer_to_nothing_that_ticks(name):
    figure = LiveFigure(CHARTS[name], b.snapshot())
    figure.update(b.snapshot(), b.series(60))
    items = [item for legend in figure.root.legend for item in legend.items]
    sources = [renderer.data_source for item in items for renderer in item.renderers]
    before = [dict(source.data) for source in sources]
    figure.update(b.snapshot(), b.series(90))
    assert sources
    assert repr([dict(source.data) for source in sources]) == repr(before)


def test_the_proposed_plan_has_one_number_on_the_front():
    on_front = b.front().candidates[2]
    stale = replace(on_front, prediction=replace(on_front.prediction, samples_per_s=1.0))
    opened = replace(b.proposal(), candidate=stale)
    data = front.columns(b.snapshot(proposals=(opened,)))
    assert data.proposal == front.Dot(on_front, ("proposal p1",))
    elsewhere = b.proposal(target=b.plan(2, 2))
    assert front.columns(b.snapshot(proposals=(elsewhere,))).proposal.names == ("proposal p1 as proposed",)
