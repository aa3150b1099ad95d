"""Every face makes the same request of the same words: verb, form, HTTP body, and an agent's tool."""

from __future__ import annotations

import asyncio
from typing import Union

import msgspec
import pytest
from msgspec.structs import fields

from dlrover_nb.core.commands import requests as r
from dlrover_nb.core.commands.arguments import description, plain_type
from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.commands.table import COMMANDS, DECISIONS, OTHERS, ROW_OF, first_line
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.dashboard.api_v1.routes import ROUTES
from dlrover_nb.dashboard.forms.act import FORM_ACTIONS, request_of
from dlrover_nb.dashboard.mcp_server import server_of
from dlrover_nb.magics.arguments import GRAMMAR

SIZES = {
    "workers": 3, "ps": 2, "worker_cpu": 0.5, "ps_cpu": 0.25, "worker_memory_mib": 1024, "ps_memory_mib": 900,
}  # fmt: skip
FLAGS = "--workers 3 --ps 2 --worker-cpu 0.5 --ps-cpu 0.25 --worker-memory 1024 --ps-memory 900"
TYPED = {name: str(size) for name, size in SIZES.items()}
# A command, as words behind its verb, as the fields of a form, and as an HTTP body or an agent's arguments.
WRITTEN = {
    Action.ACCEPT: (r.Accept("p1", why="good"), "p1", {"proposal": "p1"}, {"proposal": "p1"}),
    Action.REJECT: (r.Reject("m2", why="good"), "m2", {"proposal": "m2"}, {"proposal": "m2"}),
    Action.OVERRIDE: (
        r.Override("p1", **SIZES, why="good"),
        f"p1 {FLAGS}",
        {"proposal": "p1"} | TYPED,
        {"proposal": "p1"} | SIZES,
    ),
    Action.SCALE: (
        r.Scale(**SIZES, why="good"),
        FLAGS,
        TYPED,
        SIZES,
    ),
    Action.UNDO: (
        r.Undo("d3", cancels=True, why="good"),
        "d3 --cancels",
        {"decision": "d3", "cancels": "yes"},
        {"decision": "d3", "cancels": True},
    ),
    Action.MODE: (r.SetMode(Mode.AUTO, why="good"), "auto", {"mode": "auto"}, {"mode": "auto"}),
    Action.PIN: (
        r.Pin(workers=2, clear=True, why="good"),
        "--workers 2 --clear",
        {"workers": "2", "clear": "yes"},
        {"workers": 2, "clear": True},
    ),
    Action.BUDGET: (r.SetBudget(None, why="good"), "off", {"budget_total": ""}, {"budget_total": None}),
    Action.MITIGATE: (
        Mitigate(batches={"worker-0": 8, "worker-1": 24}, why="good"),
        "--batches worker-0=8,worker-1=24",
        {"batches:worker-0": "8", "batches:worker-1": "24"},
        {"batches": {"worker-0": 8, "worker-1": 24}},
    ),
}
OTHER_BODIES = {
    Action.RETRY_SHARD: (r.RetryShard(7, why="good"), {"shard": "7"}, {"shard": 7}),
    Action.SKIP_SHARD: (r.SkipShard(7, why="good"), {"shard": "7"}, {"shard": 7}),
    Action.BATCHES: (r.SetBatches({"worker-0": 8}, why="good"), {"sizes:worker-0": "8"}, {"sizes": {"worker-0": 8}}),
    Action.FINISH: (r.Finish(why="good"), {}, {}),
    Action.STOP: (r.Stop(why="good"), {}, {}),
}  # fmt: skip


def of_form(action, values):
    return request_of({"action": action, "job": "ads", "reason": "good", "key": "k", **values})


def of_body(kind, values):
    return msgspec.json.decode(msgspec.json.encode({**values, "why": "good"}), type=kind)


class Recorder:
    """The tools of an agent, which record what is proposed."""

    def propose(self, job, request):
        self.job, self.request = job, request
        return {}


def of_tool(action, values):
    tools = Recorder()
    asyncio.run(server_of(tools).call_tool(f"propose_{action}", {"job": "ads", "why": "good", **values}))
    return tools.request


class Session:
    """A session of verbs that has shown nothing, with one job, which records what it is asked."""

    def __init__(self):
        self.session, self.name = self, "ads"

    def job(self, _):
        return self

    def answered_for(self, _, name):
        return name

    proposal_for = answered_for

    def ask(self, request):
        self.request = request

    def decided(self, view):
        return view


def of_verb(action, words):
    call = GRAMMAR.parse_line(f"{action} {words} --why good")
    session = Session()
    call.verb.handler(session, **call.values)
    return session.request


def test_every_command_about_a_running_job_is_written_in_every_way_below():
    assert set(WRITTEN) == {request.action for request in DECISIONS}
    assert set(OTHER_BODIES) == {request.action for request in OTHERS}
    assert [row.action for row in COMMANDS] == list(ROW_OF), "each action has one row"
    assert all(row.request.action is row.action for row in COMMANDS if row.request is not None)


@pytest.mark.parametrize("action", WRITTEN)
def test_verb_form_body_and_tool_make_the_same_request(action):
    request, words, form, body = WRITTEN[action]
    assert of_verb(action, words) == request
    assert of_form(action, form) == request
    assert of_body(Union[DECISIONS], {"verdict": str(action), **body}) == request  # noqa: UP007 - of a tuple
    assert of_tool(action, body) == request


@pytest.mark.parametrize("action", OTHER_BODIES)
def test_what_is_no_decision_has_a_route_of_its_own_and_a_form(action):
    request, form, body = OTHER_BODIES[action]
    assert of_form(action, form) == request
    (route,) = [each for each in ROUTES if each.body is type(request)]
    assert of_body(route.body, body) == request
    assert route.changes
    assert route.summary == first_line(type(request))


@pytest.mark.parametrize("request_", [*DECISIONS, *OTHERS])
def test_every_field_says_what_it_is_and_every_command_what_it_does(request_):
    assert first_line(request_).endswith(".")
    for field in fields(request_):
        is_flat = not issubclass(plain_type(field)[0], msgspec.Struct)
        assert description(field).endswith(".") or not is_flat, field.name


def test_forms_take_every_command_and_no_field_of_another_version(error_words):
    assert set(FORM_ACTIONS) == {*WRITTEN, *OTHER_BODIES}
    with error_words(r.InvalidValueError):
        of_form("budget", {"budget": "40"})
    with pytest.raises(r.InvalidValueError, match="budget_total must be given"):
        of_form("budget", {})
