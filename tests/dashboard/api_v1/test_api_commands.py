"""Commands through `/api/v1`: rights, versions, idempotency keys, second persons; and each on record."""

from __future__ import annotations

import pytest
from support.cases import for_each
from support.dashboard.dashboards import ByName, Client, by, csrf_of, running
from support.dashboard.team_clusters import PLAN, MastersCluster, master_of, masters_team, submitted
from support.jobs import builders as b
from support.waiting import until

from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.decisions.commands import Action, Entry, Stage
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import NodeErrors

SCALED = {
    "worker": {"count": 2, "cpu": 1.0, "memory_mib": 4096},
    "ps": {"count": 1, "cpu": 1.0, "memory_mib": 8192},
}


@pytest.fixture(scope="module")
def job(team):
    return submitted(team.cluster("sim"), "ads-ctr", owner="otto")


def path(job, what):
    return f"/api/v1/jobs/sim/{job.name}/{what}"


CHANGES = (
    ("decisions", {"verdict": "accept", "proposal": "p1"}),
    ("decisions", {"verdict": "reject", "proposal": "p1"}),
    ("decisions", {"verdict": "override", "proposal": "p1", "plan": SCALED}),
    ("decisions", {"verdict": "scale", "plan": SCALED}),
    ("decisions", {"verdict": "undo", "decision": "d1"}),
    ("decisions", {"verdict": "mode", "mode": "auto"}),
    ("decisions", {"verdict": "pin", "pins": {"workers": 1}}),
    ("decisions", {"verdict": "budget", "budget_total": 40.0}),
    ("decisions", {"verdict": "mitigate", "restart": "worker-0"}),
    ("stop", {}),
    ("finish", {}),
)


@pytest.mark.more
@for_each(("what", "body"), CHANGES, ids=lambda v: v if isinstance(v, str) else v.get("verdict"))
def test_a_viewer_is_refused_at_each_changing_route_and_the_refusal_is_audited(client, job, team, what, body):
    before, n_row = job.snapshot(), team.audit.head()[0]
    answered = by(client, "vera").post(path(job, what), body)
    assert answered.status == 403
    assert "needs the role" in answered.json["detail"]
    (row,) = (each.row for each in team.audit.rows(after=n_row))
    assert (row.person, row.entry, row.stage) == ("vera", Entry.API, Stage.REFUSED)
    assert job.snapshot().decisions == before.decisions


def test_who_has_no_role_sees_no_cluster_and_no_job(client, job):
    nora = client.as_person("nora")
    assert nora.get("/api/v1/clusters").json == {"clusters": []}
    assert nora.get("/api/v1/jobs").json["jobs"] == []
    assert nora.get(f"/api/v1/jobs/sim/{job.name}").status == 403
    assert nora.get("/api/v1/jobs?cluster=sim").status == 403


def test_a_decision_is_made_once_however_often_it_is_sent_with_one_key(client, job):
    otto = by(client, "otto").with_headers(Idempotency_Key="one")
    first = otto.post(path(job, "decisions"), {"verdict": "scale", "plan": SCALED, "why": "test"})
    assert first.status == 200, first.text
    made = first.json["decision"]
    assert made["by"] == "otto"
    assert made["plan"]["worker"]["count"] == 2
    n_made = len(job.snapshot().decisions)
    assert (
        otto.post(path(job, "decisions"), {"verdict": "scale", "plan": SCALED, "why": "test"}).json
        == first.json
    )
    assert len(job.snapshot().decisions) == n_made
    other = by(client, "anna").with_headers(Idempotency_Key="one")
    undone = other.post(path(job, "decisions"), {"verdict": "undo", "decision": made["id"]})
    assert undone.status == 200, undone.text
    assert undone.json["decision"]["undoes"] == made["id"]
    until(lambda: job.snapshot().running == PLAN, "the plan before")


def test_a_decision_on_an_older_version_is_refused_with_412_and_says_who_did_what(client, job):
    otto = by(client, "otto")
    told = otto.get(path(job, "")[:-1])
    seen = told.headers["ETag"]
    assert seen == f'"{job.snapshot().version}"'
    anna = by(client, "anna").with_headers(If_Match=seen)
    assert anna.post(path(job, "decisions"), {"verdict": "pin", "pins": {"ps": 1}}).status == 200
    late = otto.with_headers(If_Match=seen).post(
        path(job, "decisions"), {"verdict": "mode", "mode": "manual"}
    )
    assert late.status == 412
    assert "by anna" in late.json["detail"]


