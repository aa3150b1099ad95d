"""The page *History*: runs to be found and compared, and time travel by form, by link and by script."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import replace

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.browser.looks import cut_off
from support.browser.sweep import faults
from support.cases import for_each
from support.dashboard.dashboards import fetch, serving
from support.driver.recorded_life import end, live
from support.history.history_records import DECISION, FIT, OUTCOME, PROPOSAL, ROW, SPEC
from support.jobs import builders as b
from support.jobs.builders import HOSTILE
from support.waiting import LIMIT_S, until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.disk.paths import RUNS_VAR
from dlrover_nb.core.driver.past.time_travel import Replay
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.pages import replays
from dlrover_nb.dashboard.pages.replays import Reading, Replays

ACTION = b.mitigation(status=ProposalStatus.FAILED, decision="d7")
AT_S = 1_790_000_000.0
RUN = "long@0.000"
N_SECOND = 120


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A machine where one job ran whose journal is here, and two of which the database alone tells."""
    root = tmp_path_factory.mktemp("runs")
    folder = root / "long-20260101T000000-001"
    folder.mkdir()
    recorded, _, life = live(folder, 5, Mode.AUTO, N_SECOND)
    end(recorded, life)
    core = connect("sim", machines=2)
    team = Team({"sim": WatchedCluster(core)}, lambda: AT_S, url=f"sqlite:///{folder / 'history.db'}")
    for job, owner, at_s in (("clicks", "ada", AT_S), ("views", "bob", AT_S + 50)):
        team.history.remember(job, at_s, replace(SPEC, name=job, owner=owner))
        for record in (
            replace(PROPOSAL, created_at_s=at_s + 20, status="applied", closed_at_s=at_s + 22, why=HOSTILE),
            replace(DECISION, at_s=at_s + 21, by=HOSTILE),
            replace(OUTCOME, applied_at_s=at_s + 22),
            replace(ACTION, created_at_s=at_s + 30, job=job, note=HOSTILE),
            replace(FIT, at_s=at_s + 40),
            replace(ROW, at_s=at_s + 60),
            replace(ROW, at_s=at_s + 120, samples_per_s=180.0),
            PhaseChanged(at_s + 130, JobPhase.SUCCEEDED if job == "clicks" else JobPhase.FAILED, HOSTILE),
        ):
            team.history.remember(job, at_s, record)
    yield root, team
    team.close()
    core.shutdown(force=True)


@pytest.fixture
def address(told, monkeypatch):
    root, team = told
    monkeypatch.setenv(RUNS_VAR, str(root))
    monkeypatch.setattr(replays, "FRESH_S", math.inf)
    with serving(team) as found:  # a busy machine may need longer for the journal than a page waits
        until(lambda: fetch(f"{found}/history/at?run={RUN}")[0] != 202, what="the journal")
        yield found


CLICKS = f"clicks@{AT_S:.3f}"
VIEWS = f"views@{AT_S + 50:.3f}"


def listed(page):
    return re.findall(r'name="run" value="([^"]+)" aria-label', page)


@pytest.mark.more
@for_each(
    ("query", "runs"),
    [
        ("", [VIEWS, CLICKS, RUN]),
        ("q=click", [CLICKS]),
        ("owner=bob", [VIEWS]),
        ("state=failed", [VIEWS]),
        ("state=succeeded&q=long", [RUN]),
        ("model=none", []),
        ("page=2", []),
    ],
)
def test_runs_are_found_by_what_the_address_asks(address, query, runs):
    status, _, page = fetch(f"{address}/history?{query}")
    assert status == 200
    assert listed(page) == runs


@pytest.mark.more
def test_two_runs_are_compared_side_by_side(address):
    _, _, page = fetch(f"{address}/history?run={CLICKS}&run={VIEWS}")
    for words in (
        "2 runs compared",
        "Side by side",
        "Mean samples/s over time",
        "Predicted against measured",
    ):
        assert words in page
    assert "The jobs differ only in" in page
    assert page.count("0 and 1") == 2, "an action of each run failed"
    assert page.count("restart worker-1") == 2
    assert page.count("<svg") == 1
    assert "key of the job file" in fetch(f"{address}/history?run={CLICKS}&run={RUN}")[2]


