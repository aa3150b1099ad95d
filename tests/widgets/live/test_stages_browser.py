"""Each stage of a job at three widths in both themes: nothing cut off, all legends drawn, no rule of axe broken."""

from dataclasses import replace

import pytest
from support.browser.chromium import broken_rules, picture
from support.browser.looks import cut_off, is_painted, legends, overlapping
from support.jobs import builders as b
from support.jobs.masters import Master
from support.jobs.outlooks import HOPELESS
from support.waiting import until
from test_first_steps import STARTING
from test_themes_browser import SWITCH, THEMES

from dlrover_nb.api.views.connection_view import ConnectionView
from dlrover_nb.api.views.job_views import SubmittedView
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.role_rules import USER, role_text
from dlrover_nb.core.structs.cluster.cluster_access import Allowed, ClusterAccess
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.schema import ColumnSchema, DataSchema, Use
from dlrover_nb.widgets.jobs.status import status_view
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView

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
    "proposal": (b.snapshot(), "p2 (improvement) waits"),
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
    "what-if": (b.snapshot(), "No similar plan has run yet"),
}  # fmt: skip
ACCESS = ClusterAccess(
    (("API server", "https://kubernetes.training.example.com:6443, v1.31.2"), ("you are", "ada@example.com")),
    tuple(
        Allowed(
            right.why, right.resource, ("create", "delete") if i % 4 == 2 else (), optional=right.optional
        )
        for i, right in enumerate(USER)
    ),
    role_text(USER[:4], "ada@example.com", "click-models"),
)
SPEC = replace(b.snapshot().spec, deadline_s=3600.0, bounds=PlanBounds())
COLUMNS = (
    ColumnSchema("clicked", Use.LABEL, "int8", 0.0, 2),
    ColumnSchema(
        "seconds_since_the_last_session_of_this_user_on_any_device", Use.NUMERIC, "float64", 0.031, 19_211
    ),
    ColumnSchema("user_id", Use.NUMERIC, "int64", 0.0, 20_000),
    *(ColumnSchema(f"ad_{i}", Use.CATEGORICAL, "dictionary<string>", 0.1 * i, 7**i) for i in range(1, 6)),
)
WARNING = "column user_id looks like ids, taken as numbers; name it in categorical"
SCHEMA = DataSchema(
    COLUMNS,
    ("url", "shown_at"),
    110_000,
    99_000,
    11_000,
    20_000,
    4096,
    0.064,
    (WARNING,),
    (("categorical", ("user_id",)),),
)
SAVED = {
    stage: status_view(snapshot, b.series()) for stage, (snapshot, _) in STAGES.items() if stage != "what-if"
} | {
    "connect": ConnectionView(
        "local Ray (our own head) at 127.0.0.1:6379", Capacity((NodeShape(2, 8192, 1),))
    ).view(),
    "connect-rights": ConnectionView(
        "Kubernetes (context training, namespace click-models)",
        Capacity((NodeShape(32.0, 131_072, 4), NodeShape(3.92, 15_872, 12))),
        ACCESS,
    ).view(),
    "connect-unknown": ConnectionView(
        "Kubernetes (context training, namespace click-models)",
        BackendError("the capacity of the cluster cannot be read: nodes is forbidden"),
        ACCESS,
    ).view(),
    "submit": SubmittedView(
        SPEC,
        "%dlrover show quick-start --live follows it",
        SCHEMA,
        PlanBounds(16, 4, (0.5, 1.0, 2.0), (0.25, 0.5, 1.0)),
        HOPELESS,
    ).view(),
}


@pytest.mark.release
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_of_the_live_view(stage, serve, page, axe):
    snapshot, words = STAGES[stage]
    page.goto(serve(LiveView(JobHandle("quick-start", Master(snapshot), user="ada"), Poller()).panel))
    if stage == "what-if":
        page.get_by_role("button", name="Something else").click()
        page.get_by_role("slider", name="Workers").press("ArrowRight")
    page.get_by_text(words).first.wait_for()
    if stage == "starting":  # its first screen has no chart yet
        page.get_by_role("button", name="Memory", exact=True).click()
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


@pytest.mark.release
def test_every_stage_as_it_is_saved(page, axe):
    """On one page: each stage takes moments, a browser seconds."""
    for stage, view in SAVED.items():
        page.set_content(
            f'<html lang="en"><title>saved</title><main><h1>saved</h1>{view.html()}</main></html>'
        )
        for theme, widths in WIDTHS_PX.items():
            page.evaluate(SWITCH, THEMES[theme])
            for width in widths:
                page.set_viewport_size({"width": width, "height": 1500})
                until(lambda: not cut_off(page.locator("main")), f"all of {stage} at {width} px")
                picture(page, f"stage-saved-{stage}-{theme}-{width}", full_page=True)
                assert not overlapping(page.locator("main")), stage
            assert broken_rules(page, axe) == [], stage


@pytest.mark.more
def test_the_arrow_of_a_choice_has_the_color_of_its_text(serve, page):
    page.goto(serve(LiveView(JobHandle("quick-start", Master(), user="ada"), Poller()).panel))
    page.get_by_role("button", name="Something else").click()
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
