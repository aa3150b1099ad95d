"""Kubeflow Trainer's controller, played: it makes the JobSet of a TrainJob and its runtime, whose controller is played.

The definition of runtimes is not at hand; one that takes any spec stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobset_played import JobSetController
from trainer_rules import set_of

from dlrover_nb.core.manifests.kinds import TRAINING_RUNTIME

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.api import Api
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
