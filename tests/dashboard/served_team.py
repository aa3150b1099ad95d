"""A team with a simulated cluster, and its server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from team_server import ByHeader, Client, Served, simulated_cluster
from tornado.web import StaticFileHandler

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.structs.commands import Action
from dlrover_nb.dashboard.server import STATIC, patterns
from dlrover_nb.dashboard.team import Team


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
def served(team):
    sign_in = ByHeader()
    static = (r"/static/(.*)", StaticFileHandler, {"path": str(STATIC)})
    server = Served([*patterns(team, sign_in), static])
    yield SimpleNamespace(url=server.url, sign_in=sign_in)
    server.close()


@pytest.fixture
def client(served):
    return Client(served.url)
