"""A chart of an installed package: found by its entry point, shown in a live view, drawn by both renderers."""

from __future__ import annotations

import pytest
from support.jobs import builders as b

from dlrover_nb.widgets import charts
from dlrover_nb.widgets.live.live_charts.live_figure import LiveFigure

CHART = """
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot

def columns(snapshot, series):
    job = series.job if series else {}
    return [t - snapshot.started_at_s for t in job.get("at_s", ())], list(job.get("workers", ()))

def marks(data):
    plot = Plot("Workers", "How many.", "time since start", "workers", (Line(*data, label="up"),), x_is_time=True)
    return Drawing("Workers", plot.desc, (plot,), "" if data[0] else "Nothing yet.")

def data_table(data):
    return Table("Workers", ("at", "workers"), ())

CHART = chart("n-workers", "Number of workers", columns=columns, marks=marks, data_table=data_table)
"""


@pytest.fixture(autouse=True)
def fresh():
    charts.all_charts.cache_clear()
    yield
    charts.all_charts.cache_clear()


def install(folder, monkeypatch, source: str) -> None:
    """Put a package with one chart where Python looks for installed ones."""
    (folder / "their_chart.py").write_text(source)
    info = folder / "their_chart-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-chart\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlrover_nb.charts]\nn-workers = their_chart:CHART\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "their_chart", raising=False)


def test_a_chart_of_an_installed_package_is_drawn_live_and_saved(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, CHART)
    theirs = charts.all_charts()["n-workers"]
    assert ">up</text>" in theirs.static(b.snapshot(), b.series()).svg
    figure = LiveFigure(theirs, b.snapshot())
    assert figure.update(b.snapshot(), b.series())
    assert charts.all_charts().keys() - charts.CHARTS.keys() == {"n-workers"}


@pytest.mark.parametrize("source", ["raise ImportError('no such library')", "CHART = 'not a chart'"])
def test_a_broken_package_is_logged_and_our_charts_stay(tmp_path, monkeypatch, caplog, source):
    install(tmp_path, monkeypatch, source)
    assert charts.all_charts() == charts.CHARTS
    assert "dlrover_nb.charts" in caplog.text or "not shown" in caplog.text
