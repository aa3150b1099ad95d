"""The dashboard that most tests here ask: signed in as the account that runs them, with one simulated cluster."""

import pytest
from support.dashboard.dashboards import closed, running, team_of


@pytest.fixture
def team(tmp_path):
    """Give a team with one simulated cluster, ``sim``."""
    team = team_of(tmp_path)
    yield team
    closed(team)


@pytest.fixture
def dashboard(team):
    """Give a running server for it, without a sign-in."""
    with running(team) as dashboard:
        yield dashboard
