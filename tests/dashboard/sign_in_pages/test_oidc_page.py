"""Signing in by a real provider of OpenID Connect: npm's oidc-provider, in a process of its own."""

import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from suite.missing import missing
from support.browser.chromium import free_port
from support.dashboard.dashboards import running
from support.waiting import LIMIT_S

from dlrover_nb.core.structs.decisions.people import AccessRole, Grant
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import oidc
from dlrover_nb.dashboard.sign_in_pages.oidc import MOST_OF_BROWSER
from dlrover_nb.dashboard.sign_in_pages.ways import way_of

VERSION = "9.5.1"
FOLDER = Path(__file__).parents[3] / "build" / f"oidc-provider-{VERSION}"
MODULE = FOLDER / "node_modules" / "oidc-provider" / "lib" / "index.js"
GROUPS = {"ads": (Grant(AccessRole.OPERATOR),)}


@pytest.fixture(scope="session")
def module():
    """Return the provider's module, installed once below build/; by npm."""
    if not MODULE.exists():
        if shutil.which("npm") is None:
            missing("npm")
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(FOLDER),
            f"oidc-provider@{VERSION}",
        ]
        FOLDER.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return MODULE


@contextmanager
def provided(module, port, dashboard):
    """Run the provider for a dashboard."""
    root = dashboard.url.rstrip("/")
    script = Path(__file__).with_name("oidc_provider.mjs")
    words = ["node", script, module, str(port), f"{root}/sign-in/back", f"{root}/sign-in"]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert any("listening" in line for line in node.stdout), "the provider did not start"
        yield
    finally:
        node.kill()
        node.wait(LIMIT_S)
        node.stdout.close()


@pytest.fixture
def guarded(team, tmp_path, monkeypatch):
    """Give a dashboard whose people come from a provider, and the port where that has to be."""
    port = free_port()
    monkeypatch.setattr(oidc, "TIMEOUT_S", LIMIT_S)
    (tmp_path / "secret").write_text("a secret of the tests\n")
    (tmp_path / "oidc.yaml").write_text(
        f"issuer: http://127.0.0.1:{port}\nclient_id: dlrover\nclient_secret_file: {tmp_path / 'secret'}\n"
        "scopes: [openid, groups]\n"
    )
    settings = ServeSettings(oidc=str(tmp_path / "oidc.yaml"), groups=GROUPS)
    way = way_of(settings, team)
    with running(team, way.sign_in, settings, way.patterns, forms_to=way.forms_to) as dashboard:
        yield dashboard, port
    way.close()


@pytest.fixture
def client(guarded):
    """Give a browser without a screen, which follows redirects."""
    with httpx.Client(follow_redirects=True, timeout=LIMIT_S, base_url=guarded[0].url) as client:
        yield client


def at_provider(client, name, wanted="/jobs"):
    """Begin a sign-in and answer the provider's questions but for the last; return the last form's address."""
    page = client.get(f"sign-in/go?next={wanted}")
    action = re.search(r'action="([^"]+)"', page.text)[1]
    page = client.post(action, data={"prompt": "login", "login": name, "password": "x"})
    return re.search(r'action="([^"]+)"', page.text)[1]


def answered(client, page, port):
    """Answer each form of the provider; return the page that this leads to."""
    while page.url.port == port:
        login = 'name="login"' in page.text
        data = {"prompt": "login", "login": "ada", "password": "x"} if login else {"prompt": "consent"}
        page = client.post(re.search(r'action="([^"]+)"', page.text)[1], data=data)
    return page


def signed_in(client, name, wanted="/jobs"):
    """Sign somebody in; return the page that this leads to."""
    return client.post(at_provider(client, name, wanted), data={"prompt": "consent"})


@pytest.mark.more
def test_the_provider_signs_people_in_with_their_groups(module, guarded, client):
    with provided(module, guarded[1], guarded[0]):
        page = client.get("jobs")
        assert str(page.url).endswith("/sign-in?next=%2Fjobs")
        assert f"127.0.0.1:{guarded[1]}" in page.text
        page = signed_in(client, "ada", "/jobs?cluster=sim")
        assert str(page.url) == f"{guarded[0].url}jobs?cluster=sim"
        assert ">ada<" in page.text
        assert ">operator<" in page.text


