"""Many proposals answered together, and requests that wait for a second person, at a real server."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.dashboard.dashboards import ADMIN, OPERATOR, SECOND, VIEWER, ByName, Client, csrf_of, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.jobs import builders as b
from support.waiting import until

from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.commands import Action, Entry, SecondRequest, Stage, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.views.summary import UNKNOWN, summarize
from dlrover_nb.dashboard.forms.proposal_batch import (
    Line,
    Pick,
    batch_forms,
    open_lines,
    pick_of,
    reason_name,
    sum_words,
)

HOSTILE = "<script>alert('x')</script>"
picks = st.builds(Pick, st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))


@pytest.fixture
def masters():
    return {name: master_of(name) for name in ("ads", "feed", "rank")}


@pytest.fixture
def team(masters, tmp_path):
    other = MastersCluster(master_of("far"), master_of("calm", proposals=()))
    with masters_team(tmp_path, MastersCluster(*masters.values()), other) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


def page_of(server, person, address="proposals"):
    answer = Client(server.url, person.name).get(address)
    assert answer.status == 200
    assert HOSTILE not in answer.text
    return answer.text


def boxes(page):
    """Return the values of the check boxes by job."""
    found = (html.unescape(value) for value in re.findall(r'name="pick" value="([^"]+)"', page))
    return {pick_of(value).job: value for value in found}


def send(server, person, path, fields):
    client = Client(server.url, person.name)
    answer = client.post_form(path, [("csrf", client.csrf("jobs?cluster=a")), *fields])
    assert answer.status == 303
    assert answer.headers["Location"].startswith("proposals?")
    return html.unescape(page_of(server, person, answer.headers["Location"]))


@given(picks)
def test_a_pick_is_the_same_after_the_form(pick):
    assert pick_of(pick.text) == pick


@given(st.lists(picks, min_size=1, max_size=5, unique=True))
def test_each_chosen_proposal_becomes_a_command_of_its_own_with_what_was_seen(chosen):
    fields = {"action": ["accept"], "pick": [pick.text for pick in chosen], "key": ["k"], "reason": ["ok"]}
    forms = batch_forms(fields)
    assert [Pick(f["cluster"], f["job"], f["proposal"], f["version"]) for f in forms] == chosen
    assert {f["reason"] for f in forms} == {"ok"}


@for_each(
    "fields",
    [
        {},
        {"action": ["accept"]},
        {"action": ["stop"], "pick": ["{}"]},
        {"action": ["accept"], "pick": ["{}"]},
    ],
)
def test_a_batch_without_a_choice_or_of_something_else_is_refused(fields):
    with pytest.raises(InvalidValueError):
        batch_forms(fields)


def test_a_sum_counts_unknown_prices_and_adds_by_currency():
    job = summarize(b.snapshot())
    euro = replace(job, outlook=replace(job.outlook, currency="EUR"))
    change = replace(job.outlook.proposed, cost_per_hour=None)
    unknown = replace(job, outlook=replace(job.outlook, proposed=change))
    old = replace(job, outlook=UNKNOWN)
    words = sum_words([Line("a", each, "p2", may_answer=True) for each in (job, job, euro, unknown, old)])
    cost = 2 * Line("a", job, "p2", may_answer=True).cost_change
    assert words.startswith("5 proposals, +")
    assert f"+{cost:.4g} USD/h" in words
    assert "EUR/h" in words
    assert words.endswith("2 of unknown price")


def test_the_page_has_the_open_proposals_of_all_clusters_with_their_sum(server):
    page = page_of(server, OPERATOR)
    assert set(boxes(page)) == {"ads", "feed", "rank", "far"}
    assert "All together: 4 proposals" in page
    assert "calm" not in page


def test_a_viewer_sees_the_batch_and_no_box_and_a_forged_one_is_refused_and_on_record(server, team, masters):
    assert not boxes(page_of(server, VIEWER))
    assert "All together: 4 proposals" in page_of(server, VIEWER)
    pick = boxes(page_of(server, OPERATOR))["ads"]
    told = send(server, VIEWER, "batch", [("action", "accept"), ("pick", pick)])
    assert "Not allowed" in told
    assert not masters["ads"].asked
    assert [(each.row.person, each.row.stage) for each in team.audit.rows()] == [("vera", Stage.REFUSED)]


def test_of_several_each_is_checked_by_itself_and_a_stale_one_says_why(server, masters):
    chosen = boxes(page_of(server, OPERATOR))
    with masters["feed"].lock:
        masters["feed"].state = replace(
            masters["feed"].state,
            proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), b.proposal("p3")),
        )
    fields = [
        ("action", "accept"),
        ("key", "k1"),
        ("reason", "night"),
        (reason_name(Pick("a", "ads", "p2", "")), HOSTILE),
    ]
    told = send(
        server, OPERATOR, "batch", [*fields, *(("pick", chosen[job]) for job in ("ads", "feed", "far"))]
    )
    assert "Accept p2 of job ads is done as d2." in told
    assert "Accept p2 of job far is done as d2." in told
    assert "Accept p2 of job feed was not done, since the job has changed" in told
    assert "proposal p2 is no longer open" in told
    assert not masters["rank"].asked
    assert masters["ads"].asked[0].why == HOSTILE
    assert not masters["feed"].asked
    again = send(server, OPERATOR, "batch", [*fields, ("pick", chosen["ads"])])
    assert "is done as d2" in again
    assert len(masters["ads"].asked) == 1, "it was asked once"


def test_many_are_rejected_together(server, masters):
    chosen = boxes(page_of(server, OPERATOR))
    send(server, OPERATOR, "batch", [("action", "reject"), *(("pick", value) for value in chosen.values())])
    assert all(m.asked[0].verdict is Verdict.REJECT for m in masters.values())
    until(lambda: "No proposal is open." in page_of(server, OPERATOR))


def test_a_person_sees_only_the_clusters_where_they_have_a_role(team, server):
    narrow = Person("nina", grants=(Grant(AccessRole.OPERATOR, "elsewhere"),))
    assert open_lines(team, narrow) == ()
    with running(team, ByName([narrow])) as other:
        assert Client(other.url, "nina").get("proposals").status == 403


@pytest.fixture
def strict(masters, tmp_path):
    """Give a server where accepting needs two, with a request of otto's about ads."""
    rules = Rules(actions=frozenset({Action.ACCEPT}))
    with (
        masters_team(tmp_path, MastersCluster(*masters.values()), rules=rules) as team,
        running(team, ByName()) as server,
    ):
        pick = boxes(page_of(server, OPERATOR))["ads"]
        told = send(server, OPERATOR, "batch", [("action", "accept"), ("pick", pick), ("reason", HOSTILE)])
        assert "waits as r1" in told
        yield server


