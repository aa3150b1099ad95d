"""A played API server of Kubernetes 1.33 with its kubelet, as far as a backend that resizes pods sees them.

It answers over HTTP: discovery, list, watch, create, delete, and the patch of ``pods/resize``. Answers and conditions have
the form that is documented for 1.33 to 1.35. No such server can run here.
"""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMESPACE = "team"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
USER = f"system:serviceaccount:{NAMESPACE}:conform-master"
DEFERRED = "Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000"
INFEASIBLE = "Node didn't have enough capacity: cpu, requested: 500, capacity: 400"
NO_RIGHT = 'cannot patch resource "pods/resize" in API group "" in the namespace "team"'
CHANGED = "the object has been modified; please apply your changes to the latest version and try again"
NO_LESS = "memory limits cannot be decreased unless resizePolicy is RestartContainer"
REFUSALS = {
    403: ("Forbidden", f'pods "x" is forbidden: User "{USER}" {NO_RIGHT}'),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", f'Operation cannot be fulfilled on pods "x": {CHANGED}'),
    422: ("Invalid", f'Pod "x" is invalid: spec.containers[0].resources.limits: Forbidden: {NO_LESS}'),
}
QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: limits.cpu=500m, used: limits.cpu=4, limited: limits.cpu=4'


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return head | {"message": message, "reason": reason, "code": code}


