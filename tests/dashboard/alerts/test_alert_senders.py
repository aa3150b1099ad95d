"""What carries alerts out, against receivers on loopback: signed, patient, and silent about secrets."""

from __future__ import annotations

import hmac
import json
import logging
import ssl
import subprocess
import threading

import pytest
from support.cases import for_each
from support.dashboard.receivers import Receiver
from support.waiting import LIMIT_S, until

from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind
from dlrover_nb.dashboard.alerts.outbox import Outbox
from dlrover_nb.dashboard.alerts.senders import SIGNATURE, Apprise, Webhook, signature

ABOUT = AboutJob("kubernetes://prod/ads", "train", "ads", "ada")
ALERT = Alert(ABOUT, AlertKind.PROPOSAL, 100.0, "p2 has waited for 30 min", "p2", "abc-1")
SECRET = "hush-hush"


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def webhook(receiver, **fields):
    return Webhook(
        f"http://{receiver.address}/hook/s3cret-path",
        SECRET,
        "https://jobs.example/",
        lambda: 1234.0,
        **{"timeout_s": LIMIT_S} | fields,
    )


def test_a_webhook_gets_the_alert_signed_with_a_link_to_where_it_is_answered(receiver):
    webhook(receiver).send(ALERT)
    ((path, headers, body),) = receiver.calls
    assert path == "/hook/s3cret-path"
    told = json.loads(body)
    assert (told["event"], told["kind"], told["job"]) == ("begun", "proposal waits", "train")
    assert told["link"] == "https://jobs.example/approve/kubernetes%3A%2F%2Fprod%2Fads~train~p2"
    at_s, digest = headers[SIGNATURE].removeprefix("t=").split(",v1=")
    assert at_s == "1234"
    assert hmac.new(SECRET.encode(), b"1234." + body, "sha256").hexdigest() == digest


def test_a_changed_body_or_time_changes_the_signature():
    assert (
        len(
            {
                signature(SECRET, 1.0, b"a"),
                signature(SECRET, 2.0, b"a"),
                signature(SECRET, 1.0, b"b"),
                signature("x", 1.0, b"a"),
            }
        )
        == 4
    )


def test_a_redirect_is_not_followed(receiver):
    receiver.statuses = [302]
    with pytest.raises(BackendError, match="answered with 302"):
        webhook(receiver).send(ALERT)
    assert [path for path, _, _ in receiver.calls] == ["/hook/s3cret-path"]


@for_each("url", ["http://jobs.example/hook", "ftp://jobs.example", "file:///etc/passwd", "jobs.example"])
def test_a_webhook_is_never_sent_in_the_clear_nor_to_a_file(url):
    with pytest.raises(InvalidValueError, match="https"):
        Webhook(url, SECRET, "", lambda: 0.0)


@pytest.mark.more
def test_a_certificate_that_nobody_vouches_for_is_refused(receiver, tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
    with pytest.raises(BackendError, match="cannot be reached"):
        Webhook(f"https://localhost:{receiver.server.server_port}/", SECRET, "", lambda: 0.0).send(ALERT)
    assert receiver.calls == []


def test_an_alert_is_sent_again_until_it_is_taken(receiver):
    receiver.statuses = [500, 503]
    outbox = Outbox(webhook(receiver), attempts_after_s=(0.0, 0.0, 0.0, 0.0))
    outbox.put(ALERT)
    until(lambda: len(receiver.calls) == 3, "the third attempt")
    outbox.close()
    assert len({body for _, _, body in receiver.calls}) == 1


class Blocked:
    """A sender that waits until it is let go."""

    name = "a slow receiver"

    def __init__(self):
        self.let_go, self.sent = threading.Event(), []

    def send(self, alert):
        self.let_go.wait()
        self.sent.append(alert.subject)


def test_a_receiver_that_hangs_holds_nobody_up_and_the_oldest_alerts_are_dropped(caplog):
    slow = Blocked()
    outbox = Outbox(slow, most=2)
    outbox.put(ALERT)
    until(lambda: not outbox._waiting, "the first to be taken")
    for i in range(5):
        outbox.put(Alert(ABOUT, AlertKind.PROPOSAL, 0.0, "", f"p{i}"))
    slow.let_go.set()
    until(lambda: len(slow.sent) == 3, "the rest")
    outbox.close()
    assert slow.sent == ["p2", "p3", "p4"]
    assert caplog.text.count("too slow") == 3


def test_apprise_carries_it_and_no_log_holds_what_its_url_holds(receiver, caplog):
    caplog.set_level(logging.DEBUG)
    url = f"json://user:pa55word@{receiver.address}/tok3n"
    sender = Apprise(1, url, "https://jobs.example")
    outbox = Outbox(sender, attempts_after_s=(0.0,))
    outbox.put(ALERT)
    until(lambda: receiver.calls, "the call")
    receiver.statuses = [500]
    outbox.put(ALERT)
    until(lambda: "could not be told" in caplog.text, "the failure")
    outbox.close()
    ((_, _, body), *_) = receiver.calls
    assert "https://jobs.example/approve/" in json.loads(body)["message"]
    told = caplog.text + repr(sender) + sender.name + repr(webhook(receiver)) + webhook(receiver).name
    for secret in ("pa55word", "tok3n", "s3cret-path", SECRET):
        assert secret not in told


@pytest.mark.parametrize("url", ["nonsense://pa55word", "pa55word", "slack://pa55word", "mailto://pa55word"])
def test_a_url_that_apprise_does_not_know_is_refused_without_being_shown(url, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(InvalidValueError) as refused:
        Apprise(2, url, "")
    assert "pa55word" not in caplog.text
    assert "pa55word" not in str(refused.value)
    assert "URL 2" in str(refused.value)
