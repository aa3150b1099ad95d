"""The names of services, as the DNS of a cluster answers for them: the test cluster has none.

Only what controllers of training jobs use: ``SERVICE.NAMESPACE.svc.cluster.local`` of a service without an address
of its own, and ``HOST.SERVICE...`` of one pod behind it. Answers come from the Endpoints that the cluster's own
controller keeps.
"""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.client.api import NotThere
from dlrover_nb.core.manifests.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.backends.kubernetes.client.api import Api

HOST = "10.213.7.1"  # this machine, as pods see it
DOMAIN = "cluster.local"
ENDPOINTS = Kind("Endpoints", "endpoints")
_A, _IN = 1, 1
_HEAD = struct.Struct("!6H")
_NO_SUCH_NAME = 3


def with_names(spec: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a pod's spec with the name server that a kubelet writes into pods where a cluster has DNS."""
    searches = [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN]
    found = {"nameservers": [HOST], "searches": searches, "options": [{"name": "ndots", "value": "5"}]}
    return {**spec, "dnsPolicy": "None", "dnsConfig": found}


@contextlib.contextmanager
def served_names(api: Api) -> Iterator[None]:
    """Answer for the names of a namespace."""
    with _Server((HOST, 53), _Handler) as server:
        server.api = api
        thread = threading.Thread(target=server.serve_forever, name="names", daemon=True)
        thread.start()
        yield
        server.shutdown()
        thread.join()


class _Server(socketserver.UDPServer):
    allow_reuse_address = True
    api: Api

    def addresses(self, name: str) -> list[str] | None:
        """Return the addresses of a name; None where there is none of that name."""
        inside, _, rest = name.partition(f".{self.api.namespace}.svc.{DOMAIN}")
        if rest or inside == name:
            return None
        host, _, service = inside.rpartition(".")
        try:
            subsets = self.api.get(ENDPOINTS, service).get("subsets") or []
        except NotThere:
            return None
        ready = [each for subset in subsets for each in subset.get("addresses") or ()]
        return [each["ip"] for each in ready if host in {"", each.get("hostname")}] or None


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer one question."""
        question, connection = self.request
        number, flags, *_ = _HEAD.unpack_from(question)
        name, end = _name(question, _HEAD.size)
        kind, _ = struct.unpack_from("!2H", question, end)
        found = self.server.addresses(name)
        ips = found if found and kind == _A else []
        code = _NO_SUCH_NAME if found is None else 0
        head = _HEAD.pack(number, 0x8580 | (flags & 0x0100) | code, 1, len(ips), 0, 0)
        # the name of each answer is that of the question, at byte 12; it is true for one second
        answers = b"".join(
            struct.pack("!3HIH4B", 0xC00C, _A, _IN, 1, 4, *map(int, ip.split("."))) for ip in ips
        )
        connection.sendto(head + question[_HEAD.size : end + 4] + answers, self.client_address)


def _name(packet: bytes, at: int) -> tuple[str, int]:
    """Return the name at a place of a packet, in small letters, and the place after it."""
    labels = []
    while size := packet[at]:
        labels.append(packet[at + 1 : at + 1 + size].decode().lower())
        at += 1 + size
    return ".".join(labels), at + 1
