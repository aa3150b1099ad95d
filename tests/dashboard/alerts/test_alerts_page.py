"""What people see of alerts, and mute for themselves; and how it looks."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.dashboard.dashboards import HEADER, PEOPLE, by
from support.dashboard.team_clusters import submitted

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind
from dlrover_nb.dashboard.alerts.views import N_STRIP, alerts_strip
from dlrover_nb.dashboard.page import Visit
from dlrover_nb.dashboard.pages import PAGES

HOSTILE = "<script>alert('x')</script>"
ABOUT = AboutJob("sim", "ads-ctr", "", "otto")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(autouse=True)
def no_alert_of_another_test(team):
    yield
    for alert in team.alerts.open():
        team.alerts.end(alert, team.now_s())


def begun(team, kind=AlertKind.OOM, text="a ps uses 419 of 512 MiB and will be full in 2 min", **fields):
    about = replace(
        ABOUT,
        **{
            name: fields.pop(name)
            for name in list(fields)
            if name in {"job", "cluster", "namespace", "owner"}
        },
    )
    return team.alerts.begin(Alert(about, kind, team.now_s(), text, **fields), 0.0)


def strip(team, person):
    return alerts_strip(Visit(PEOPLE[person], team))


def test_an_open_alert_is_shown_with_the_way_to_it_and_an_ended_one_below(client, team):
    begun(team, AlertKind.PROPOSAL, "p2 has waited 40 min", subject="p2")
    over = begun(team, job="old-job")
    team.alerts.end(over, team.now_s())
    page = client.as_person("vera").get("/alerts")
    assert page.status == 200
    assert 'href="/approve/sim~ads-ctr~p2"' in page.text
    opened, past = page.text.split("<h2>Over</h2>")
    assert "old-job" not in opened
    assert "old-job" in past
    only = client.as_person("vera").get("/alerts?job=other").text
    assert "p2 has waited" not in only


def test_text_of_a_cluster_is_never_markup(client, team):
    begun(team, text=HOSTILE, owner=HOSTILE, job="x")
    for html in (client.as_person("vera").get("/alerts").text, strip(team, "vera")):
        assert HOSTILE not in html
        assert "&lt;script&gt;" in html


def test_the_strip_is_there_before_there_is_news_and_shows_the_first_few(team):
    assert 'aria-live="polite"' in strip(team, "vera")
    assert "<li>" not in strip(team, "vera")
    for i in range(N_STRIP + 2):
        begun(team, job=f"job-{i}")
    assert strip(team, "vera").count("<strong>") == N_STRIP
    assert f"All {N_STRIP + 2} alerts" in strip(team, "vera")


def test_the_strip_stands_below_the_heading_of_every_page_but_that_of_alerts(client, team):
    begun(team, text="a ps is full in 2 min")
    otto = client.as_person("otto")
    for page in PAGES:
        told = otto.get(f"/{page.path}")
        strips = told.text.count('class="dl-alerts"')
        assert strips == (page.path != "alerts"), page.path
        if strips:
            assert re.search(r'</h1><div class="dl-alerts"[^>]*>.*a ps is full in 2 min', told.text)
    assert otto.get("/jobs?cluster=none").text.count('class="dl-alerts"') == 1, "also above an error"


def test_alerts_that_can_not_be_read_take_no_page_down(client, team, monkeypatch):
    def away():
        raise BackendError("the database is away")

    monkeypatch.setattr(team.alerts, "open", away)
    page = client.as_person("otto").get("/jobs")
    assert page.status == 200
    assert "The alerts can not be read now: the database is away" in page.text


def test_alerts_of_what_a_person_may_not_see_are_not_shown(client, team):
    begun(team, job="hidden")
    begun(team, namespace="secret", job="of-another-namespace")
    begun(team, cluster="elsewhere", job="foreign")
    assert "hidden" in strip(team, "vera")
    assert "hidden" not in strip(team, "olaf")  # an operator of another namespace
    assert "hidden" not in strip(team, "nora")
    page = client.as_person("vera").get("/alerts").text
    assert "foreign" not in page
    assert "of-another-namespace" not in page


def test_who_mutes_a_job_mutes_it_for_themselves_and_for_a_while(client, team):
    begun(team)
    vera = by(client, "vera")
    sent = {"csrf": vera.headers["X-CSRF-Token"], "cluster": "sim", "job": "ads-ctr", "hours": "8"}
    answer = vera.send("POST", "/alerts/mute", urlencode(sent).encode(), FORM)
    assert answer.status == 303
    page = vera.get(answer.headers["Location"])
    assert "Muted for you until" in page.text
    assert "<strong>" not in strip(team, "vera")
    assert "<strong>" in strip(team, "otto")
    team_later = Visit(PEOPLE["vera"], team)
    before, team.now_s = team.now_s, lambda: before() + 9 * 3600
    try:
        assert "<strong>" in alerts_strip(team_later)
    finally:
        team.now_s = before
    vera.send("POST", "/alerts/mute", urlencode(sent | {"hours": "0"}).encode(), FORM)
    assert "<strong>" in strip(team, "vera")
    assert vera.send("POST", "/alerts/mute", urlencode(sent | {"hours": "9999"}).encode(), FORM).status == 422
    assert vera.send("POST", "/alerts/mute", urlencode(sent | {"csrf": "x"}).encode(), FORM).status == 403


@pytest.mark.release
@pytest.mark.more
@pytest.mark.browser
@pytest.mark.filterwarnings("default")  # tornado and playwright warn of each other's event loops
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_alerts_and_the_page_of_a_decision_are_readable_on_a_phone_and_a_desk(
    client, team, new_page, axe, scheme, width
):
    name = f"look-{scheme}-{width}"
    job = submitted(team.cluster("sim"), name)
    proposal = job.snapshot().open_proposal
    begun(
        team,
        AlertKind.PROPOSAL,
        f"{proposal.id} has waited for 40 min: {proposal.why}",
        subject=proposal.id,
        job=name,
    )
    begun(team, job="a-job-with-a-rather-long-name-that-must-not-widen-it")
    page = new_page(width=width, height=900)
    page.emulate_media(color_scheme=scheme)
    page.set_extra_http_headers({HEADER: "otto"})
    page.goto(f"{client.url}alerts")
    _looks_right(page, axe, f"alerts-{scheme}-{width}", width)
    page.get_by_role("link", name=re.compile(f"Decide: {name}")).click()
    _looks_right(page, axe, f"approve-{scheme}-{width}", width)
    page.get_by_label("Reason").fill("from a browser")
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("is done").first.wait_for()
    picture(page, f"approved-{scheme}-{width}", full_page=True)
    assert job.snapshot().decisions[-1].why == "from a browser"


def _looks_right(page, axe, name, width):
    picture(page, name, full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not unnamed(page.locator("main").aria_snapshot())
    assert not broken_rules(page, axe, "main")
