"""The page of one job at a real server: what each role finds on it, and what its forms do."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from support.dashboard.dashboards import ADMIN, OPERATOR, VIEWER, ByName, Client, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.jobs import builders as b

from dlrover_nb.api.exports import export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.structs.decisions.actions import BackupWorkers, KillRestart, MoveBuckets
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.decisions.people import Person
from dlrover_nb.core.structs.job.job import JobPhase, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import NodeErrors
from dlrover_nb.dashboard.settings import ServeSettings

HOSTILE = "<script>alert('x')</script>"
ADDRESS = "job?cluster=a&name=ads"


@pytest.fixture
def master():
    return master_of("ads", owner=HOSTILE, message=HOSTILE)


@pytest.fixture
def team(master, tmp_path):
    with masters_team(tmp_path, MastersCluster(master)) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


def read(server, person, address=ADDRESS):
    answer = Client(server.url, person.name).get(address)
    assert HOSTILE not in answer.text
    return answer


def forms(page):
    """Return the fields of each form about a command, with the actions of its buttons."""
    found = []
    for form in re.findall(r'<form method="post" action="/do".*?</form>', page, re.DOTALL):
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form.replace('type="hidden" ', "")))
        actions = re.findall(r'<button name="action" value="([^"]+)"', form)
        found.append(({k: v for k, v in fields.items() if k != "action"}, actions))
    return found


def press(server, person, action, **changes):
    """Press the button of an action on the person's page; return the page that comes then."""
    page = read(server, person).text
    fields = next(fields for fields, actions in forms(page) if action in actions)
    client = Client(server.url, person.name)
    answer = client.post_form("do", fields | {"action": action} | changes)
    assert answer.status == 303
    return read(server, person, answer.headers["Location"]).text


def test_a_viewer_finds_everything_but_a_form_that_changes_the_job(server):
    page = read(server, VIEWER).text
    assert not forms(page)
    assert "confirm?" not in page
    for part in (
        "Since you last looked",
        "Plan now and plan proposed",
        "Memory left",
        "Drift",
        "%dlrover apply ads p2",
    ):
        assert part in page


