"""Below a path, as a proxy serves it: every link, redirect, file and document stays below it."""

import re

from support.dashboard.dashboards import Visitor, running, with_people

from dlrover_nb.dashboard.settings import ServeSettings


def test_every_address_in_a_page_is_below_the_prefix(team):
    with running(team, settings=ServeSettings(prefix="/team/dlrover")) as dashboard:
        first = dashboard.ask("/team/dlrover/")
        assert (first.status, first.headers["Location"]) == (302, "/team/dlrover/jobs")
        for path in ("/team/dlrover/jobs", "/team/dlrover/nothing", "/team/dlrover/live?job=x"):
            page = dashboard.ask(path).text
            links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
            assert all(each.startswith("/team/dlrover/") for each in links), links
        for path in set(re.findall(r'(?:href|src)="(/[^"]*)"', dashboard.ask("/team/dlrover/jobs").text)):
            assert dashboard.ask(path).status == 200, path
        for path in set(re.findall(r'src="([^"]*)"', dashboard.ask("/team/dlrover/live?job=x").text)):
            absolute = path if path.startswith("/") else f"/team/dlrover/{path}"
            assert dashboard.ask(absolute).status == 200, path
        assert dashboard.ask("/jobs").status == 404
        policy = dashboard.ask("/team/dlrover/live?job=x").headers["Content-Security-Policy"]
        assert "unsafe-eval" in policy


def test_the_sign_in_stays_below_it_too(team, tmp_path):
    with with_people(team, tmp_path, ServeSettings(prefix="/d")) as dashboard:
        visitor = Visitor(dashboard)
        assert visitor.ask("/d/jobs?a=1").headers["Location"] == "/d/sign-in?next=%2Fjobs%3Fa%3D1"
        assert visitor.ask("/d/live?job=x").headers["Location"] == "/d/sign-in?next=%2Flive%3Fjob%3Dx"
        assert visitor.sign_in(wanted="/jobs?a=1").headers["Location"] == "/d/jobs?a=1"
        assert visitor.ask("/d/jobs").status == 200
        assert visitor.sign_out().headers["Location"] == "/d/sign-in"
