"""Sign-in by the header of a proxy: believed from the proxy alone."""

import http.client

import pytest
from support.cases import for_each
from support.dashboard.dashboards import running

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant
from dlrover_nb.dashboard.settings import ProxySettings, ServeSettings
from dlrover_nb.dashboard.sign_in_pages.ways import way_of

GROUPS = {"ads": (Grant(AccessRole.OPERATOR),), "*": (Grant(AccessRole.VIEWER),)}


def behind(trusted):
    proxy = ProxySettings("X-Forwarded-User", (trusted,), "X-Forwarded-Groups")
    return ServeSettings(proxy=proxy, groups=GROUPS)


@pytest.fixture
def proxied(team):
    settings = behind("127.0.0.0/8")
    way = way_of(settings, team)
    with running(team, way.sign_in, settings, way.patterns) as dashboard:
        yield dashboard


def test_the_proxy_names_the_person_and_their_groups(proxied):
    page = proxied.ask("/jobs", headers={"X-Forwarded-User": "ada", "X-Forwarded-Groups": "ads, other"})
    assert page.status == 200
    assert ">ada<" in page.text
    assert ">operator<" in page.text
    assert ">viewer<" in proxied.ask("/jobs", headers={"X-Forwarded-User": "bob"}).text


def test_without_the_header_nobody_is_signed_in(proxied):
    assert proxied.ask("/jobs").status == 401
    assert proxied.ask("/live").status == 401


@for_each("name", ["", " ", "a" * 129, "a\u00a0b\u202e".encode().decode("latin-1"), "\x7f"])
def test_a_name_that_is_none_is_refused(proxied, name):
    assert proxied.ask("/jobs", headers={"X-Forwarded-User": name}).status in {400, 401, 403}


def test_a_header_from_anywhere_else_is_an_error_and_not_ignored(team):
    settings = behind("10.1.2.3")
    way = way_of(settings, team)
    with running(team, way.sign_in, settings, way.patterns) as dashboard:
        answer = dashboard.ask("/jobs", headers={"X-Forwarded-User": "ada"})
        assert answer.status == 403
        assert "not a trusted proxy" in answer.text
        assert dashboard.ask("/jobs", headers={"X-Forwarded-Groups": "ads"}).status == 403
        assert dashboard.ask("/jobs").status == 401


def test_a_header_that_is_sent_twice_is_refused(proxied):
    connection = http.client.HTTPConnection("127.0.0.1", proxied.port)
    connection.putrequest("GET", "/jobs")
    connection.putheader("X-Forwarded-User", "ada")
    connection.putheader("X-Forwarded-User", "root")
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


def test_a_header_without_a_trusted_address_is_no_setting():
    with pytest.raises(InvalidValueError, match="trusted-proxy"):
        ProxySettings("X-Forwarded-User", ())
    with pytest.raises(InvalidValueError, match=r"10\.0\.0\.0/24"):
        ProxySettings("X-Forwarded-User", ("everybody",))
