"""Sessions on bad days: a clock that is set back, and a database that takes nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.core.structs.decisions.people import Person
from dlrover_nb.dashboard.sign_in.sessions import KIND, SKEW_S, Cookie, Sessions

IDLE_S, DAY_S = 3600.0, 86_400.0
START_S = 1_790_000_000.0
ADA = Person("ada")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = CredentialStore(f"sqlite:///{tmp_path_factory.mktemp('sessions') / 'history.db'}")
    yield made
    made.close()


def begun(store):
    """Return the clock of a server, and what finds the session that began on it."""
    clock = [START_S]
    sessions = Sessions(
        store, Cookie("who", is_secure=False), lambda: clock[0], idle_s=IDLE_S, absolute_s=DAY_S
    )
    request = SimpleNamespace(host="127.0.0.1", cookies={"who": SimpleNamespace(value=sessions.start(ADA))})
    return clock, lambda: sessions.find(request)


@given(st.floats(SKEW_S + 1, 100 * DAY_S))
def test_a_session_that_began_in_the_future_is_over(store, back_s):
    clock, find = begun(store)
    assert find().record.person == ADA
    clock[0] -= back_s
    assert find() is None


def test_a_clock_that_is_set_back_a_little_makes_no_session_longer_than_its_idle_time(store):
    clock, find = begun(store)
    clock[0] += 2 * IDLE_S / 3
    assert find() is not None
    clock[0] -= IDLE_S / 3  # after its begin, before its last use
    assert find() is not None
    clock[0] += IDLE_S + 1
    assert find() is None


def test_a_database_that_takes_nothing_shuts_nobody_out(store):
    clock, find = begun(store)

    def set_up(connection, _record):
        connection.execute("PRAGMA query_only = ON")

    event.listen(store._database._engine, "connect", set_up)
    try:
        clock[0] += IDLE_S / 2
        assert find().record.person == ADA
    finally:
        event.remove(store._database._engine, "connect", set_up)
    assert max(each.expires_at_s for each in store.of(KIND, "ada")) >= START_S + IDLE_S
