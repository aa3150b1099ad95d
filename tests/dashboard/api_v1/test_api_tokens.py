"""Tokens: shown once, bound to a role and an end, and never stronger than their owner."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.dashboard.team_clusters import submitted

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.core.structs.decisions.people import ANY, AccessRole, Grant, Person
from dlrover_nb.dashboard.api_v1.rate_limits import Buckets, Rate
from dlrover_nb.dashboard.api_v1.tokens import DAY_S, Limits, Tokens, narrowed

VIEWER, OPERATOR, ADMIN = AccessRole
NAMESPACES = st.sampled_from(["", "ads", "search", ANY])
ROLES = st.sampled_from(list(AccessRole))
GRANTS = st.lists(st.builds(Grant, ROLES, NAMESPACES), max_size=4).map(tuple)


@pytest.fixture
def tokens(team):
    store = CredentialStore(team.url)
    yield Tokens(store, SystemClock().now_s)
    store.close()


@given(GRANTS, st.builds(Limits, ROLES, NAMESPACES), st.sampled_from(["", "ads", "search", "other"]))
def test_a_token_is_never_stronger_than_its_owner_nor_than_its_limits(grants, limits, namespace):
    owner = Person("anna", grants=grants)
    held, has = narrowed(owner, limits).role_in(namespace), owner.role_in(namespace)
    if limits.namespace not in {ANY, namespace} or has is None:
        assert held is None
    else:
        assert held is not None
        assert held.rank == min(has.rank, limits.role.rank)


@given(GRANTS, st.builds(Limits, ROLES, NAMESPACES), ROLES, st.sampled_from(["", "ads", "search"]))
def test_a_role_that_a_cluster_gives_is_bounded_by_the_token_too(grants, limits, role, namespace):
    token = narrowed(Person("anna", grants=grants), limits)
    there = replace(token, grants=(Grant(role, namespace),))  # as of a cluster that knows people
    held = there.role_in(namespace)
    if limits.namespace in {ANY, namespace}:
        assert held.rank == min(role.rank, limits.role.rank)
    else:
        assert held is None


def test_a_token_signs_its_owner_in_and_needs_no_form(client, team, tokens):
    job = submitted(team.cluster("sim"), "by-token", proposes=False)
    secret = tokens.add("otto", Limits(OPERATOR), 1)
    program = client.with_headers(Authorization=f"Bearer {secret}")
    answered = program.post(f"/api/v1/jobs/sim/{job.name}/decisions", {"verdict": "mode", "mode": "manual"})
    assert answered.status == 200, answered.text
    assert answered.json["decision"]["by"] == "otto"


def test_a_viewers_token_of_an_administrator_changes_nothing(client, team, tokens):
    job = submitted(team.cluster("sim"), "by-viewer", proposes=False)
    program = client.with_headers(Authorization=f"Bearer {tokens.add('anna', Limits(VIEWER), 1)}")
    assert program.get(f"/api/v1/jobs/sim/{job.name}").status == 200
    assert program.post(f"/api/v1/jobs/sim/{job.name}/stop", {}).status == 403
    row = team.audit.newest(1)[0].row
    assert (row.person, row.action) == ("anna", "stop")


def test_a_token_loses_what_its_owner_loses(client, sign_in, tokens):
    secret = tokens.add("otto", Limits(OPERATOR), 1)
    program = client.with_headers(Authorization=f"Bearer {secret}")
    assert program.get("/api/v1/clusters").json["clusters"]
    before = sign_in.people["otto"]
    try:
        sign_in.people["otto"] = Person("otto")
        assert program.get("/api/v1/clusters").json["clusters"] == []
        del sign_in.people["otto"]
        assert program.get("/api/v1/clusters").status == 401
    finally:
        sign_in.people["otto"] = before


def test_a_wrong_token_is_not_saved_by_a_session_beside_it(client):
    assert (
        client.as_person("anna").with_headers(Authorization="Bearer dlnb_no").get("/api/v1/jobs").status
        == 401
    )
    assert client.as_person("anna").with_headers(Authorization="Basic YTph").get("/api/v1/jobs").status == 401


def test_the_secret_is_in_no_file(team, tokens, module_path):
    secret = tokens.add("anna", Limits(VIEWER), 1)
    with sqlite3.connect(module_path / "history.db") as connection:
        rows = str(connection.execute("select * from credentials").fetchall())
    connection.close()
    assert secret.removeprefix("dlnb_") not in rows
    assert "anna" in rows


def test_a_token_ends_when_its_time_is_over_or_when_it_is_removed(team):
    at_s = [1000.0]
    tokens = Tokens(CredentialStore(team.url), lambda: at_s[0])
    anna = Person("anna", grants=(Grant(ADMIN),))
    secret, other = tokens.add("anna", Limits(VIEWER), 1), tokens.add("zoe", Limits(VIEWER), 2)
    assert tokens.person(secret, lambda _: anna)
    at_s[0] += DAY_S
    assert tokens.person(secret, lambda _: anna) is None
    (made,) = tokens.all("zoe")
    assert tokens.remove(made.id[:12]).person == "zoe"
    assert tokens.person(other, lambda _: anna) is None
    with pytest.raises(NotFoundError, match="no token has an id"):
        tokens.remove(made.id)


@for_each("days", [0, -1, 367, float("inf"), float("nan")])
def test_a_token_must_end(tokens, days):
    with pytest.raises(InvalidValueError, match="days of a token"):
        tokens.add("anna", Limits(VIEWER), days)


@given(
    st.floats(1, 20),
    st.floats(0.1, 10),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5)), max_size=60),
)
def test_a_bucket_never_lets_more_through_than_its_rate(burst, per_s, asked):
    buckets, now_s, passed = Buckets(Rate(burst, per_s)), 0.0, dict.fromkeys("abc", 0)
    for name, after_s in asked:
        now_s += after_s
        passed[name] += buckets.take(name, now_s) == 0
    assert all(n <= burst + per_s * now_s + 1e-6 for n in passed.values())


@given(st.integers(1, 50), st.integers(0, 200))
def test_buckets_take_bounded_memory_however_many_names_ask(most, n_name):
    buckets = Buckets(Rate(2, 1), most=most)
    for i in range(n_name):
        buckets.take(str(i), 0.0)
    assert len(buckets) <= most


def test_who_waits_as_long_as_told_may_ask_again():
    buckets = Buckets(Rate(1, 0.5))
    assert buckets.take("a", 0.0) == 0
    wait_s = buckets.take("a", 0.5)
    assert buckets.take("a", 0.5 + wait_s) == 0