@for_each(
    "query",
    ["run=none@1", "run=clicks@1", "page=0", "page=x", f"run={CLICKS}&at=soon", f"run={CLICKS}&span=7"],
)
def test_what_is_not_there_is_said_in_one_line(address, query):
    status, _, page = fetch(f"{address}/history?{query}")
    assert status >= 400
    assert "Warning" in page


def test_more_runs_than_can_be_compared_are_refused(address):
    many = "&".join(f"run=r{i}@1" for i in range(9))
    status, _, page = fetch(f"{address}/history?{many}")
    assert status == 400
    assert "at most 8 runs are compared" in page


def test_a_run_with_a_journal_is_shown_as_it_was_at_a_moment(address, told):
    _, _, page = fetch(f"{address}/history?run={RUN}&at=30")
    assert "read from" in page
    assert "the journal" in page
    assert 'id="travel-at"' in page
    assert "/static/history.js" in page
    part = fetch(f"{address}/history/at?run={RUN}&at=30")[2]
    words = re.search(r'data-words="([^"]+)"', part)[1]
    assert words.startswith("0:30 after the start: training")
    assert part in page


def test_links_to_other_moments_keep_the_span_of_the_throughput(address):
    _, _, page = fetch(f"{address}/history?run={RUN}&at=30&span=3600")
    assert '<option value="3600" selected>' in page
    links = re.findall(r'href="([^"]+)" data-at', page)
    assert links
    assert all("span=3600" in each for each in links)


@pytest.mark.more
def test_the_last_moment_of_the_address_is_the_job_as_it_ended(address, told):
    root, _ = told
    replay = Replay(root / "long-20260101T000000-001")
    replay.read_on()
    last = replay.at(replay.last_s)
    part = fetch(f"{address}/history/at?run={RUN}")[2]
    assert "succeeded: all shards are trained" in part
    assert part == fetch(f"{address}/history/at?run={RUN}&at=999999")[2]
    for decision in last.decisions[-3:]:
        assert decision.id in part


def test_a_run_without_a_journal_says_what_is_shown_instead_and_what_is_missing(address):
    part = fetch(f"{address}/history/at?run={CLICKS}&at=30")[2]
    assert "the history database" in part
    assert "The journal of this run is not on this machine" in part
    assert "0:30 after the start" in part


@pytest.mark.parametrize(("query", "status"), [("run=none@1", 404), ("", 404), (f"run={RUN}&at=x", 400)])
def test_a_wrong_part_is_refused_in_plain_text(address, query, status):
    found, headers, text = fetch(f"{address}/history/at?{query}")
    assert found == status
    assert headers["Content-Type"].startswith("text/plain")
    assert text


def test_somebody_without_a_role_sees_no_past(address):
    assert fetch(f"{address}/history", "nora")[0] == 403
    assert fetch(f"{address}/history/at?run={RUN}", "nora")[0] == 403


def test_nothing_that_somebody_typed_becomes_part_of_the_page(address):
    for path in (
        f"history?run={CLICKS}",
        "history",
        f"history/at?run={CLICKS}",
        f"history?run={CLICKS}&run={VIEWS}",
    ):
        page = fetch(f"{address}/{path}")[2]
        assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in fetch(f"{address}/history?run={CLICKS}")[2]


@pytest.mark.more
def test_a_long_journal_is_read_on_a_thread_and_its_reader_is_told_how_far(told, monkeypatch):
    root, _ = told
    monkeypatch.setenv(RUNS_VAR, str(root))
    go_on, read_on = threading.Event(), Replay.read_on

    def slow(self, on_read):
        on_read(1_000_000)
        go_on.wait()
        read_on(self, on_read)

    monkeypatch.setattr(Replay, "read_on", slow)
    asked = Replays()
    assert isinstance(first := asked.ask("long", RUN, wait_s=0.0), Reading)
    assert "The journal is being read" in first.words
    go_on.set()
    replay = asked.ask("long", RUN, wait_s=LIMIT_S)
    assert isinstance(replay, Replay)
    assert replay.at(replay.last_s).phase is JobPhase.SUCCEEDED
    assert asked.ask("none", "none@1") is None


