"""The protocol of Kubeflow Trainer on the wire, and its receiver over real HTTP."""

import contextlib
import http.client
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.driver.external_pods_double import close_server
from waitress.server import create_server

from dlrover_nb.core.client.trainer.status_format import read_status, write_status
from dlrover_nb.core.driver.calls.service import SERVER, MasterService
from dlrover_nb.core.driver.calls.trainer_reports import MOST_BYTES
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.structs.training.reported import MOST_S, TRAINER_PATH, TrainerReport, TrainerStatus

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=64)
statuses = st.builds(
    TrainerStatus,
    st.integers(0, 4 * 10**9).map(float),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(0, MOST_S),
    st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
)


@pytest.mark.more
@given(st.none() | statuses)
def test_a_status_is_read_as_it_was_written(status):
    assert read_status(write_status(status)) == status


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_without_a_status(body):
    status = None
    with contextlib.suppress(WireError):
        status = read_status(body)
    assert status is None, "80 random bytes name no time"


def body_of(**fields):
    return json.dumps({"trainerStatus": {"lastUpdatedTime": "2026-01-01T00:00:00Z"} | fields}).encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "got something else"),
        (b"[]", "got something else"),
        (b'{"trainerStatus": {}}', "lastUpdatedTime"),
        (body_of(lastUpdatedTime="yesterday"), "lastUpdatedTime"),
        (body_of(lastUpdatedTime="2026-01-01T00:00:00"), "lastUpdatedTime"),
        (body_of(lastUpdatedTime="0001-01-01T00:00:00+23:59"), "out of range"),
        (body_of(lastUpdatedTime="9999-12-31T23:59:59-23:59"), "out of range"),
        (body_of(progressPercentage=101), "0 to 100, got 101"),
        (body_of(progressPercentage=45.5), "progressPercentage"),
        (body_of(progressPercentage="45"), "progressPercentage"),
        (body_of(estimatedRemainingSeconds=-1), "estimatedRemainingSeconds"),
        (body_of(metrics=[{"name": "loss"}]), "value"),
        (body_of(metrics=[{"name": "loss", "value": 0.5}]), "value"),
        (body_of(metrics=[{"name": "", "value": "1"}]), "name of a metric"),
    ],
)
def test_what_a_trainjob_cannot_hold_is_refused_by_its_field(body, words):
    with pytest.raises(WireError, match=words):
        read_status(body)


def test_what_transformers_and_the_sdk_send_is_read():
    sent = body_of(
        lastUpdatedTime="2026-01-01T01:00:00.123456+01:00",
        progressPercentage=45,
        estimatedRemainingSeconds=3600,
        metrics=[{"name": "loss", "value": "0.2347"}, {"name": "current_step", "value": "90"}],
        stage="new",
    )
    told = read_status(sent)
    assert told.at_s == pytest.approx(1767225600.123456)
    assert (told.percentage, told.remaining_s, told.number("loss")) == (45, 3600, 0.2347)
    assert read_status(b'{"trainerStatus": null}') is None
    assert read_status(body_of(metrics=None)).metrics == ()


@pytest.fixture
def heard():
    return []


@pytest.fixture
def port(heard):
    service = MasterService("access")
    service.take_reports("t", heard.append)
    server = create_server(service, host="127.0.0.1", port=0, **SERVER)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.effective_port
    close_server(server, thread)


def send(port, body, *, token="Bearer t", method="POST", query="?node=worker-1"):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, TRAINER_PATH + query, body, {"Authorization": token})
    response = connection.getresponse()
    told = json.loads(response.read())
    assert response.getheader("Content-Type") == "application/json"
    connection.close()
    return response.status, told


def test_a_status_is_heard_and_answered_as_it_was_understood(port, heard):
    body = body_of(progressPercentage=45, stage="new")
    assert send(port, body) == (200, json.loads(body_of(progressPercentage=45)))
    assert heard == [TrainerReport("worker-1", TrainerStatus(1767225600.0, 45))]


def test_an_update_without_a_status_changes_nothing(port, heard):
    assert send(port, b"{}") == (200, {})
    assert heard == []


def refused(code, reason):
    return {"metadata": {}, "status": "Failure", "reason": reason, "code": code}


@pytest.mark.parametrize("token", ["", "t", "Bearer", "Bearer T", "Bearer access", "bearer t"])
def test_only_programs_of_the_job_may_report(port, heard, token, words):
    status, told = send(port, body_of(), token=token)
    assert (status, told.pop("message")) == (403, words)
    assert told == refused(403, "Forbidden")
    assert heard == []


@pytest.mark.parametrize(
    ("body", "method", "code", "reason"),
    [
        (b"{", "POST", 422, "Invalid"),
        (body_of(progressPercentage=101), "POST", 422, "Invalid"),
        (b" " * (MOST_BYTES + 1), "POST", 413, "RequestEntityTooLarge"),
        (None, "GET", 404, "NotFound"),
    ],
    ids=["no JSON", "no percentage", "too large", "no POST"],
)
def test_a_refusal_is_a_status_of_kubernetes(port, heard, body, method, code, reason):
    status, told = send(port, body, method=method)
    assert (status, told.pop("message") != "") == (code, True)
    assert told == refused(code, reason)
    assert heard == []
