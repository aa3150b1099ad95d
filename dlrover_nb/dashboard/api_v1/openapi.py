"""The OpenAPI document, made from the table of routes and the types of its records.

Numbers of answers may be null: a record can hold one that is not finite, which JSON has no word for.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from dlrover_nb import __version__
from dlrover_nb.dashboard.api_v1 import problems
from dlrover_nb.dashboard.api_v1.answers import Problem
from dlrover_nb.dashboard.api_v1.routes import ROOT, ROUTES, by_path

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.dashboard.api_v1.routes import Route

    Json = dict[str, Any]

REF = "#/components/schemas/{name}"
PATH_PARAMETERS: Json = {
    "cluster": {
        "description": "Key of a cluster, percent-encoded as one segment.",
        "schema": {"type": "string", "minLength": 1},
    },
    "name": {"description": "Name of a job.", "schema": {"type": "string", "minLength": 1, "maxLength": 64}},
    "id": {"description": "Id of a request.", "schema": {"type": "string", "pattern": "^r[0-9]{1,14}$"}},
}
KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A command with a key that you have sent before is not carried out again.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}
SEEN: Json = {
    "name": "If-Match",
    "in": "header",
    "description": "The ETag of the state that you decided on; refused with 412 where a later one holds.",
    "schema": {"type": "string", "pattern": '^"d[0-9]{1,14}"$'},
}
OF_ALL = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
OF_BODIES = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
OF_CHANGES = (HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT)


@cache
def document() -> bytes:
    """Return the document as JSON."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    _, of_bodies = msgspec.json.schema_components(bodies, ref_template=REF)
    _, of_answers = msgspec.json.schema_components(
        [Problem, *(route.answer for route in ROUTES)], ref_template=REF
    )
    content = {
        "openapi": "3.1.0",
        "info": {
            "title": "dlrover-nb",
            "version": __version__,
            "description": "Jobs of a team: their state, and commands about them.",
        },
        "servers": [{"url": ROOT}],
        "security": [{"token": []}],
        "paths": {
            path: {method.lower(): _operation(route) for method, route in routes.items()}
            for path, routes in by_path().items()
        },
        "components": {
            "schemas": {**{name: _with_nulls(each) for name, each in of_answers.items()}, **of_bodies},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "dlrover-nb server tokens add NAME",
                }
            },
        },
    }
    return msgspec.json.encode(content)


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(route.body)}},
        }
    return operation


def _parameters(route: Route) -> list[Json]:
    in_path = [
        {"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]} for name in route.parameters
    ]
    (_,), kinds = msgspec.json.schema_components([route.query])
    properties = kinds[route.query.__name__]["properties"]
    in_query = [{"name": name, "in": "query", "schema": each} for name, each in properties.items()]
    headers = [header for header, is_taken in ((KEY, route.changes), (SEEN, route.sees)) if is_taken]
    return [*in_path, *in_query, *headers]


def _responses(route: Route) -> Json:
    done: Json = {
        "description": "Done.",
        "content": {"application/json": {"schema": _schema(route.answer)}},
    }
    if route.answer.__name__ in {"JobSnapshot", "ProposalsAnswer"}:
        done["headers"] = {"ETag": {"description": "The version of the plan.", "schema": {"type": "string"}}}
    refused = [*OF_ALL]
    refused += OF_BODIES if route.body is not None else ()
    refused += OF_CHANGES if route.changes else ()
    refused += (HTTPStatus.PRECONDITION_FAILED,) if route.sees else ()
    problem = {"content": {problems.TYPE: {"schema": _schema(Problem)}}}
    return {"200": done} | {
        str(int(status)): {"description": f"{status.phrase}.", **problem} for status in sorted(refused)
    }


def _schema(kind: Any) -> Json:  # noqa: ANN401 - a union of types has no useful static type
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REF)
    return schema


def _with_nulls(schema: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return a schema whose numbers may be null."""
    if isinstance(schema, list):
        return [_with_nulls(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return {**schema, "type": ["number", "null"]}
    return {name: each if name == "default" else _with_nulls(each) for name, each in schema.items()}
