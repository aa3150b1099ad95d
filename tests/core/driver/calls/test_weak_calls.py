"""The master's real HTTP server answers a call only where its method and its token both give the right to it."""

from __future__ import annotations

import contextlib
import http.client
import threading

import pytest
from support.jobs import builders
from support.jobs.masters import Master
from support.waiting import LIMIT_S
from waitress.server import create_server

from dlrover_nb.core.client.link.calls import (
    ANSWERS,
    CALLS,
    AskModel,
    AskSnapshot,
    AskSummary,
    AskWeigh,
    Choose,
    Decide,
    Done,
    SnapshotReply,
    Stop,
    right_of,
)
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, CALL_PATH, SERVER, MasterService, call_url
from dlrover_nb.core.structs.decisions.call_rights import BY_TOKEN_ALONE, METHODS, CallRight, access_token
from dlrover_nb.core.structs.training.shards import FinishChoice, ShardAction, ShardChoice
from dlrover_nb.core.structs.views.summary import summarize

OF_EACH_RIGHT = [
    AskSnapshot(),
    AskSummary(),
    AskWeigh(()),
    Decide(builders.snapshot().decisions[0]),
    Choose(shard=ShardChoice(3, ShardAction.RETRY, "ada", "mended")),
    Choose(finish=FinishChoice("ada", "enough")),
    Stop("ada", "enough"),
]
TOKENS = {access_token("the-token", right): right for right in CallRight} | {"the-token": CallRight.END}


class Served(Master):
    """A master that counts what changed it."""

    n_change = 0

    def summary(self):
        return summarize(self.state)

    def decide(self, decision):
        self.n_change += 1
        return decision

    def choose(self, _choice):
        self.n_change += 1

    def stop(self, _by, _why):
        self.n_change += 1


class Server:
    """A service on a port of this machine."""

    def __init__(self, service):
        self._server = create_server(service, host="127.0.0.1", port=0, **SERVER)
        self.port = self._server.effective_port
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()

    def ask(self, call, method, token):
        """Return the status, the answer and the headers."""
        packed = CALLS.pack(call)
        at, body = (CALL_PATH, packed) if method == "POST" else (call_url(packed), None)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, at, body, {ACCESS_HEADER: token})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def close(self):
        with contextlib.suppress(OSError):  # it may be awake, and close before it is woken
            self._server.trigger.pull_trigger(self._server.close)
        self._thread.join(LIMIT_S)
        self._server.task_dispatcher.shutdown()


@pytest.fixture
def served():
    return Served()


@pytest.fixture
def server(served, request):
    service = MasterService("the-token", *getattr(request, "param", ()))
    service.serve(served)
    server = Server(service)
    yield server
    server.close()


def test_a_call_is_answered_where_method_and_token_both_give_its_right_and_nowhere_else(server, served):
    for call in OF_EACH_RIGHT:
        for method, by_method in METHODS.items():
            for token, by_token in TOKENS.items():
                may = min(by_method, by_token) >= right_of(call)
                n_before = served.n_change
                status, answer, _ = server.ask(call, method, token)
                assert (status == 200) is may, (call, method, by_token, status, answer)
                assert may or (status, served.n_change) == (403, n_before)


def test_a_refusal_says_what_was_expected_what_came_and_what_to_do(server):
    end, view = access_token("the-token", CallRight.END), access_token("the-token", CallRight.VIEW)
    _, told, _ = server.ask(Stop("ada", ""), "POST", end)
    assert told == b"a Stop needs the right to end, which a DELETE has, got a POST; use a newer dlrover-nb"
    _, told, _ = server.ask(Stop("ada", ""), "DELETE", view)
    assert told == b"a Stop needs the right to end, got the token to view; the job's Secret holds that to all"


def test_what_a_get_answers_is_kept_by_no_cache(server, served):
    status, answer, headers = server.ask(AskSnapshot(), "GET", access_token("the-token", CallRight.VIEW))
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert ANSWERS.unpack(answer) == SnapshotReply(served.state, ANSWERS.unpack(answer).tag)


def test_a_model_is_not_for_viewers(server):
    assert server.ask(AskModel(), "GET", "the-token")[0] == 403


@pytest.mark.parametrize("server", [(BY_TOKEN_ALONE,)], indirect=True)
def test_on_one_machine_the_token_alone_decides(server, served):
    for call in OF_EACH_RIGHT:
        assert server.ask(call, "POST", "the-token")[0] == 200
    assert served.n_change == 4
    assert server.ask(AskSnapshot(), "GET", "the-token")[0] == 405
    assert ANSWERS.unpack(server.ask(Stop("ada", ""), "POST", "the-token")[1]) == Done()
