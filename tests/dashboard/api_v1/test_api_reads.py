"""Reads of `/api/v1`: what is told of clusters and jobs, and to whom."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from support.cases import for_each
from support.dashboard.dashboards import ByName, Client, by, running
from support.dashboard.team_clusters import simulated_cluster, submitted

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.structs.views.snapshot import JobSnapshot
from dlrover_nb.core.why import Question
from dlrover_nb.dashboard.common.team import Team

KEY = "kubernetes://prod/ads"


@pytest.fixture(scope="module")
def served(module_path):
    """A server whose cluster has slashes in its key, and a namespace."""
    cluster = simulated_cluster(namespace="ads")
    made = Team({KEY: cluster}, SystemClock().now_s, url=f"sqlite:///{module_path / 'history.db'}")
    submitted(cluster, "ads-ctr")
    with running(made, ByName()) as dashboard:
        yield dashboard
    made.close()
    cluster.core.shutdown(force=True)


@pytest.fixture
def client(served):
    return Client(served.url)


@pytest.fixture
def vera(client):
    return client.as_person("vera")


JOB = f"/api/v1/jobs/{quote(KEY, safe='')}/ads-ctr"


def test_a_cluster_whose_key_has_slashes_is_one_segment_of_the_path(vera):
    told = vera.get(JOB)
    assert told.status == 200
    assert from_json(told.text, JobSnapshot).spec.name == "ads-ctr"
    assert vera.get(f"/api/v1/jobs/{KEY}/ads-ctr").status == 404


def test_the_list_says_of_which_cluster_a_job_is_and_what_the_caller_is_there(client):
    olaf = client.as_person("olaf")
    (cluster,) = olaf.get("/api/v1/clusters").json["clusters"]
    assert (cluster["key"], cluster["role"], cluster["is_simulated"]) == (KEY, "operator", True)
    (job,) = olaf.get("/api/v1/jobs").json["jobs"]
    assert (job["cluster"], job["job"]["name"]) == (KEY, "ads-ctr")


def test_telemetry_goes_on_at_its_cursor(vera):
    first = vera.get(f"{JOB}/series").json
    assert len({len(column) for column in first["job"].values()}) == 1
    later = vera.get(f"{JOB}/series?cursor={first['cursor']}").json
    assert later["cursor"] >= first["cursor"]
    assert len(later["job"]["at_s"]) < len(first["job"]["at_s"])


def test_proposals_are_explained_and_logs_are_told(vera):
    told = vera.get(f"{JOB}/proposals").json
    name = told["proposals"][-1]["id"]
    assert vera.get(f"{JOB}/explain?proposal={name}").json["proposal"] == name
    (line,) = vera.get(f"{JOB}/logs?lines=1").json["lines"]
    assert line["text"]
    assert vera.get(f"{JOB}/logs?node=nobody").status == 404
    assert vera.get(f"{JOB}/explain?proposal=p999").status == 404


def test_questions_about_a_plan_are_answered_one_by_one_and_together(vera):
    name = vera.get(f"{JOB}/proposals").json["proposals"][-1]["id"]
    reply = vera.get(f"{JOB}/why?proposal={name}").json
    assert (reply["proposal"], [each["question"] for each in reply["answers"]]) == (name, [*Question])
    for asked in ("3", "sure"):
        (answer,) = vera.get(f"{JOB}/why?proposal={name}&question={asked}").json["answers"]
        assert answer["asks"] == "How sure is that?"
        assert {value["name"] for value in answer["values"]} >= {"chance", "low", "high"}
    assert vera.get(f"{JOB}/why?question=who").status == 422
    assert vera.get(f"{JOB}/why?proposal=p999").status == 404


def test_plans_are_weighed_for_a_viewer_and_nothing_changes(client):
    plan = {
        "worker": {"count": 2, "cpu": 1, "memory_mib": 4096},
        "ps": {"count": 1, "cpu": 1, "memory_mib": 8192},
    }
    huge = {**plan, "worker": {"count": 900, "cpu": 1, "memory_mib": 4096}}
    told = by(client, "vera").post(f"{JOB}/weigh", {"plans": [plan, huge]})
    assert told.status == 200, told.text
    possible, refused = told.json["weighed"]
    assert possible["candidate"]["prediction"]["samples_per_s"] > 0
    assert refused["refusal"]


@for_each(
    "query", ["lines=0", "lines=2001", "lines=x", "lines=1&lines=2", "nodes=a", "node=%ff", "lines=9" * 3]
)
def test_a_parameter_that_is_not_as_declared_is_refused(vera, query):
    answered = vera.get(f"{JOB}/logs?{query}")
    assert answered.status == 422
    assert answered.json["what_to_do"]


def test_what_is_not_there_is_said_to_be_not_there(vera):
    assert vera.get("/api/v1/jobs/mars/ads-ctr").status == 404
    assert vera.get(f"{JOB}x").status == 404
    assert vera.get(f"/api/v1/jobs/{quote('../../etc/passwd', safe='')}/x").status == 404
    assert "jobs" not in vera.get("/api/v1/nothing").text


def test_another_method_is_refused_and_the_right_ones_are_named(vera):
    answered = vera.send("DELETE", JOB)
    assert answered.status == 405
    assert answered.headers["Allow"] == "GET"


def test_no_answer_lets_another_origin_in(vera):
    answered = vera.with_headers(Origin="https://evil.example").get("/api/v1/jobs")
    assert not [name for name in answered.headers if name.lower().startswith("access-control")]
    assert vera.with_headers(Origin="https://evil.example").send("OPTIONS", "/api/v1/jobs").status == 405


def test_nobody_is_told_to_sign_in(client):
    answered = client.get("/api/v1/jobs")
    assert answered.status == 401
    assert answered.headers["WWW-Authenticate"] == "Bearer"
    assert answered.headers["Content-Type"] == "application/problem+json"


def test_the_page_of_documentation_names_every_route_and_asks_nobody_else(vera):
    page = vera.get("/api/v1/docs")
    assert page.status == 200
    assert "/jobs/{cluster}/{name}/decisions" in page.text
    assert "https://" not in page.text
    assert "<script" not in page.text
