from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from support.jobs import builders

from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.terminal import render
from dlrover_nb.widgets.charts import front
from dlrover_nb.widgets.jobs.plans import plans_view, proposal_facts
from dlrover_nb.widgets.past.html_report import write_report
from dlrover_nb.widgets.svg import svg_drawing


def priced(candidate, price):
    return replace(candidate, cost_per_hour=price, cost_per_million=price)


def snapshot(price):
    seen, shown = builders.snapshot(), builders.front()
    weighed = tuple(priced(c, price) for c in shown.candidates)
    proposal = builders.proposal()
    return replace(
        seen,
        spec=replace(seen.spec, prices=PriceTable(cpu_hour=price, gib_hour=0.0)),
        front=replace(shown, candidates=weighed, current=priced(shown.current, price)),
        proposals=(
            replace(
                proposal,
                candidate=priced(proposal.candidate, price),
                baseline=priced(proposal.baseline, price),
            ),
        ),
    )


def text_of(picture):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render(picture))
    return capture.get()


def test_no_view_shows_money_where_a_price_is_unknown(tmp_path):
    unknown = snapshot(None)
    shown = plans_view(unknown)
    page = write_report(tmp_path / "r.html", unknown).read_text()
    for text in (shown.text(), shown.html(), page, text_of(unknown)):
        assert "price unknown" in text
        assert "USD/h" not in text
        assert "USD per hour" not in text


def test_front_draws_cores_with_the_reason_where_money_tells_no_plans_apart(words):
    data = front.columns(snapshot(None))
    assert data.cost_label == words
    assert "price unknown" in svg_drawing.draw(front.marks(data))
    row = next(r for r in front.data_table(data).rows if "now" in r[0])
    assert float(row[2]) == pytest.approx(builders.NOW_PLAN.effort, rel=0.01)
    assert front.columns(snapshot(0.0)).cost_label == words


def test_known_prices_are_shown_as_money(words):
    assert front.columns(builders.snapshot(spec=own_prices())).cost_label == words


def own_prices():
    spec = builders.snapshot().spec
    return replace(spec, prices=PriceTable(cpu_hour=0.05, gib_hour=0.005, assumed=False))


def test_assumed_prices_are_said_to_be_once_in_a_view():
    assumed = builders.snapshot()
    for shown in (assumed, builders.snapshot(spec=own_prices())):
        view = plans_view(shown)
        console = Console(width=200, record=True)
        console.print(render(shown))
        facts = proposal_facts(shown.open_proposal, shown)
        assert sum("USD" in words for _, words in facts) >= 2
        assert sum("assumed" in words for _, words in facts) == (shown is assumed)
        assert ("assumed" in console.export_text()) == (shown is assumed)
        assert view.html().count("assumed") == (shown is assumed)
        assert ("assumed" in front.CHART.static(shown, None).svg) == (shown is assumed)
