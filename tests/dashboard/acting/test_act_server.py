"""The form of one command at a real server: who may, what is refused, what is said, what the audit keeps."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from html import unescape

import pytest
from support.cases import for_each
from support.dashboard.dashboards import ADMIN, OPERATOR, SECOND, VIEWER, ByName, Client, csrf_of, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.jobs import builders as b

from dlrover_nb.core.commands.requests import SIZES
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.structs.decisions.commands import Action, Entry, Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.forms.flash import take_flash

HOSTILE = "<script>alert('x')</script>"
FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


@pytest.fixture
def master():
    return master_of("ads")


@pytest.fixture
def team(master, tmp_path):
    with masters_team(tmp_path, MastersCluster(master)) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


def send(server, person, **fields):
    """Send the form of the person's own page; return the answer and what the next page tells."""
    client = Client(server.url, person.name)
    form = {"csrf": csrf_of(person.name), "cluster": "a", "job": "ads", **fields}
    return client.post_form("do", form)


def told(team, person, answer):
    """Return the words that the page after an answer shows."""
    flash = answer.headers["Location"].rpartition("flash=")[2]
    return " ".join(line.words for line in take_flash(team.notes, person.name, flash))


def stages(team):
    return [(each.row.person, each.row.action, each.row.stage) for each in team.audit.rows()]


def test_an_operator_accepts_and_is_led_back_to_the_job(server, team, master, words):
    answer = send(server, OPERATOR, action="accept", proposal="p2", reason="go", key="k1")
    assert answer.status == 303
    assert answer.headers["Location"].startswith("job?cluster=a&name=ads&flash=")
    assert told(team, OPERATOR, answer) == words
    (decision,) = master.asked
    assert (decision.by, decision.proposal, decision.why) == ("otto", "p2", "go")
    rows = [each.row for each in team.audit.rows()]
    assert [row.stage for row in rows] == [Stage.ASKED, Stage.DONE]
    assert {row.entry for row in rows} == {Entry.DASHBOARD}


def test_a_form_that_is_sent_twice_is_carried_out_once(server, team, master):
    first = send(server, OPERATOR, action="accept", proposal="p2", key="k1")
    again = send(server, OPERATOR, action="accept", proposal="p2", key="k1")
    assert told(team, OPERATOR, first) == told(team, OPERATOR, again)
    assert len(master.asked) == 1


def test_a_form_that_is_sent_again_after_the_job_ended_is_told_its_first_answer(server, team, master):
    first = send(server, OPERATOR, action="accept", proposal="p2", key="k1")
    master.state = replace(master.state, phase=JobPhase.SUCCEEDED)
    again = send(server, OPERATOR, action="accept", proposal="p2", key="k1")
    assert told(team, OPERATOR, first) == told(team, OPERATOR, again)
    late = send(server, OPERATOR, action="accept", proposal="p2", key="k2")
    assert "has succeeded" in told(team, OPERATOR, late)
    assert stages(team)[-1] == ("otto", Action.ACCEPT, Stage.DONE), "nothing of what came too late"
    assert len(master.asked) == 1


def test_a_viewer_who_forges_a_form_is_refused_and_it_is_on_record(server, team, master):
    answer = send(server, VIEWER, action="accept", proposal="p2")
    assert "Not allowed" in told(team, VIEWER, answer)
    assert not master.asked
    assert stages(team) == [("vera", Action.ACCEPT, Stage.REFUSED)]


@for_each("page", ["job?cluster=a&name=ads", "confirm?cluster=a&name=ads&action=stop", "approve/a~ads~p2"])
def test_a_page_of_an_earlier_job_of_that_name_decides_nothing_about_the_next_one(server, team, master, page):
    """Its ids and versions are counted alike, and to stop a job has none."""
    html = Client(server.url, ADMIN.name).get(page).text
    forms = [dict(FIELD.findall(form)) for form in html.split("<form")[1:] if 'name="key"' in form]
    assert forms
    master.state = replace(master.state, started_at_s=master.state.started_at_s + 100.0)
    for form in forms:
        for action in ("accept", "stop", "finish", "mode"):
            answer = send(server, ADMIN, **{"proposal": "p2", "mode": "auto"} | form | {"action": action})
            words = told(team, ADMIN, answer)
            assert "it was meant for an earlier job named ads, which was started again since" in words
            assert "Look at the job as it is now" in words
    assert not master.asked
    assert not master.state.phase.is_final


