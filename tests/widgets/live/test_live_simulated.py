"""The live view of a job in a simulated cluster, in headless Chromium: from the first samples to a new plan."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.browser.chromium import picture, unlocked, unnamed
from support.waiting import until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]


@pytest.fixture
def job():
    """A simulated job that passes ten minutes in a second."""
    cluster = connect("sim", machines=4, speed=600.0)
    bounds = PlanBounds(max_workers=4, max_ps=2, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
    yield cluster.submit(JobSpec("ads-ctr", n_epoch=100_000, bounds=bounds))
    cluster.shutdown(force=True)


def press(button):
    """Press a button that can be pressed, once more: in this world it may change amid a press, which then is none."""
    from playwright.sync_api import TimeoutError as IsBlocked  # noqa: PLC0415 - where it is missing tests are skipped

    with suppress(IsBlocked):  # it is asked for by now and has another name, or another proposal came
        if button.count() and button.is_enabled(timeout=5_000):
            unlocked(button.page)
            button.click(timeout=5_000)


@pytest.mark.release
@pytest.mark.more
def test_a_simulated_job_is_watched_and_scaled_from_the_browser(job, serve, new_page):
    page = new_page(width=1200)
    page.goto(serve(LiveView(job, Poller()).panel))
    page.get_by_role("button", name="Something else").click()
    workers = page.get_by_role("slider", name="Workers")
    workers.wait_for()
    page.get_by_text("ads-ctr (simulated)").first.wait_for()
    workers.focus()
    page.keyboard.press("End")
    page.get_by_text("90 % band").last.wait_for()
    send = page.get_by_role("button", name="4w x")
    until(send.is_enabled)
    picture(page, "live-simulated", full_page=True)
    new_plan = page.get_by_text("plan 4w x").first  # in the head line: it runs
    until(lambda: new_plan.count() or press(send), what="the new plan")
    page.get_by_role("button", name="Undo d").wait_for()
    assert not unnamed(page.locator("body").aria_snapshot())
