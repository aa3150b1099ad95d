"""Sessions and tokens in the database: found by their secret alone, ended by whoever may, on both databases."""

import pytest

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.history.stores.credentials import Credential, CredentialStore, credential_id


@pytest.fixture
def store(url):
    store = CredentialStore(url)
    yield store
    store.close()


def test_a_secret_finds_what_was_kept_with_it(store):
    secret = store.add("session", "ada", 100.0, '{"since": 1}')
    assert store.find("session", secret, 99.0) == Credential(
        credential_id(secret), "session", "ada", 100.0, '{"since": 1}'
    )


def test_a_secret_counts_for_nothing_from_its_expiry_on(store):
    secret = store.add("session", "ada", 100.0, "")
    assert store.find("session", secret, 100.0) is None


def test_a_renewed_credential_lives_longer(store):
    secret = store.add("session", "ada", 100.0, "")
    store.renew("session", secret, 200.0)
    assert store.find("session", secret, 150.0).expires_at_s == 200.0
    store.renew("token", secret, 300.0)  # of another kind: there is none
    assert store.find("session", secret, 250.0) is None


def test_a_session_is_never_taken_for_a_token(store):
    secret = store.add("session", "ada", 100.0, "")
    assert store.find("token", secret, 1.0) is None
    assert not store.drop("token", secret)
    assert not store.drop_id("token", credential_id(secret))
    assert store.find("session", secret, 1.0) is not None


@pytest.mark.more
@pytest.mark.parametrize("forged", ["", "x" * 10_000, "\0", "\ud800", "' or 1=1 --"])
def test_nothing_but_the_secret_finds_it(store, forged):
    secret = store.add("session", "ada", 100.0, "")
    assert store.find("session", forged, 1.0) is None
    assert store.find("session", credential_id(secret), 1.0) is None, "the id is no secret"
    assert store.find("session", secret[:-1], 1.0) is None


def test_the_database_holds_no_secret(tmp_path):
    path = tmp_path / "history.db"
    store = CredentialStore(f"sqlite:///{path}")
    secret = store.add("token", "ada", 100.0, "{}")
    store.close()
    kept = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert credential_id(secret).encode() in kept
    assert secret.encode() not in kept


def test_each_way_to_end_one_ends_it_alone(store):
    ada, bob = (store.add("session", name, 100.0, "") for name in ("ada", "bob"))
    second = store.add("session", "ada", 90.0, "")
    token = store.add("token", "ada", 100.0, "")
    assert [each.id for each in store.of("session", "ada")] == [credential_id(second), credential_id(ada)]
    assert store.drop("session", second)
    assert not store.drop("session", second)
    assert store.drop_id("session", credential_id(bob))
    assert store.drop_id("session", credential_id(ada))
    assert store.of("session") == ()
    assert [each.person for each in store.of("token")] == ["ada"]
    assert store.find("token", token, 1.0) is not None


def test_those_that_have_expired_are_removed_and_no_others(store):
    old, new = store.add("session", "ada", 10.0, ""), store.add("token", "ada", 20.0, "")
    assert store.drop_expired(10.0) == 1
    assert not store.drop("session", old)
    assert store.drop("token", new)


@pytest.mark.parametrize("name", ["", "a" * 129])
def test_a_name_that_does_not_fit_is_refused_not_cut(store, name):
    with pytest.raises(InvalidValueError, match="1 to 128"):
        store.add("session", name, 100.0, "")


def test_two_servers_share_their_sessions(url):
    one, other = CredentialStore(url), CredentialStore(url)
    secret = one.add("session", "ada", 100.0, "")
    assert other.find("session", secret, 1.0) is not None
    other.drop("session", secret)
    assert one.find("session", secret, 1.0) is None
    one.close()
    other.close()