@pytest.mark.more
def test_who_is_in_no_group_may_see_nothing(module, guarded, client):
    with provided(module, guarded[1], guarded[0]):
        page = signed_in(client, "bob")
        assert ">no role here<" in page.text


@pytest.mark.more
def test_signing_out_leads_to_the_provider_and_ends_the_session(module, guarded, client):
    with provided(module, guarded[1], guarded[0]):
        page = signed_in(client, "ada")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)[1]
        answer = client.post("sign-out", data={"csrf": csrf}, follow_redirects=False)
        target = urlsplit(answer.headers["Location"])
        assert target.port == guarded[1]
        assert parse_qs(target.query)["post_logout_redirect_uri"] == [f"{guarded[0].url}sign-in"]
        assert f"form-action 'self' http://127.0.0.1:{guarded[1]};" in page.headers["Content-Security-Policy"]
        assert client.get(answer.headers["Location"]).status_code == 200
        assert "/sign-in" in str(client.get("jobs").url)


@pytest.mark.more
def test_keys_that_the_provider_has_changed_are_fetched_again(module, guarded, client):
    for _ in range(2):  # each start of the provider makes new keys
        with provided(module, guarded[1], guarded[0]):
            way = guarded[0].server.door.sign_in
            way.provider._keys_s -= 60.0  # as if time had passed
            client.cookies.clear()
            assert ">ada<" in signed_in(client, "ada").text


def back(client, at, *, cookies=True, **changed):
    """Bring the provider's answer back, with changes; return the status."""
    answer = client.post(at, data={"prompt": "consent"}, follow_redirects=False)
    while "/sign-in/back" not in (url := answer.headers["Location"]):
        answer = client.get(url, follow_redirects=False)
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    if not cookies:
        client.cookies.clear()
    sent = {**query, **changed}
    return client.get("sign-in/back", params=sent, follow_redirects=False), query


@pytest.mark.more
@pytest.mark.parametrize(
    "changed",
    [
        {"state": "forged"},
        {"code": "forged"},
        {"code": ""},
        {"iss": "http://evil.example"},
        {"error": "access_denied"},
    ],
)
def test_an_answer_that_was_changed_signs_nobody_in(module, guarded, client, changed):
    with provided(module, guarded[1], guarded[0]):
        answer, query = back(client, at_provider(client, "ada"), **changed)
        assert answer.status_code == 403
        assert "/sign-in" in str(client.get("jobs").url)
        if "state" not in changed:  # one answer ends a flow
            assert client.get("sign-in/back", params=query).status_code == 403


@pytest.mark.more
def test_the_answer_of_another_browser_signs_nobody_in(module, guarded, client):
    with provided(module, guarded[1], guarded[0]):
        answer, _ = back(client, at_provider(client, "ada"), cookies=False)
        assert answer.status_code == 403


@pytest.mark.more
def test_two_tabs_may_sign_in_at_once_and_nothing_stays_of_them(module, guarded, client):
    with provided(module, guarded[1], guarded[0]):
        begun = [client.get(f"sign-in/go?next={wanted}") for wanted in ("/jobs", "/history")]
        pages = [answered(client, page, guarded[1]) for page in begun]
        assert [page.url.path for page in pages] == ["/jobs", "/history"]
        assert not [name for name in client.cookies if "flow" in name]
        for _ in range(MOST_OF_BROWSER + 3):
            set_cookie = client.get("sign-in/go", follow_redirects=False).headers["Set-Cookie"]
        assert all(word in set_cookie for word in ("HttpOnly", "SameSite=Lax", "Max-Age=600"))
        assert len([name for name in client.cookies if "flow" in name]) == MOST_OF_BROWSER


def test_without_the_provider_people_are_told_so(guarded, client):
    answer = client.get("sign-in/go")
    assert answer.status_code == 503
    assert "does not answer" in answer.text


@pytest.mark.more
@pytest.mark.parametrize("wanted", ["https://evil.example", "//evil.example", "/%0d%0aSet-Cookie:a=b"])
def test_the_way_on_leads_to_no_other_host(module, guarded, client, wanted):
    with provided(module, guarded[1], guarded[0]):
        assert signed_in(client, "ada", wanted).url.host == "127.0.0.1"
        assert client.get("jobs").status_code == 200
