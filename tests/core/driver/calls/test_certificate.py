"""HTTPS of a master: a certificate of the job's own, on the port that plain connections use too."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import stat
import threading
from contextlib import closing

import pytest
from support.waiting import until

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.calls import http_server
from dlrover_nb.core.driver.calls.certificate import FILE, certificate_of
from dlrover_nb.core.driver.calls.http_server import LOOPBACK, MOST_WAITING, ThreadedServer
from dlrover_nb.core.driver.calls.service import MasterService
from dlrover_nb.core.structs.training.reported import TRAINER_PATH

BODY = json.dumps({"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05Z", "progressPercentage": 7}})


@pytest.fixture
def served(tmp_path):
    """Serve the reports of a job, encrypted and plain; yield the port, the certificate and what was heard."""
    heard, service = [], MasterService("access")
    service.take_reports("token", heard.append)
    server, certificate = ThreadedServer(service), certificate_of(tmp_path, LOOPBACK, SystemClock())
    server.encryption = certificate.context
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, certificate.text, heard
    server.shutdown()
    thread.join()
    server.server_close()


def post(connection, token):
    with closing(connection):
        connection.request(
            "POST", f"{TRAINER_PATH}?node=worker-0", BODY, {"Authorization": f"Bearer {token}"}
        )
        return connection.getresponse().status


def https(port, trusted):
    context = ssl.create_default_context(cadata=trusted)
    return http.client.HTTPSConnection(LOOPBACK, port, timeout=60, context=context)


def test_reports_are_taken_encrypted_and_plain_with_the_token_alone(served):
    port, trusted, heard = served
    assert post(https(port, trusted), "token") == 200
    assert post(http.client.HTTPConnection(LOOPBACK, port, timeout=60), "token") == 200
    assert [(each.node, each.status.percentage) for each in heard] == [("worker-0", 7)] * 2
    assert post(https(port, trusted), "another") == 403
    assert len(heard) == 2


def test_a_client_that_trusts_another_certificate_sends_nothing_and_others_go_on(served, tmp_path):
    port, trusted, heard = served
    other = certificate_of(tmp_path.parent, LOOPBACK, SystemClock())
    with pytest.raises(ssl.SSLCertVerificationError):
        post(https(port, other.text), "token")
    assert not heard
    assert post(https(port, trusted), "token") == 200


def test_a_certificate_is_of_one_address_kept_for_the_user_alone_and_made_anew_for_another(tmp_path):
    first = certificate_of(tmp_path, LOOPBACK, SystemClock())
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert "PRIVATE KEY" not in first.text
    assert certificate_of(tmp_path, LOOPBACK, SystemClock()).text == first.text
    for address in ("10.0.0.7", "fd00::7"):
        other = certificate_of(tmp_path, address, SystemClock())
        assert other.text != first.text
        assert certificate_of(tmp_path, address, SystemClock()).text == other.text


@pytest.mark.parametrize("begins", [b"", b"G", b"\x16", b"POST / HTTP/1.1\r\nA: b\r\n"])
def test_many_connections_that_ask_nothing_hold_few_threads_and_nobody_up(
    served, begins, caplog, monkeypatch
):
    monkeypatch.setattr(http_server, "REQUEST_LIMIT_S", 3600.0)  # they end by their number alone
    monkeypatch.setattr(http_server._Handler, "timeout", 3600.0)
    port, trusted, heard = served
    caplog.set_level("INFO")
    before, idle = threading.active_count(), []
    for _ in range(300):
        idle.append(socket.create_connection((LOOPBACK, port), timeout=60))
        idle[-1].send(begins)
    assert post(http.client.HTTPConnection(LOOPBACK, port, timeout=60), "token") == 200
    assert post(https(port, trusted), "token") == 200
    until(lambda: threading.active_count() <= before + MOST_WAITING)
    assert len(heard) == 2
    for each in idle:
        each.close()
    until(lambda: threading.active_count() == before)
    assert len(caplog.records) <= 1


def test_without_a_certificate_a_handshake_is_refused(tmp_path):
    server = ThreadedServer(MasterService("access"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    trusted = certificate_of(tmp_path, LOOPBACK, SystemClock()).text
    with pytest.raises((ssl.SSLError, ConnectionError)):
        post(https(server.server_port, trusted), "token")
    server.shutdown()
    thread.join()
    server.server_close()
