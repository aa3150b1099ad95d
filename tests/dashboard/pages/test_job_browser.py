"""One job in headless Chromium: two people of different roles, their decisions, and a server that restarts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.browser.looks import overlapping
from support.dashboard.dashboards import ADMIN, OPERATOR, SECOND, VIEWER, ByName, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.jobs import builders as b
from support.waiting import LIMIT_S, until

from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role

HOSTILE = "<img src=x onerror=alert(1)>"
ADDRESS = "job?cluster=a&name=ads"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
    pytest.mark.more,
]


@pytest.fixture
def master():
    return master_of("ads", owner=HOSTILE)


@pytest.fixture
def team(master, tmp_path):
    with masters_team(tmp_path, MastersCluster(master, master_of("feed"), master_of("rank"))) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


@pytest.fixture
def visit(browser, new_page):
    """Open a page as a person, each with a browser of their own; none of its names may become code."""
    pages = []

    def open_page(server, person, address=ADDRESS, width=1400, *, has_live=True):
        context = browser.new_context(viewport={"width": width, "height": 1200})
        context.set_default_timeout(LIMIT_S * 1000)
        context.add_cookies([{"name": "who", "value": person.name, "url": server.url}])
        page = context.new_page()
        page.failures = []
        page.on("pageerror", lambda error: page.failures.append(str(error)))
        page.on("dialog", lambda dialog: page.failures.append(dialog.message))
        if not has_live:
            page.route("**/live?*", lambda route: route.abort())
        page.goto(f"{server.url}{address}")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        assert not page.failures
        page.context.close()


def listening(page):
    """Wait until a page tells what changes."""
    page.locator("#job[data-heard]").wait_for(state="attached")
    return page


def live(page):
    """Return the frame of the live charts, once it is drawn."""
    frame = page.frame_locator("#live")
    page.locator("#live").scroll_into_view_if_needed()
    frame.get_by_role("button", name="Why?").wait_for()
    frame.get_by_role("button", name=re.compile("^(Something else|Close)")).wait_for()
    if frame.get_by_role("button", name="Something else").count():
        frame.get_by_role("button", name="Something else").click()
    frame.get_by_role("slider", name="Workers").wait_for()
    return frame


@pytest.mark.release
def test_a_viewer_and_an_operator_on_one_job_see_the_same_and_only_one_can_act(server, visit, master, axe):
    vera, otto = visit(server, VIEWER), visit(server, OPERATOR, has_live=False)
    for page in (vera, otto):
        page.get_by_text("Plan now and plan proposed").wait_for()
        assert not unnamed(page.locator("body").aria_snapshot())
    assert vera.get_by_role("button", name="Do it (p2)").count() == 0
    assert otto.get_by_role("button", name="Do it (p2)").count() == 1
    seen, can = live(listening(vera)), live(visit(server, OPERATOR))
    can.get_by_role("button", name="Do it (p2)").wait_for()
    assert seen.get_by_role("button", name="Do it").count() == 0
    assert seen.get_by_role("button", name="Override").count() == 0
    assert seen.get_by_label("Who decides").count() == 0
    assert not [rule for rule in broken_rules(otto, axe, part="main > :not(iframe)") if rule[0] != "region"]
    picture(otto, "dashboard-job", full_page=True)
    otto.get_by_label("Reason").first.fill(HOSTILE)
    otto.get_by_role("button", name="Do it (p2)").first.click()
    otto.get_by_text("Accept p2 of job ads is done as d2.").wait_for()
    assert master.asked[0].why == HOSTILE
    until(lambda: "p2 is not open any more" in vera.locator("#news").inner_text())


@pytest.mark.release
def test_the_second_of_two_operators_is_told_who_was_first_and_overrides_what_is_open_now(
    server, visit, master
):
    first, second = visit(server, OPERATOR, has_live=False), visit(server, SECOND, has_live=False)
    first.get_by_role("button", name="Not now (p2)").click()
    first.get_by_text("Reject p2 of job ads is done").wait_for()
    second.get_by_role("button", name="Do it (p2)").click()
    second.get_by_text("otto answered p2").wait_for()
    with master.lock:
        master.state = replace(master.state, proposals=(*master.state.proposals, b.proposal("p3")))
    second.goto(f"{server.url}{ADDRESS}")
    second.get_by_text("Apply another plan instead of p3").click()
    second.get_by_label("workers", exact=True).first.fill("4")
    second.get_by_role("button", name="Override p3").click()
    second.get_by_text("is done as d3").wait_for()
    assert master.asked[-1].plan.worker.count == 4


def test_the_live_part_comes_back_by_itself_after_a_restart_and_what_was_typed_stays(server, visit, master):
    page = visit(server, OPERATOR)
    live(page).get_by_role("button", name="Do it (p2)").wait_for()
    page.get_by_text("Apply another plan instead of p2").click()
    reason = page.get_by_role("form", name="Override p2").get_by_label("Reason")
    reason.fill("half a sentence")
    address = page.url
    server.stop()
    until(lambda: page.locator("#stale").is_visible())
    answer = page.get_by_role("form", name="Answer p2", include_hidden=True)
    assert answer.evaluate("form => form.inert"), "nothing is decided on an old page"
    server.start()
    until(lambda: page.locator("#stale").is_hidden())
    assert not answer.evaluate("form => form.inert")
    button = live(page).get_by_role("button", name="Do it (p2)")
    button.wait_for()
    with master.lock:
        master.state = replace(
            master.state, proposals=(b.proposal("p2", status=ProposalStatus.EXPIRED), b.proposal("p3"))
        )
    live(page).get_by_role("button", name="Do it (p3)").wait_for()
    assert reason.input_value() == "half a sentence"
    assert page.url == address


def test_a_chart_stands_there_at_once_until_the_live_ones_take_its_place(server, visit):
    page, waiting = visit(server, OPERATOR, "proposals"), []
    page.route("**/live?*", lambda route: waiting.append(route))  # noqa: PLW0108 - it gets an attribute
    page.goto(f"{server.url}{ADDRESS}", wait_until="domcontentloaded")
    page.locator("#still svg").first.wait_for()
    assert page.locator("#live").is_hidden()
    until(lambda: page.locator("#still").count() and waiting)  # a call lets the route in
    waiting[0].continue_()
    live(page)
    assert not page.locator("#still").count()
    assert page.locator("#live").is_visible()


def test_the_live_buttons_take_the_place_of_the_pages_but_not_of_an_answer_that_is_being_typed(server, visit):
    page, waiting = visit(server, OPERATOR, "proposals"), []
    page.route("**/live?*", lambda route: waiting.append(route))  # noqa: PLW0108 - it gets an attribute
    page.goto(f"{server.url}{ADDRESS}", wait_until="domcontentloaded")
    answer = page.locator(".job-answer form")
    answer.get_by_label("Reason").fill("as agreed")
    until(lambda: page.locator("#still").count() and waiting)  # a call lets the route in
    waiting[0].continue_()
    live(page).get_by_role("button", name="Do it (p2)").wait_for()
    page.wait_for_timeout(1500)  # some looks at it
    assert answer.is_visible()
    answer.get_by_label("Reason").fill("")
    page.get_by_role("heading", name="ads").click()
    until(answer.is_hidden)
    assert page.locator(".job-changes").is_visible()


def test_without_scripts_there_are_sentence_chart_and_buttons(server, browser):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(LIMIT_S * 1000)
    context.add_cookies([{"name": "who", "value": OPERATOR.name, "url": server.url}])
    page = context.new_page()
    page.goto(f"{server.url}{ADDRESS}")
    assert page.locator("#lead").inner_text().startswith("Add one worker")
    assert page.locator("#still svg").first.is_visible()
    assert page.locator("#live").is_hidden()
    page.get_by_role("button", name="Not now (p2)").click()
    page.get_by_text("Reject p2 of job ads is done").wait_for()
    context.close()


def test_the_sentence_and_the_state_follow_the_job(server, visit, master):
    page = listening(visit(server, OPERATOR))
    with master.lock:
        master.state = replace(
            master.state, phase=JobPhase.FAILED, message="no space left", ended_at_s=master.state.at_s
        )
    until(lambda: page.locator("#lead").inner_text() == "Failed after 5 min: no space left.")
    assert page.locator("#phase").inner_text() == "failed"
    assert page.locator("#detail").count() == 0


def test_stopping_is_asked_once_more(server, visit, master):
    page = visit(server, ADMIN)
    page.get_by_role("link", name="Stop ads").click()
    page.get_by_role("button", name="Stop ads").click()
    page.get_by_text("Stop of job ads is done.").wait_for()
    assert master.state.phase.is_final


def test_several_are_accepted_together_one_of_them_stale(server, visit, team, axe):
    page = visit(server, OPERATOR, "proposals")
    page.get_by_label("Choose all").check()
    until(lambda: page.locator("#chosen").inner_text().startswith("3 chosen, +"))
    page.get_by_label("Choose p2 of rank").uncheck()
    until(lambda: page.locator("#chosen").inner_text().startswith("2 chosen, +"))
    assert not unnamed(page.locator("body").aria_snapshot())
    assert not broken_rules(page, axe)
    picture(page, "dashboard-proposals", full_page=True)
    team.clusters["a"].core.masters["feed"].step("p2", ProposalStatus.SUPERSEDED)
    page.get_by_role("button", name="Accept the chosen").click()
    page.get_by_text("Accept p2 of job ads is done as d2.").wait_for()
    page.get_by_text("Accept p2 of job feed was not done").wait_for()


def test_four_eyes_see_a_costly_plan_before_it_runs(tmp_path, visit, master):
    rules = Rules(actions=frozenset({Action.ACCEPT}))
    with (
        masters_team(tmp_path, MastersCluster(master), rules=rules) as team,
        running(team, ByName()) as server,
    ):
        otto = visit(server, OPERATOR, has_live=False)
        otto.get_by_role("button", name="Do it (p2)").click()
        otto.get_by_text("waits as r1").wait_for()
        otto.goto(f"{server.url}proposals")
        assert otto.get_by_role("button", name="Approve r1").count() == 0
        olga = visit(server, SECOND, "proposals")
        olga.get_by_role("button", name="Approve r1").click()
        olga.get_by_text("r1 is approved").wait_for()
        assert master.asked[0].by == "olga for otto"


@pytest.mark.release_variants("700")
@pytest.mark.parametrize("width", [360, 700])
def test_the_pages_fit_a_narrow_window(server, visit, width):
    for name, address in (("job", ADDRESS), ("proposals", "proposals")):
        page = visit(server, OPERATOR, address, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        picture(page, f"dashboard-{name}-{width}", full_page=True)


@pytest.fixture
def slow(master):
    """Let an action against a straggler wait beside the proposal."""
    nodes = tuple(b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    action = replace(b.mitigation(), why=f"worker-1 takes twice as long {HOSTILE}")
    master.state = replace(
        master.state,
        nodes=(*nodes, *(b.node(f"ps-{i}", Role.PS, memory=1.0) for i in range(2))),
        mitigations=(action,),
        stragglers=(b.straggler(),),
        spec=replace(master.state.spec, sync=Sync.BSP),
    )
    return master


@pytest.mark.release_variants("light")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_action_against_a_straggler_reads_at_every_width_and_breaks_no_rule(
    server, visit, slow, axe, scheme
):
    for address, name in ((ADDRESS, "job"), ("proposals", "proposals"), ("approve/a~ads~m1", "approve")):
        page = visit(server, OPERATOR, address)
        page.emulate_media(color_scheme=scheme)
        page.get_by_text("restart worker-1").first.wait_for()
        if name == "job":
            page.get_by_text("Order an action yourself").click()
        assert not unnamed(page.locator("body").aria_snapshot())
        parts = "main > :not(iframe)" if name == "job" else "main"
        assert not [rule for rule in broken_rules(page, axe, part=parts) if rule[0] != "region"]
        for width in (360, 700, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            picture(page, f"dashboard-action-{name}-{width}-{scheme}", full_page=True)


def test_the_live_frame_is_as_high_as_what_it_shows_after_another_width_too(server, visit):
    page = visit(server, OPERATOR)
    live(page)
    frame_px = "document.querySelector('main iframe').clientHeight"
    page.set_viewport_size({"width": 1400, "height": 900})

    def rests():
        before = page.evaluate(frame_px)
        page.wait_for_timeout(2000)
        return before if before > 900 and page.evaluate(frame_px) == before else 0

    wide = until(rests)
    page.set_viewport_size({"width": 360, "height": 900})
    until(lambda: page.evaluate(frame_px) > 1.1 * wide)
    page.set_viewport_size({"width": 1400, "height": 900})
    until(lambda: page.evaluate(frame_px) < 1.1 * wide)


@pytest.mark.release
def test_an_action_is_accepted_by_keys_and_others_hear_of_it(server, visit, slow):
    vera, otto = listening(visit(server, VIEWER)), visit(server, OPERATOR)
    otto.get_by_role("form", name="Answer m1").get_by_label("Reason").fill(HOSTILE)
    otto.keyboard.press("Tab")
    otto.keyboard.press("Enter")
    otto.get_by_text("Accept m1 of job ads is done as d2.").wait_for()
    assert slow.asked[0].why == HOSTILE
    until(lambda: "m1 is not open any more" in vera.locator("#news").inner_text())
    assert slow.state.open_proposal.id == "p2"


@pytest.mark.release
def test_an_action_is_ordered_from_the_page(server, visit, slow):
    otto = visit(server, OPERATOR)
    otto.get_by_text("Order an action yourself").click()
    form = otto.get_by_role("form", name="Restart this node")
    form.get_by_role("combobox").select_option("worker-1")
    otto.get_by_role("button", name="Restart this node").click()
    otto.get_by_text("Mitigate restart worker-1 of job ads is done as d2.").wait_for()


@pytest.fixture
def apart(slow):
    """Let the workers of the slow job not wait for each other."""
    slow.state = replace(slow.state, spec=replace(slow.state.spec, sync=Sync.ASP))
    return slow


@pytest.mark.release
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_how_to_run_a_job_again_reads_at_every_width_and_breaks_no_rule(server, visit, master, axe, scheme):
    master.state = replace(master.state, phase=JobPhase.FAILED, proposals=(), ended_at_s=b.START_S + 300)
    for address in (ADDRESS, "live?cluster=a&job=ads"):
        is_live = address != ADDRESS
        page = visit(server, OPERATOR, address, has_live=is_live)
        page.emulate_media(color_scheme=scheme)
        if is_live:
            page.get_by_role("button", name="Run again", exact=True).click()
        else:
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        page.get_by_text("submit ads-2").first.wait_for()
        part, view = (".dlrover-live",) * 2 if is_live else ("main > :not(iframe)", "main")
        assert not unnamed(page.locator("body").aria_snapshot())
        for width in (360, 700, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            until(lambda at=width, page=page: page.evaluate("document.documentElement.scrollWidth") <= at)
            picture(page, f"dashboard-again-{'live' if is_live else 'job'}-{width}-{scheme}", full_page=True)
            assert not overlapping(page.locator(view).first)
        assert not [rule for rule in broken_rules(page, axe, part=part) if rule[0] != "region"]


@pytest.mark.release
def test_numbers_of_each_worker_are_ordered_by_keys(server, visit, apart):
    otto = visit(server, OPERATOR)
    otto.get_by_text("Order an action yourself").focus()
    otto.keyboard.press("Enter")
    form = otto.get_by_role("form", name="Batch sizes")
    form.get_by_role("spinbutton", name="worker-0").first.focus()
    for text in ("320", "384", "2", "", "its machine is older"):
        otto.keyboard.type(text)
        otto.keyboard.press("Tab")
    otto.keyboard.press("Enter")
    otto.get_by_text(
        "Mitigate adjust batch sizes to worker-0 2 times 320 and worker-1 384 of job ads is done"
    ).wait_for()
    assert apart.asked[-1].why == "its machine is older"


@pytest.mark.release
def test_a_batch_size_that_is_missing_is_asked_for_before_anything_is_sent(server, visit, apart):
    otto = visit(server, OPERATOR)
    otto.get_by_text("Order an action yourself").click()
    form = otto.get_by_role("form", name="Batch sizes")
    form.get_by_label("worker-0").first.fill("640")
    form.get_by_role("button").click()
    assert otto.evaluate("document.activeElement.name") == "batches:worker-1"
    assert "flash" not in otto.url
    assert not apart.asked


@pytest.mark.release
def test_a_form_that_is_refused_comes_back_as_it_was_filled_in(server, visit, apart, axe):
    otto = visit(server, OPERATOR)
    otto.get_by_text("Order an action yourself").click()
    form = otto.get_by_role("form", name="Size of one node")
    form.get_by_role("combobox").select_option("ps-1")
    form.get_by_role("spinbutton", name="Cores").fill("2.5")
    form.get_by_role("spinbutton", name="MiB").fill("4096")
    form.get_by_label("Reason").fill(HOSTILE)
    with apart.lock:
        apart.state = replace(apart.state, nodes=apart.state.nodes[:-1])
    form.get_by_role("button", name="Set its size").click()
    form.get_by_text("got 'ps-1'; there are: worker-0, worker-1, ps-0").wait_for()
    fields = (("spinbutton", "Cores"), ("spinbutton", "MiB"), ("textbox", "Reason"))
    held = [form.get_by_role(role, name=name).input_value() for role, name in fields]
    assert held == ["2.5", "4096", HOSTILE]
    assert not unnamed(otto.locator("body").aria_snapshot())
    assert not [rule for rule in broken_rules(otto, axe, part="main > :not(iframe)") if rule[0] != "region"]
    for width in (360, 700, 1400):
        otto.set_viewport_size({"width": width, "height": 900})
        assert otto.evaluate("document.documentElement.scrollWidth") <= width
        picture(otto, f"dashboard-order-{width}", full_page=True)
    form.get_by_role("combobox").select_option("ps-0")
    form.get_by_role("button", name="Set its size").click()
    otto.get_by_text("Mitigate let ps-0 use 2.5 cores and 4096 MiB of job ads is done as d2.").wait_for()


@pytest.mark.release
def test_rates_are_set_of_some_workers_and_an_empty_form_is_told_what_it_needs(server, visit, apart):
    otto = visit(server, OPERATOR)
    otto.get_by_text("Order an action yourself").click()
    form = otto.get_by_role("form", name="Learning rates")
    form.get_by_role("button").click()
    form.get_by_text("the factor of one worker at least must be given").wait_for()
    form.get_by_label("worker-1").fill("0.25")
    form.get_by_role("button").click()
    otto.get_by_text("Mitigate multiply learning rates: worker-1 0.25 of job ads is done as d2.").wait_for()


@pytest.mark.release
def test_an_action_that_comes_meanwhile_is_read_out(server, visit, master):
    page = listening(visit(server, OPERATOR))
    live(page)
    master.state = replace(master.state, mitigations=(b.mitigation(),))
    until(lambda: "New: m1 restart worker-1" in page.locator("#news").inner_text())
