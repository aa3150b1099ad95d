"""Kubeflow Trainer's status server, played by its source (pkg/statusserver, and the schema of TrainJobs): real HTTPS."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import subprocess
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/digits/status"
TOKEN = "header.claims.signature"


class StatusServer(ThreadingHTTPServer):
    """Keeps the accepted statuses; answers with `faults` first, one each."""

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), _Handler)
        self.statuses: list[dict[str, Any]] = []
        self.faults: list[int] = []
        self.token = TOKEN
        self.audience = ""  # of a token that the cluster signs, instead of `token`

    def allows(self, authorization: str) -> bool:
        if not self.audience:
            return authorization == f"Bearer {self.token}"
        claims = authorization.removeprefix("Bearer ").split(".")[1]
        return self.audience in json.loads(base64.urlsafe_b64decode(claims + "=="))["aud"]


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.faults:
            self._answer(code := self.server.faults.pop(0), _failure("Internal error", "InternalError", code))
        elif self.path != PATH:
            self._answer(404, _failure("Not found", "NotFound", 404))
        elif not self.server.allows(self.headers["Authorization"]):
            self._answer(403, _failure("Forbidden", "Forbidden", 403))
        elif len(body) > 1 << 16:
            self._answer(413, _failure("Payload too large", "RequestEntityTooLarge", 413))
        elif why := _invalid(told := json.loads(body)):
            self._answer(422, _failure(why, "Invalid", 422))
        else:
            self.server.statuses.append(told["trainerStatus"])
            self._answer(200, told)

    def _answer(self, code: int, told: object) -> None:
        body = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _failure(message: str, reason: str, code: int) -> dict[str, object]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def _invalid(told: dict[str, Any]) -> str:
    """Return what the API server would refuse of a TrainJob's status; empty: nothing."""
    status = told["trainerStatus"]
    if unknown := status.keys() - {
        "progressPercentage",
        "estimatedRemainingSeconds",
        "metrics",
        "lastUpdatedTime",
    }:
        return f"unknown: {sorted(unknown)}"
    if not re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", status.get("lastUpdatedTime", "")
    ):
        return "lastUpdatedTime is required when trainerStatus is present"
    datetime.fromisoformat(status["lastUpdatedTime"])
    for field, most in (("progressPercentage", 100), ("estimatedRemainingSeconds", (1 << 31) - 1)):
        if field in status and not (type(status[field]) is int and 0 <= status[field] <= most):
            return f"{field} must be an integer of 0 to {most}"
    metrics = status.get("metrics", [])
    texts = [text for metric in metrics for text in (metric["name"], metric["value"])]
    if len(metrics) > 256 or not all(isinstance(text, str) and 1 <= len(text) <= 64 for text in texts):
        return "metrics must be 256 at most, of 1 to 64 characters"
    return ""


@contextlib.contextmanager
def status_server(folder: Path, host: str = "127.0.0.1") -> Iterator[tuple[StatusServer, dict[str, str]]]:
    """Serve with a certificate of its own; give the server, and the variables that the controller sets."""
    key, certificate, token = folder / "tls.key", folder / "ca.crt", folder / "token"
    made = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=trainer", "-addext", f"subjectAltName=IP:{host}"]
    out = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *made, *named, *out], check=True, capture_output=True)
    token.write_text(f"{TOKEN}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = StatusServer(host)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"https://{host}:{server.server_port}{PATH}"
    try:
        yield (
            server,
            {
                "KUBEFLOW_TRAINER_SERVER_URL": url,
                "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(certificate),
                "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
            },
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
