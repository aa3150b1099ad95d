"""Configurations that are of no use, servers that do not answer, credentials that change: one line each."""

from __future__ import annotations

import base64
import json
import logging
import shutil
import socket
import stat
import subprocess
import threading
import traceback
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from support.cases import for_each
from support.kubernetes.kubeconfigs import SECRET, a_kubeconfig
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client import http_transport, login
from dlrover_nb.core.backends.kubernetes.client.api import (
    Forbidden,
    Gone,
    Inadmissible,
    NotThere,
    OverQuota,
    PodAnswered,
    Unauthorized,
    Unreachable,
    connect_api,
)
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, NAMESPACE, POD


def refused(kubeconfig, context=None):
    """Return why a configuration is of no use; never with anything secret, never more than a line."""
    with pytest.raises(BackendError) as caught:
        connect_api(context, kubeconfig=kubeconfig)
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    return text


def test_no_kubeconfig_at_all(monkeypatch, tmp_path, words):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert refused(None) == words


@for_each(
    ("text", "why"),
    [
        ("", "expected clusters, users and contexts"),
        ("- just a list", "expected clusters, users and contexts"),
        (f"users:\n- name: u\n  user: {{token: {SECRET}", "no YAML at line"),
        (f"users:\n- user: {{token: {SECRET}}}\n", "expected clusters, users and contexts"),
        (f"users:\n- name: u\n  token: {SECRET}\n", "expected clusters, users and contexts"),
        (f"users: {{token: {SECRET}}}\n", "expected clusters, users and contexts"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path, text, why):
    path = tmp_path / "config"
    path.write_text(text)
    assert why in refused(str(path))


def test_a_context_that_is_not_there_names_those_that_are(tmp_path, words):
    path = a_kubeconfig(tmp_path / "config")
    assert refused(path, "there") == words


@for_each(
    ("change", "why"),
    [
        (lambda c: c.pop("current-context"), "names no current context; choose one of its contexts: here"),
        (lambda c: c["users"].clear(), "names the user u, which does not exist"),
        (lambda c: c["clusters"].clear(), "names the cluster c, which does not exist"),
        (lambda c: c["clusters"][0]["cluster"].clear(), "has no server; add its URL"),
        (
            lambda c: c["users"][0].update(user={"client-certificate": "/none/c"}),
            "File does not exist: /none/c",
        ),
        (
            lambda c: c["users"][0].update(user={"client-certificate-data": SECRET + "x"}),
            "context here gives no credentials",
        ),
    ],
)
def test_a_kubeconfig_with_a_hole_says_which(tmp_path, change, why):
    path = a_kubeconfig(tmp_path / "config", server="https://127.0.0.1:9")
    config = yaml.safe_load(Path(path).read_text())
    change(config)
    Path(path).write_text(yaml.safe_dump(config))
    assert why in refused(path)


def test_several_files_are_one_configuration(monkeypatch, tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    a_kubeconfig(first)
    other = yaml.safe_load(Path(a_kubeconfig(second, namespace="theirs")).read_text())
    other["contexts"][0]["name"] = "there"
    second.write_text(yaml.safe_dump(other))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:{tmp_path}/none")
    assert connect_api("there").namespace == "theirs"
    assert connect_api("here").namespace == "default"
    assert connect_api("there", "mine").namespace == "mine"


def test_nothing_secret_is_shown(tmp_path):
    api = connect_api(kubeconfig=a_kubeconfig(tmp_path / "config"))
    assert repr(api) == "Api(http://127.0.0.1:9, context=here, namespace=default)"
    assert SECRET not in repr(api._connection.login)


@pytest.mark.parametrize("bad", ["\n", "\0", "\u4e00"])
def test_a_token_that_no_request_can_carry_is_told_without_it(tmp_path, bad, error_words):
    api = connect_api(kubeconfig=a_kubeconfig(tmp_path / "config", user={"token": SECRET + bad + "x"}))
    with error_words(BackendError) as caught:
        api.get(POD, "p")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_plugin_that_fails_says_so_itself(tmp_path, caplog, words):
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", "echo no card >&2; exit 3"],
    }
    path = a_kubeconfig(tmp_path / "config", user={"exec": command})
    text = refused(path)
    assert text == words
    assert not caplog.records


# servers that do not answer


def unreachable(server, tmp_path, user=None, limit_s=20.0):
    api = connect_api(kubeconfig=a_kubeconfig(tmp_path / "config", server, user))
    with pytest.raises(Unreachable) as caught:
        api.with_short_timeout(limit_s).list(POD)
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    return text


def test_a_server_that_does_not_run(tmp_path, words):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = unreachable(f"http://127.0.0.1:{port}", tmp_path)
    assert text == words


def test_a_server_that_says_nothing(tmp_path, words):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        text = unreachable(f"http://127.0.0.1:{mute.getsockname()[1]}", tmp_path, limit_s=0.2)
    assert text == words


@pytest.fixture
def server(tmp_path):
    """Answer each request by the next of `answers`; what was asked is in `asked`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.asked.append((self.command, self.path, dict(self.headers)))
            code, headers, body = server.answers.pop(0)
            self.send_response(code)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as above

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.asked, server.answers = [], []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        server.path = tmp_path / "config"
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        a_kubeconfig(server.path, server.url)
        yield server
        server.shutdown()
        thread.join()


def status(code, reason="", message=""):
    doc = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return code, {"Content-Type": "application/json"}, json.dumps(doc).encode()


def objects(*docs):
    listing = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": list(docs)}
    return 200, {}, json.dumps(listing).encode()


def test_a_server_that_is_too_busy_is_asked_again_when_it_says(server):
    code, headers, body = status(429, "TooManyRequests")
    server.answers = [(code, headers | {"Retry-After": "0"}, body)] * 2 + [objects()]
    assert connect_api(kubeconfig=str(server.path)).list(POD).resource_version == "7"
    assert len(server.asked) == 3


def test_a_server_that_is_too_busy_for_long_is_not_waited_for(server, error_words):
    code, headers, body = status(429, "TooManyRequests", "too many")
    server.answers = [(code, headers | {"Retry-After": "3600"}, body)]
    with error_words(Unreachable):
        connect_api(kubeconfig=str(server.path)).list(POD)


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (status(500, "InternalError", "etcdserver: leader changed"), Unreachable, "now (500): etcdserver: leader"),
        (status(503, "ServiceUnavailable"), Unreachable, "now (503): ServiceUnavailable; try again later"),
        ((502, {}, b"<html>bad gateway</html>"), Unreachable, "now (502): <html>bad gateway</html>"),
        ((200, {}, b"<html>hello</html>"), Unreachable, "is this the URL of an API server"),
        (status(400, "BadRequest", "unable to parse"), Inadmissible, "(400): unable to parse"),
        (status(410, "Expired", "too old"), Gone, "too old; list again"),
        (status(403, "Forbidden", 'pods is forbidden: User "system:anonymous" cannot list resource'), Unauthorized, "no credentials"),
        (status(403, "Forbidden", r'pods is forbidden: User "AD\\ann" cannot list resource "pods"'), Forbidden, r"AD\\ann may not list pods"),
        (status(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: q, requested: pods=1'), OverQuota, "has no room"),
        (status(403, "Forbidden", 'pods "p" is forbidden: status unknown for quota: q, resources: pods'), OverQuota, "has no room"),
        (status(403, "Forbidden", "pods is forbidden: violates PodSecurity"), Inadmissible, "a policy of the cluster does not let us list pods"),
        (status(422, "Invalid", "x" * 5000 + "\n"), Inadmissible, "x" * 400),
    ],
)  # fmt: skip
def test_each_answer_means_one_thing(server, answer, error, why):
    server.answers = [answer]
    with pytest.raises(error, match=why.replace("(", r"\(").replace(")", r"\)")) as caught:
        connect_api(kubeconfig=str(server.path)).list(POD)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 800


def test_a_list_that_took_too_long_begins_again(server):
    first = {"metadata": {"resourceVersion": "1", "continue": "more"}, "items": [{"n": 1}]}
    server.answers = [
        (200, {}, json.dumps(first).encode()),
        status(410, "Expired"),
        objects({"n": 1}, {"n": 2}),
    ]
    assert connect_api(kubeconfig=str(server.path)).list(POD) == ([{"n": 1}, {"n": 2}], "7")


def test_a_create_that_met_another_one_at_the_quota_is_sent_again(server):
    conflict = status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas")
    server.answers = [conflict, conflict, (201, {}, b'{"metadata": {"name": "p"}}')]
    made = connect_api(kubeconfig=str(server.path)).create(POD, {"metadata": {"name": "p"}})
    assert made["metadata"]["name"] == "p"


def test_a_create_whose_answer_was_lost_is_not_sent_twice(server):
    server.answers = [(200, {"Content-Length": "999", "Connection": "close"}, b"{")] * 2
    with pytest.raises(Unreachable, match="broke off"):
        connect_api(kubeconfig=str(server.path)).create(POD, {"metadata": {"name": "p"}})
    assert len(server.asked) == 1


NO_WAY = b"Error trying to reach service: 'dial tcp 10.0.0.9:8080: connect: connection refused'"


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (
            (503, {}, NO_WAY),
            Unreachable,
            "pod p does not answer: Error trying to reach service: 'dial tcp",
        ),
        (
            status(500, "", NO_WAY.decode().lower()),
            Unreachable,
            "pod p does not answer: error trying",
        ),
        (status(404, "NotFound", 'pods "p" not found'), NotThere, 'pods "p" not found'),
        (
            status(403, "Forbidden", 'User "al" cannot create resource "pods/proxy"'),
            Forbidden,
            "al may not create",
        ),
        (status(400, "BadRequest", "address not allowed"), Unreachable, "pod p has no address yet"),
        ((401, {}, b"who are you"), PodAnswered, "pod p answered 401: who are you"),
        ((500, {}, b"\x00\xff"), PodAnswered, "pod p answered 500"),
        ((404, {}, b'{"kind": "mine"}'), PodAnswered, "pod p answered 404"),
    ],
)
def test_the_answer_of_a_pod_and_an_error_on_the_way_are_told_apart(server, answer, error, why):
    server.answers = [answer]
    with pytest.raises(error, match=why) as caught:
        connect_api(kubeconfig=str(server.path)).proxy("p", 8080, "/call", b"x")
    assert type(caught.value) is error
    if error is PodAnswered:
        assert (caught.value.status, caught.value.body) == (answer[0], answer[2])


def test_what_a_pod_answers_comes_as_it_is(server):
    body = bytes(range(256)) * 300
    server.answers = [(200, {"Content-Type": "application/octet-stream"}, body)]
    api = connect_api(kubeconfig=str(server.path), namespace="team")
    assert api.proxy("p", 8080, "call?x=1", body, {"X-Mine": "yes"}) == body
    method, path, headers = server.asked[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/team/pods/http:p:8080/proxy/call?x=1")
    assert headers["X-Mine"] == "yes"


def test_nothing_secret_is_logged(server, caplog):
    server.answers = [objects(), (200, {}, SECRET.encode()), (500, {}, b"no")]
    api = connect_api(kubeconfig=str(server.path))
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "urllib3")
    api.list(POD)
    api.proxy("p", 80, "/a", SECRET.encode(), {"X-Dlrover-Access": SECRET})
    with pytest.raises(PodAnswered) as caught:
        api.proxy("p", 80, "/b", SECRET.encode(), {"X-Dlrover-Access": SECRET})
    assert "/proxy/b" in caplog.text, "urllib3 logs what it asks"
    assert SECRET not in caplog.text + repr(caught.value)
    request = http_transport.Request(
        "GET", "/", caught.value.operation, (), SECRET.encode(), (("X", SECRET),)
    )
    assert SECRET not in repr(request)


def test_a_line_end_after_a_token_is_no_part_of_it(server):
    a_kubeconfig(server.path, server.url, user={"token": SECRET + "\n"})
    server.answers = [objects()]
    connect_api(kubeconfig=str(server.path)).list(POD)
    assert server.asked[0][2]["authorization"] == f"Bearer {SECRET}"


def test_who_acts_as_another_says_so(server):
    a_kubeconfig(server.path, server.url, user={"token": SECRET, "as": "ann", "as-groups": ["dev", "ops"]})
    server.answers = [objects()]
    api = connect_api(kubeconfig=str(server.path))
    api.list(POD)
    seen = server.asked[0][2]
    assert seen["Impersonate-User"] == "ann"
    assert seen["authorization"] == f"Bearer {SECRET}"


# credentials that change, on a real API server


def with_user(cluster, path, user):
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.more
@pytest.mark.kube
def test_a_token_that_is_not_known_is_told_and_a_new_one_in_the_file_is_taken(
    control_plane, tmp_path, error_words
):
    path = with_user(control_plane, tmp_path / "config", {"token": SECRET})
    api = connect_api(kubeconfig=path)
    with error_words(Unauthorized) as caught:
        api.list(NAMESPACE)
    assert SECRET not in str(caught.value)
    with_user(control_plane, tmp_path / "config", {"token": "admin-token"})
    assert api.list(NAMESPACE).items


@pytest.mark.more
@pytest.mark.kube
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is needed to make a certificate")
def test_a_certificate_that_has_expired_is_told(control_plane, tmp_path):
    certs, key, wish, made = (
        control_plane.run / "certs",
        *(str(tmp_path / part) for part in ("key", "csr", "crt")),
    )
    new = [
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/O=system:masters/CN=late",
        "-keyout",
        key,
    ]
    ends = ["-CA", f"{certs}/ca.crt", "-CAkey", f"{certs}/ca.key", "-set_serial", "7", "-days", "0"]
    for command in ([*new, "-out", wish], ["x509", "-req", "-in", wish, *ends, "-out", made]):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    user = {"client-certificate": made, "client-key": key}
    api = connect_api(kubeconfig=with_user(control_plane, tmp_path / "config", user))
    until(lambda: is_unknown(api), what="the end of the certificate")


def is_unknown(api):
    try:
        api.list(NAMESPACE)
    except Unauthorized as error:
        return "they may have expired" in str(error)
    return False


@pytest.mark.more
@pytest.mark.kube
def test_a_plugin_gives_credentials_and_is_asked_again_when_they_are_refused(control_plane, tmp_path):
    plugin, answer = tmp_path / "plugin", tmp_path / "answer"
    plugin.write_text(f"#!/bin/sh\ncat {answer}\necho x >> {tmp_path}/runs\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    version = "client.authentication.k8s.io/v1"
    gives = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "admin-token"}}
    answer.write_text(json.dumps(gives))
    api = connect_api(
        kubeconfig=with_user(
            control_plane, tmp_path / "config", {"exec": {"apiVersion": version, "command": str(plugin)}}
        )
    )
    assert api.list(NAMESPACE).items
    answer.write_text(json.dumps(gives | {"status": {"token": SECRET}}))
    assert api.list(NAMESPACE).items, "what it gave is kept while it is good"
    assert (tmp_path / "runs").read_text() == "x\n"
    api._connection.login = login.load_login(None, str(tmp_path / "config"))  # it has expired
    answer.write_text(json.dumps(gives))
    assert api.list(NAMESPACE).items
    assert (tmp_path / "runs").read_text() == "x\n" * 3


@pytest.mark.more
@pytest.mark.kube
def test_who_acts_as_another_may_what_the_other_may(control_plane, tmp_path):
    user = {"token": "admin-token", "as": "ann", "as-groups": ["dev", "ops"]}
    api = connect_api(kubeconfig=with_user(control_plane, tmp_path / "config", user))
    with pytest.raises(Forbidden) as caught:
        api.list(POD)
    assert caught.value.user == "ann"
    user["as-groups"].append("system:masters")
    assert connect_api(kubeconfig=with_user(control_plane, tmp_path / "config", user)).list(NAMESPACE).items


@pytest.mark.more
@pytest.mark.kube
def test_a_server_with_another_ones_certificate_is_not_trusted(control_plane, tmp_path):
    config = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    config["users"][0]["user"] = {"token": SECRET}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(
        Unreachable, match="is not trusted, or does not accept this client's certificate"
    ) as caught:
        connect_api(kubeconfig=str(path)).list(POD)
    assert "check the certificates of this context" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.fixture
def account(control_plane, namespace, tmp_path, monkeypatch):
    """Let this process be in a pod, as far as files and variables tell; return the namespace and the folder."""
    from kubernetes.config import incluster_config  # noqa: PLC0415 - only here

    place = namespace(control_plane)
    core = connect_api(kubeconfig=control_plane.kubeconfig, namespace=place)
    host, port = core.host.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    (tmp_path / "ca.crt").write_text((control_plane.run / "certs" / "ca.crt").read_text())
    (tmp_path / "namespace").write_text(place)
    monkeypatch.setattr(login, "_ACCOUNT", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return place, tmp_path


@pytest.mark.more
@pytest.mark.kube
def test_a_pod_asks_with_its_own_account_and_with_its_newest_token(account):
    place, folder = account
    (folder / "token").write_text(SECRET)
    api = connect_api()
    assert (api.namespace, api.context) == (place, "in-cluster")
    with pytest.raises(Unauthorized):
        api.list(CONFIG_MAP)
    (folder / "token").write_text("admin-token")
    assert api.list(CONFIG_MAP)


@pytest.mark.more
@pytest.mark.kube
def test_a_pod_without_an_account_says_what_is_missing(account):
    assert "this pod has no service account" in refused(None)


def test_a_certificate_that_is_none_is_told(tmp_path):
    junk = base64.b64encode(b"junk").decode()
    user = {"client-certificate-data": junk, "client-key-data": junk}
    with socket.create_server(("127.0.0.1", 0)) as mute, closing(mute):
        text = unreachable(f"https://127.0.0.1:{mute.getsockname()[1]}", tmp_path, user=user)
    assert "check" in text