def test_a_proposal_that_is_closed_is_a_conflict(client, job):
    proposal = until(lambda: job.snapshot().open_proposal, "a proposal")
    otto = by(client, "otto")
    rejected = otto.post(path(job, "decisions"), {"verdict": "reject", "proposal": proposal.id})
    assert rejected.status == 200, rejected.text
    again = otto.post(path(job, "decisions"), {"verdict": "accept", "proposal": proposal.id})
    assert again.status == 409
    assert again.headers["Content-Type"] == "application/problem+json"


def test_a_stop_waits_for_a_second_person_and_never_for_the_same(client, team):
    job = submitted(team.cluster("sim"), "to-stop", owner="olga", proposes=False)
    anna = by(client, "anna").with_headers(Idempotency_Key="stop")
    waits = anna.post(path(job, "stop"), {"why": "done"})
    assert waits.status == 202, waits.text
    assert anna.post(path(job, "stop"), {"why": "done"}).status == 202
    (request,) = anna.get("/api/v1/requests").json["requests"]
    assert request["first"] == "anna"
    approve = f"/api/v1/requests/{request['id']}/approve"
    assert anna.post(approve, {}).status == 403
    assert by(client, "otto").post(approve, {}).status == 403  # not their job, and no administrator
    assert not job.snapshot().phase.is_final
    assert by(client, "vera").post(f"/api/v1/requests/{request['id']}/refuse", {}).status == 403
    refused = anna.post(f"/api/v1/requests/{request['id']}/refuse", {"why": "not yet"})
    assert refused.status == 200, refused.text
    assert anna.post(approve, {}).status == 409


def test_another_administrator_approves_and_the_job_stops(client, team):
    job = submitted(team.cluster("sim"), "to-end", owner="olga", proposes=False)
    waits = by(client, "anna").post(path(job, "stop"), {"why": "done"})
    assert waits.status == 202
    (name,) = [each.id for each in team.requests.open(0.0) if each.command.job == job.name]
    approved = by(client, "adam").post(f"/api/v1/requests/{name}/approve", {})
    assert approved.status == 200, approved.text
    until(lambda: job.snapshot().phase.is_final, "the end")
    row = team.audit.newest(1)[0].row
    assert (row.person, row.first, row.stage) == ("adam", "anna", Stage.DONE)


def test_a_decision_about_a_job_that_has_ended_is_a_conflict(client, team):
    job = submitted(team.cluster("sim"), "ended", proposes=False)
    job.stop()
    answered = by(client, "anna").post(path(job, "decisions"), {"verdict": "scale", "plan": SCALED})
    assert answered.status == 409
    assert "stopped" in answered.json["detail"]


def test_a_browsers_change_needs_the_token_of_our_forms(client, job):
    bare = client.as_person("otto")
    assert bare.post(path(job, "decisions"), {"verdict": "mode", "mode": "auto"}).status == 403
    forged = bare.with_headers(X_CSRF_Token=csrf_of("anna"))
    assert forged.post(path(job, "decisions"), {"verdict": "mode", "mode": "auto"}).status == 403


@for_each(
    ("body", "said"),
    [
        (b"{", "body"),
        (b"\xff", "body"),
        (b"[" * 5000, "body"),
        (b'{"verdict": "scale"}', "nothing to change"),
        (b'{"verdict": "mode", "mode": "manual", "by": "root"}', "by"),
        (b'{"verdict": "accept", "proposal": "p1", "why": "' + b"x" * 1001 + b'"}', "1000"),
        (b'{"verdict": "delete"}', "delete"),
    ],
)
def test_a_body_that_is_not_exactly_as_declared_is_refused(client, job, body, said):
    answered = by(client, "otto").post(path(job, "decisions"), body)
    assert answered.status == 422
    assert said in answered.json["detail"]
    assert answered.json["what_to_do"]


def test_a_large_body_or_one_of_another_kind_is_refused(client, job):
    otto = by(client, "otto")
    assert otto.post(path(job, "stop"), b" " * 70_000).status == 413
    form = otto.with_headers(Content_Type="application/x-www-form-urlencoded")
    assert form.post(path(job, "stop"), b"why=x").status == 415


def test_the_audit_tells_what_was_asked_through_the_api(client, job):
    rows = client.as_person("vera").get(f"/api/v1/audit?job={job.name}&rows=1000").json["rows"]
    assert {row["row"]["entry"] for row in rows} == {"api"}
    assert [row["seq"] for row in rows] == sorted((row["seq"] for row in rows), reverse=True)


