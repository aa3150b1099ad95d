"""A list without jobs says where there are some: to whom it may."""

from __future__ import annotations

import html
import re

import pytest
from support.dashboard.dashboards import VIEWER, ByName, Client, running
from support.dashboard.team_clusters import MastersCluster, master_of, masters_team

from dlrover_nb.core.backends.local.record import SUBMISSION
from dlrover_nb.core.disk.paths import jobs_folder


@pytest.fixture
def local_job(tmp_path, monkeypatch):
    """Leave the folder of a job of this machine's own processes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = jobs_folder() / "ctr-20261130T055440-000"
    folder.mkdir(parents=True)
    (folder / SUBMISSION).write_text("{}")
    return "ctr"


def none_part(page):
    """Return the part of a page about where jobs are, and whether it is shown."""
    part = re.search(r'<div id="none" class="jobs-none"( hidden)?>(.*?)</div>', page, re.DOTALL)
    return html.unescape(part[2]), not part[1]


def test_a_list_without_jobs_leads_to_the_cluster_that_has_some(tmp_path):
    clusters = (
        MastersCluster(),
        MastersCluster(*(master_of(name) for name in ("ads", "feed", "rank", "map"))),
    )
    with masters_team(tmp_path, *clusters) as team, running(team, ByName([VIEWER])) as server:
        text, is_shown = none_part(Client(server.url, "vera").get("jobs?cluster=a").text)
        assert is_shown
        assert '<a href="jobs?cluster=b">4 jobs on b: ads, feed, rank, …</a>' in text
        assert not none_part(Client(server.url, "vera").get("jobs?cluster=b").text)[1]


def test_the_servers_own_account_hears_of_jobs_of_its_machine_and_others_do_not(tmp_path, local_job):
    with masters_team(tmp_path, MastersCluster()) as team:
        with running(team) as server:
            text, _ = none_part(Client(server.url).get("jobs?cluster=a").text)
            assert f"1 job of this machine's own processes: {local_job}" in text
            assert "--cluster local" in text
        with running(team, ByName([VIEWER])) as server:
            text, _ = none_part(Client(server.url, "vera").get("jobs?cluster=a").text)
            assert local_job not in text
