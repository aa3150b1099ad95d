"""The users file: written for its owner alone, read in two forms, and refused where it cannot be trusted."""

import pytest
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant
from dlrover_nb.dashboard.sign_in.users import (
    LEAST,
    MOST,
    User,
    UsersFile,
    hashed,
    read_users,
    write_users,
)

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def ada():
    """Return a user; to hash the password takes as long as it should."""
    return User(hashed(PASSWORD, "ada"), ("ads",), (Grant(AccessRole.OPERATOR, "team-a"),))


def test_what_is_written_is_read_again_and_only_its_owner_may_read_it(tmp_path, ada):
    path = tmp_path / "new" / "users.yaml"
    write_users(path, {"ada": ada, "bob": User(ada.hash)})
    assert read_users(path) == {"ada": ada, "bob": User(ada.hash)}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["users.yaml"]
    assert PASSWORD not in path.read_text()
    assert "argon2id" in path.read_text()
    write_users(path, {})
    assert read_users(path) == {}


def test_the_same_file_may_be_toml(tmp_path, ada):
    path = tmp_path / "users.toml"
    path.write_text(
        f'[ada]\nhash = "{ada.hash}"\ngroups = ["ads"]\ngrants = [{{role = "operator", namespace = "team-a"}}]\n'
    )
    assert read_users(path) == {"ada": ada}
    with pytest.raises(InvalidValueError, match="only YAML is written"):
        write_users(path, {})


@for_each(
    "text",
    [
        "ada: [",
        "ada: {}",
        "ada: {hash: 3}",
        "ada: {hash: x, grants: [{role: emperor}]}",
        "- ada",
        "a: {hash: x}\n---\nb: {hash: x}",
        "'': {hash: x}",
        "' ada': {hash: x}",
        '"a\\u202eb": {hash: x}',
        '"a\\nb": {hash: x}',
    ],
)
def test_a_malformed_file_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "users.yaml"
    path.write_text(text)
    with pytest.raises(InvalidValueError) as told:
        read_users(path)
    assert "\n" not in str(told.value)


def test_a_missing_file_says_how_one_is_made(tmp_path):
    with pytest.raises(NotFoundError, match="users add"):
        UsersFile(tmp_path / "none.yaml")


def test_a_file_that_others_could_write_is_refused(tmp_path, ada):
    path = tmp_path / "users.yaml"
    write_users(path, {"ada": ada})
    path.chmod(0o620)
    with pytest.raises(InvalidValueError, match="chmod 600"):
        UsersFile(path)


@pytest.mark.more
def test_only_the_password_of_a_user_verifies_them(tmp_path, ada):
    path = tmp_path / "users.yaml"
    write_users(path, {"ada": ada, "broken": User("no hash")})
    users = UsersFile(path)
    assert users.verified("ada", PASSWORD) == ada
    for name, password in [("ada", PASSWORD + " "), ("ada", ""), ("ada", "x" * 10**6), ("bob", PASSWORD)]:
        assert users.verified(name, password) is None
    assert users.verified("broken", PASSWORD) is None


@for_each("password", ["short", "x" * (LEAST - 1), "x" * (MOST + 1), "Adalovelace"])
def test_a_weak_password_is_refused(password):
    with pytest.raises(InvalidValueError):
        hashed(password, "adalovelace")


def test_roles_come_from_the_user_and_from_their_groups(ada):
    groups = {"ads": (Grant(AccessRole.ADMIN, "team-b"),), "other": (Grant(AccessRole.ADMIN),)}
    person = ada.person("ada", groups)
    assert person.groups == ("ads",)
    assert person.role_in("team-a") is AccessRole.OPERATOR
    assert person.role_in("team-b") is AccessRole.ADMIN
    assert person.role_in("team-c") is None


def test_a_stamp_changes_with_anything_of_a_user(ada):
    stamps = {
        ada.stamp,
        User(ada.hash).stamp,
        User(ada.hash, ("ads",)).stamp,
        User(ada.hash, ("ads",), (Grant(AccessRole.ADMIN, "team-a"),)).stamp,
        User(hashed(PASSWORD, "ada"), ada.groups, ada.grants).stamp,
    }
    assert len(stamps) == 5
