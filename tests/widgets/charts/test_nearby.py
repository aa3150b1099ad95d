"""Charts of plans begin at what one decides about, whatever the bounds allow, and say what lies beyond."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from bokeh.models import Scatter
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs import builders as b
from support.jobs.random_pictures import picture

from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.decisions.candidates import ParetoFront
from dlrover_nb.widgets.charts import CHARTS, curve, front
from dlrover_nb.widgets.charts.nearby import TIMES
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.svg.marks import Points

seeds = st.integers(0, 10_000)


def drawn_costs(data):
    (plot,) = front.marks(data).panels
    return [x for layer in plot.layers if isinstance(layer, Points) for x in layer.x]


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_the_front_reaches_to_what_was_tried_and_proposed_and_four_times_the_present_plan(seed):
    data = front.columns(picture(seed)[0])
    shown = {dot.candidate.plan for dot in data.near}
    tried = [dot for dot in data.front if not dot.candidate.prediction.extrapolates]
    must = [dot.candidate.cost for dot in (*tried, *filter(None, (data.proposal,)))]
    most = max((TIMES * data.now.candidate.cost, *must))
    for dot in data.front:
        assert (dot.candidate.plan in shown) == (dot.candidate.cost <= most * (1 + 1e-9))
    assert max(drawn_costs(data)) <= most * (1 + 1e-9)
    n_far = len(data.front) - len(shown)
    assert data.beyond.startswith(f"{n_far} more plan") if n_far else data.beyond == ""


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_each_curve_reaches_to_what_was_tried_and_proposed(seed):
    snapshot, _ = picture(seed)
    opened = snapshot.open_proposal
    for data in curve.columns(snapshot):
        shown = data.x[: data.n_near]
        assert data.at in shown
        assert max(data.measured_x) <= max(shown)
        assert len(shown) >= min(2, len(data.x))
        if opened is not None and data.proposed in data.x:
            assert data.proposed in shown
        assert set(curve.plot(data).x_ticks) == (set() if data.is_single else set(shown))
        assert bool(data.beyond) == (len(shown) < len(data.x))


def wide(workers: int):
    """Return a job that may have 256 workers, and has some."""
    now = b.plan(workers, 1)
    sizes = (1, 2, 4, 8, 16, 64, 128, 256)
    untried = replace(b.prediction(now), extrapolates=True)
    candidates = tuple(replace(b.candidate(b.plan(n, 1), now), prediction=untried) for n in sizes)
    pareto = ParetoFront(candidates, b.candidate(now, now), (), 2000, "USD")
    values = tuple(float(n) for n in sizes)
    return b.snapshot(
        target=now, running=now, proposals=(), front=pareto,
        curves=(b.curve("workers", values, float(workers)),),
    )  # fmt: skip


def test_the_ranges_follow_the_plan_and_the_button_shows_all():
    figure = LiveFigure(CHARTS["front"], wide(1))
    fitted = LiveFigure(CHARTS["curve"], wide(1))
    ends = []
    for workers in (1, 8, 64, 1):
        for each in (figure, fitted):
            each.update(wide(workers), None)
        ends.append((figure.root.x_range.end, fitted.root.x_range.end))
    assert ends[0] < ends[1] < ends[2]
    assert ends[3] == ends[0]
    assert ends[0][1] < 5
    figure.shows_all = fitted.shows_all = True
    for each in (figure, fitted):
        each.update(wide(1), None)
    assert fitted.root.x_range.end > 256
    dearest = max(c.cost for c in wide(1).front.candidates)
    assert figure.root.x_range.end > dearest
    drawn = figure.root.select({"type": Scatter})
    assert [*drawn]


def test_a_saved_chart_says_how_many_plans_lie_beyond_and_up_to_where(words):
    told = {
        name: " ".join(e.text or "" for e in ET.fromstring(CHARTS[name].static(wide(1), None).svg).iter())
        for name in ("front", "curve")
    }
    assert "256w x 0.5" in told["front"]
    assert "more plans beyond, up to " in told["front"]
    assert told["curve"] == words


def test_the_tables_have_all_plans():
    rows = CHARTS["front"].data_table(wide(1), None).rows
    assert any("256w" in cell for row in rows for cell in row)
    assert "256" in {row[1] for row in CHARTS["curve"].data_table(wide(1), None).rows}


def test_an_axis_with_a_single_value_has_no_curve_and_the_chart_says_why(words):
    alone = b.curve("ps", (1.0,), 1.0)
    both = b.snapshot(curves=(b.curve("workers", (1.0, 2.0, 3.0), 1.0), alone))
    saved = CHARTS["curve"].static(both, None)
    assert "along workers" in saved.svg
    assert "along parameter servers" not in saved.svg
    assert saved.data_table.note == words
    assert ("parameter servers", "1 (now)") in {row[:2] for row in saved.data_table.rows}
    figure = LiveFigure(CHARTS["curve"], both)
    figure.chosen = "ps"
    figure.update(both, None)
    assert figure.root.title.text == words
    assert not any(any(each.data_source.data["x"]) for each in figure.root.select({"type": Scatter}))
    figure.chosen = "workers"
    figure.update(both, None)
    assert figure.root.title.text == "Fitted curve along workers"


def test_where_only_the_present_plan_is_possible_there_is_no_curve_at_all():
    alone = tuple(b.curve(axis, (1.0,), 1.0) for axis in ("workers", "ps"))
    saved = CHARTS["curve"].static(b.snapshot(curves=alone), None)
    assert "only the present plan is possible" in saved.svg
    assert "along workers" not in saved.svg


def test_a_value_that_was_measured_and_is_no_longer_possible_keeps_the_curve():
    measured = replace(b.curve("ps", (1.0,), 1.0), measured_x=(1.0, 2.0), measured_samples_per_s=(9.0, 12.0))
    assert "along parameter servers" in CHARTS["curve"].static(b.snapshot(curves=(measured,)), None).svg


def test_a_curve_says_that_it_is_for_a_free_host_where_proposals_are_not(words):
    quiet, busy = b.snapshot(), b.snapshot(host=HostLoad(0.4, 0.6, 1.0, 2.0))
    shown = curve.CHART.static(busy, None)
    assert "samples/s on a free host</text>" in shown.svg
    assert shown.data_table.note == words
    assert "free host" not in curve.CHART.static(quiet, None).svg
