"""Every page of the dashboard with the jobs of the demo, at every width in both themes: nothing is wrong with it."""

import pytest
from support.browser.sweep import faults
from support.dashboard.dashboards import ByName, closed, running, team_of, with_people
from support.waiting import until

from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.demo_cluster import demo_cluster
from dlrover_nb.dashboard.pages import PAGES

pytestmark = [
    pytest.mark.release,
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]

TABS = ("Why?", "Plans", "Memory", "Nodes", "Rows", "Staleness", "Scores", "Numbers", "Run again")
JOBS = {  # of the demo, by what is special about them
    "with a proposal": "ads-ctr",
    "in auto mode": "ads-bid",
    "whose memory fills": "shop-price",
    "in manual mode": "mail-open",
    "that failed": "video-like-wide",
    "that was stopped": "map-eta-try",
    "that succeeded": "ads-ctr-nightly",
}
# Whether the live view shows a page below the row of tabs.
IS_OPEN = """() => {
  const tabs = [...Bokeh.documents[0]._all_models.values()].find(model => model.type === 'RadioButtonGroup')
  const view = Bokeh.index.find_one(tabs)
  return view.parent.child_views.some(part => part !== view && part.model.visible)
}"""
ADDRESSES = {
    "compare": "compare?job=sim~ads-ctr&job=sim~ads-cvr&job=sim~feed-rank",
    "job": "job?cluster=sim&name=ads-ctr",
    "confirm": "confirm?cluster=sim&name=ads-ctr&action=stop",
}


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """Give a server for the demo, where all requests are an admin's."""
    cluster = demo_cluster()
    team = team_of(tmp_path_factory.mktemp("team"), {"sim": WatchedCluster(cluster)})
    with running(team, ByName(unnamed="ada")) as dashboard:
        until(lambda: len(team.clusters["sim"].jobs().jobs) == len(cluster.jobs()), what="all jobs")
        yield dashboard
    closed(team)


def listed(problems):
    return "\n".join(str(fault) for fault in problems)


@pytest.mark.parametrize("name", [page.path for page in PAGES] + ["no-such-page"])
def test_a_page(name, dashboard, page, axe):
    page.goto(dashboard.url + ADDRESSES.get(name, name))
    page.get_by_role("heading", level=1).wait_for()
    assert not (problems := list(faults(page, axe, name))), listed(problems)


@pytest.mark.parametrize("job", [JOBS["with a proposal"], JOBS["in auto mode"]])
def test_the_page_to_answer_a_proposal(job, dashboard, page, axe):
    """The last proposal of the job: one that is open, and one that has been applied."""
    proposal = dashboard.team.clusters["sim"].core.job(job).snapshot().proposals[-1]
    page.goto(f"{dashboard.url}approve/sim~{job}~{proposal.id}")
    page.get_by_role("heading", level=1).wait_for()
    assert not (problems := list(faults(page, axe, f"approve {job}"))), listed(problems)


def test_the_page_to_sign_in_also_after_a_wrong_password(dashboard, page, axe, tmp_path):
    with with_people(dashboard.team, tmp_path) as guarded:
        page.goto(guarded.url)
        page.get_by_label("Password").wait_for()
        problems = list(faults(page, axe, "sign-in"))
        page.get_by_label("Name").fill("ada")
        page.get_by_label("Password").fill("another password")
        page.get_by_role("button").first.click()
        page.get_by_role("alert").first.wait_for()
        problems += faults(page, axe, "sign-in after a wrong password")
    assert not problems, listed(problems)


@pytest.mark.parametrize("kind", JOBS)
def test_the_page_of_a_job(kind, dashboard, page, axe):
    frame = opened(dashboard, page, JOBS[kind])
    problems = list(faults(page, axe, kind))
    problems += faults(page, axe, f"live view of a job {kind}", part=".dlrover-live", frame=frame)
    assert not problems, listed(problems)


@pytest.mark.parametrize("tab", TABS)
def test_a_tab_of_the_live_view(tab, dashboard, page, axe):
    frame = opened(dashboard, page, "ads-ctr")
    frame.get_by_role("button", name=tab, exact=True).click()
    frame.wait_for_function(IS_OPEN)
    problems = list(faults(page, axe, tab, part=".dlrover-live", frame=frame))
    assert not problems, listed(problems)


def opened(dashboard, page, job):
    """Open the page of a job, and return the frame of its live view once that is there."""
    page.goto(f"{dashboard.url}job?cluster=sim&name={job}")
    page.locator("#live").wait_for(state="visible")
    page.frame_locator("#live").get_by_role("button", name="Why?").wait_for()
    return next(frame for frame in page.frames if "live" in frame.url)
