"""The loop over a simulated cluster: alerts begin once for all servers, lead somewhere, and end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.dashboard.team_clusters import simulated_cluster, submitted
from support.waiting import until

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.requests import Reject
from dlrover_nb.core.structs.decisions.commands import Action, Command, Entry, SecondRequest
from dlrover_nb.core.structs.views.alerts import AlertKind, AlertRules
from dlrover_nb.dashboard.alerts.loop import AlertLoop
from dlrover_nb.dashboard.common.clusters import Jobs
from dlrover_nb.dashboard.common.team import Team

AT_ONCE = AlertRules(proposal_waits_s=0.0, cool_down_s=0.0, master_lost_s=10.0)


@pytest.fixture
def cluster():
    made = simulated_cluster()
    yield made
    made.close()
    made.core.shutdown(force=True)


@pytest.fixture
def teams(cluster, tmp_path):
    """Two servers that share a database."""
    url = f"sqlite:///{tmp_path / 'history.db'}"
    made = [Team({"sim": cluster}, SystemClock().now_s, url=url) for _ in range(2)]
    yield made
    for team in made:
        team.close()


def ids(sent, *, ended):
    return [alert.id for alert in sent if (alert.ended_at_s is not None) is ended]


def test_of_two_servers_one_sends_an_alert_and_its_end(cluster, teams):
    job = submitted(cluster, "ads-ctr")
    sent = []
    loops = [AlertLoop(team, AT_ONCE, sent.append, period_s=0.05) for team in teams]
    for loop in loops:
        loop.begin()
    try:
        begun = until(lambda: [alert for alert in sent if alert.kind is AlertKind.PROPOSAL], "an alert")
        job.decide(Reject(begun[0].subject))
        until(lambda: any(alert.ended_at_s for alert in sent), "its end")
        job.stop()
        until(lambda: job.snapshot().phase.is_final, "the end of the job")
        until(lambda: not teams[0].alerts.open(), "the end of all")
        until(lambda: len(ids(sent, ended=True)) == len(ids(sent, ended=False)), "the end of each")
    finally:
        for loop in loops:
            loop.close()
    begun, ended = ids(sent, ended=False), ids(sent, ended=True)
    still_open = {
        alert.id for alert in teams[0].alerts.open()
    }  # begun by a look at the job just before its end
    assert sorted(begun) == sorted(set(begun))
    assert sorted(ended) == sorted(set(begun) - still_open)


def test_a_loop_that_is_closed_listens_no_more(cluster, teams):
    loop = AlertLoop(teams[0], AT_ONCE, lambda _: None)
    loop.begin()
    assert cluster.n_listener
    loop.close()
    assert not cluster.n_listener


def listed(cluster, at_s, *names):
    return Jobs(tuple(job for job in cluster.jobs().jobs if job.name in names), at_s)


def test_a_running_job_that_is_listed_no_more_has_lost_its_master(cluster, teams):
    submitted(cluster, "ads-ctr", proposes=False)
    sent = []
    loop = AlertLoop(teams[0], AT_ONCE, sent.append)

    def kinds():
        return [(a.kind, a.ended_at_s is not None) for a in sent if a.kind is AlertKind.MASTER_LOST]

    loop.read("sim", listed(cluster, 0.0, "ads-ctr"))
    loop.read("sim", listed(cluster, 9.0))
    assert kinds() == []
    loop.read("sim", Jobs((), 20.0, "the cluster is away"))  # nothing is known then
    assert kinds() == []
    loop.read("sim", listed(cluster, 20.0))
    assert kinds() == [(AlertKind.MASTER_LOST, False)]
    again = AlertLoop(teams[1], AT_ONCE, sent.append)  # another server, which never saw it run
    again.read("sim", listed(cluster, 21.0))
    assert len(kinds()) == 1
    again.read("sim", listed(cluster, 22.0, "ads-ctr"))
    assert kinds()[-1] == (AlertKind.MASTER_LOST, True)


def test_a_job_that_ended_between_two_lists_has_lost_nothing(cluster, teams):
    job = submitted(cluster, "ads-ctr", proposes=False)
    sent = []
    loop = AlertLoop(teams[0], AT_ONCE, sent.append)
    loop.read("sim", listed(cluster, 0.0, "ads-ctr"))
    job.stop()
    loop.read("sim", listed(cluster, 60.0))
    assert [a for a in sent if a.kind is AlertKind.MASTER_LOST] == []


def test_alerts_of_a_job_that_is_gone_end(cluster, teams):
    submitted(cluster, "ads-ctr")
    sent = []
    AlertLoop(teams[0], AT_ONCE, sent.append).read("sim", listed(cluster, 0.0, "ads-ctr"))
    assert teams[0].alerts.open()
    AlertLoop(teams[1], AT_ONCE, sent.append).read("sim", listed(cluster, 1.0))
    assert not teams[0].alerts.open()


def test_a_request_of_a_job_of_another_cluster_is_no_alert_of_this_one(cluster, teams):
    submitted(cluster, "ads-ctr", proposes=False)
    team, now_s, sent = teams[0], teams[0].now_s(), []
    asked = SecondRequest(
        "", Command(Action.STOP, "ads-ctr"), "ada", Entry.API, now_s, now_s + 3600, "by a rule"
    )
    loop = AlertLoop(team, AT_ONCE, sent.append)
    team.requests.add(replace(asked, cluster="elsewhere"))
    loop.read("sim", listed(cluster, 0.0, "ads-ctr"))
    assert AlertKind.SECOND_PERSON not in [alert.kind for alert in sent]
    for here in ("sim", ""):
        waiting = team.requests.add(replace(asked, cluster=here))
        loop.read("sim", listed(cluster, 0.0, "ads-ctr"))
        assert [alert.kind for alert in sent if alert.ended_at_s is None][-1] is AlertKind.SECOND_PERSON
        team.requests.take(waiting.id, "refused")
        loop.read("sim", listed(cluster, 0.0, "ads-ctr"))
        assert sent[-1].ended_at_s is not None


def test_a_mistake_about_one_list_does_not_end_the_alerts_of_the_next(cluster, teams, monkeypatch):
    submitted(cluster, "ads-ctr")
    sent, read, met = [], AlertLoop.read, []

    def first_fails(loop, key, jobs):
        met.append(jobs)
        if len(met) == 1:
            raise KeyError(key)
        read(loop, key, jobs)

    monkeypatch.setattr(AlertLoop, "read", first_fails)
    loop = AlertLoop(teams[0], AT_ONCE, sent.append, period_s=0.01)
    loop.begin()
    try:
        until(lambda: sent, what="an alert after the mistake")
    finally:
        loop.close()
