"""Kueue's kinds on an API server of the tests: the fields that are read here, with the types of its public API.

They are written for these tests; Kueue's own definitions have more fields and rules, and `test_kueue_crds` compares
both.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.room.queue_waits import KUEUE
from dlrover_nb.core.manifests.kinds import CRD, Kind
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.backends.kubernetes.client.api import Api

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {
    "anyOf": [{"type": "integer"}, TEXT],
    "x-kubernetes-int-or-string": True,
    "pattern": r"^[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?$",
}
POLICY: Schema = {"type": "string", "enum": ["None", "Hold", "HoldAndDrain"]}


def fields(*needed: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(needed)}


def each(items: Schema) -> Schema:
    return {"type": "array", "items": items}


CONDITIONS = each(
    fields(
        "type", "status", "reason", "message", "lastTransitionTime",
        type=TEXT, reason=TEXT, message=TEXT,
        status={"type": "string", "enum": ["True", "False", "Unknown"]},
        lastTransitionTime={"type": "string", "format": "date-time"},
    )
)  # fmt: skip
QUOTA = fields(
    "name", "nominalQuota", name=TEXT, nominalQuota=NUMBER, borrowingLimit=NUMBER, lendingLimit=NUMBER
)
FLAVOR = fields("name", "resources", name=TEXT, resources=each(QUOTA))
GROUPS = each(fields("flavors", coveredResources=each(TEXT), flavors=each(FLAVOR)))
USED = fields("name", name=TEXT, total=NUMBER)
USAGE = each(fields("name", "resources", name=TEXT, resources=each(USED)))
QUEUE_STATUS = fields(flavorsReservation=USAGE, conditions=CONDITIONS)
KINDS: dict[str, tuple[str, Schema, Schema]] = {
    "ClusterQueue": (
        "Cluster", fields(resourceGroups=GROUPS, cohort=TEXT, stopPolicy=POLICY), QUEUE_STATUS,
    ),
    "LocalQueue": ("Namespaced", fields(clusterQueue=TEXT, stopPolicy=POLICY), QUEUE_STATUS),
    "Cohort": ("Cluster", fields(parentName=TEXT, resourceGroups=GROUPS), fields()),
    "Workload": ("Namespaced", fields(queueName=TEXT), fields(conditions=CONDITIONS)),
}  # fmt: skip


def definition(kind: str) -> Schema:
    """Return the definition of a kind in version v1beta1."""
    scope, spec, status = KINDS[kind]
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": fields(spec=spec, status=status)},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{KUEUE}",
            # the group is Kubernetes' own: such definitions name their review
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": KUEUE,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [version],
        },
    }


@contextmanager
def installed(api: Api) -> Iterator[None]:
    """Let an API server know Kueue's kinds for a while."""
    for kind in KINDS:
        api.create(CRD, definition(kind))
    try:
        kinds = [Kind(kind, f"{kind.lower()}s", KUEUE, "v1beta1") for kind in KINDS]
        until(lambda: all(map(api.has, kinds)), what="Kueue's kinds")
        yield
    finally:
        for kind in KINDS:
            api.delete(CRD, f"{kind.lower()}s.{KUEUE}")
        until(lambda: not _left(api), what="the end of Kueue's kinds")


def _left(api: Api) -> bool:
    return any(each["spec"]["group"] == KUEUE for each in api.list(CRD).items)
