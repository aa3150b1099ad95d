"""Signing in by the users file: sessions, forms, and all that strangers may try."""

import json

import pytest
from support.cases import for_each
from support.dashboard.dashboards import PASSWORD, Visitor, people, with_people
from support.waiting import until

from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in_pages.password import WRONG


@pytest.fixture
def guarded(team, tmp_path):
    """Give a server whose people are ada, an operator, and vic, a viewer."""
    with with_people(team, tmp_path) as dashboard:
        yield dashboard


@pytest.fixture
def ada(guarded):
    """Give ada, signed in."""
    visitor = Visitor(guarded)
    visitor.sign_in()
    return visitor


@pytest.mark.more
def test_nobody_sees_a_page_before_the_sign_in_and_is_led_back_after_it(guarded):
    visitor = Visitor(guarded)
    answer = visitor.ask("/jobs?cluster=sim")
    assert answer.status == 302
    assert answer.headers["Location"] == "/sign-in?next=%2Fjobs%3Fcluster%3Dsim"
    answer = visitor.sign_in(wanted="/jobs?cluster=sim")
    assert (answer.status, answer.headers["Location"]) == (303, "/jobs?cluster=sim")
    page = visitor.ask("/jobs")
    assert page.status == 200
    assert "ada" in page.text
    assert "operator" in page.text


@pytest.mark.more
@pytest.mark.parametrize(("name", "password"), [("ada", "wrong password"), ("nobody", PASSWORD), ("", "")])
def test_a_wrong_name_and_a_wrong_password_are_told_in_the_same_words(guarded, name, password):
    visitor = Visitor(guarded)
    answer = visitor.sign_in(name, password)
    assert answer.status == 403
    assert WRONG in answer.text
    assert not visitor.session


def test_a_cookie_is_for_no_script_and_no_other_site(guarded):
    answer = Visitor(guarded).sign_in()
    (cookie,) = [each for each in answer.headers.get_all("Set-Cookie") if "session" in each]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "expires" not in cookie.lower()


@pytest.mark.more
@pytest.mark.parametrize(
    ("prefix", "name", "path"),
    [("", "__Host-dlrover-session", "Path=/;"), ("/d", "__Secure-dlrover-session", "Path=/d;")],
)
def test_over_tls_a_cookie_is_secure_and_bound_to_the_host(team, tmp_path, prefix, name, path):
    settings = ServeSettings(url="https://d.example.com", prefix=prefix)
    with with_people(team, tmp_path, settings) as dashboard:
        page = dashboard.ask(f"{prefix}/sign-in", headers={"Host": "d.example.com"})
        (cookie,) = page.headers.get_all("Set-Cookie")
        assert "Secure" in cookie
        visitor = Visitor(dashboard)
        visitor.cookies = page.cookies
        form = {"csrf": _token(page), "name": "ada", "password": PASSWORD}
        answer = visitor.ask(f"{prefix}/sign-in", form=form, headers={"Host": "d.example.com"})
        (cookie,) = [each for each in answer.headers.get_all("Set-Cookie") if "session" in each]
        assert cookie.startswith(f"{name}=")
        assert "Secure" in cookie
        assert path in f"{cookie};"


def _token(page):
    return page.text.partition('name="csrf" value="')[2].partition('"')[0]


@pytest.mark.more
def test_each_sign_in_has_a_new_session_and_ends_the_one_before(guarded, ada):
    first = ada.session
    ada.sign_in()
    assert ada.session != first
    assert Visitor(guarded, {n: first for n in ada.cookies if "session" in n}).ask("/jobs").status == 302


def test_a_session_that_was_planted_is_not_taken_over(guarded, ada):
    name = next(n for n in ada.cookies if "session" in n)
    victim = Visitor(guarded, {name: "planted"})
    victim.sign_in("vic")
    assert victim.session != "planted"
    assert Visitor(guarded, {name: "planted"}).ask("/jobs").status == 302


@pytest.mark.more
@for_each("forged", ["", "x", "a" * 9000, "\x01", '"', "ada", "%00", "🦆"])
def test_a_forged_cookie_is_nobodys(guarded, ada, forged):
    name = next(n for n in ada.cookies if "session" in n)
    value = forged.encode("utf-8").decode("latin-1")
    assert guarded.ask("/jobs", headers={"Cookie": f"{name}={value}"}).status in {302, 400}
    changed = ada.session[:-1] + ("A" if ada.session[-1] != "A" else "B")
    assert guarded.ask("/jobs", cookies={name: changed}).status == 302


