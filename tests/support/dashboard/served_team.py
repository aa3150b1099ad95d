"""Fixtures that several folders of tests share: a team with a simulated cluster, and its server, for a module."""

from __future__ import annotations

import pytest

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.common.team import Team
from support.dashboard.dashboards import ByName, Client, running
from support.dashboard.team_clusters import simulated_cluster


@pytest.fixture(scope="module")
def module_path(tmp_path_factory):
    return tmp_path_factory.mktemp("team")


@pytest.fixture(scope="module")
def team(module_path):
    """A team of one simulated cluster, where to stop a job needs a second person."""
    cluster = simulated_cluster()
    made = Team(
        {"sim": cluster},
        SystemClock().now_s,
        url=f"sqlite:///{module_path / 'history.db'}",
        rules=Rules(actions=frozenset({Action.STOP})),
    )
    yield made
    made.close()
    cluster.core.shutdown(force=True)


@pytest.fixture(scope="module")
def sign_in():
    return ByName()


@pytest.fixture(scope="module")
def served(team, sign_in):
    with running(team, sign_in) as dashboard:
        yield dashboard


@pytest.fixture
def client(served):
    return Client(served.url)
