"""The frame of the pages: one visual language with the views, and the choice of a cluster."""

import re

from support.dashboard.dashboards import closed, running, team_of, watched

from dlrover_nb.dashboard.frame.page_frame import failure_html
from dlrover_nb.dashboard.server import STATIC
from dlrover_nb.widgets import theme


def test_the_style_sheet_has_the_colours_of_the_views():
    css = (STATIC / "dashboard.css").read_text()
    light, _, dark = css.partition("@media (prefers-color-scheme: dark)")
    for name, (_, _, of_light, of_dark) in theme._COLORS.items():
        assert f"--dl-{name}: {of_light};" in light
        assert f"--dl-{name}: {of_dark};" in dark
        assert f"--dl-{name}: {of_dark} !important;" in dark


def test_the_style_sheet_asks_no_other_host_for_anything():
    assert not re.search(r"url\(|@import|//", (STATIC / "dashboard.css").read_text())


def test_several_clusters_are_a_choice_and_one_is_none(tmp_path, team):
    with running(team) as dashboard:
        assert 'aria-label="Clusters"' not in dashboard.ask("/jobs").text
    several = team_of(tmp_path / "several", {"sim": watched(), "k8s://a&b": watched()})
    with running(several) as dashboard:
        page = dashboard.ask("/jobs?cluster=k8s%3A%2F%2Fa%26b").text
        assert '<a href="/jobs?cluster=k8s%3A%2F%2Fa%26b" aria-current="true">k8s://a&amp;b</a>' in page
        assert '<a href="/jobs?cluster=sim">sim</a>' in page
        assert dashboard.ask("/jobs?cluster=none").status == 404
        assert "no cluster" in dashboard.ask("/jobs?cluster=<b>").text
        assert "<b>" not in dashboard.ask("/jobs?cluster=<b>").text
    closed(several)


def test_an_error_says_what_it_means_and_leads_on():
    page = failure_html(413, "", root="/d")
    assert "too large" in page
    assert 'href="/d/"' in page
    assert "&lt;x&gt;" in failure_html(400, "<x>", root="")