def test_one_who_asked_can_take_it_back_and_never_approve_it(strict, masters):
    page = page_of(strict, OPERATOR)
    assert "You asked for this" in page
    assert 'value="approve"' not in page
    forged = [("action", "approve"), ("request", "r1"), ("cluster", "a")]
    assert "a second person must approve it" in send(strict, OPERATOR, "second", forged)
    assert not masters["ads"].asked
    assert "r1 is refused" in send(strict, OPERATOR, "second", [("action", "refuse"), *forged[1:]])
    assert "No request waits" in page_of(strict, OPERATOR)


def test_a_second_person_approves_and_both_names_stand_by_the_decision(strict, masters):
    assert 'value="approve"' in page_of(strict, SECOND)
    assert 'value="approve"' not in page_of(strict, VIEWER)
    fields = [("action", "approve"), ("request", "r1"), ("cluster", "a")]
    assert "Not allowed" in send(strict, VIEWER, "second", fields)
    assert "r1 is approved: accept p2 of job ads, asked by otto, is done as d2." in send(
        strict, SECOND, "second", fields
    )
    (decision,) = masters["ads"].asked
    assert decision.by == "olga for otto"
    assert "r1 is not open any more: it was approved by olga" in send(strict, ADMIN, "second", fields)


def test_a_request_of_an_unknown_name_or_without_a_word_is_refused(strict, masters):
    assert "no request" in send(strict, SECOND, "second", [("action", "approve"), ("request", HOSTILE)])
    told = send(strict, SECOND, "second", [("action", "x"), ("request", "r1"), ("cluster", "a")])
    assert "can be approved or refused" in told
    assert not masters["ads"].asked


def agents_request(team, **changes):
    """Leave a request as an agent of otto's does; it knows no key of a cluster."""
    decision = Decision(Verdict.ACCEPT, "", 0.0, "p2")
    now_s = team.now_s()
    asked = SecondRequest(
        "", decide(decision, "ads"), "otto", Entry.AGENT, now_s, now_s + 60, "an agent asks"
    )
    return team.requests.add(replace(asked, **changes))


def test_a_person_may_approve_what_their_own_agent_proposed(team, server, masters):
    agents_request(team)
    page = page_of(server, OPERATOR)
    assert 'value="approve"' in page
    assert "You asked for this" not in page
    fields = [("action", "approve"), ("request", "r1"), ("cluster", "a")]
    assert "r1 is approved" in send(server, OPERATOR, "second", fields)
    assert [each.by for each in masters["ads"].asked] == ["otto for otto"]


