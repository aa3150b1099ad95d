"""Without a sign-in the server is its account's alone: every way in needs its secret, a ticket or the cookie."""

from __future__ import annotations

import io
import logging
import stat
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.dashboard.dashboards import Visitor, running

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.dashboard.frame.log import set_up
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import OwnAccount, by_secret
from dlrover_nb.dashboard.sign_in.by_secret import (
    TICKET_S,
    WAY_IN,
    OwnServer,
    SecretSignIn,
    own_server,
    published,
    redirecting_file,
    secret_file,
)
from dlrover_nb.dashboard.sign_in.sessions import cookie_of
from dlrover_nb.dashboard.sign_in_pages.ways import way_of

OPEN = ("/healthz", "/readyz", "/static/dashboard.css", "/api/v1/openapi.json")
CLOSED = (
    "/jobs",
    "/job?name=x",
    "/decisions",
    "/live?job=x",
    "/live/ws",
    "/events/jobs",
    "/file?kind=plan",
    "/approve/r1",
    "/alerts",
    "/metrics",
    "/api/v1/clusters",
    "/api/v1/jobs",
    "/api/v1/docs",
)
ANSWERED_AS_JSON = ("/api/v1/clusters", "/api/v1/jobs")


@pytest.fixture
def way(team):
    return way_of(ServeSettings(port=0), team)


@pytest.fixture
def served(team, way):
    with running(team, way.sign_in, ServeSettings(), way.patterns) as dashboard:
        yield dashboard


@pytest.fixture
def own(served):
    return served.server.own


def path_of(address):
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@for_each("path", CLOSED)
def test_who_brings_nothing_is_told_what_to_do_and_nothing_else(served, path):
    answer = served.ask(path)
    assert answer.status == 401
    said = "serve/PORT" if path in ANSWERED_AS_JSON else "dlrover-nb server --link"
    assert path.startswith("/live") or said in answer.text
    assert "csrf" not in answer.text
    assert not answer.cookies


@for_each("path", OPEN)
def test_probes_and_what_every_release_has_alike_need_nothing(served, path):
    assert served.ask(path).status in {200, 503}


@for_each("path", ["/do", "/batch", "/second", "/views"])
def test_no_form_is_taken_from_who_brings_nothing(served, path):
    assert served.ask(path, form={"csrf": "x"}).status == 401


def test_the_address_that_serve_prints_leads_on_without_the_secret(served, own):
    browser = Visitor(served)
    answer = browser.ask(path_of(own.address("job?name=x")))
    assert (answer.status, answer.headers["Location"]) == (302, "/job?name=x")
    assert own.secret not in str(answer.headers)
    [sent] = answer.headers.get_all("Set-Cookie")
    assert f"dlrover-own-{served.port}=" in sent
    assert "HttpOnly" in sent
    assert "SameSite=Lax" in sent
    page = browser.ask("/jobs")
    assert page.status == 200
    assert f">{user_name()}<" in page.text
    assert own.secret not in page.text
    assert browser.ask("/live?job=x").status == 200


@for_each(
    "proof",
    ["token=", "token=wrong", "ticket=", "ticket=2|1:0|10:1|6:ticket|4:eHh4|abc", "other=1", "ticket=é"],
)
def test_what_is_no_proof_gives_no_cookie(served, proof):
    answer = served.ask(f"/enter?{proof.replace('é', '%C3%A9')}")
    assert answer.status == 403
    assert WAY_IN in answer.text
    assert not answer.cookies


def test_a_ticket_is_for_one_browser_which_may_follow_its_link_again(served, own):
    address, first = path_of(own.address_once("jobs")), Visitor(served)
    assert own.secret not in address
    assert first.ask(address).status == 302
    assert first.ask(address).headers["Location"] == "/jobs"
    assert first.ask("/jobs").status == 200
    assert Visitor(served).ask(address).status == 403


def test_a_ticket_ends_after_some_minutes(served, own, monkeypatch):
    late, now_s = own.address_once(), by_secret.time.time()
    monkeypatch.setattr("tornado.web.time.time", lambda: now_s + TICKET_S + 2)
    assert served.ask(path_of(late)).status == 403


def test_a_program_sends_the_secret_with_each_request(served, own):
    for path in ("/api/v1/clusters", "/metrics", "/jobs"):
        assert served.ask(path, headers=bearer(own.secret)).status == 200, path
        assert served.ask(path, headers=bearer(own.secret + "x")).status == 401, path
        assert served.ask(path, headers={"Authorization": own.secret}).status == 401, path
    body = '{"verdict": "accept", "proposal": "p1", "why": "x"}'
    kind = {"Content-Type": "application/json"}
    path = "/api/v1/jobs/sim/none/decisions"
    assert served.ask(path, method="POST", body=body, headers=kind | bearer(own.secret)).status == 404
    assert served.ask(path, method="POST", body=body, headers=kind).status == 401


def test_wrong_secrets_of_another_user_do_not_keep_the_account_out(served, own):
    statuses = {served.ask("/api/v1/clusters", headers=bearer(f"wrong{n}")).status for n in range(40)}
    assert statuses == {401, 429}
    assert served.ask("/api/v1/clusters", headers=bearer(own.secret)).status == 200


