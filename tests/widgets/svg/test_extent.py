import math

from hypothesis import given
from hypothesis import strategies as st
from support.jobs import builders as b

from dlrover_nb.widgets.charts import CHARTS, throughput
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.svg import extent, svg_drawing
from dlrover_nb.widgets.svg.marks import Area, Band, Line, Plot, Points, Rule
from dlrover_nb.widgets.svg.single import single

speeds = st.floats(1.0, 1e6)


def plot(*layers, **options):
    return Plot("t", "d", "time", "samples/s", layers, x_is_time=True, **options)


@given(st.lists(speeds, min_size=2, max_size=20), st.lists(speeds, min_size=2, max_size=2), speeds)
def test_neither_band_nor_guide_squeezes_the_measured_line(measured, ends, level):
    x = [float(i) for i in range(len(measured))]
    told = plot(
        Band([0, 1], [min(ends)] * 2, [max(ends)] * 2, label="90 % band"),
        Line([0, 1], [level] * 2, label="predicted", is_guide=True),
        Line(x, measured, label="measured"),
    )
    low, high = extent.y_range(told)
    assert low == 0
    assert high <= 3 * max(measured)
    for layer in extent.cut(told).layers:
        ys = [*layer.low, *layer.high] if isinstance(layer, Band) else layer.y
        assert all(low <= y <= high for y in ys if math.isfinite(y))


@given(speeds, speeds)
def test_a_band_that_is_cut_says_so_and_a_near_one_does_not(measured, high):
    told = plot(Band([0, 1], [0, 0], [high, high], label="90 % band"), Line([0, 1], [measured] * 2))
    [band, _] = extent.cut(told).layers
    assert (extent.CUT in band.label) == (max(band.high) < high)


def test_a_gap_in_a_band_stays_one():
    told = plot(Band([0, 1, 2], [0, math.nan, 0], [1e9, math.nan, 1e9]), Line([0, 2], [5, 6]))
    assert math.isnan(extent.cut(told).layers[0].high[1])


def test_a_chart_with_one_value_is_a_line_of_text_saved_and_live():
    now = b.snapshot(markers=())
    svg = throughput.CHART.static(now, b.series(1)).svg
    assert (
        "One value, measured 15,158 samples/s at 0:00." not in throughput.CHART.static(now, b.series(9)).svg
    )
    assert "One value, measured" in svg
    assert "<path" not in svg
    figure = LiveFigure(throughput.CHART, now)
    figure.update(now, b.series(1))
    assert "one value, measured" in figure.root.title.text
    figure.update(now, b.series(9))
    assert figure.root.title.text == "Throughput"


def test_what_is_single_is_told_with_its_unit_and_place(words):
    assert single(plot(Line([5.0], [812.0], label="measured"))) == words
    two = (Line([5.0], [1.0], label="a"), Line([5.0, 6.0], [2.0, math.nan], label="b"))
    assert single(plot(*two)) == words
    assert single(plot(Area([5.0], [1.0], [3.0], name="doing"))) == words
    assert single(plot(Line([5.0, 6.0], [1.0, 1.0]))) == ""
    assert single(plot(Rule(5.0), Band([1.0], [1.0], [2.0]))) == ""
    assert single(plot(Points([1.0, 1.0], [1.0, 2.0]))) == ""


def test_charts_of_one_report_draw_no_axes():
    for name in ("workers", "memory", "shards"):
        svg = svg_drawing.draw(CHARTS[name].drawing(b.snapshot(memory=()), b.series(1)))
        assert "ne value" in svg, name
