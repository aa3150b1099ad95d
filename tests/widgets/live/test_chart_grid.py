"""The cross of the what-if sliders stays, with its band, within the charts that it is on, and is on the curve."""

from dataclasses import replace

import pytest
from bokeh.core.validation.check import check_integrity
from bokeh.models import GlyphRenderer, Scatter, Segment
from support.jobs import builders as b

from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.widgets.charts import PLANS
from dlrover_nb.widgets.clusters.many.figure import Figure
from dlrover_nb.widgets.jobs.review_card import Link
from dlrover_nb.widgets.live.chart_grid import ChartGrid
from dlrover_nb.widgets.live.job_view_model import ViewState


def grid_of(snapshot: JobSnapshot) -> ChartGrid:
    """Return the charts of a job, with its page of plans."""
    grid, state = ChartGrid(snapshot, lambda _: None, lambda: None), state_of(snapshot)
    grid.open(PLANS, state)
    grid.update(state, PLANS)
    return grid


def state_of(snapshot: JobSnapshot, series: SeriesChunk | None = None) -> ViewState:
    return ViewState(snapshot, series or b.series(), None, Link(0.0))


def marked(high):
    """Return the figure of the front with the cross at a proposal whose band ends there."""
    snapshot = b.snapshot()
    grid = grid_of(snapshot)
    candidate = snapshot.open_proposal.candidate
    grid.mark(replace(candidate, prediction=replace(candidate.prediction, high=high)))
    return grid.figures["front"].panels[0].root


@pytest.mark.more
def test_a_band_a_little_above_the_front_is_within_the_axis():
    top = marked(60_000.0).y_range.end
    assert marked(1.2 * top).y_range.end >= 1.2 * top


def test_a_band_far_above_is_cut_at_the_edge_and_leaves_the_front_its_room():
    figure = marked(1e9)
    assert figure.y_range.end < 1e6
    bars = [
        each
        for each in figure.select(GlyphRenderer)
        if isinstance(each.glyph, Segment) and each.glyph.line_width == 3
    ]
    assert bars
    assert all(each.level in ("image", "underlay", "glyph") for each in bars), (
        "levels that Bokeh cuts at the edge"
    )


def test_on_the_curve_the_cross_is_for_a_free_host_as_the_curve_is(words):
    snapshot = b.snapshot(host=HostLoad(0.5, 0.5, 1.0, 2.0))
    grid = grid_of(snapshot)
    candidate = snapshot.open_proposal.candidate
    grid.mark(replace(candidate, prediction=replace(candidate.prediction, host=0.5)))
    assert cross_height(grid, "curve") == pytest.approx(2 * cross_height(grid, "front"))
    assert grid.figures["curve"].panels[0].root.yaxis.axis_label == words


def cross_height(grid: ChartGrid, chart: str) -> float:
    """Return where the cross is on a chart."""
    marks = grid.figures[chart].panels[0].root.select(GlyphRenderer)
    (cross,) = (m for m in marks if isinstance(m.glyph, Scatter) and m.glyph.size == 15)
    (height,) = cross.data_source.data["y"]
    return float(height)


def test_bokeh_finds_no_fault_in_figures_that_have_no_data_yet():
    grid = ChartGrid(b.snapshot(), lambda _: None, lambda: None)
    for page in grid.pages:
        grid.open(page, state_of(b.snapshot(front=None, curves=()), SeriesChunk(0, {}, {})))
    figures = [panel.root for each in grid.figures.values() for panel in each.panels] + [Figure().root]
    issues = check_integrity(figures)
    assert (issues.error, issues.warning) == ([], [])
