"""A program in a real pod, asked through the API server; and what it wrote."""

import pytest
from support.kubernetes.kube import host_files
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import (
    Inadmissible,
    NotThere,
    PodAnswered,
    Unreachable,
    connect_api,
)
from dlrover_nb.core.manifests.kinds import POD

pytestmark = [pytest.mark.kube, pytest.mark.pods]

ECHO = """
import http.server, sys
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        seen = f"{self.path} {self.headers.get('X-Mine')} {self.headers.get('Authorization')}".encode()
        self.send_response(418 if self.path == "/no" else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(seen) + 1 + len(body)))
        self.end_headers()
        self.wfile.write(seen + b"\\n" + body)
print("one"); print("two \xfc", flush=True)
http.server.HTTPServer(("", 8080), Echo).serve_forever()
"""


def a_pod(name):
    files = host_files()
    places = [volume["mount"] for volume in files["volumes"]]
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "c",
                    "image": files["image"],
                    "imagePullPolicy": "Never",
                    "command": [files["python"], "-u", "-c", ECHO],
                    "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
                    "volumeMounts": [
                        {"name": f"v{n}", "mountPath": place, "readOnly": True}
                        for n, place in enumerate(places)
                    ],
                }
            ],
            "volumes": [{"name": f"v{n}", "hostPath": {"path": place}} for n, place in enumerate(places)],
        },
    }


@pytest.mark.more
def test_a_program_in_a_pod_is_asked_and_its_log_read(nodes, namespace):
    api = connect_api(kubeconfig=nodes.kubeconfig, namespace=namespace(nodes))
    api.create(POD, a_pod("echo"))
    until(lambda: "two \xfc" in list_log(api), what="the pod's first lines")
    body = bytes(range(256)) * 2000
    answer = until(lambda: asked(api, 8080, "/yes?a=1", body))
    head, _, echo = answer.partition(b"\n")
    assert head == b"/yes?a=1 me None", "its own headers pass, credentials do not"
    assert echo == body
    refusal = until(lambda: asked(api, 8080, "/no", b"x"))
    assert isinstance(refusal, PodAnswered)
    assert "pod echo answered 418" in str(refusal)
    assert refusal.body.endswith(b"\nx")
    with pytest.raises(Unreachable, match=r"pod echo does not answer: "):
        api.proxy("echo", 8081, "/", b"")
    with pytest.raises(NotThere):
        api.proxy("nobody", 8080, "/", b"")
    assert list_log(api)[:2] == ["one", "two \xfc"]
    assert next(iter(api.log("echo", follow=True, since_s=600))) == "one"


def asked(api, port, path, body):
    """Return what the pod said; None where the way to it broke off, as it does now and then on a busy machine."""
    try:
        return api.proxy("echo", port, path, body, {"X-Mine": "me"})
    except PodAnswered as answer:
        return answer
    except Unreachable:
        return None


def list_log(api):
    try:
        return list(api.log("echo"))
    except (Inadmissible, Unreachable):  # it has no container, or no machine, yet
        return []
