"""Parts of the controllers that tests play: definitions, services and pods on a real API server.

No controller of these kinds can run on the test cluster. What is played is their documented behaviour, in our own
words: which pods they make of a resource, with which labels, names and variables, when they call it ended, and what
they clear away then. The resource is read from the API server, so that what its definition drops is not played.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import yaml

from dlrover_nb.core.backends.kubernetes.client.api import Conflict, NotThere
from dlrover_nb.core.manifests.kinds import CRD, POD, SERVICE
from support.jobs.exports import CRDS, readable
from support.kubernetes.cluster_names import with_names
from support.waiting import until

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Kind

Doc = dict[str, Any]
SUCCEEDED, FAILED = "Succeeded", "Failed"


def install(api: Api, kind: Kind, file: str) -> None:
    """Install the real definition of a kind, if it is not there."""
    install_definition(api, kind, readable(yaml.load((CRDS / file).read_text("utf-8"), yaml.CSafeLoader)))


def install_definition(api: Api, kind: Kind, document: Doc) -> None:
    """Install a definition of a kind, if it is not there."""
    with contextlib.suppress(Conflict):
        api.create(CRD, document)
    until(lambda: api.has(kind), what=f"the definition of {kind.name}")
    until(lambda: _is_listed(api, kind), what=f"objects of {kind.name}")


def _is_listed(api: Api, kind: Kind) -> bool:
    try:
        api.list(kind)
    except NotThere:
        return False
    return True


class Controller:
    """What all of them do for one object of theirs; a subclass says which pods, and when it ended."""

    def __init__(self, api: Api, kind: Kind, name: str) -> None:
        self.api, self.kind, self.name = api, kind, name
        self.object = api.get(kind, name)

    @property
    def spec(self) -> Doc:
        return self.object["spec"]

    def serve(self, name: str, selector: Doc, *, before_ready: bool = False) -> None:
        """Make a service without an address of its own, so that its name stands for its pods."""
        spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": before_ready}
        self.api.create(SERVICE, {"metadata": self._head(name, {}), "spec": spec})

    def start(self, name: str, labels: Doc, spec: Doc, notes: Doc | None = None) -> None:
        """Make a pod."""
        head = self._head(name, labels) | {"annotations": notes or {}}
        self.api.create(POD, {"metadata": head, "spec": with_names(spec, self.api.namespace)})

    def _head(self, name: str, labels: Doc) -> Doc:
        owner = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "name": self.name,
            "uid": self.object["metadata"]["uid"],
            "controller": True,
        }
        return {"name": name, "labels": labels, "ownerReferences": [owner]}

    def pods(self) -> dict[str, Doc]:
        """Return the object's pods by name."""
        uid = self.object["metadata"]["uid"]
        return {
            pod["metadata"]["name"]: pod
            for pod in self.api.list(POD).items
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))
        }

    def end(self, *pods: str) -> None:
        """Delete pods."""
        for pod in pods:
            with contextlib.suppress(NotThere):
                self.api.delete(POD, pod)

    def result(self) -> str | None:
        """Act on what the pods do; return `SUCCEEDED` or `FAILED` when the object ended."""
        raise NotImplementedError

    def run(self) -> tuple[str, dict[str, str]]:
        """Play until the object ended; return how, and the logs of its pods at that moment."""
        how = until(self.result, what=self._told)
        logs = {name: self._log(name) for name in self.pods()}
        self.end(*(name for name, pod in self.pods().items() if phase(pod) == "Running"))
        return how, logs

    def _log(self, pod: str) -> str:
        return "\n".join(self.api.log(pod))

    def _told(self) -> str:
        return f"the end of {self.kind.name} {self.name}: " + ", ".join(
            f"{name} {phase(pod)} {pod['status'].get('containerStatuses')}"
            for name, pod in self.pods().items()
        )


def phase(pod: Doc) -> str:
    """Return the phase of a pod."""
    return str(pod["status"].get("phase"))


def exit_code(pod: Doc) -> int:
    """Return the exit code of a failed pod's container."""
    (status,) = pod["status"]["containerStatuses"]
    return int(status["state"]["terminated"]["exitCode"])


def with_variables(spec: Doc, values: Doc, *, container: str = "") -> Doc:
    """Return a pod's spec with more variables in a container; empty: in the first one."""
    changed = [
        {**each, "env": [*each.get("env", ()), *({"name": k, "value": v} for k, v in values.items())]}
        if container in {"", each["name"]}
        else each
        for each in spec["containers"]
    ]
    return {**spec, "containers": changed}