class Server:
    """The server; `refuses` and `pends` say what becomes of patches from now on.

    `refuses`: codes of the next answers. `pends`: reason and message of what the kubelet says of a request; None: it
    is done. `cannot_hold`: pods whose machines have less than is asked for. `puts_off`: the kubelet accepts a request and does not come to its end.
    """

    def __init__(self, folder: Path, *, serves_resize: bool = True, is_upset: bool = False) -> None:
        self.serves_resize = serves_resize
        self.refuses: list[tuple[int, str, str]] = []
        self.pends: tuple[str, str] | None = None
        self.puts_off: tuple[str, str] | None = None
        self.cannot_hold: set[str] = set()
        self.is_upset = is_upset
        self.pods: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.asked: list[tuple[str, str]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.changed, self.is_closed = threading.Condition(), False
        handler = type("Played", (_Handler,), {"played": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self._http.server_port)))

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    # the store

    def put(self, pod: dict[str, Any], kind: str = "MODIFIED") -> dict[str, Any]:
        with self.changed:
            number = len(self.events) + 1
            pod["metadata"]["resourceVersion"] = str(number)
            self.events.append((number, kind, copy.deepcopy(pod)))
            if kind == "DELETED":
                self.pods.pop(pod["metadata"]["name"], None)
            else:
                self.pods[pod["metadata"]["name"]] = pod
            self.changed.notify_all()
        return pod

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Store a pod, which runs at once."""
        pod["metadata"] |= {"uid": f"u{len(self.events)}", "namespace": NAMESPACE, "generation": 1}
        pod["spec"]["nodeName"] = "node1"
        names = [each["name"] for each in pod["spec"]["containers"]]
        states = [{"name": name, "state": {"running": {}}, "restartCount": 0} for name in names]
        pod["status"] = {"phase": "Running", "containerStatuses": states}
        _give(pod)
        return self.put(pod, "ADDED")

    def resize(self, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        """Change what a pod asks for; then the kubelet acts."""
        pod = copy.deepcopy(self.pods[name])
        wanted = {each["name"]: each["resources"] for each in patch["spec"]["containers"]}
        for container in pod["spec"]["containers"]:
            container["resources"] |= wanted.get(container["name"], {})
        pod["metadata"]["generation"] += 1
        answer = copy.deepcopy(self.put(pod))
        self.let_kubelet_act(name)
        return answer

    def let_kubelet_act(self, name: str) -> None:
        """Accept what a pod asks for, do it, or say why not."""
        pod = copy.deepcopy(self.pods[name])
        pends = ("Infeasible", INFEASIBLE) if name in self.cannot_hold else self.pends
        if pends is not None:
            self.put(_with(pod, "PodResizePending", *pends))
            return
        self.put(_with(pod, "PodResizeInProgress", *(self.puts_off or ("", ""))))
        if self.puts_off is None:
            pod = _with(copy.deepcopy(pod), "", "", "")
            _give(pod)
            self.put(pod)

    def since(self, version: int) -> Iterator[bytes]:
        """Yield events as they come, until the server is closed."""
        while (news := self._next(version)) is not None:
            for number, kind, pod in news:
                yield json.dumps({"type": kind, "object": pod}).encode() + b"\n"
                version = number

    def _next(self, version: int) -> list[tuple[int, str, dict[str, Any]]] | None:
        with self.changed:
            self.changed.wait_for(lambda: self.is_closed or len(self.events) > version)
            return None if self.is_closed else self.events[version:]


def _with(pod: dict[str, Any], kind: str, reason: str, message: str) -> dict[str, Any]:
    """Return a pod with one condition about its size, or with none."""
    condition = {"type": kind, "status": "True", "observedGeneration": pod["metadata"]["generation"]}
    condition |= {"reason": reason, "message": message} if reason else {}
    pod["status"]["conditions"] = [condition] if kind else []
    return pod


def _give(pod: dict[str, Any]) -> None:
    """Let the containers have what they ask for; requests of CPU are told as shares say them, a little off."""
    for container, state in zip(pod["spec"]["containers"], pod["status"]["containerStatuses"], strict=True):
        asked = container.get("resources", {})
        state["allocatedResources"] = dict(asked.get("requests", {}))
        state["resources"] = copy.deepcopy(asked)
        if "requests" in asked:
            state["resources"]["requests"]["cpu"] = "251m"


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "played",
        "clusters": [{"name": "played", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "played", "user": {"token": "t"}}],
        "contexts": [
            {"name": "played", "context": {"cluster": "played", "user": "played", "namespace": NAMESPACE}}
        ],
    }


class _Handler(BaseHTTPRequestHandler):
    played: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.played.asked.append(("GET", url.path))
        query = parse_qs(url.query)
        if url.path == "/api/v1" and self.played.is_upset:
            self._answer(failure(500, "InternalError", "etcdserver: request timed out"), 500)
        elif url.path == "/api/v1":
            names = ["pods", *["pods/resize"] * self.played.serves_resize]
            self._answer(
                {"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": n} for n in names]}
            )
        elif url.path != PODS:
            self._answer(
                failure(403, "Forbidden", f'User "{USER}" cannot list resource "x" in API group ""'), 403
            )
        elif "watch" in query:
            self._stream(int(query["resourceVersion"][0]))
        else:
            with self.played.changed:
                version = str(len(self.played.events))
                items = copy.deepcopy(list(self.played.pods.values()))
            self._answer({"kind": "PodList", "metadata": {"resourceVersion": version}, "items": items})

    def do_POST(self) -> None:
        self._answer(self.played.create(self._body()), 201)

    def do_DELETE(self) -> None:
        self._body()
        pod = self.played.pods.get(self.path.rpartition("/")[2])
        if pod is not None:
            self.played.put(pod, "DELETED")
        self._answer({"kind": "Status", "status": "Success"})

    def do_PATCH(self) -> None:
        name, _, subresource = self.path.removeprefix(f"{PODS}/").partition("/")
        patch = self._body()
        self.played.asked.append(("PATCH", self.path))
        if subresource != "resize":
            self._answer(self.played.pods[name])  # the master's endpoint, which nobody reads here
            return
        self.played.patches.append((self.headers["Content-Type"], patch))
        if self.played.refuses:
            code, reason, message = self.played.refuses.pop(0)
            self._answer(failure(code, reason, message), code)
        else:
            self._answer(self.played.resize(name, patch))

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(
            self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
        )
        return body

    def _answer(self, doc: dict[str, Any], code: int = 200) -> None:
        body = json.dumps(doc).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, version: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in self.played.since(version):
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return  # the client has closed its watch