def test_proposals_of_earlier_jobs_are_not_accepted_together(server, team, master, words):
    html = Client(server.url, OPERATOR.name).get("proposals").text
    (pick,) = re.findall(r'name="pick" value="([^"]*)"', html)
    master.state = replace(master.state, started_at_s=master.state.started_at_s + 100.0)
    form = {"csrf": csrf_of(OPERATOR.name), "pick": unescape(pick), "action": "accept", "key": "k1"}
    answer = Client(server.url, OPERATOR.name).post_form("batch", form)
    assert told(team, OPERATOR, answer) == words
    assert not master.asked


def test_nobody_who_is_not_signed_in_and_no_form_of_another_page_gets_anywhere(server, team, master):
    form = {"cluster": "a", "job": "ads", "action": "accept", "proposal": "p2"}
    assert Client(server.url, "nobody").post_form("do", form).status == 401
    assert Client(server.url, "otto").post_form("do", form).status == 403
    forged = form | {"csrf": csrf_of(ADMIN.name)}
    assert Client(server.url, "otto").post_form("do", forged).status == 403
    assert not master.asked
    assert not stages(team)


def test_of_two_operators_at_once_one_wins_and_the_other_is_told_who(server, team, master):
    people, answers, gate = (OPERATOR, SECOND), {}, threading.Barrier(2)

    def accept(person):
        gate.wait()
        answers[person.name] = send(server, person, action="accept", proposal="p2", reason="mine")

    threads = [threading.Thread(target=accept, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (decision,) = master.asked
    winner = next(person for person in people if person.name == decision.by)
    loser = next(person for person in people if person is not winner)
    assert "is done as d2" in told(team, winner, answers[winner.name])
    words = told(team, loser, answers[loser.name])
    assert f"{winner.name} answered p2" in words
    assert "was not done" in words


def test_an_override_needs_all_sizes_and_sends_them(server, team, master):
    sizes = dict(zip(SIZES, ("3", "1", "0.5", "0.5", "1024", "512"), strict=True))
    answer = send(server, OPERATOR, action="override", proposal="p2", **sizes)
    assert "is done" in told(team, OPERATOR, answer)
    assert master.asked[0].plan == b.plan(3, 1, 0.5, 0.5)
    del sizes["ps"]
    assert "ps must be given" in told(team, OPERATOR, send(server, OPERATOR, action="scale", **sizes))


def test_a_job_that_is_away_and_one_that_is_not_there_are_told(server, team, master):
    master.reachable = False
    answer = send(server, OPERATOR, action="accept", proposal="p2")
    assert "We do not know" in told(team, OPERATOR, answer)
    answer = send(server, OPERATOR, action="accept", proposal="p2", job=HOSTILE)
    assert "no job" in told(team, OPERATOR, answer)


def test_what_a_rule_wants_a_second_person_for_waits(master, tmp_path):
    rules = Rules(actions=frozenset({Action.ACCEPT}))
    with (
        masters_team(tmp_path, MastersCluster(master), rules=rules) as team,
        running(team, ByName()) as server,
    ):
        answer = send(server, OPERATOR, action="accept", proposal="p2")
        assert "waits as r1" in told(team, OPERATOR, answer)
        assert [request.first for request in team.requests.open(team.now_s())] == ["otto"]
        assert not master.asked


def test_the_lines_of_one_person_are_shown_to_nobody_else_and_once(server, team):
    answer = send(server, OPERATOR, action="accept", proposal="p2")
    assert told(team, ADMIN, answer) == ""
    assert told(team, OPERATOR, answer)
    assert told(team, OPERATOR, answer) == ""