@pytest.mark.more
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_the_scrubber_replays_by_keys_links_and_steps_and_keeps_the_address(address, new_page, axe):
    page = new_page()
    page.goto(f"{address}/history?run={RUN}")
    told, scrubber = page.get_by_role("status"), page.get_by_role("slider")
    scrubber.focus()
    page.keyboard.press("Home")
    told.get_by_text("0:00 after the start").wait_for()
    page.wait_for_url("**at=0.000*")
    page.get_by_role("link", name="After").click()
    told.get_by_text("after the start").wait_for()
    moment = page.locator("#travel-moments a").nth(-1)
    moment.click()
    told.get_by_text("succeeded").wait_for()
    assert page.locator("#travel-moment").get_by_text("succeeded: all shards").first.is_visible()
    assert scrubber.get_attribute("aria-valuetext").endswith("after the start")
    page.go_back()
    page.wait_for_function("() => !document.querySelector('[role=status]').textContent.includes('succeeded')")
    at = page.evaluate("() => new URLSearchParams(location.search).get('at')")
    page.reload()
    assert page.locator("#travel-moment [data-at]").get_attribute("data-at") == at
    assert broken_rules(page, axe) == []
    assert not unnamed(page.locator("main").aria_snapshot())


@pytest.mark.more
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_a_run_whose_journal_is_being_read_shows_its_moments_by_itself(address, new_page, monkeypatch):
    go_on, read_on = threading.Event(), Replay.read_on

    def slow(self, on_read):
        go_on.wait()
        read_on(self, on_read)

    monkeypatch.setattr(Replay, "read_on", slow)
    monkeypatch.setattr("dlrover_nb.dashboard.pages.travel.REPLAYS", Replays())
    page = new_page()
    page.goto(f"{address}/history?run={RUN}")
    page.get_by_text("The journal is being read").wait_for()
    go_on.set()
    page.get_by_role("slider").wait_for()


@pytest.mark.more
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_time_travel_works_without_scripts(address, browser):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(LIMIT_S * 1000)
    page = context.new_page()
    page.goto(f"{address}/history?run={RUN}&at=30")
    page.get_by_role("link", name="After").click()
    page.wait_for_url("**at=*")
    page.get_by_text("read from").wait_for()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**run=long%400.000*")
    context.close()


@pytest.mark.release
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "query", [f"run={RUN}", f"run={RUN}&at=30", f"run={CLICKS}", f"run={CLICKS}&run={VIEWS}", "run=none@1"]
)
def test_the_page_of_a_run_reads_at_every_width_and_breaks_no_rule(query, address, new_page, axe):
    page = new_page()
    page.goto(f"{address}/history?{query}")
    page.get_by_role("heading", level=1).wait_for()
    assert not (found := list(faults(page, axe, query))), "\n".join(map(str, found))


@pytest.mark.release
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_runs_are_selected_and_compared_in_a_browser(address, new_page, axe):
    page = new_page()
    page.goto(f"{address}/history")
    page.get_by_label(f"Compare {CLICKS}").check()
    page.get_by_label(f"Compare {VIEWS}").check()
    page.get_by_role("button", name="Compare the selected runs").click()
    page.get_by_text("2 runs compared").wait_for()
    assert broken_rules(page, axe) == []
    for scheme in ("light", "dark"):
        for width in (360, 1400):
            for name, path in (
                ("list", "history"),
                ("run", f"history?run={RUN}&at=60"),
                ("compared", f"history?run={CLICKS}&run={VIEWS}"),
            ):
                shot = new_page(width=width, height=1100)
                shot.emulate_media(color_scheme=scheme)
                shot.goto(f"{address}/{path}")
                assert cut_off(shot.locator("main")) == [], (name, width)
                picture(shot, f"history-{name}-{scheme}-{width}", full_page=True)
                shot.close()
