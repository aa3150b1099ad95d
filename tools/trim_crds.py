"""Make the schemas that ship with the exporters from DLRover's CRDs: `python tools/trim_crds.py FOLDER`.

FOLDER holds the CRDs as their repository has them (commit and paths stand in
dlrover_nb/core/export/schemas/NOTICE.md), under the names of `SOURCES`. An OpenAPI v3 structural schema
becomes a JSON schema that says the same in a tenth of the size, and refuses unknown fields as an API server
does under strict field validation. It is a tool of its own because the CRDs change a few times a year, and
nobody should edit 60 kB of JSON by hand; a test runs it again where the CRDs are at hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

SCHEMAS = Path(__file__).resolve().parents[1] / "dlrover_nb" / "core" / "export" / "schemas"
SOURCES = {  # kind of export -> file of the CRDs, kind of the resource
    "elasticjob": ("elasticjobs.HEAD.yaml", "ElasticJob"),
    "elasticjob-0": ("manifests_bases_crd.HEAD.yaml", "ElasticJob"),
    "scaleplan": ("manifests_bases_crd.HEAD.yaml", "ScalePlan"),
}
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


def document(crd: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a user's document: that of the CRD without status, its head spelled out."""
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    group = crd["spec"]["group"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Derived from a CRD of DLRover (Apache-2.0); see NOTICE.md beside this file.",
        "type": "object",
        "properties": {
            "apiVersion": {"const": f"{group}/{version['name']}"},
            "kind": {"const": crd["spec"]["names"]["kind"]},
            "metadata": METADATA,
            "spec": trimmed(spec),
        },
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
    }


def made(folder: Path, kind: str) -> str:
    """Return the text of one schema file."""
    name, resource = SOURCES[kind]
    crds = yaml.safe_load_all((folder / name).read_text("utf-8"))
    (crd,) = (
        c
        for c in crds
        if c and c["kind"] == "CustomResourceDefinition" and c["spec"]["names"]["kind"] == resource
    )
    return json.dumps(document(crd), separators=(",", ":")) + "\n"


def main(folder: str) -> None:
    """Write all schema files."""
    for kind in SOURCES:
        (SCHEMAS / f"{kind}.schema.json").write_text(made(Path(folder), kind), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
