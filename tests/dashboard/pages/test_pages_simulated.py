"""The pages over a simulated cluster: real controllers propose, decide, refuse and tell."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest
from support.dashboard.dashboards import ADMIN, OPERATOR, SECOND, ByName, Client, closed, running
from support.dashboard.dashboards import team_of as team_with
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.client.until import Until
from dlrover_nb.core.simulator import CALM, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.decisions.commands import Stage
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.dashboard.common.clusters import WatchedCluster

ADDRESS = "job?cluster=sim&name=ads"


PLAN = ResourcePlan(worker=RolePlan(1, 1.0, 2048), ps=RolePlan(1, 1.0, 2048))
TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)


@pytest.fixture
def team(tmp_path):
    """Give a team with one simulated job, whose truth makes more workers worth their cost."""
    settings = WorldSettings(report_s=15.0, faults=CALM)
    world = SimulatedWorld([NodeShape(16.0, 65_536, 4)], rng=np.random.default_rng(1), settings=settings)
    bounds = PlanBounds(max_workers=8, max_ps=4, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
    truth = SimulatedJob(JobSpec("ads", owner="ada", plan=PLAN, bounds=bounds), TRUTH, 1 << 40)
    cluster = SimulatedCluster(world, SETTINGS, lambda _: truth, speed=600.0)
    cluster.add(truth)
    team = team_with(tmp_path, {"sim": WatchedCluster(cluster)})
    yield team
    closed(team)


@pytest.fixture
def job(team):
    """Give the job once it has an open proposal, which every page knows of."""
    job = team.clusters["sim"].job("ads")
    job.wait(LIMIT_S, until=Until.PROPOSAL)
    until(lambda: team.clusters["sim"].jobs().jobs[0].open_proposal)
    return job


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


def answer_form(page, action):
    """Return the fields of the form that has a button for an action."""
    for form in re.findall(r'<form method="post" action="/do".*?</form>', page, re.DOTALL):
        if f'name="action" value="{action}"' in form:
            fields = re.findall(r'<input type="(?:hidden|number)" name="(\w+)" value="([^"]*)"', form)
            return {name: html.unescape(value) for name, value in fields} | {"action": action}
    raise AssertionError(page)


def after(server, person, form):
    client = Client(server.url, person.name)
    return html.unescape(client.get(client.post_form("do", form).headers["Location"]).text)


def test_a_proposal_is_rejected_from_the_page_and_the_late_accept_is_told_by_whom(server, job, team):
    first = answer_form(Client(server.url, "otto").get(ADDRESS).text, "reject")
    late = answer_form(Client(server.url, "olga").get(ADDRESS).text, "accept")
    told = after(server, OPERATOR, first | {"reason": "not at night"})
    assert f"Reject {first['proposal']} of job ads is done" in told
    told = after(server, SECOND, late)
    assert f"otto answered {late['proposal']}" in told
    assert "not at night" in told
    assert "was not done" in told
    stages = [(each.row.person, each.row.stage) for each in team.audit.rows(job="ads")]
    assert stages == [
        ("otto", Stage.ASKED),
        ("otto", Stage.DONE),
        ("olga", Stage.ASKED),
        ("olga", Stage.REFUSED),
    ]


def test_a_plan_of_ones_own_runs_and_its_cost_is_on_record(server, job, team):
    form = answer_form(Client(server.url, "otto").get(ADDRESS).text, "scale")
    told = after(server, OPERATOR, form | {"workers": str(int(form["workers"]) + 1)})
    assert "is done as d1" in told
    until(lambda: job.snapshot().running and job.snapshot().running.worker.count == int(form["workers"]) + 1)
    page = html.unescape(Client(server.url, "otto").get("jobs?cluster=sim").text)
    assert "1 decision: +" in page
    done = [each.row for each in team.audit.rows(job="ads") if each.row.stage is Stage.DONE]
    assert done[0].cost_per_hour > done[0].cost_before_per_hour > 0
    assert done[0].currency == "USD"


def test_a_form_of_before_a_change_of_plan_is_refused_as_stale(server, job):
    old = answer_form(Client(server.url, "otto").get(ADDRESS).text, "mode")
    new = answer_form(Client(server.url, "ada").get(ADDRESS).text, "mode")
    assert "is done as d1" in after(server, ADMIN, new | {"mode": "manual"})
    told = after(server, OPERATOR, old | {"mode": "auto"})
    assert "was not done" in told
    assert "d1 (mode manual by ada)" in told


def test_the_line_of_a_job_says_what_its_snapshot_says(job, team):
    def agree():
        line, snapshot = team.clusters["sim"].core.live_jobs()[0], job.snapshot()
        told = summarize(snapshot).outlook
        return (line.outlook.version, line.outlook.mode, line.outlook.proposed) == (
            told.version, told.mode, told.proposed,
        )  # fmt: skip

    until(agree)
