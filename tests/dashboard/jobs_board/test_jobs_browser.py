"""The page Jobs in headless Chromium: what a person sees, filters, sorts, saves, and what comes by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.dashboard.dashboards import ADMIN, ByName, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.waiting import until

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import summarize

HOSTILE = "<img src=x onerror=alert(1)>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]


@pytest.fixture
def masters():
    return {
        "ads": master_of("ads"),
        "feed": master_of("feed", proposals=(), memory=(), samples_per_s=99_000.0),
        "rank": master_of("rank", proposals=(), memory=(), samples_per_s=900.0),
    }


@pytest.fixture
def cluster(masters):
    cluster = MastersCluster(*masters.values())
    line = summarize(masters["feed"].snapshot())
    cluster.further = (replace(line, name=HOSTILE, owner=HOSTILE, phase=JobPhase.FAILED, message=HOSTILE),)
    return cluster


@pytest.fixture
def team(cluster, tmp_path):
    with masters_team(tmp_path, cluster) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


@pytest.fixture
def page(new_page, server):
    return opened(new_page(), server)


def opened(page, server, path="jobs?cluster=a", who=ADMIN):
    page.context.add_cookies([{"name": "who", "value": who.name, "url": server.url}])
    page.failures = []
    page.on("pageerror", lambda error: page.failures.append(str(error)))
    page.on("dialog", lambda dialog: page.failures.append(dialog.message))
    page.goto(f"{server.url}{path}")
    return page


def names(page):
    return page.locator("#table tbody:visible a.jobs-name").all_inner_texts()


def cell(page, job, key):
    return page.locator(f'tbody[data-job="{job}"] [data-c={key}]').inner_text()


def test_what_needs_somebody_stands_first_and_no_name_is_code(page, axe):
    assert (names(page)[0], names(page)[-1]) == ("ads", HOSTILE), "what has failed stands below what runs"
    assert cell(page, "ads", "needs") == "answer p2"
    assert cell(page, "ads", "sentence").startswith("Add one worker")
    assert page.locator('tbody[data-job="ads"] [data-c=started]').get_attribute("title").endswith("UTC")
    assert not page.failures
    assert not unnamed(page.locator("body").aria_snapshot())
    assert not broken_rules(page, axe)
    picture(page, "dashboard-jobs", full_page=True)


@pytest.mark.more
def test_a_cell_changes_by_itself_and_what_is_new_is_read_out(page, masters, cluster):
    with masters["feed"].lock:
        masters["feed"].state = replace(masters["feed"].state, samples_per_s=4321.0)
    until(lambda: cell(page, "feed", "rate") == "4,321")
    cluster.masters["new"] = master_of("new")
    until(lambda: "Job new has a new proposal: p2" in page.locator("#news").inner_text())
    assert page.locator('tbody[data-job="new"] a.jobs-name').get_attribute("href") == "job?cluster=a&name=new"
    with cluster.masters["new"].lock:
        cluster.masters["new"].state = replace(cluster.masters["new"].state, phase=JobPhase.STOPPED)
    until(lambda: cell(page, "new", "state") == "stopped")
    del cluster.masters["new"]
    until(lambda: "new" not in names(page))
    assert page.locator("#chart path").get_attribute("d").startswith("M")
    assert not page.failures


@pytest.mark.more
def test_filters_and_order_need_no_answer_stand_in_the_address_and_the_server_agrees(page, server, new_page):
    page.get_by_label("Search").fill("a")
    page.get_by_label("Search").fill("")
    page.get_by_role("combobox", name="State").select_option("training")
    page.get_by_role("link", name="Samples/s").click()
    page.get_by_role("link", name="Samples/s").click()
    shown = names(page)
    assert shown == ["feed", "ads", "rank"]
    assert page.locator("#count").inner_text() == "3 of 4 jobs"
    assert page.url.endswith("jobs?cluster=a&state=training&sort=rate&dir=down")
    assert page.locator("th[data-c=rate]").get_attribute("aria-sort") == "descending"
    other = opened(new_page(), server, page.url.removeprefix(server.url))
    assert names(other) == shown
    page.get_by_label("needs attention").check()
    assert "feed" not in names(page)


@pytest.mark.more
def test_columns_are_chosen_in_place_kept_in_the_address_and_a_new_job_has_them(
    page, server, new_page, cluster
):
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Column decides").check()
    page.get_by_role("checkbox", name="Column owner").uncheck()
    assert "cols=" in page.url
    assert page.locator("th[data-c=mode]").is_visible()
    assert page.locator("th[data-c=owner]").is_hidden()
    cluster.masters["new"] = master_of("new")
    until(lambda: "new" in names(page))
    row = page.locator('tbody[data-job="new"]')
    until(lambda: row.locator("[data-c=mode]").inner_text() == "suggest")
    assert row.locator("[data-c=owner]").is_hidden()
    other = opened(new_page(), server, page.url.removeprefix(server.url))
    assert other.locator("th[data-c=owner]").is_hidden()
    widths = "[...document.querySelectorAll('thead th:not([hidden])')].map((cell) => cell.offsetWidth)"
    pairs = list(zip(other.evaluate(widths), page.evaluate(widths), strict=True))
    assert all(abs(one - two) <= 2 for one, two in pairs), pairs
    assert not page.failures


@pytest.mark.more
def test_a_tag_is_a_choice_once_a_job_has_it(page, cluster):
    assert page.locator("select[name=tag] option").all_inner_texts() == ["any"]
    tagged = master_of("night")
    tagged.state = replace(tagged.state, spec=replace(tagged.state.spec, tags=("nightly", "ads")))
    cluster.masters["night"] = tagged
    until(lambda: "nightly" in page.locator("select[name=tag] option").all_inner_texts())
    page.get_by_role("combobox", name="Tag").select_option("nightly")
    assert names(page) == ["night"]
    assert "tag=nightly" in page.url
    assert not page.failures


@pytest.mark.more
def test_ticked_jobs_are_shown_over_each_other_in_place(page, axe):
    button = page.get_by_role("button", name="Compare", exact=True)
    assert button.is_disabled()
    page.get_by_role("checkbox", name="Compare ads").check()
    assert "1 ticked; tick 2 to 6" in page.locator("#picked").inner_text()
    page.get_by_role("checkbox", name="Compare rank").check()
    address = page.url
    button.click()
    part = page.locator("#compared")
    part.get_by_text("2 jobs compared").wait_for()
    assert part.locator("svg").first.is_visible()
    assert page.url == address
    assert not broken_rules(page, axe)
    page.set_viewport_size({"width": 360, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    part.get_by_role("button", name="Close").click()
    assert part.is_hidden()
    assert not page.failures


@pytest.mark.more
def test_without_scripts_jobs_are_compared_on_a_page_of_their_own_and_columns_chosen(server, browser):
    context = browser.new_context(java_script_enabled=False)
    context.add_cookies([{"name": "who", "value": ADMIN.name, "url": server.url}])
    page = context.new_page()
    page.goto(f"{server.url}jobs?cluster=a")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Column owner").uncheck()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**cols=**")
    assert page.locator("th[data-c=owner]").is_hidden()
    for name in ("ads", "feed"):
        page.get_by_role("checkbox", name=f"Compare {name}").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("2 jobs compared").wait_for()
    context.close()


@pytest.mark.more
def test_a_view_is_saved_as_it_is_shown(page):
    page.get_by_role("combobox", name="Owner").select_option("ada")
    page.get_by_label("Save this view as").fill("ada's")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The view ada's is saved.").wait_for()
    page.get_by_role("link", name="All jobs").click()
    page.get_by_role("link", name="ada's", exact=True).click()
    page.wait_for_url("**owner=ada*")
    assert HOSTILE not in names(page)
    page.get_by_role("button", name="Remove the view ada's").click()
    page.get_by_text("is removed").wait_for()


@pytest.mark.more
def test_the_page_says_that_it_is_old_and_goes_on_by_itself_after_a_restart(page, server, masters):
    until(lambda: page.locator("#stale").is_hidden())
    server.stop()
    page.get_by_text("stale", exact=False).first.wait_for()
    until(lambda: page.locator("#stale").is_visible())
    with masters["feed"].lock:
        masters["feed"].state = replace(masters["feed"].state, samples_per_s=77.0)
    server.start()
    until(lambda: cell(page, "feed", "rate") == "77")
    until(lambda: page.locator("#stale").is_hidden())
    assert not page.failures


@pytest.mark.release
@pytest.mark.more
def test_it_reads_on_a_phone_and_in_the_dark(server, new_page, axe):
    for width in (360, 700, 1400):
        for scheme in ("light", "dark"):
            page = new_page(width=width, height=900)
            page.emulate_media(color_scheme=scheme)
            opened(page, server)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert scheme == "dark" or not broken_rules(page, axe)
            picture(page, f"dashboard-jobs-{width}-{scheme}", full_page=True)
            page.close()
