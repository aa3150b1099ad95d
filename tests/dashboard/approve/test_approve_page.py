"""The page of one decision: what it shows, who may answer, and what it says afterwards."""

from __future__ import annotations

import html
import re
import secrets
from urllib.parse import unquote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.dashboard.dashboards import ByName, Client, by, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team, submitted
from support.jobs import builders as b
from support.waiting import until

from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.commands import Entry, Stage
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind
from dlrover_nb.dashboard.alerts.links import path_of
from dlrover_nb.dashboard.handlers.approve import Subject, subject_of

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def job(team):
    return submitted(team.cluster("sim"), "ads-ctr", owner="otto")


@pytest.fixture
def waiting(team, client):
    """Another job, and the id of a request to stop it."""
    job = submitted(team.cluster("sim"), f"to-stop-{secrets.token_hex(4)}", owner="olga", proposes=False)
    asked = by(client, "anna").post(f"/api/v1/jobs/sim/{job.name}/stop", {"why": "too dear"})
    assert asked.status == 202
    (request,) = [each for each in team.requests.open(0.0) if each.command.job == job.name]
    return job, request.id


def fields(page):
    """Return the hidden fields of a page's form."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in found}


def answered(person, path, page, action, reason="", **changed):
    sent = fields(page) | {"action": action, "reason": reason} | changed
    return person.send("POST", path, urlencode(sent).encode(), {"Content-Type": FORM})


def open_path(job):
    proposal = until(lambda: job.snapshot().open_proposal, "a proposal")
    return f"/approve/sim~{job.name}~{proposal.id}", proposal


def test_a_proposal_is_approved_and_the_page_says_so(client, job, team):
    path, proposal = open_path(job)
    otto = client.as_person("otto")
    page = otto.get(path)
    assert page.status == 200
    assert "<script" not in page.text
    assert f"{proposal.candidate.plan.worker.count}" in page.text
    told = answered(otto, path, page, "accept", reason="from my phone")
    assert told.status == 200
    assert f"Accept {proposal.id} of job ads-ctr is done" in told.text
    assert "There is nothing left to decide" in told.text
    assert 'name="action"' not in told.text
    row = next(each.row for each in team.audit.newest(5) if each.row.stage is Stage.DONE)
    assert (row.person, row.entry, row.why) == ("otto", Entry.APPROVE, "from my phone")
    again = answered(otto, path, page, "accept", reason="from my phone")
    assert "is done" in again.text  # the same form: it is done once, and told again
    assert len([d for d in job.snapshot().decisions if d.proposal == proposal.id]) == 1


def test_a_late_answer_is_told_who_answered_and_how(client, job):
    path, proposal = open_path(job)
    otto, anna = client.as_person("otto"), client.as_person("anna")
    page = otto.get(path)
    assert "done" in answered(anna, path, anna.get(path), "reject", reason="too dear").text
    told = answered(otto, path, page, "accept")
    assert f"anna answered {proposal.id}" in told.text
    assert "too dear" in told.text
    assert job.snapshot().decisions[-1].by == "anna"


def test_a_viewer_sees_it_without_buttons_and_a_forged_form_is_refused_and_audited(client, job, team):
    path, _ = open_path(job)
    vera = by(client, "vera")
    page = vera.get(path)
    assert 'name="action"' not in page.text
    assert "needs the role operator" in page.text
    n_row = team.audit.head()[0]
    told = answered(vera, path, page, "accept", csrf=vera.headers["X-CSRF-Token"])
    assert "Not allowed" in told.text
    (row,) = (each.row for each in team.audit.rows(after=n_row))
    assert (row.person, row.entry, row.stage) == ("vera", Entry.APPROVE, Stage.REFUSED)
    assert client.as_person("nora").get(path).status == 403
    assert client.get(path).status == 401


def test_a_form_of_another_page_decides_nothing(client, job):
    path, proposal = open_path(job)
    otto = client.as_person("otto")
    assert answered(otto, path, otto.get(path), "accept", csrf="forged").status == 403
    assert job.snapshot().open_proposal.id == proposal.id


def test_who_asked_can_take_a_request_back_and_not_approve_it(client, waiting):
    job, name = waiting
    anna = client.as_person("anna")
    page = anna.get(f"/approve/{name}")
    assert "You asked for this" in page.text
    assert 'value="approve"' not in page.text
    told = answered(anna, f"/approve/{name}", page, "approve")
    assert "Not allowed" in told.text
    assert not job.snapshot().phase.is_final
    assert "was refused" in answered(anna, f"/approve/{name}", page, "refuse").text
    assert client.as_person("adam").get(f"/approve/{name}").status == 409


def test_a_second_person_approves_and_the_first_one_is_named(client, waiting, team):
    job, name = waiting
    adam = client.as_person("adam")
    page = adam.get(f"/approve/{name}")
    assert "asked by" in page.text
    assert "too dear" in page.text
    told = answered(adam, f"/approve/{name}", page, "approve")
    assert f"{name} was approved" in told.text
    until(lambda: job.snapshot().phase.is_final, "the end")
    late = answered(adam, f"/approve/{name}", page, "approve")
    assert "approved by adam" in late.text


@for_each("name", ["r0x", "p1", "sim~p1", "~a~p1", "sim~~p1", "sim~a~d1", "r", "sim~a~p"])
def test_an_id_that_names_nothing_is_said_to(client, name):
    assert client.as_person("otto").get(f"/approve/{name}").status == 404


@given(
    st.text(min_size=1, max_size=60),
    st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True),
    st.integers(1, 999),
)
def test_the_link_of_an_alert_leads_to_its_own_proposal(cluster, job, n):
    path = path_of(Alert(AboutJob(cluster, job), AlertKind.PROPOSAL, 0.0, "", f"p{n}"))
    (name,) = re.fullmatch("/approve/([^/]+)", path).groups()
    assert subject_of(unquote(name)) == Subject(cluster, job, f"p{n}")


@given(st.text(max_size=40))
def test_any_text_is_an_id_or_is_refused(name):
    try:
        found = subject_of(name)
    except NotFoundError:
        return
    assert found.request or (found.cluster and found.job and found.proposal)


@pytest.fixture
def slow(tmp_path):
    """A server with a job in which an action against a straggler waits."""
    master = master_of("ads", owner="otto", mitigations=(b.mitigation(),), stragglers=(b.straggler(),))
    with masters_team(tmp_path, MastersCluster(master)) as team, running(team, ByName()) as server:
        yield master, server, team


def posted(server, person, page, action, **changed):
    sent = fields(page) | {"action": action, "reason": "from my phone"} | changed
    return Client(server.url, person).post_form("approve/a~ads~m1", sent)


def test_an_action_is_approved_on_a_page_of_its_own(slow):
    master, server, team = slow
    page = Client(server.url, "otto").get("approve/a~ads~m1")
    assert page.status == 200
    assert "<script" not in page.text
    for part in (
        "m1 of job ads: restart worker-1",
        "worker-1 is slow: it works 24.0 ms",
        "trains about 12 % faster",
    ):
        assert part in page.text
    told = posted(server, "otto", page, "accept")
    assert "Accept m1 of job ads is done" in told.text
    assert "There is nothing left to decide: m1 is accepted" in told.text
    assert [each.proposal for each in master.asked] == ["m1"]
    row = team.audit.newest(1)[0].row
    assert (row.entry, row.subject, row.mitigation) == (Entry.APPROVE, "m1", "restart worker-1")
    assert Client(server.url, "otto").get("approve/a~ads~m7").status == 404


def test_a_viewer_sees_an_action_without_buttons(slow):
    _, server, _ = slow
    page = Client(server.url, "vera").get("approve/a~ads~m1")
    assert "needs the role operator" in page.text
    assert 'name="action"' not in page.text


def test_an_alert_of_an_action_leads_to_its_page():
    alert = Alert(AboutJob("a", "ads"), AlertKind.PROPOSAL, 1.0, "m1 has waited", "m1")
    assert path_of(alert) == "/approve/a~ads~m1"
    assert subject_of("a~ads~m1") == Subject("a", "ads", "m1")