def test_a_wrong_secret_is_refused_whatever_cookie_comes_with_it(served, own):
    browser = Visitor(served)
    browser.ask(path_of(own.address()))
    assert browser.ask("/jobs", headers=bearer("wrong")).status == 401
    assert browser.ask("/api/v1/clusters", headers=bearer("wrong")).status == 401


def test_each_start_has_a_secret_of_its_own_and_takes_no_cookie_of_another(team, served, own):
    browser = Visitor(served)
    browser.ask(path_of(own.address()))
    other = way_of(ServeSettings(), team)
    with running(team, other.sign_in, ServeSettings(), other.patterns) as second:
        cookies = {f"dlrover-own-{second.port}": value for value in browser.cookies.values()}
        assert second.ask("/jobs", cookies=cookies).status == 401
        assert second.ask("/jobs", headers=bearer(own.secret)).status == 401


def test_the_entrance_is_closed_under_another_name(served, own):
    assert served.ask(path_of(own.address()), headers={"Host": "evil.example"}).status == 421


@for_each("wanted", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_the_entrance_leads_to_no_other_host(served, own, wanted):
    answer = served.ask(f"/enter?token={own.secret}&next={wanted}")
    assert answer.headers["Location"] == "/"


def test_below_a_prefix_the_way_on_and_the_cookie_stay_below_it(team):
    settings = ServeSettings(prefix="/team/x")
    way = way_of(settings, team)
    with running(team, way.sign_in, settings, way.patterns) as dashboard:
        answer = dashboard.ask(path_of(dashboard.server.own.address("jobs")))
        assert answer.headers["Location"] == "/team/x/jobs"
        assert "Path=/team/x;" in answer.headers["Set-Cookie"]


def test_no_proof_is_logged_also_when_it_is_refused(served, own, caplog):
    handler = set_up("text", stream := io.StringIO())
    try:
        ticket = own.address_once()
        for path, host in (
            (path_of(own.address()), "evil"),
            (path_of(ticket), "evil"),
            ("/jobs?a=hidden", "evil"),
        ):
            served.ask(path, headers={"Host": host})
        served.ask("/jobs?a=hidden")
        served.ask("/live?a=hidden")
        served.ask("/do?a=hidden", form={})
        served.ask(path_of(own.address()))
    finally:
        logging.getLogger().removeHandler(handler)
    said = stream.getvalue()
    assert "421 GET /enter" in said
    for secret in (own.secret, urlsplit(ticket).query, "ticket=", "token=", "hidden"):
        assert secret not in said


# the file by which programs of the account find it


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dlrover-nb"


def test_the_secret_is_in_a_file_for_this_account_alone_while_the_server_runs(state):
    server = OwnServer("http://127.0.0.1:5006/", "secret-word")
    with pytest.raises(NotFoundError, match="serve"):
        own_server(server.url, 5006)
    with published(server, 5006):
        assert own_server(server.url, 5006) == server
        for file in (secret_file(5006), redirecting_file(5006)):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(secret_file(5006).parent.stat().st_mode) == 0o700
        assert server.address() in redirecting_file(5006).read_text()
    assert not list((state / "serve").iterdir())


def test_a_file_that_a_killed_server_left_is_replaced_and_never_opened(state):
    secret_file(5006).parent.mkdir(parents=True)
    (state / "elsewhere").write_text("old")
    secret_file(5006).symlink_to(state / "elsewhere")
    with published(OwnServer("http://127.0.0.1:5006/", "new"), 5006):
        assert own_server("http://127.0.0.1:5006/", 5006).secret == "new"
        assert stat.S_IMODE(secret_file(5006).stat().st_mode) == 0o600
    assert (state / "elsewhere").read_text() == "old"


# what is let in


def test_only_a_socket_needs_no_secret_where_nobody_signs_in(team, tmp_path):
    assert isinstance(way_of(ServeSettings(unix_socket=str(tmp_path / "s")), team).sign_in, OwnAccount)
    for settings in (
        ServeSettings(),
        ServeSettings(address="::1"),
        ServeSettings(url="https://x.example.com"),
    ):
        assert isinstance(way_of(settings, team).sign_in, SecretSignIn), settings
    behind = replace(ServeSettings(), url="https://x.example.com")
    assert way_of(behind, team).sign_in.cookie.is_secure


@given(st.text(), st.text())
def test_nothing_but_the_secret_or_a_ticket_is_a_proof(token, ticket):
    sign_in = SecretSignIn(cookie_of(ServeSettings()))
    assert not sign_in.cookie_for(token, ticket)
    assert sign_in.by_secret(token) is None
    assert sign_in.cookie_for(sign_in.secret, ticket)


@given(st.binary(max_size=200))
def test_a_ticket_of_other_bytes_is_none(ticket):
    sign_in = SecretSignIn(cookie_of(ServeSettings()))
    assert not sign_in.cookie_for("", ticket.decode("latin-1"))
