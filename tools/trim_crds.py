"""Make the schemas that ship with the exporters from the real ones: `python tools/trim_crds.py CRDS OPENAPI`.

CRDS is a folder with the CRDs as their repositories have them (commits and paths stand in
dlrover_nb/core/export/schemas/NOTICE.md), under the names of `SOURCES`. OPENAPI is what an API server answers
to ``/openapi/v2``, for the few kinds of Kubernetes itself that no CRD contains. An OpenAPI schema becomes a
JSON schema that says the same in a twentieth of the size, and refuses unknown fields as an API server does
under strict field validation; what stands in it several times (a pod's affinity) stands in ``$defs`` once. It
is a tool of its own because the CRDs change a few times a year, and nobody should edit 60 kB of JSON by hand;
a test runs it again where the sources are at hand.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in a tenth of the time

SCHEMAS = Path(__file__).resolve().parents[1] / "dlrover_nb" / "core" / "export" / "schemas"
KUBEFLOW = "Kubeflow's training operator"
SOURCES = {  # kind of export -> file of the CRDs, kind of the resource, its version, whose it is
    "elasticjob": ("dlrover/elasticjobs.HEAD.yaml", "ElasticJob", "v1alpha1", "DLRover"),
    "elasticjob-0": ("dlrover/manifests_bases_crd.HEAD.yaml", "ElasticJob", "v1alpha1", "DLRover"),
    "scaleplan": ("dlrover/manifests_bases_crd.HEAD.yaml", "ScalePlan", "v1alpha1", "DLRover"),
    "tfjob": ("kubeflow/kubeflow.org_tfjobs.v1.9.0.yaml", "TFJob", "v1", KUBEFLOW),
    "pytorchjob": ("kubeflow/kubeflow.org_pytorchjobs.v1.9.0.yaml", "PyTorchJob", "v1", KUBEFLOW),
    "trainjob": (
        "kubeflow/trainer.kubeflow.org_trainjobs.a55f03a8.yaml",
        "TrainJob",
        "v1alpha1",
        "Kubeflow Trainer",
    ),
    "rayjob": ("kuberay/ray.io_rayjobs.v1.7.0.yaml", "RayJob", "v1", "KubeRay"),
    "jobset": ("jobset/jobset.x-k8s.io_jobsets.v0.12.0.yaml", "JobSet", "v1alpha2", "JobSet"),
}
CORE = {  # kinds of Kubernetes itself -> their group and version
    "ConfigMap": "v1",
    "Secret": "v1",
    "ServiceAccount": "v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
}
OWN = {"apiVersion", "kind", "metadata"}  # of every resource: spelled out by `document`
SHARED = 300  # characters from which on a part that stands several times goes to $defs
KEPT = (
    "type",
    "pattern",
    "required",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
INT32 = {"minimum": -(2**31), "maximum": 2**31 - 1}
NAME = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
LABEL_KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
METADATA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": NAME},
        "namespace": {"type": "string", "pattern": NAME},
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": LABEL_VALUE},
            "propertyNames": {"pattern": LABEL_KEY},
        },
        "annotations": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"pattern": LABEL_KEY},
        },
    },
}


def trimmed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an OpenAPI v3 structural schema, unknown fields refused."""
    out: dict[str, Any] = {key: schema[key] for key in KEPT if key in schema}
    out |= {key: [trimmed(s) for s in schema[key]] for key in ("anyOf", "oneOf", "allOf") if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if schema.get("format") == "int32":
        out |= INT32
    if schema.get("nullable") and "type" in out:
        out["type"] = [*([out["type"]] if isinstance(out["type"], str) else out["type"]), "null"]
    if "items" in schema:
        out["items"] = trimmed(schema["items"])
    if "properties" in schema:
        out["properties"] = {key: trimmed(value) for key, value in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = trimmed(schema["additionalProperties"])
    elif out.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    return out


def shared(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the same schema with the parts that stand in it several times in ``$defs``, once each."""
    seen: Counter[str] = Counter()
    _count(schema, seen)
    names = {text: f"d{i}" for i, text in enumerate(t for t, n in seen.items() if n > 1 and len(t) >= SHARED)}
    defs: dict[str, Any] = {}
    whole = _referred(schema, names, defs)
    return {**whole, "$defs": dict(sorted(defs.items()))} if defs else whole


def _count(schema: dict[str, Any], seen: Counter[str]) -> None:
    text = json.dumps(schema)
    seen[text] += 1
    if seen[text] == 1:
        _each(schema, lambda part: (_count(part, seen), part)[1])


def _referred(schema: dict[str, Any], names: dict[str, str], defs: dict[str, Any]) -> dict[str, Any]:
    name = names.get(json.dumps(schema))
    if name is None:
        return _each(schema, lambda part: _referred(part, names, defs))
    if name not in defs:
        defs[name] = _each(schema, lambda part: _referred(part, names, defs))
    return {"$ref": f"#/$defs/{name}"}


def _each(schema: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a schema with its direct sub-schemas changed."""
    out = dict(schema)
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(out.get(key), dict):
            out[key] = change(out[key])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in out:
            out[key] = [change(part) for part in out[key]]
    if "properties" in out:
        out["properties"] = {name: change(part) for name, part in out["properties"].items()}
    return out


def document(crd: dict[str, Any], version_name: str, whose: str) -> dict[str, Any]:
    """Return the schema of a user's document: that of the CRD without status, its head spelled out."""
    (version,) = (v for v in crd["spec"]["versions"] if v["name"] == version_name)
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return _headed(
        f"{crd['spec']['group']}/{version['name']}",
        crd["spec"]["names"]["kind"],
        f"Derived from a CRD of {whose} (Apache-2.0); see NOTICE.md beside this file.",
        {"spec": trimmed(spec)},
        ["spec"],
    )


def _headed(api: str, kind: str, comment: str, parts: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": comment,
        "type": "object",
        "properties": {"apiVersion": {"const": api}, "kind": {"const": kind}, "metadata": METADATA, **parts},
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", *required],
    }


def core(openapi: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of the kinds of Kubernetes itself, by kind."""
    found = {}
    for kind, api in CORE.items():
        group, _, version = api.rpartition("/")
        wanted = {"group": group, "version": version, "kind": kind}
        (definition,) = (
            d
            for d in openapi["definitions"].values()
            if wanted in d.get("x-kubernetes-group-version-kind", ())
        )
        parts = {
            name: trimmed(_inlined(part, openapi))
            for name, part in definition["properties"].items()
            if name not in OWN
        }
        comment = "Derived from Kubernetes (Apache-2.0); see NOTICE.md beside this file."
        found[kind] = _headed(
            api, kind, comment, parts, [r for r in definition.get("required", ()) if r not in OWN]
        )
    return found


def _inlined(schema: Any, openapi: dict[str, Any]) -> Any:
    """Return a schema with what it refers to in its place."""
    if isinstance(schema, list):
        return [_inlined(part, openapi) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(openapi["definitions"][schema["$ref"].rpartition("/")[2]], openapi)
    return {key: _inlined(value, openapi) for key, value in schema.items()}


def made(folder: Path, kind: str) -> str:
    """Return the text of one schema file."""
    name, resource, version, whose = SOURCES[kind]
    crds = yaml.load_all((folder / name).read_text("utf-8"), LOADER)
    (crd,) = (
        c
        for c in crds
        if c and c["kind"] == "CustomResourceDefinition" and c["spec"]["names"]["kind"] == resource
    )
    return _written(shared(document(crd, version, whose)))


def _written(schema: dict[str, Any]) -> str:
    return json.dumps(schema, separators=(",", ":")) + "\n"


def made_core(openapi: dict[str, Any]) -> str:
    """Return the text of the schema file of Kubernetes' own kinds."""
    return _written(core(openapi))


def main(folder: str, openapi: str) -> None:
    """Write all schema files."""
    for kind in SOURCES:
        (SCHEMAS / f"{kind}.schema.json").write_text(made(Path(folder), kind), encoding="utf-8")
    text = made_core(json.loads(Path(openapi).read_text("utf-8")))
    (SCHEMAS / "core.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
