"""Rates: who asks too often, or guesses tokens, is told when to ask again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dashboard.dashboards import ByName, Client, running

from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.core.structs.decisions.people import AccessRole
from dlrover_nb.dashboard.api_v1.handler import Api
from dlrover_nb.dashboard.api_v1.rate_limits import Buckets, Rate, Recent
from dlrover_nb.dashboard.api_v1.tokens import Limits, Tokens


@pytest.fixture
def at_s():
    return [0.0]


@pytest.fixture
def client(team, at_s):
    store = CredentialStore(team.url)
    limits = Buckets(Rate(3, 0.1)), Buckets(Rate(2, 0.1))
    with running(team, ByName(), api=Api(Tokens(store, team.now_s), lambda: at_s[0], *limits)) as dashboard:
        yield Client(dashboard.url)
    store.close()


def test_a_person_who_asks_too_often_waits_and_nobody_else_does(client, at_s):
    vera = client.as_person("vera")
    assert [vera.get("/api/v1/clusters").status for _ in range(4)] == [200, 200, 200, 429]
    refused = vera.get("/api/v1/clusters")
    assert refused.headers["Retry-After"] == "10"
    assert client.as_person("anna").get("/api/v1/clusters").status == 200
    at_s[0] += 10
    assert vera.get("/api/v1/clusters").status == 200


def test_an_address_that_guesses_tokens_is_kept_out_for_a_while(client, at_s):
    guess = client.with_headers(Authorization="Bearer dlnb_guess")
    assert [guess.get("/api/v1/clusters").status for _ in range(3)] == [401, 401, 429]
    at_s[0] += 10
    assert guess.get("/api/v1/clusters").status == 401


def test_who_guesses_keeps_nobody_out_who_has_a_good_token_or_a_session(client, team):
    store = CredentialStore(team.url)
    tokens = Tokens(store, team.now_s)
    good = client.with_headers(Authorization=f"Bearer {tokens.add('anna', Limits(AccessRole.VIEWER), 1)}")
    assert good.get("/api/v1/clusters").status == 200
    guess = client.with_headers(Authorization="Bearer dlnb_guess")
    assert [guess.get("/api/v1/clusters").status for _ in range(3)] == [401, 401, 429]
    assert good.get("/api/v1/clusters").status == 200
    assert client.as_person("vera").get("/api/v1/clusters").status == 200
    assert client.get("/api/v1/clusters").status == 401
    tokens.remove(tokens.all("anna")[0].id)
    assert good.get("/api/v1/clusters").status == 401
    assert good.get("/api/v1/clusters").status == 429
    store.close()


@given(st.lists(st.integers(0, 30)), st.integers(1, 10))
def test_only_the_latest_names_are_remembered(seen, most):
    recent = Recent(most)
    for name in seen:
        recent.add(str(name))
    latest = list(dict.fromkeys(reversed(seen)))[:most]
    assert {name for name in range(31) if str(name) in recent} == set(latest)
