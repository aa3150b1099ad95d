"""The page Compare at a real server: who may see it, and what it says of names that do not fit."""

from __future__ import annotations

import pytest
from support.dashboard.dashboards import VIEWER, ByName, Client, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.people import Person

NAMES = [f"job-{i}" for i in range(7)]


@pytest.fixture
def server(tmp_path):
    masters = [master_of("ads", owner=b.HOSTILE), *(master_of(name) for name in NAMES)]
    people = [VIEWER, Person("nina")]
    with masters_team(tmp_path, MastersCluster(*masters)) as team, running(team, ByName(people)) as server:
        yield server


def asked(server, *names, who="vera"):
    named = "&".join(f"job={name}" for name in names)
    return Client(server.url, who).get(f"compare?cluster=a&{named}")


def test_two_jobs_are_shown_side_by_side_and_no_name_is_code(server):
    answer = asked(server, "ads", "job-1", "job-1")
    assert answer.status == 200
    assert "2 jobs compared" in answer.text
    assert "Where the jobs differ" in answer.text or "differ only" in answer.text
    assert b.HOSTILE not in answer.text


@pytest.mark.parametrize("names", [(), ("ads",), NAMES])
def test_too_few_or_too_many_are_told_how_many_to_tick(server, names):
    assert f"2 to 6 jobs are compared, got {len(names)}; tick as many" in asked(server, *names).text


def test_a_job_that_is_not_there_and_a_person_without_a_role_get_nothing(server):
    assert asked(server, "ads", "nope").status == 404
    assert asked(server, "ads", "job-1", who="nina").status == 403
