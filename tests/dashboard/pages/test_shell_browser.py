"""The frame in a real browser: signing in by keyboard, at every width, light and dark, clean by the rules of axe."""

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.dashboard.dashboards import PASSWORD, closed, team_of, watched, with_people

from dlrover_nb.core.structs.job.job import JobSpec

pytestmark = pytest.mark.more

WIDTHS = (360, 700, 1400, 2560)


@pytest.fixture
def shown(tmp_path):
    """Give a server with two clusters and a job, where ada and vic may sign in."""
    team = team_of(tmp_path, {"sim": watched(), "second": watched()})
    team.clusters["sim"].core.submit(JobSpec("ads-ctr", n_epoch=100_000))
    with with_people(team, tmp_path) as dashboard:
        yield dashboard
    closed(team)


def sign_in(page, dashboard, path="jobs"):
    page.goto(f"{dashboard.url}{path}")
    page.locator(
        "[name=name]:focus"
    ).wait_for()  # Chromium gives the first focus with the first frame, after load
    page.keyboard.type("ada")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{dashboard.url}{path}")


@pytest.mark.browser
def test_one_signs_in_and_out_by_keyboard_alone(shown, page):
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    sign_in(page, shown)
    assert page.get_by_role("heading", name="Jobs", level=1).is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.get_by_role("button", name="Sign out").press("Enter")
    page.wait_for_url("**/sign-in")
    page.go_back()
    page.wait_for_url("**/sign-in?next=*")
    assert errors == []


@pytest.mark.release
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_frame_fits_every_width_and_breaks_no_rule(shown, new_page, axe, scheme):
    page = new_page(1400, 700)
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{shown.url}sign-in")
    assert broken_rules(page, axe) == []
    picture(page, f"dashboard_sign_in_{scheme}")
    sign_in(page, shown)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert broken_rules(page, axe) == []
        picture(page, f"dashboard_jobs_{scheme}_{width}")
    assert unnamed(page.locator("body").aria_snapshot()) == []
    page.goto(f"{shown.url}no-such-page")
    assert broken_rules(page, axe) == []
    picture(page, f"dashboard_error_{scheme}")


@pytest.mark.browser
def test_the_live_page_comes_alive_under_its_policy(shown, page):
    broken = []
    page.on(
        "console", lambda message: broken.append(message.text) if "Content Security" in message.text else None
    )
    sign_in(page, shown, "live?job=ads-ctr")
    page.wait_for_function("() => window.Bokeh && Bokeh.documents[0] && Bokeh.documents[0].is_idle")
    page.get_by_text("ads-ctr").first.wait_for()
    assert broken == []
