"""Kubeflow Trainer's controller, played: it makes the JobSet of a TrainJob and its runtime, whose controller is played.

The definition of runtimes is not at hand; one that takes any spec stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.manifests.kinds import CONFIG_MAP, TRAINING_RUNTIME
from support.operators.jobset_played import JobSetController
from support.operators.played import Doc, with_variables
from support.operators.trainer_rules import set_of

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Kind

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
RUNTIMES: dict[str, Any] = {
    "metadata": {"name": f"{TRAINING_RUNTIME.plural}.{TRAINING_RUNTIME.group}"},
    "spec": {
        "group": TRAINING_RUNTIME.group,
        "names": {
            "kind": TRAINING_RUNTIME.name,
            "listKind": f"{TRAINING_RUNTIME.name}List",
            "plural": TRAINING_RUNTIME.plural,
            "singular": TRAINING_RUNTIME.name.lower(),
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": TRAINING_RUNTIME.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN}}},
            }
        ],
    },
}


class TrainJobController(JobSetController):
    """Plays for a TrainJob with a runtime of its own."""

    def __init__(self, api: Api, kind: Kind, name: str) -> None:
        super().__init__(api, kind, name)
        ref = self.object["spec"]["runtimeRef"]
        self.set = set_of(self.object, api.get(TRAINING_RUNTIME, ref["name"]))

    @property
    def spec(self) -> dict[str, Any]:
        return self.set


class ReportedTrainJobController(TrainJobController):
    """The same with the gate ``TrainJobStatus``: pods get the address of the status server, its CA and a token.

    Subclasses say where the server is; a token is one of the cluster, for the audience of this TrainJob.
    """

    url, certificate = "", ""
    AUDIENCE = "trainer.kubeflow.org/exported"
    FOLDER = "/var/run/secrets/kubeflow/trainer"

    def begin(self) -> None:
        config = {"metadata": {"name": f"{self.name}-tls-config"}, "data": {"ca.crt": self.certificate}}
        self.api.create(CONFIG_MAP, config)
        super().begin()

    def start(self, name: str, labels: Doc, spec: Doc, notes: Doc | None = None) -> None:
        token = {"audience": self.AUDIENCE, "expirationSeconds": 3600, "path": "token"}
        ca = {"name": f"{self.name}-tls-config", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        sources = [{"serviceAccountToken": token}, {"configMap": ca}]
        volume = {"name": "kubeflow-trainer-token", "projected": {"sources": sources}}
        (main,) = spec["containers"]
        mount = {"name": volume["name"], "mountPath": self.FOLDER, "readOnly": True}
        main = {**main, "volumeMounts": [*main.get("volumeMounts", ()), mount]}
        spec = {**spec, "containers": [main], "volumes": [*spec.get("volumes", ()), volume]}
        values = {"URL": self.url, "CA_CERT": f"{self.FOLDER}/ca.crt", "TOKEN": f"{self.FOLDER}/token"}
        said = {f"KUBEFLOW_TRAINER_SERVER_{key}": value for key, value in values.items()}
        super().start(name, labels, with_variables(spec, said), notes)
