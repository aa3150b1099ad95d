"""The pages *Waiting* and *Cluster* of a simulated cluster: one job holds most of it, another one waits."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.browser.looks import cut_off
from support.dashboard.dashboards import ADMIN, NOBODY, VIEWER, fetch, serving
from support.jobs.builders import HOSTILE
from support.waiting import until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.structs.cluster.waits import QueueWait
from dlrover_nb.core.structs.decisions.commands import Asker, Entry
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds, Quota
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.brain import BrainRound, JobShare, QueuedJob
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.forms.markup import size_values

BOUNDS = PlanBounds(max_workers=6, max_ps=2, worker_cpus=(2.0, 4.0), ps_cpus=(2.0, 4.0))
BIG = ResourcePlan(RolePlan(5, 4.0, 8192), RolePlan(1, 4.0, 8192))  # 24 of 32 cores
WANTED = ResourcePlan(RolePlan(4, 4.0, 8192), RolePlan(1, 4.0, 8192))  # 20


def spec(name, plan, owner):
    return JobSpec(name, owner=owner, plan=plan, bounds=BOUNDS, mode=Mode.MANUAL, n_epoch=100_000_000)


@pytest.fixture(scope="module")
def core():
    made = connect("sim", machines=1, speed=300.0)
    made.submit(spec("holder", BIG, "ada"))
    made.submit(spec("waiter", WANTED, HOSTILE))
    until(lambda: any(node.waits_for for node in made.job("waiter").snapshot().nodes), what="the wait")
    until(
        lambda: made.job("holder").explain().candidate or made.job("holder").explain().baseline, what="a fit"
    )
    yield made
    made.shutdown(force=True)


@pytest.fixture
def team(core, tmp_path):
    made = Team(
        {"sim": WatchedCluster(core)}, lambda: 1_790_000_000.0, url=f"sqlite:///{tmp_path / 'history.db'}"
    )
    until(lambda: len(made.cluster("sim").jobs().jobs) == 2, what="the list of jobs")
    yield made
    made.close()


@pytest.fixture
def address(team):
    with serving(team, ADMIN, VIEWER, NOBODY) as found:
        yield found


def fields(page):
    form = page.partition('action="/do"')[2].partition("</form>")[0]
    return {
        name: unescape(value)
        for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
    }


def test_a_job_that_waits_says_for_what_who_holds_it_and_what_would_fit(address, core):
    status, _, page = fetch(f"{address}/waiting")
    assert status == 200
    assert "Wait of waiter" in page
    assert "Wait of holder" not in page
    assert "free cores and memory" in page
    holders = page.partition("Who holds cores and memory")[2]
    assert "holder" in holders
    assert "24.00" in holders
    assert re.search(r"When holder ends|Not known: holder must end", page)
    assert "The largest plan that fits now: workers 3 x 2 cpu, 8192 MiB; ps 1 x 2 cpu, 8192 MiB." in page


def test_the_button_asks_for_the_plan_with_what_the_person_saw(address, team, core):
    given = fields(fetch(f"{address}/waiting", "ada")[2])
    assert given["csrf"]
    assert len(given["key"]) == 32
    wanted = {"cluster": "sim", "job": "waiter", "action": "scale", "back": "waiting"}
    assert {name: given[name] for name in wanted} == wanted
    seen = core.job("waiter").snapshot()
    assert (given["version"], given["run"]) == (seen.version, seen.run)
    plan = ResourcePlan(
        RolePlan(int(given["workers"]), float(given["worker_cpu"]), int(given["worker_memory_mib"])),
        RolePlan(int(given["ps"]), float(given["ps_cpu"]), int(given["ps_memory_mib"])),
    )
    assert size_values(plan).items() <= given.items()
    assert has_room(plan, core.capacity(), BOUNDS)
    weighed = team.job("sim", "waiter", Asker(ADMIN, Entry.DASHBOARD)).weigh(plan)
    assert weighed[0].refusal == "" or "training" in weighed[0].refusal


def test_a_viewer_sees_the_wait_and_no_button_and_somebody_without_a_role_sees_nothing(address):
    page = fetch(f"{address}/waiting", "vera")[2]
    assert "The largest plan that fits now" in page
    assert "<button" not in page
    assert "needs the role operator" in page
    for path in ("waiting", "cluster"):
        status, _, page = fetch(f"{address}/{path}", "nora")
        assert status == 403
        assert "waiter" not in page


class WithQueues:
    """The simulated cluster with a queue beside it, as a cluster of Kubernetes has."""

    def __init__(self, core):
        self._core = core

    def __getattr__(self, name):
        return getattr(self._core, name)

    def queue_waits(self):
        return (QueueWait("holder", "Kueue", "team-a", HOSTILE),)


def test_a_wait_in_a_queue_is_told_with_its_reason(core, tmp_path):
    made = Team({"k": WatchedCluster(WithQueues(core))}, lambda: 0.0, url=f"sqlite:///{tmp_path / 'h.db'}")
    until(lambda: made.cluster("k").jobs().jobs, what="the list of jobs")
    with serving(made) as address:
        page = fetch(f"{address}/waiting")[2]
    made.close()
    assert "Kueue, queue team-a: &lt;script&gt;" in page
    assert "Wait of holder" in page
    assert "<script>alert" not in page


def test_the_cluster_page_has_the_load_of_each_machine(address, core):
    load = core.load()
    _, _, page = fetch(f"{address}/cluster")
    assert "held by jobs" in page
    assert all(machine.name in page for machine in load.machines)


def test_the_cluster_page_has_what_the_brain_decided_for_its_jobs_and_no_others(address, core, team):
    assert "No brain has planned for these jobs" in fetch(f"{address}/cluster")[2]
    now_s = team.now_s()
    shares = (
        JobShare("holder", "ada", BIG, WANTED, Quota(20.0, binds=True), "<b>waiter</b> is to start."),
        JobShare("elsewhere", "eve", BIG, BIG, Quota()),
    )
    queue = (QueuedJob("waiter", "bob", WANTED, None, QueuePlace(1, 1, "it needs 20 cores")),)
    team.rounds.add(BrainRound("here", "one", 1, 1, now_s - 90.0, shares, queue=queue))
    team.rounds.add(BrainRound("there", "two", 1, 1, now_s, (shares[1],)))
    team.rounds.add(BrainRound("old", "three", 1, 1, now_s - 7200.0, shares, queue=queue))
    page = fetch(f"{address}/cluster")[2]
    assert "one, term 1, round 1" in page
    assert "20 cores" in page
    assert "it needs 20 cores" in page
    assert "&lt;b&gt;waiter&lt;/b&gt; is to start." in page
    assert "elsewhere" not in page


def test_the_cluster_says_what_there_is_and_who_uses_it(address):
    status, _, page = fetch(f"{address}/cluster")
    assert status == 200
    assert "32.00: 24.00 used, 8.00 idle" in page
    assert page.count("<svg") == 1
    assert "Numbers: Machines" in page
    assert "By owner" in page
    assert "75 %" in page
    assert "What the next core would give" in page
    assert "per core" in page
    assert "What the next GiB would give" in page
    assert "Swaps that would gain" in page
    assert "Not measured for long enough to predict: waiter." in page
    assert "<script>alert" not in page


def test_a_master_that_gives_no_answer_costs_its_own_line_alone(core, tmp_path, monkeypatch):
    made = Team({"sim": WatchedCluster(core)}, lambda: 0.0, url=f"sqlite:///{tmp_path / 'h.db'}")
    cluster = made.cluster("sim")
    until(lambda: len(cluster.jobs().jobs) == 2, what="the list of jobs")
    one = cluster.jobs().jobs[0]
    lost = replace(one, name="lost")
    monkeypatch.setattr(
        WatchedCluster, "jobs", lambda self: replace(self._jobs, jobs=(*self._jobs.jobs, lost))
    )
    with serving(made) as address:
        pages = [fetch(f"{address}/{path}")[2] for path in ("waiting", "cluster")]
    made.close()
    for page in pages:
        assert "lost gave no answer: no job &#x27;lost&#x27; in the simulated cluster" in page
        assert "waiter" in page


@pytest.mark.release_variants("waiting")
@pytest.mark.more
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", ["waiting", "cluster"])
def test_the_pages_are_accessible_and_fit_any_width(address, new_page, axe, path):
    page = new_page()
    page.goto(f"{address}/{path}")
    assert broken_rules(page, axe) == []
    assert not unnamed(page.locator("main").aria_snapshot())
    for scheme in ("light", "dark"):
        for width in (360, 1400):
            shot = new_page(width=width, height=1100)
            shot.emulate_media(color_scheme=scheme)
            shot.goto(f"{address}/{path}")
            assert cut_off(shot.locator("main")) == [], width
            picture(shot, f"{path}-{scheme}-{width}", full_page=True)
            shot.close()
