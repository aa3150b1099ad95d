"""Two servers of one team, on SQLite and on PostgreSQL: a person may be served by either, and nothing is done twice."""

from __future__ import annotations

import re
import threading

import pytest
from support.dashboard.dashboards import OPERATOR, ByName, Client, Visitor, csrf_of, running, with_people
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.waiting import LIMIT_S

from dlrover_nb.core.history.audit.chain import verified
from dlrover_nb.core.structs.decisions.commands import Stage

pytestmark = pytest.mark.more

ACCEPT = {"cluster": "a", "job": "ads", "proposal": "p2", "action": "accept"}


@pytest.fixture
def master():
    return master_of("ads")


@pytest.fixture
def teams(database_url, master, tmp_path):
    """Give the teams of two processes: they share the database, the cluster and nothing else."""
    cluster = MastersCluster(master)
    with (
        masters_team(tmp_path, cluster, url=database_url) as one,
        masters_team(tmp_path, cluster, url=database_url) as other,
    ):
        yield one, other


def send(server, **fields):
    form = {"csrf": csrf_of(OPERATOR.name), **ACCEPT}
    return Client(server.url, OPERATOR.name).post_form("do", form | fields)


def test_two_servers_of_one_database_carry_a_command_out_once(teams, master):
    with running(teams[0], ByName()) as first, running(teams[1], ByName()) as second:
        answers = []
        askers = [
            threading.Thread(target=lambda each=each: answers.append(send(each, key="k1")))
            for each in (first, second) * 4
        ]
        for each in askers:
            each.start()
        for each in askers:
            each.join(LIMIT_S)
        assert [answer.status for answer in answers] == [303] * len(askers)
        assert len(master.asked) == 1
        rows = [each.row.stage for each in teams[0].audit.rows()]
        assert rows.count(Stage.ASKED) == rows.count(Stage.DONE) == 1
        assert [each.seq for each in teams[1].audit.rows()] == list(range(1, len(rows) + 1))
        # what one server keeps for a person, the other one tells
        place = send(first, reason="late", proposal="p9").headers["Location"]
        assert Client(second.url, OPERATOR.name).get(place).text.count('role="status"') > 1


def at_port(port, cookies):
    """Return cookies as another server gets them: a balancer has one address for both, and so one name."""
    return {re.sub(r"-\d+$", f"-{port}", name): value for name, value in cookies.items()}


def test_who_signed_in_at_one_server_is_known_at_the_other_until_signing_out(teams, tmp_path):
    with with_people(teams[0], tmp_path) as first, with_people(teams[1], tmp_path) as second:
        ada = Visitor(first)
        ada.sign_in()
        there = Visitor(second, at_port(second.port, ada.cookies))
        assert there.ask("/jobs").status == 200
        form = {"csrf": there.field("csrf", "/job?cluster=a&name=ads"), **ACCEPT}
        assert there.ask("/do", form=form).status == 303
        rows = [each.row for each in teams[0].audit.rows()]
        assert {row.person for row in rows if row.stage is Stage.DONE} == {"ada"}
        there.sign_out()
        assert ada.ask("/jobs").status in {302, 303}


def test_what_one_server_writes_both_chains_verify(teams):
    with running(teams[0], ByName()) as first, running(teams[1], ByName()) as second:
        for i, server in enumerate((first, second) * 3):
            send(server, key=f"k{i}", proposal=f"p{i}")
    for team in teams:
        assert verified(team.audit)[1] == ()
