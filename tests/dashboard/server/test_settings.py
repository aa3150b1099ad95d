"""Settings of a server: flags win over the file, and what must not be is refused before anything opens."""

import pytest
from support.cases import for_each

from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant
from dlrover_nb.dashboard.settings import ServeSettings, is_loopback, read_settings


def test_a_flag_wins_over_the_file(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text(
        "port: 7000\nclusters: [local]\ngroups: {ads: [{role: operator, namespace: a}]}\n"
        "second_person_actions: [stop]\nproxy: {header: X-User, trusted: [10.0.0.1]}\n"
    )
    settings = read_settings(str(path), {"port": 7001, "clusters": (), "prefix": ""})
    assert (settings.port, settings.clusters) == (7001, ("local",))
    assert settings.groups == {"ads": (Grant(AccessRole.OPERATOR, "a"),)}
    assert settings.second_person_actions == {Action.STOP}
    assert settings.proxy.trusted == ("10.0.0.1",)


@for_each(
    "text",
    [
        "prot: 1",
        "port: x",
        "port: 70000",
        "- port",
        "port: 1\n---\nport: 2",
        "groups: {ads: [{role: emperor}]}",
        "idle_s: 0",
        "idle_s: 10\nabsolute_s: 5",
        "prefix: dlrover",
        "prefix: /",
        "prefix: /a/../b",
        "prefix: '/a b'",
        "url: dlrover.example.com",
        "url: ftp://example.com",
        "url: http://example.com",
        "url: https://user@example.com",
        "url: https://example.com/other",
        "users: a\noidc: b",
        "proxy: {header: X-User, trusted: []}",
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    with pytest.raises(InvalidValueError) as told:
        read_settings(str(path), {})
    assert "\n" not in str(told.value)


def test_a_key_that_is_nearly_right_is_named(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text("adress: 127.0.0.1")
    with pytest.raises(InvalidValueError, match="did you mean address"):
        read_settings(str(path), {})
    with pytest.raises(NotFoundError):
        read_settings(str(tmp_path / "none.yaml"), {})


@for_each("address", ["0.0.0.0", "::", "10.0.0.1", "", "example.com"])
def test_without_a_sign_in_it_listens_on_loopback_only(address):
    with pytest.raises(DlroverError, match="sign-in"):
        ServeSettings(address=address)
    with pytest.raises(DlroverError, match="--url"):
        ServeSettings(address=address, users="users.yaml")
    assert ServeSettings(address=address, users="users.yaml", url="https://d.example.com").is_https


@for_each("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "[::1]"])
def test_loopback_needs_none(address):
    assert is_loopback(address)
    assert not ServeSettings(address=address).has_sign_in


def test_a_server_goes_by_the_names_that_lead_to_it():
    assert ServeSettings().hosts(5006) == {"127.0.0.1:5006", "localhost:5006", "[::1]:5006"}
    assert "127.0.0.27:5006" in ServeSettings(address="127.0.0.27").hosts(5006)
    public = ServeSettings(url="https://D.example.com", users="u", prefix="/x")
    assert public.hosts(5006) == {"d.example.com"}
    assert ServeSettings(unix_socket="/tmp/s").hosts(0) == frozenset()
