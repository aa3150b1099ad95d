"""The OpenAPI document, and a server that keeps to it: asked with all that it allows and much that it forbids."""

from __future__ import annotations

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.cases import for_each
from support.dashboard.dashboards import ByName, by, running
from support.dashboard.team_clusters import submitted

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.core.structs.decisions.people import AccessRole
from dlrover_nb.dashboard.api_v1.handler import Api
from dlrover_nb.dashboard.api_v1.openapi import document
from dlrover_nb.dashboard.api_v1.rate_limits import Buckets, Rate
from dlrover_nb.dashboard.api_v1.routes import ROUTES
from dlrover_nb.dashboard.api_v1.tokens import Limits, Tokens

N_EXAMPLE = 12  # of each route
TOLD = from_json(document(), dict)


@pytest.fixture(scope="module")
def address(team):
    """A server of the API that anna's token may ask as often as it likes, and jobs to ask about."""
    store = CredentialStore(team.url)
    tokens = Tokens(store, team.now_s)
    many = Rate(1e6, 1e6)
    api = Api(tokens, lambda: 0.0, Buckets(many), Buckets(many))
    submitted(team.cluster("sim"), "fuzzed")
    with running(team, ByName(), api=api) as dashboard:
        yield dashboard.url.rstrip("/"), tokens.add("anna", Limits(AccessRole.ADMIN), 1)
    store.close()


@pytest.mark.more
def test_the_document_is_valid_and_tells_each_route_once():
    schemathesis.openapi.from_dict(TOLD).validate()
    told = {(m.upper(), p) for p, methods in TOLD["paths"].items() for m in methods}
    assert told == {(route.method, route.path) for route in ROUTES}
    for kind in TOLD["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(kind)


def test_records_of_bodies_refuse_unknown_fields_and_bound_every_text():
    for name in ("Accept", "Scale", "PlanBody", "RoleBody", "PinsBody", "ReasonBody", "WeighBody"):
        assert TOLD["components"]["schemas"][name]["additionalProperties"] is False
    assert TOLD["components"]["schemas"]["ReasonBody"]["properties"]["why"]["maxLength"] == 1000


@pytest.mark.more
@for_each("route", ROUTES, ids=lambda route: route.name)
def test_every_answer_is_as_the_document_says(address, route):
    url, secret = address
    schema = schemathesis.openapi.from_dict(TOLD)
    operation = schema[route.path][route.method]
    seen: set[int] = set()
    known = {"cluster": "sim", "name": "fuzzed"}

    def ask(case):
        case.path_parameters.update({k: v for k, v in known.items() if k in case.path_parameters})
        answered = case.call_and_validate(
            base_url=f"{url}/api/v1",
            headers={"Authorization": f"Bearer {secret}"},
            checks=[
                checks.not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )
        seen.add(answered.status_code)

    for mode in schemathesis.GenerationMode:
        drawn = operation.as_strategy(generation_mode=mode)
        run = settings(
            max_examples=N_EXAMPLE,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        run(given(drawn)(ask))()
    if route.name not in {
        "retry_shard",
        "skip_shard",
        "set_batches",
    }:  # of shards and nodes that it cannot guess
        assert seen & {200, 202, 404, 409}  # some were understood
    assert seen & {422, 404, 405, 401} or not (route.query.__struct_fields__ or route.body)


def test_no_random_request_has_ended_the_server(address, client):
    assert by(client, "anna").get("/api/v1/jobs/sim/fuzzed").status == 200