def test_where_a_rule_wants_a_second_person_an_agents_person_is_not_one(strict, masters):
    agents_request(strict.team)
    assert 'value="approve"' not in page_of(strict, OPERATOR)
    fields = [("action", "approve"), ("request", "r2"), ("cluster", "a")]
    assert "a second person must approve it" in send(strict, OPERATOR, "second", fields)
    assert not masters["ads"].asked


@pytest.fixture
def twins(tmp_path):
    """Give two clusters with a job of the same name, where accepting needs two."""
    return MastersCluster(master_of("ads")), MastersCluster(master_of("ads"))


def test_a_request_is_of_the_cluster_where_it_was_made_and_of_no_other(twins, tmp_path):
    rules = Rules(actions=frozenset({Action.ACCEPT}))
    with masters_team(tmp_path, *twins, rules=rules) as team, running(team, ByName()) as server:
        form = {"csrf": csrf_of("otto"), "cluster": "b", "job": "ads", "action": "accept", "proposal": "p2"}
        assert Client(server.url, "otto").post_form("do", form).status == 303
        assert team.requests.find("r1").cluster == "b"
        page = page_of(server, SECOND)
        assert "ads on b" in page
        assert "ads on a" not in page.partition("Open proposals")[0]
        fields = [("action", "approve"), ("request", "r1")]
        told = send(server, SECOND, "second", [*fields, ("cluster", "a")])
        assert "r1 is about a job on b, got 'a'" in told
        assert Client(server.url, "olga").get("approve/r1").status == 200, "nothing is left to guess"
        assert "r1 is approved" in send(server, SECOND, "second", [*fields, ("cluster", "b")])
        assert not twins[0].masters["ads"].asked
        assert len(twins[1].masters["ads"].asked) == 1


def test_a_request_that_names_no_cluster_is_chosen_for_and_never_guessed(twins, tmp_path):
    with masters_team(tmp_path, *twins) as team, running(team, ByName()) as server:
        agents_request(team)
        assert "<option>a</option><option>b</option>" in page_of(server, SECOND)
        assert Client(server.url, "olga").get("approve/r1").status == 404
        agents_request(team, cluster="elsewhere")
        fields = [("action", "approve"), ("request", "r2"), ("cluster", "a")]
        assert "on no cluster of this server" in send(server, SECOND, "second", fields)
        assert not twins[0].masters["ads"].asked


@pytest.fixture
def slow(masters):
    """Let an action against a straggler wait in two jobs, beside the proposal of one of them."""
    for name, proposals in (("ads", masters["ads"].state.proposals), ("feed", ())):
        with masters[name].lock:
            masters[name].state = replace(
                masters[name].state, proposals=proposals, mitigations=(b.mitigation(),)
            )
    return masters


def actions_of(page):
    """Return the values of the check boxes of actions, by job."""
    found = (html.unescape(value) for value in re.findall(r'name="pick" value="([^"]+)"', page))
    return {pick_of(value).job: value for value in found if pick_of(value).proposal.startswith("m")}


def test_an_open_action_is_a_line_with_its_gain_and_no_price(slow, team):
    person = OPERATOR
    lines = until(
        lambda: (
            (found := [each for each in open_lines(team, person) if each.action])
            and len(found) == 2
            and found
        )
    )
    (line, _) = lines
    assert (line.proposal, line.change, line.cost_change, line.is_known) == ("m1", None, 0.0, True)
    assert line.gain_samples_per_s == pytest.approx(0.12 * line.job.samples_per_s)
    both = [each for each in open_lines(team, person) if each.job.name == "ads"]
    assert [each.proposal for each in both] == ["p2", "m1"]
    assert both[0].change is not None


def test_actions_are_answered_with_the_proposals_and_each_has_its_own_reason(slow, server, team):
    page = until(lambda: len(actions_of(page := page_of(server, OPERATOR))) == 2 and page)
    assert "m1 restart worker-1: worker-1 takes 24.0 ms" in page
    assert "trains about 12 % faster" in page
    assert "Choose m1 of ads" in page
    assert "Choose p2 of ads" in page
    chosen = actions_of(page)
    fields = [
        ("action", "accept"), ("key", "k1"), ("reason", "night"),
        (reason_name(pick_of(chosen["ads"])), "of m1 alone"),
        *(("pick", value) for value in chosen.values()),
    ]  # fmt: skip
    told = send(server, OPERATOR, "batch", fields)
    assert "Accept m1 of job ads is done" in told
    assert "Accept m1 of job feed is done" in told
    rows = {each.row.job: each.row for each in team.audit.rows() if each.row.stage is Stage.DONE}
    assert {name: (row.why, row.mitigation) for name, row in rows.items()} == {
        "ads": ("of m1 alone", "restart worker-1"), "feed": ("night", "restart worker-1"),
    }  # fmt: skip
    assert slow["ads"].state.open_proposal.id == "p2"
