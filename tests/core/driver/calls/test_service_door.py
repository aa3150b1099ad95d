"""The HTTP of services for programs: who may ask, what is no call, and what is answered after the end."""

import http.client
import json
import threading

import pytest
from support.driver.external_pods_double import close_server
from support.virtual_time import VirtualTime, as_shipped
from waitress.server import create_server

from dlrover_nb.core.driver.calls.service import SERVER, SERVICE_PATH, MasterService
from dlrover_nb.core.driver.calls.service_queue import ServiceQueue
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.wire.services import CallNoted

CALLER = {"node": "worker-0", "slot": "0", "program": "1-ab"}


@pytest.fixture
def queue():
    return ServiceQueue()


@pytest.fixture
def port(queue):
    service = MasterService("access")
    service.take_calls("t", queue)
    server = create_server(service, host="127.0.0.1", port=0, **SERVER)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.effective_port
    close_server(server, thread)


def ask(port, body, *, token="t", method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, SERVICE_PATH, body, {"X-Dlrover-Report": token})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def state(**caller):
    return json.dumps(["state", {"caller": CALLER | caller}])


def test_a_call_is_answered_by_the_loop(port, queue):
    def loop():
        ((ticket, call),) = queue.take()
        assert call.caller.place == "worker-0/0"
        queue.answer(ticket, CallNoted())
        queue.answer(ticket + 1, CallNoted())  # nobody waits for it

    queue.wake = loop
    assert ask(port, state()) == (200, '["noted",{"stale":[]}]\n')


@pytest.mark.parametrize("token", ["", "access", "T"])
def test_only_programs_of_the_job_may_ask(port, token):
    status, text = ask(port, state(), token=token)
    assert status == 401
    assert "X-Dlrover-Report" in text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "not one of"),
        (
            '["moon", {}]',
            "not one of ['evaluated', 'give back', 'model kept', 'reached', 'restore', 'rows', 'shard', 'state', 'world']",
        ),
        ('["state", {}]', "missing required field `caller`"),
        (state(node="worker 0"), "node must be 1-128 letters"),
        (state(program="1/2"), "program must be 1-128 letters"),
        (json.dumps(["state", {"caller": CALLER, "done": [{"shard": 1, "grant": 1, "n_row": -1}]}]), "n_row"),
    ],
)
def test_what_is_no_call_is_refused_in_words(port, body, words):
    status, text = ask(port, body)
    assert status == 400
    assert words in text


def test_a_call_is_a_post_of_limited_size(port):
    assert ask(port, None, method="GET")[0] == 400
    assert ask(port, " " * ((1 << 20) + 1))[0] == 400


def test_after_the_end_of_the_job_nothing_is_answered(port, queue):
    queue.wake = queue.close  # one that waits is let go
    assert ask(port, state()) == (503, "the job has ended")
    assert ask(port, state()) == (503, "the job has ended")


def test_a_loop_that_does_not_answer_is_told(port, monkeypatch):
    monkeypatch.setattr("dlrover_nb.core.driver.calls.service_queue.ANSWER_LIMIT_S", 0.01)
    status, text = ask(port, state())
    assert status == 503
    assert "ask again" in text


def answered_after(due_s):
    time = VirtualTime()
    module = as_shipped("dlrover_nb.core.driver.calls.service_queue", time)
    module.Future = time.futures()
    queue = module.ServiceQueue()
    time.at(due_s, lambda: [queue.answer(ticket, CallNoted()) for ticket, _ in queue.take()])
    return queue.ask(state().encode())


def test_a_program_waits_for_its_master_as_long_as_the_limit_says_and_no_longer(error_words):
    assert answered_after(30.0) == b'["noted",{"stale":[]}]\n'
    with error_words(BackendError):
        answered_after(30.1)