def test_the_sentence_the_buttons_and_a_chart_come_first_and_all_else_below(server):
    page = read(server, OPERATOR).text
    places = [
        page.index(part)
        for part in (
            "<h1>ads ", 'id="lead"', "Add one worker", 'aria-label="Answer p2"', "Plan now and plan proposed",
            'id="still"', "<svg", 'id="live"', "Since you last looked", "As this one, but",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert page.count("Add one worker") == 1, "it is said once"
    assert page.count("<h1") == 1
    assert "<title>Job ads - dlrover-nb</title>" in page


def test_of_what_a_proposal_changes_only_that_is_beside_the_buttons(server):
    table = re.search(r"Plan now and plan proposed.*?</table>", read(server, VIEWER).text, re.DOTALL)[0]
    assert "plan now" in table
    assert "workers" in table
    assert "cost per hour" in table
    assert "same" not in table


def test_a_job_that_has_ended_asks_for_nothing_any_more(server, master):
    master.state = replace(master.state, phase=JobPhase.SUCCEEDED, ended_at_s=master.state.at_s)
    page = read(server, ADMIN).text
    assert not forms(page)
    assert "Done in 5 min" in page
    for part in ("Do it", "Add one worker", "Plan now and plan proposed", "%dlrover apply", "confirm?"):
        assert part not in page


def test_a_job_is_written_out_to_be_submitted_with_changes(server, master):
    master.state = replace(master.state, spec=replace(master.state.spec, batch_size=1024))
    page = read(server, VIEWER).text
    assert "dlrover-nb submit ads-2 --set batch_size=1024" in page
    assert "%dlrover submit ads-2 --set batch_size=1024" in page
    assert "name: ads-2" in page
    own = ModelSpec("custom", code="pickle:" + "0" * 64)
    master.state = replace(master.state, spec=replace(master.state.spec, model=own))
    page = read(server, VIEWER).text
    assert "submit ads-2" not in page
    assert "submit it again from there" in page


def test_an_operator_finds_the_forms_of_their_role_and_no_end_of_a_job_of_others(server):
    page = read(server, OPERATOR).text
    assert {action for _, actions in forms(page) for action in actions} == {
        "accept", "reject", "override", "mode", "budget", "scale", "mitigate",
    }  # fmt: skip
    assert "confirm?" not in page
    assert "action=stop" in read(server, ADMIN).text


def test_each_form_accepts_rejects_overrides_or_sets_the_mode(server, master):
    assert "Mode auto of job ads is done" in press(server, OPERATOR, "mode", mode="auto")
    assert master.state.mode is Mode.AUTO
    assert "Undo of d2: mode suggest of job ads is done" in press(server, OPERATOR, "undo")
    assert master.state.mode is Mode.SUGGEST
    page = press(server, OPERATOR, "override", workers="3", reason=HOSTILE)
    assert "is done as d4" in page
    assert master.asked[-1].plan.worker.count == 3
    assert "alert(&#x27;x&#x27;)" in page, "the reason is on record"
    assert "No proposal is open" in page


def test_a_form_that_was_left_open_is_refused_as_stale_with_who_did_what(server, master):
    page = read(server, OPERATOR).text
    fields = next(fields for fields, actions in forms(page) if "accept" in actions)
    press(server, ADMIN, "reject", reason="too dear")
    answer = Client(server.url, "otto").post_form("do", fields | {"action": "accept"})
    told = read(server, OPERATOR, answer.headers["Location"]).text
    assert "ada answered p2" in told
    assert "too dear" in told
    assert "was not done" in told
    assert len(master.asked) == 1


def test_ending_a_job_is_asked_twice_and_only_of_those_who_may(server, master):
    address = "confirm?cluster=a&name=ads&action=stop"
    assert "not yours to end" in read(server, OPERATOR, address).text
    assert not forms(read(server, OPERATOR, address).text)
    page = read(server, ADMIN, address).text
    ((fields, actions),) = forms(page)
    assert actions == ["stop"]
    answer = Client(server.url, "ada").post_form("do", fields | {"action": "stop"})
    told = read(server, ADMIN, answer.headers["Location"]).text
    assert master.state.phase is JobPhase.STOPPED
    assert not forms(told), "there is nothing left to decide"
    assert "not yours to end" in read(server, ADMIN, "confirm?cluster=a&name=ads&action=delete").text


@pytest.fixture
def slow(master):
    """Let an action against a straggler wait beside the proposal."""
    action = replace(b.mitigation(), why=f"it is slow {HOSTILE}")
    workers = tuple(b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    master.state = replace(
        master.state,
        nodes=(*workers, *(b.node(f"ps-{i}", Role.PS, memory=1.0) for i in range(2))),
        mitigations=(action,),
        stragglers=(b.straggler(),),
        node_errors=(NodeErrors("ps-1", Role.PS, 2, 0, 600.0),),
        spec=replace(master.state.spec, sync=Sync.BSP),
    )
    return master


def test_the_page_tells_who_is_slow_and_what_waits_against_that(server, slow):
    page = read(server, VIEWER).text
    for part in (
        "worker-1 is slow: it works 24.0 ms on a step, its peers 12.0 ms (2.0 times), since",
        "z-score 4.1 over 3",
        "ps-1: 2 retryable errors, 0 others in 10 min",
        "m1: restart worker-1",
        "trains about 12 % faster",
        "the start of another worker beside it",
        "%dlrover apply ads m1",
    ):
        assert part in page
    assert not forms(page)
    assert "Order an action yourself" not in page


@pytest.mark.parametrize(("action", "status"), [("accept", "accepted"), ("reject", "rejected")])
def test_an_action_is_answered_on_the_page_by_its_own_form(server, slow, team, action, status):
    fields = next(found for found, _ in forms(read(server, OPERATOR).text) if found.get("proposal") == "m1")
    client = Client(server.url, "otto")
    answer = client.post_form("do", fields | {"action": action, "reason": "so be it"})
    page = read(server, OPERATOR, answer.headers["Location"]).text
    assert f"{action.capitalize()} m1 of job ads is done" in page
    assert slow.state.mitigations[0].status == status
    assert slow.state.open_proposal.id == "p2", "the proposal waits on"
    row = team.audit.newest(1)[0].row
    assert (row.subject, row.mitigation, row.why) == ("m1", "restart worker-1", "so be it")
    assert "m1: restart worker-1" in page, "the newest commands name the action"
    assert "Actions so far" in page


def test_an_action_that_was_answered_meanwhile_is_told_with_who_did_what(server, slow):
    fields = next(found for found, _ in forms(read(server, OPERATOR).text) if found.get("proposal") == "m1")
    Client(server.url, "ada").post_form(
        "do", fields | {"csrf": Client(server.url, "ada").csrf(ADDRESS), "action": "reject", "key": "other"}
    )
    answer = Client(server.url, "otto").post_form("do", fields | {"action": "accept"})
    told = read(server, OPERATOR, answer.headers["Location"]).text
    assert "was not done" in told
    assert "ada answered m1" in told


@pytest.mark.parametrize(
    ("field", "action"),
    [
        ({"restart": "worker-1"}, KillRestart("worker-1", Role.WORKER)),
        ({"move": "ps-1"}, MoveBuckets("ps-1")),
        ({"backup": "1"}, BackupWorkers(1)),
    ],
)
def test_an_operator_orders_an_action_that_nobody_proposed(server, slow, field, action):
    page = read(server, OPERATOR).text
    (name,) = field
    form = next(
        form for form in re.findall(r'<form method="post" action="/do".*?</form>', page, re.DOTALL)
        if f'name="{name}"' in form
    )  # fmt: skip
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    answer = Client(server.url, "otto").post_form("do", fields | field | {"action": "mitigate"})
    told = read(server, OPERATOR, answer.headers["Location"]).text
    assert f"Mitigate {action.words} of job ads is done as d2" in told
    assert slow.asked[-1].action.action == action
    assert slow.asked[-1].seen == fields["version"]


def test_the_page_tells_once_per_look_what_is_new(server, master):
    assert "You have not looked at this job before." in read(server, OPERATOR).text
    assert "You have not looked at this job before." in read(server, OPERATOR).text, "it is the same look"


def upload(server, person, content, **fields):
    client = Client(server.url, person.name)
    mark = uuid.uuid4().hex
    form = {"csrf": client.csrf(ADDRESS), "cluster": "a", "job": "ads", **fields}
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in form.items()
    ]
    head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="x.yaml"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + f"\r\n--{mark}--\r\n".encode()
    return client.send("POST", "file", body, {"Content-Type": f"multipart/form-data; boundary={mark}"})


def test_a_file_is_compared_with_the_job_for_the_person_who_gave_it(server, master):
    file = export(replace(master.state, target=b.BETTER_PLAN), "elasticjob", "current", Options()).text
    answer = upload(server, VIEWER, file.encode())
    page = read(server, VIEWER, answer.headers["Location"]).text
    assert "The file is compared" in page
    assert "plan.worker.count" in page
    assert "plan.worker.count" not in read(server, ADMIN).text
    answer = upload(server, VIEWER, HOSTILE.encode())
    assert "was not accepted" in read(server, VIEWER, answer.headers["Location"]).text
    assert upload(server, VIEWER, file.encode(), csrf="forged").status == 403


def test_what_is_not_there_and_what_may_not_be_seen_is_said(server, team):
    assert read(server, VIEWER, "job?cluster=a&name=nope").status == 404
    assert read(server, VIEWER, "job?cluster=a").status == 404
    assert read(server, VIEWER, f"job?{urlencode({'cluster': HOSTILE, 'name': HOSTILE})}").status == 404


def test_nobody_without_a_role_sees_a_job(team):
    from support.dashboard.dashboards import ByName  # noqa: PLC0415

    with running(team, ByName([Person("nina")])) as server:
        assert Client(server.url, "nina").get(ADDRESS).status == 403


def test_the_audit_on_the_page_names_who_and_what_became(server, master):
    master.step("p2", ProposalStatus.SUPERSEDED)
    fields = {"csrf": Client(server.url, "otto").csrf(ADDRESS), "cluster": "a", "job": "ads"}
    Client(server.url, "otto").post_form("do", fields | {"action": "accept", "proposal": "p2"})
    page = read(server, VIEWER).text
    assert "otto" in page
    assert "refused: proposal p2 is no longer open" in page


def test_every_address_stands_below_the_prefix_of_a_proxy(team):
    with running(team, ByName(), ServeSettings(prefix="/team")) as server:
        for address in (ADDRESS, "jobs?cluster=a", "proposals"):
            page = read(server, ADMIN, f"{address}").text
            assert not re.findall(r'(?:href|src|action)="/(?!team/)', page)
        fields, _ = forms(read(server, ADMIN, ADDRESS).text.replace('"/team/do"', '"/do"'))[0]
        answer = Client(server.url, "ada").post_form("do", fields | {"action": "accept"})
        assert answer.headers["Location"].startswith("job?"), "relative: below whatever prefix"