def test_sign_out_ends_the_session_in_the_database(guarded, ada):
    cookies = dict(ada.cookies)
    answer = ada.sign_out()
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
    assert not ada.session
    assert Visitor(guarded, cookies).ask("/jobs").status == 302


def test_sign_out_asks_for_the_token_of_the_form(ada):
    assert ada.ask("/sign-out", form={"csrf": "0" * 64}).status == 403
    assert ada.ask("/sign-out").status == 405
    assert ada.ask("/jobs").status == 200


@pytest.mark.more
@pytest.mark.parametrize("csrf", ["", "0" * 64, "é"])
def test_the_form_to_sign_in_must_be_ours(guarded, csrf):
    visitor = Visitor(guarded)
    visitor.ask("/sign-in")
    form = {"csrf": csrf, "name": "ada", "password": PASSWORD}
    assert visitor.ask("/sign-in", form=form).status == 403
    assert guarded.ask("/sign-in", form=form).status == 403
    assert not visitor.session


@pytest.mark.more
@for_each(
    "wanted",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "jobs",
        "/jobs\r\nSet-Cookie: a=b",
        "/\t/evil.example",
        "",
    ],
)
def test_the_way_on_after_the_sign_in_leads_to_no_other_host(guarded, wanted):
    answer = Visitor(guarded).sign_in(wanted=wanted)
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    assert "a" not in answer.cookies


def test_a_session_ends_when_it_is_idle_or_old_and_not_before(guarded, ada, team):
    store = CredentialStore(team.url)
    (found,) = store.of("session", "ada")
    record = json.loads(found.record)
    assert found.expires_at_s < record["ends_s"]
    store.renew("session", ada.session, found.expires_at_s - 7 * 3600)  # as if it was last used long ago
    assert ada.ask("/jobs").status == 200
    until(lambda: store.of("session", "ada")[0].expires_at_s > found.expires_at_s - 60, what="the use")
    store.renew("session", ada.session, 1.0)
    assert ada.ask("/jobs").status == 302
    store.close()


def test_a_user_who_is_changed_or_removed_is_signed_out_at_once(guarded, ada, team, tmp_path):
    vic = Visitor(guarded)
    vic.sign_in("vic")
    people(tmp_path / "users.yaml", ada="viewer", vic="viewer")
    assert ada.ask("/jobs").status == 302
    assert vic.ask("/jobs").status == 200
    people(tmp_path / "users.yaml", ada="viewer")
    assert vic.ask("/jobs").status == 302
    people(tmp_path / "users.yaml", ada="operator", vic="viewer")
    assert vic.ask("/jobs").status == 302, "a session that has ended stays so"


def test_nobody_gets_in_while_the_users_file_is_broken(guarded, ada, tmp_path):
    path = tmp_path / "users.yaml"
    kept = path.read_text()
    path.write_text("ada: [")
    assert ada.ask("/jobs").status == 503
    path.write_text(kept)
    assert ada.ask("/jobs").status == 200
    path.chmod(0o666)
    path.write_text(kept + "\n")
    assert ada.ask("/jobs").status == 503


@pytest.mark.more
def test_many_tries_are_refused_and_the_right_password_waits_with_them(guarded):
    visitor = Visitor(guarded)
    tried = [visitor.sign_in(password=f"wrong password {n}") for n in range(4)]
    assert [each.status for each in tried] == [403] * 4

    def asked_too_often():
        """Try again: each pause is twice the one before, and so longer than a try takes at last."""
        answer = visitor.sign_in(password="wrong password")
        return answer.status == 429 and answer

    refused = until(asked_too_often, what="a refusal")
    assert int(refused.headers["Retry-After"]) >= 1
    assert "too many tries" in refused.text


def test_a_name_is_shown_as_text_wherever_it_appears(team, tmp_path):
    name = "<img src=x onerror=alert(1)>\"'"
    with with_people(team, tmp_path, **{name: "viewer"}) as dashboard:
        visitor = Visitor(dashboard)
        assert "<img" not in visitor.sign_in(name, "wrong password").text
        visitor.sign_in(name)
        page = visitor.ask("/jobs").text
        assert "<img" not in page
        assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_the_page_of_the_form_keeps_no_password_and_no_foreign_name_of_a_host(guarded):
    assert guarded.ask("/sign-in", headers={"Host": "evil.example"}).status == 421
    assert guarded.ask("/jobs", headers={"Host": "evil.example"}).status == 421
    assert guarded.ask("/live", headers={"Host": "evil.example"}).status == 421
