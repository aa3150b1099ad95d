"""Every view at every width in both themes: nothing is cut off, everything can be read, no rule of axe is broken."""

import numpy as np
import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.browser.looks import cut_off, is_painted, overlapping
from support.jobs import builders as b
from support.jobs.masters import Master
from support.waiting import until

from dlrover_nb.core.backends.simulated.assumptions import simulate
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.simulator.workload import JobSampler
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.clusters.many import ManyJobs
from dlrover_nb.widgets.jobs.plans import plans_view
from dlrover_nb.widgets.jobs.status import status_view
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView
from dlrover_nb.widgets.past.html_report import report_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]

WIDTHS_PX = (360, 700, 1024, 1400, 2560)
PICTURED_PX = (360, 1024, 2560)
ORDER = {
    "light": WIDTHS_PX,
    "dark": WIDTHS_PX[::-1],
}  # the rules are checked at the widest and at the narrowest
# What JupyterLab's two themes set, as far as views read it.
THEMES = {
    "light": {
        "layout-color0": "white", "layout-color2": "#eee", "content-font-color1": "rgba(0,0,0,.87)",
        "content-font-color2": "rgba(0,0,0,.54)", "border-color1": "#bdbdbd", "border-color2": "#e0e0e0",
        "error-color1": "#d32f2f",
    },
    "dark": {
        "layout-color0": "#111", "layout-color2": "#424242", "content-font-color1": "#fff",
        "content-font-color2": "rgba(255,255,255,.7)", "border-color1": "#616161", "border-color2": "#424242",
        "error-color1": "#f44336",
    },
}  # fmt: skip
SWITCH = """colors => {
  for (const [name, value] of Object.entries(colors)) document.documentElement.style.setProperty(`--jp-${name}`, value)
  document.body.style = 'background:var(--jp-layout-color0);color:var(--jp-content-font-color1)'
}"""


@pytest.mark.release
def test_the_live_view_of_a_job_with_an_action_against_a_straggler(serve, page, axe):
    master = Master(b.snapshot(mitigations=(b.mitigation(),), stragglers=(b.straggler(),)))
    page.goto(serve(LiveView(JobHandle("quick-start", master, user="ada"), Poller()).panel))
    page.get_by_role("button", name="Accept m1").wait_for()
    view = page.locator(".dlrover-live").first
    for theme, widths in ORDER.items():
        page.evaluate(SWITCH, THEMES[theme])
        is_whole(page, view, f"live-action-{theme}", widths)
        assert broken_rules(page, axe, ".dlrover-live") == []


@pytest.mark.release
def test_the_live_view_of_a_job(serve, page, axe):
    page.goto(serve(LiveView(JobHandle("quick-start", Master(), user="ada"), Poller()).panel))
    page.get_by_role("button", name="Do it (p2)").wait_for()
    view = page.locator(".dlrover-live").first
    for theme, widths in ORDER.items():
        page.evaluate(SWITCH, THEMES[theme])
        for name in ("Plans", "Nodes", "Scores", "Numbers"):
            page.get_by_role("button", name=name, exact=True).click()
            is_whole(page, view, f"live-{name.lower()}-{theme}", widths)
            until(lambda theme=theme: is_painted(view, theme), f"figures in the {theme} theme")
            assert broken_rules(page, axe, ".dlrover-live") == [], name
    assert not unnamed(page.locator("body").aria_snapshot())


@pytest.mark.release
def test_further_pages_of_the_live_view_of_a_job_at_the_narrowest(serve, page, axe):
    page.goto(serve(LiveView(JobHandle("quick-start", Master(), user="ada"), Poller()).panel))
    page.get_by_role("button", name="Do it (p2)").wait_for()
    view = page.locator(".dlrover-live").first
    for theme in ORDER:
        page.evaluate(SWITCH, THEMES[theme])
        for name in ("Staleness", "Run again"):
            page.get_by_role("button", name=name, exact=True).click()
            is_whole(page, view, f"live-{name.lower()}-{theme}", (360,))
            until(lambda theme=theme: is_painted(view, theme), f"figures in the {theme} theme")
            until(lambda: not overlapping(view), lambda: f"texts apart, where {overlapping(view)} overlap,")
            assert broken_rules(page, axe, ".dlrover-live") == [], name


@pytest.mark.more
def test_the_live_view_of_all_jobs(serve, page, axe):
    cluster, rng = simulate(machines=20, speed=10.0), np.random.default_rng(0)
    for i in range(3):
        cluster.add(JobSampler(mode=Mode.MANUAL).sample(f"job-{i + 1}", rng))
    page.goto(serve(ManyJobs(cluster, Poller()).panel))
    page.get_by_role("row").first.wait_for()
    view = page.locator(".dlrover-live").first
    page.evaluate(SWITCH, THEMES["dark"])
    is_whole(page, view, "jobs-dark", WIDTHS_PX[::-1])
    until(lambda: is_painted(view, "dark"), "a figure in the dark theme")
    assert broken_rules(page, axe, ".dlrover-live") == []
    cluster.shutdown(force=True)


@pytest.mark.release
def test_a_saved_view_and_a_report(page, axe):
    """A saved view follows the notebook that it is in; a report follows the system."""
    snapshot, series = b.snapshot(), b.series()
    views = "".join(v.html() for v in (status_view(snapshot, series), plans_view(snapshot)))
    page.set_content(f'<html lang="en"><title>saved</title><main><h1>saved</h1>{views}</main></html>')
    for theme, widths in ORDER.items():
        page.evaluate(SWITCH, THEMES[theme])
        is_whole(page, page.locator("main"), f"saved-{theme}", widths)
        assert broken_rules(page, axe) == []
    page.set_content(report_html(snapshot, series))
    for theme, widths in ORDER.items():
        page.emulate_media(color_scheme=theme)
        is_whole(page, page.locator("main"), f"report-{theme}", widths)
        assert broken_rules(page, axe) == []


def is_whole(page, view, name, widths):
    for width in widths:
        page.set_viewport_size({"width": width, "height": 1500})
        until(
            lambda: not cut_off(view),
            lambda at=width: f"all of {name} at {at} px, where {cut_off(view)} is cut off,",
        )
        if width in PICTURED_PX:
            picture(page, f"{name}-{width}", full_page=True)
