"""Each chart over time marks where a plan began, saved and live."""

from dataclasses import replace

import pytest
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure
from dlrover_nb.widgets.svg import extent
from dlrover_nb.widgets.svg.marks import Line, Orientation, Plot, Rule

OVER_TIME = (
    "throughput", "memory", "workers", "batches", "shards", "breakdown", "stragglers", "staleness", "distance",
)  # fmt: skip
NODES = ("worker-0", "worker-1", "ps-0")


def rules(panel) -> list[float]:
    marks = panel.layers if isinstance(panel, Plot) else panel.rules
    return [m.at for m in marks if isinstance(m, Rule) and m.along is Orientation.VERTICAL]


@pytest.mark.parametrize("name", OVER_TIME)
def test_plans_are_marked_where_they_began(name):
    snapshot = b.snapshot(memory=())
    panel = CHARTS[name].drawing(snapshot, b.series(nodes=NODES)).panels[-1]
    assert panel.x_is_time
    assert rules(panel) == [2.0, 150.0]
    assert b.NOW_PLAN.short in CHARTS[name].static(snapshot, b.series(nodes=NODES)).svg


def test_a_mark_names_the_decision_that_set_the_plan():
    accepted = Decision(Verdict.ACCEPT, "ada", b.START_S + 140, "p1", id="d4")
    rejected = replace(accepted, verdict=Verdict.REJECT, id="d5")
    proposals = (b.proposal("p1", target=b.NOW_PLAN, status=ProposalStatus.APPLIED),)
    of = [
        [rule.label for rule in plan_starts(b.snapshot(proposals=proposals, decisions=(each,)))]
        for each in (accepted, rejected, replace(accepted, at_s=b.START_S + 200))
    ]
    first, now = b.plan(1, 1, 0.25, 0.25).short, b.NOW_PLAN.short
    assert of == [[first, f"d4: {now}"], [first, now], [first, now]]


@pytest.mark.parametrize("name", OVER_TIME)
def test_marks_reach_the_live_figure(name):
    figure = LiveFigure(CHARTS[name], b.snapshot(memory=()))
    figure.update(b.snapshot(memory=()), b.series(nodes=NODES))
    root = figure.panels[-1].root
    columns = [renderer.data_source.data for renderer in root.renderers]
    assert any([*data.get("x", ())] == [2.0, 150.0] for data in columns)


def test_the_proposal_stands_beside_what_the_present_plan_goes_on_with():
    (plot,) = CHARTS["throughput"].drawing(b.snapshot(), b.series()).panels
    by_label = {layer.label: layer for layer in plot.layers if not isinstance(layer, Rule)}
    assert by_label["as now"].x is by_label["proposed"].x
    assert by_label["as now"].y[0] == b.snapshot().open_proposal.baseline.prediction.samples_per_s


def test_a_figure_without_data_has_no_marks():
    figure = LiveFigure(CHARTS["stragglers"], b.snapshot())
    figure.update(b.snapshot(), b.series(nodes=("worker-0", "ps-0")))
    assert "one worker alone" in figure.root.title.text
    assert not any(len(r.data_source.data.get("x", ())) for r in figure.root.renderers)


@pytest.mark.parametrize(("times", "is_whole"), [(1.2, True), (4.0, True), (40.0, False)])
def test_a_proposal_is_within_the_chart_unless_it_would_flatten_what_was_measured(times, is_whole):
    proposal = b.proposal("p2")
    value = times * b.speed(b.NOW_PLAN)
    fast = replace(proposal.candidate, prediction=Prediction(value, value, value, False))
    snapshot = b.snapshot(proposals=(replace(proposal, candidate=fast),))
    (plot,) = CHARTS["throughput"].drawing(snapshot, b.series()).panels
    labels = [layer.label for layer in extent.cut(plot).layers if isinstance(layer, Line)]
    assert ("proposed" in labels) == is_whole
