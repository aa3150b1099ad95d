"""Checks of exports by the real schemas, strictly: unknown fields are refused."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.export.exporters import BY_RESOURCE, EXPORTERS
from dlrover_nb.core.export.provenance import MAX_TOTAL, PREFIX
from dlrover_nb.core.yamltext import named

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.resources.abc import Traversable

    from jsonschema import Draft202012Validator

    from dlrover_nb.core.export.exporters import Exporter

_CORE = ("ConfigMap", "Secret", "ServiceAccount", "Role", "RoleBinding")
_RUNTIME: dict[str, Any] = {  # the spec of a TrainingRuntime as far as exports use it, but its template
    "type": "object",
    "properties": {
        "mlPolicy": {
            "type": "object",
            "properties": {
                "numNodes": {"type": "integer", "minimum": 1},
                "torch": {"type": "object", "additionalProperties": False},  # as Trainer 2.2, and before
            },
            "additionalProperties": False,
        }
    },
    "required": ["template"],
    "additionalProperties": False,
}
KINDS = {  # resource -> schemas, one of which must match, the most common first
    **{resource: kinds for resource, kinds in BY_RESOURCE.items() if EXPORTERS[kinds[0]].schema is not None},
    **{kind: (kind,) for kind in ("TrainingRuntime", "Pod", "Job", *_CORE)},
}


def check(documents: Iterable[object], exporter: Exporter | None = None) -> tuple[str, ...]:
    """Return the errors of documents by the real schemas, unknown fields included; none: all are valid.

    An ElasticJob is checked against the generation that it was exported for; without one, it must match
    either. The specs of a Pod and a Job are checked against Kubernetes' own, which the schemas of ElasticJob
    and JobSet contain, and the template of a TrainingRuntime against JobSet's. The resource of another
    package's exporter is checked against the schema of that exporter, if any.
    """
    return tuple(
        f"{_named(document, number)}: {problem}"
        for number, document in enumerate(documents, start=1)
        for problem in _problems(document, exporter)
    )


def _problems(document: object, exporter: Exporter | None) -> tuple[str, ...]:
    content = document if isinstance(document, dict) else {}
    kinds = KINDS.get(str(content.get("kind")))
    if kinds is None and exporter is not None and content.get("kind") == exporter.resource:
        return () if exporter.schema is None else _errors_by(_validator_of(_read(exporter.schema)), content)
    if kinds is None:
        return (f"kind must be one of {', '.join(KINDS)}, got {named(content.get('kind'))}",)
    notes = _notes(content)
    if (named_kind := notes.get(f"{PREFIX}kind")) in kinds:
        kinds = (str(named_kind),)
    errors = [_errors(kind, content) for kind in kinds]
    best = () if () in errors else errors[0]
    return (*best, *_size(notes))


def _errors(kind: str, document: dict[object, object]) -> tuple[str, ...]:
    return _errors_by(_validator(kind), document)


def _errors_by(validator: Draft202012Validator, document: dict[object, object]) -> tuple[str, ...]:
    return tuple(
        f"{'/'.join(map(str, error.absolute_path)) or 'document'}: {error.message[:200]}"
        for error in validator.iter_errors(document)
    )


def _size(notes: dict[object, object]) -> tuple[str, ...]:
    n_byte = sum(len(str(part).encode()) for item in notes.items() for part in item)
    if n_byte <= MAX_TOTAL:
        return ()
    return (f"metadata/annotations: must be at most {MAX_TOTAL >> 10} KiB together, got {n_byte >> 10} KiB",)


def _notes(document: dict[Any, Any]) -> dict[object, object]:
    metadata = document.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    return notes if isinstance(notes, dict) else {}


def _named(document: object, number: int) -> str:
    content = document if isinstance(document, dict) else {}
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return " ".join(str(part) for part in (content.get("kind"), name) if part) or f"document {number}"


@cache
def _validator(kind: str) -> Draft202012Validator:
    return _validator_of(_schema_of(kind))


def _validator_of(schema: dict[str, Any]) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 0.1 s that only a check needs

    return Draft202012Validator(schema)


def _schema_of(kind: str) -> dict[str, Any]:
    match kind:
        case "Pod":
            template = _part(_schema("elasticjob"), "spec.replicaSpecs.*.template")
            return _resource("elasticjob", "v1", "Pod", template["properties"]["spec"])
        case "Job":
            template = _part(_schema("jobset"), "spec.replicatedJobs.*.template")
            return _resource("jobset", "batch/v1", "Job", template["properties"]["spec"])
        case "TrainingRuntime":
            spec = {**_RUNTIME, "properties": {**_RUNTIME["properties"], "template": _template_of_sets()}}
            return _resource("jobset", "trainer.kubeflow.org/v1alpha1", "TrainingRuntime", spec)
    if kind in _CORE:
        core: dict[str, Any] = _read(resources.files(__name__).joinpath("core.schema.json"))[kind]
        return core
    return _schema(kind)


def _template_of_sets() -> dict[str, Any]:
    """Return the schema of a template of JobSets."""
    spec = _schema("jobset")["properties"]["spec"]
    return {
        "type": "object",
        "properties": {"spec": spec},
        "required": ["spec"],
        "additionalProperties": False,
    }


@cache
def _schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of export."""
    file = EXPORTERS[kind].schema
    assert file is not None  # KINDS names only kinds that have one
    return _read(file)


def _read(file: Traversable) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return schema


def _resource(source: str, api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a resource whose spec another one contains, with its references."""
    whole = _schema(source)
    parts = {"apiVersion": {"const": api}, "kind": {"const": kind}, "spec": spec}
    return {**whole, "properties": {**whole["properties"], **parts}}


def _part(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema at a path of keys; ``*`` is any key of a map, and any item of a list."""
    part = schema
    for key in path.split("."):
        part = part.get("additionalProperties") or part["items"] if key == "*" else part["properties"][key]
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    return part