@pytest.fixture
def slow(tmp_path):
    """A server with a job in which an action against a straggler waits, its master, and its team."""
    nodes = tuple(b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    nodes += tuple(b.node(f"ps-{i}", Role.PS, memory=1.0) for i in range(2))
    master = master_of(
        "ads",
        owner="otto",
        nodes=nodes,
        mitigations=(b.mitigation(),),
        stragglers=(b.straggler(),),
        node_errors=(NodeErrors("ps-1", Role.PS, 2, 1, 600.0),),
    )
    with masters_team(tmp_path, MastersCluster(master)) as team, running(team, ByName()) as server:
        yield by(Client(server.url), "otto"), master, team


def test_a_job_is_told_with_who_is_slow_and_what_waits_against_that(slow):
    otto, master, _ = slow
    told = otto.get("/api/v1/jobs/a/ads")
    assert told.json["mitigations"][0]["action"]["restart"] == {"node": "worker-1", "role": "worker"}
    assert told.json["stragglers"][0]["node"] == "worker-1"
    alone = otto.get("/api/v1/jobs/a/ads/mitigations")
    assert alone.json["mitigations"] == told.json["mitigations"]
    assert alone.json["stragglers"] == told.json["stragglers"]
    assert alone.json["node_errors"] == told.json["node_errors"]
    assert alone.json["node_errors"] == [
        {"node": "ps-1", "role": "ps", "n_retryable": 2, "n_unretryable": 1, "window_s": 600.0}
    ]
    assert alone.headers["ETag"] == f'"{master.state.version}"'
    (listed,) = otto.get("/api/v1/jobs").json["jobs"]
    assert listed["job"]["outlook"]["mitigation"]["words"] == "restart worker-1"


@pytest.mark.more
@pytest.mark.parametrize(
    ("body", "action"),
    [
        ({"restart": "worker-1"}, KillRestart("worker-1", Role.WORKER)),
        ({"move": "ps-1"}, MoveBuckets("ps-1")),
        (
            {"batches": {"worker-0": 96, "worker-1": 32}},
            AdjustBatches((("worker-0", 96), ("worker-1", 32))),
        ),
        ({"backup": 1}, BackupWorkers(1)),
        ({"rates": {"worker-1": 0.5}}, AdjustRates((("worker-1", 0.5),))),
    ],
)
def test_an_action_is_ordered_by_its_field_once_for_each_key(slow, body, action):
    otto, master, team = slow
    keyed = otto.with_headers(Idempotency_Key="one", If_Match='"d0"')
    sent = {"verdict": "mitigate", "why": "it is slow", **body}
    first = keyed.post("/api/v1/jobs/a/ads/decisions", sent)
    assert first.status == 200, first.text
    assert keyed.post("/api/v1/jobs/a/ads/decisions", sent).json == first.json
    assert first.json["action"] == "mitigate"
    (made,) = master.asked
    assert (made.action.action, made.why, made.seen) == (action, "it is slow", "d0")
    row = team.audit.newest(1)[0].row
    assert (row.action, row.entry, row.mitigation) == (Action.MITIGATE, Entry.API, action.words)


@pytest.mark.more
@for_each(
    ("body", "status", "told"),
    [
        ({}, 422, "exactly one"),
        ({"restart": "worker-1", "backup": 1}, 422, "exactly one"),
        ({"restart": "worker-9"}, 422, "there are: worker-0, worker-1, ps-0, ps-1"),
        ({"restart": 3}, 422, "restart"),
        ({"batches": {}}, 422, "batches"),
        ({"rates": {"worker-0": -1}}, 422, "rates"),
        ({"by": "root", "backup": 1}, 422, "by"),
    ],
)
def test_what_is_no_action_of_the_job_is_refused_and_nothing_is_done(slow, body, status, told):
    otto, master, _ = slow
    answered = otto.post("/api/v1/jobs/a/ads/decisions", {"verdict": "mitigate", **body})
    assert answered.status == status, answered.text
    assert told in answered.text
    assert not master.asked


@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_an_open_action_is_answered_by_its_id(slow, verdict):
    otto, master, _ = slow
    answered = otto.post("/api/v1/jobs/a/ads/decisions", {"verdict": verdict, "proposal": "m1"})
    assert answered.status == 200, answered.text
    assert master.state.open_mitigation is None
    again = otto.post("/api/v1/jobs/a/ads/decisions", {"verdict": verdict, "proposal": "m1"})
    assert again.status == 409


def test_an_action_is_undone_as_it_was_done(slow):
    otto, master, _ = slow
    made = otto.post("/api/v1/jobs/a/ads/decisions", {"verdict": "mitigate", "backup": 1}).json["decision"]
    undone = otto.post("/api/v1/jobs/a/ads/decisions", {"verdict": "undo", "decision": made["id"]})
    assert undone.status == 200, undone.text
    assert undone.json["decision"]["action"]["backup"] == {"n": 1}
    assert master.asked[-1].undoes == made["id"]
