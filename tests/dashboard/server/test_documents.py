"""Panel's documents: each is of one person, whose websocket alone reaches it."""

import asyncio
import base64
import contextlib
import http.client
import json
import re
from types import SimpleNamespace

import pytest
from bokeh.server.connection import ServerConnection
from support.cases import for_each
from support.dashboard.dashboards import Visitor, people, with_people
from support.waiting import LIMIT_S, until
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClosedError, websocket_connect

from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.dashboard.handlers.documents import _end


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


@pytest.fixture
def vic(guarded):
    """Give vic, signed in."""
    visitor = Visitor(guarded)
    visitor.sign_in("vic")
    return visitor


def token_of(visitor):
    """Return the token in the page of a new document."""
    page = visitor.ask("/live?job=none")
    assert page.status == 200
    return re.search(r'"token":"([^"]+)"', page.text)[1]


def documents(dashboard):
    """Return the documents of a server as JSON, the newest last."""
    sessions = dashboard.server._server.get_sessions("/live")
    return [json.dumps(each.document.to_json(), default=str) for each in sessions]


def headers_of(visitor, origin=None, cookies=None):
    """Return the headers of a browser's request, whose page is of this server by default."""
    cookies = visitor.cookies if cookies is None else cookies
    told = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    if origin != "":
        told["Origin"] = origin or f"http://127.0.0.1:{visitor.dashboard.port}"
    return told


def opened(visitor, token, *, origin=None, cookies=None):
    """Open the websocket of a document and close it; return the status: 101, or that of a refusal."""
    connection = http.client.HTTPConnection("127.0.0.1", visitor.dashboard.port, timeout=LIMIT_S)
    asked = {
        **headers_of(visitor, origin, cookies),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(b"sixteen bytes...").decode(),
        "Sec-WebSocket-Protocol": f"bokeh, {token}",
    }
    connection.request("GET", "/live/ws", headers=asked)
    status = connection.getresponse().status
    connection.close()
    return status


def talked(visitor, told=(), meanwhile=lambda: None):
    """Open the websocket of a new document, send messages, and return the code that it is closed with."""
    request = HTTPRequest(
        f"ws://127.0.0.1:{visitor.dashboard.port}/live/ws",
        headers=headers_of(visitor),
        connect_timeout=LIMIT_S,
        request_timeout=LIMIT_S,
    )
    token = token_of(visitor)

    async def talk():
        socket = await websocket_connect(request, subprotocols=["bokeh", token])
        try:
            assert await socket.read_message() is not None
            with contextlib.suppress(
                WebSocketClosedError
            ):  # the server may end it while a message is on its way
                for each in told:
                    await socket.write_message(each, binary=isinstance(each, bytes))
            await asyncio.get_running_loop().run_in_executor(None, meanwhile)
            while await socket.read_message() is not None:
                pass
            return socket.close_code
        finally:
            socket.close()

    return asyncio.run(asyncio.wait_for(talk(), LIMIT_S))


def test_the_page_of_a_document_has_no_cookie_and_no_secret_in_it(ada):
    page = ada.ask("/live?job=none")
    assert ada.session
    assert ada.session not in page.text
    from bokeh.util.token import get_token_payload  # noqa: PLC0415 - seconds to import

    payload = get_token_payload(re.search(r'"token":"([^"]+)"', page.text)[1])
    assert payload["cookies"] == {}
    assert payload["headers"] == {}
    assert json.loads(payload["dlrover_person"])["name"] == "ada"


@pytest.mark.more
def test_a_document_shows_the_job_that_its_address_names(team, ada):
    team.clusters["sim"].core.submit(JobSpec("ads-ctr", n_epoch=100_000))
    for job, told in [("ads-ctr", "ads-ctr"), ("none", "no job")]:
        assert ada.ask(f"/live?job={job}").status == 200
        assert told in ada.dashboard.on_loop(lambda: documents(ada.dashboard)[-1])


def test_its_person_gets_the_websocket(ada):
    assert opened(ada, token_of(ada)) == 101


@pytest.mark.more
def test_nobody_else_gets_it(guarded, ada, vic):
    token = token_of(ada)
    assert opened(ada, token, cookies={}) == 401
    assert opened(vic, token) == 403
    assert opened(vic, token_of(vic)) == 101


@pytest.mark.more
@for_each("origin", ["http://evil.example", "null", "", "http://127.0.0.1:1", "https://localhost"])
def test_a_page_of_another_host_gets_no_websocket(ada, origin):
    assert opened(ada, token_of(ada), origin=origin) == 403


@pytest.mark.more
@for_each("token", ["x", "e30", "e30.e30", "é", "", "a.b.c", "bnVsbA.x"])
def test_a_forged_token_gets_no_websocket(ada, token):
    assert opened(ada, token.encode().decode("latin-1")) == 403


def test_a_token_that_was_changed_gets_no_websocket(ada):
    payload, _, signature = token_of(ada).partition(".")
    assert opened(ada, f"{payload[:-2]}AA.{signature}") == 403
    assert opened(ada, f"{payload}.{signature[::-1]}") == 403


def test_a_document_cannot_be_asked_for_by_its_id(ada, vic):
    token = token_of(ada)
    for query in (f"bokeh-token={token}", "bokeh-session-id=x"):
        assert vic.ask(f"/live?job=none&{query}").status == 403
    assert vic.ask("/live", headers={"Bokeh-Session-Id": "x"}).status == 403


@pytest.mark.more
@for_each(
    "told",
    [
        (b"\x00\xff",),
        ("{}", "{}", "{}"),
        ("[", "[", "["),
        ('{"msgtype": "x"}', "{}", "{}"),
        ("x" * 2_000_000,),
    ],
)
def test_a_malformed_or_oversize_message_ends_the_websocket_and_nothing_else(ada, told):
    talked(ada, told)
    assert ada.ask("/jobs").status == 200


def test_a_websocket_ends_when_its_person_is_removed(guarded, ada, tmp_path):
    assert talked(ada, meanwhile=lambda: people(tmp_path / "users.yaml", vic="viewer")) == 4401
    until(lambda: guarded.on_loop(lambda: len(guarded.server.door.open)) == 0, what="the end of all requests")


def test_a_server_ends_beside_a_websocket_that_is_closing():
    """Its connection has let go of its session, for which Bokeh's property asserts; the other ones must end too."""
    context, session = (
        SimpleNamespace(),
        SimpleNamespace(subscribe=lambda _: None, unsubscribe=lambda _: None),
    )
    connection = ServerConnection(None, SimpleNamespace(), context, session)
    connection.detach_session()
    codes = []
    _end(SimpleNamespace(connection=connection, ws_connection=object(), close=lambda *c: codes.append(c)))
    assert codes == [(4401, "signed out")]
