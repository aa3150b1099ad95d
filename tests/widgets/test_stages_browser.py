"""Each stage of a job at three widths in both themes: nothing cut off, all legends drawn, no rule of axe broken."""

from dataclasses import replace

import builders as b
import pytest
from chromium import broken_rules, picture
from looks import cut_off, is_painted, legends, overlapping
from masters import Master
from test_first_steps import STARTING
from test_themes_browser import SWITCH, THEMES
from waiting import until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.widgets.live import LiveView
from dlrover_nb.widgets.poller import Poller
from dlrover_nb.widgets.status import status_view

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]

WIDTHS_PX = {"light": (360, 700, 1400), "dark": (1400, 700, 360)}
QUIET = b.snapshot(proposals=())
PLAN = b.plan(2, 2)
STAGES = {
    "starting": (STARTING, "Waiting for first steps"),
    "running": (QUIET, "training"),
    "proposal": (b.snapshot(), "p2 (IMPROVE) waits"),
    "accepted": (
        replace(
            b.snapshot(proposals=(b.proposal("p2", status=ProposalStatus.APPLYING),)),
            phase=JobPhase.RESCALING, target=PLAN, running=None, under_way="d2",
            undo=Decision(Verdict.SCALE, "", 0.0, plan=b.NOW_PLAN, undoes="d2"),
        ),
        "until now, changing to",
    ),
    "ended": (b.snapshot(phase=JobPhase.SUCCEEDED, ended_at_s=b.START_S + 300, proposals=()), "succeeded"),
    "failed": (
        b.snapshot(
            phase=JobPhase.FAILED, ended_at_s=b.START_S + 300, proposals=(),
            message="worker-0 ended with exit code 1 three times: ZeroDivisionError in model.py, line 12",
        ),
        "ZeroDivisionError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_of_the_live_view(stage, serve, page, axe):
    snapshot, words = STAGES[stage]
    page.goto(serve(LiveView(JobHandle("quick-start", Master(snapshot), user="ada"), Poller()).panel))
    page.get_by_text(words).first.wait_for()
    view = page.locator(".dlrover-live").first
    for theme, widths in WIDTHS_PX.items():
        page.evaluate(SWITCH, THEMES[theme])
        for width in widths:
            page.set_viewport_size({"width": width, "height": 1500})
            until(lambda: not cut_off(view), lambda: f"a whole view, where {cut_off(view)} is cut off,")
            until(lambda theme=theme: is_painted(view, theme), f"figures in the {theme} theme")
            until(lambda: not legends(view)[1], "samples of all entries of legends")
            picture(page, f"stage-{stage}-{theme}-{width}", full_page=True)
            assert not overlapping(view)
        assert broken_rules(page, axe, ".dlrover-live") == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_as_it_is_saved(stage, page, axe):
    snapshot, _ = STAGES[stage]
    html = status_view(snapshot, b.series()).html()
    page.set_content(f'<html lang="en"><title>saved</title><main><h1>saved</h1>{html}</main></html>')
    for theme, widths in WIDTHS_PX.items():
        page.evaluate(SWITCH, THEMES[theme])
        for width in widths:
            page.set_viewport_size({"width": width, "height": 1500})
            until(lambda: not cut_off(page.locator("main")), "a whole view")
            picture(page, f"stage-saved-{stage}-{theme}-{width}", full_page=True)
        assert broken_rules(page, axe) == []


def test_the_arrow_of_a_choice_has_the_color_of_its_text(serve, page):
    page.goto(serve(LiveView(JobHandle("quick-start", Master(), user="ada"), Poller()).panel))
    choice = page.get_by_label("Who decides")
    choice.wait_for()
    for theme in WIDTHS_PX:
        page.evaluate(SWITCH, THEMES[theme])
        until(lambda: colors(choice) == 2, f"an arrow in the {theme} theme")


def colors(choice):
    """Return in how many layers of its background a choice has the color of its text."""
    color, background = choice.evaluate(
        "select => { const style = getComputedStyle(select); return [style.color, style.backgroundImage] }"
    )
    return background.count(color)
