"""Forms that order an action: who finds which, what they order, and what a refused one keeps."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from support.cases import for_each
from support.dashboard.dashboards import OPERATOR, SECOND, VIEWER, ByName, Client, closed, running, team_of
from support.dashboard.team_clusters import (
    MastersCluster,
    master_of,
    masters_team,
    simulated_cluster,
    submitted,
)
from support.jobs import builders as b
from support.waiting import until

from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, AdjustRates, SetSize
from dlrover_nb.core.structs.decisions.commands import Action, Stage
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.dashboard.job_parts.orders import MOST_FIELDS

HOSTILE = "<script>alert('x')</script>"
ADDRESS = "job?cluster=a&name=ads"
SIZE, BATCHES, RATES = "Size of one node", "Batch sizes", "Learning rates"
OWN = (SIZE, BATCHES, RATES)


@pytest.fixture
def master():
    nodes = [b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2)]
    master = master_of("ads", nodes=(*nodes, b.node("ps-0", Role.PS, memory=1.0)))
    master.state = replace(master.state, spec=replace(master.state.spec, sync=Sync.ASP))
    return master


@pytest.fixture
def team(master, tmp_path):
    with masters_team(tmp_path, MastersCluster(master)) as team:
        yield team


@pytest.fixture
def server(team):
    with running(team, ByName()) as server:
        yield server


def page_of(server, person, address=ADDRESS):
    page = Client(server.url, person.name).get(address).text
    assert HOSTILE not in page
    return page


def form_of(page, label):
    """Return the form of a label; None where the page has none."""
    found = re.search(rf'<form method="post" action="/do" aria-label="{label}">.*?</form>', page, re.DOTALL)
    return found and found[0]


def fields_of(form):
    """Return what a browser sends for a form in which nothing was typed yet."""
    inputs = re.findall(r'<input [^>]*?name="([^"]+)"[^>]*>', form)
    values = {name: re.search(rf'name="{name}"[^>]* value="([^"]*)"', form) for name in inputs}
    selects = re.findall(r'<select name="([^"]+)"><option value="([^"]+)"', form)
    told = {name: html.unescape(value[1]) if value else "" for name, value in values.items()}
    return told | dict(selects) | {"action": "mitigate"}


def sent(server, person, label, address=ADDRESS, **typed):
    """Send a form as a person who has typed into it; return the page that comes then."""
    fields = fields_of(form_of(page_of(server, person, address), label))
    answer = Client(server.url, person.name).post_form("do", fields | typed)
    assert answer.status == 303
    return page_of(server, person, answer.headers["Location"])


@pytest.mark.more
@pytest.mark.parametrize(
    ("label", "typed", "action"),
    [
        (SIZE, {"size": "ps-0", "cores": "2.5", "memory": "4096"}, SetSize("ps-0", Role.PS, 2.5, 4096)),
        (SIZE, {"size": "ps-0", "cores": "2"}, SetSize("ps-0", Role.PS, 2.0, 512)),
        (SIZE, {"size": "worker-1", "memory": "2048"}, SetSize("worker-1", Role.WORKER, 0.5, 2048)),
        (
            BATCHES,
            {"batches:worker-0": "640", "batches:worker-1": "384"},
            AdjustBatches((("worker-0", 640), ("worker-1", 384))),
        ),
        (
            BATCHES,
            {"batches:worker-0": "320", "batches:worker-1": "384", "accumulate:worker-0": "2"},
            AdjustBatches((("worker-0", 320), ("worker-1", 384)), (("worker-0", 2),)),
        ),
        (RATES, {"rates:worker-1": "0.5"}, AdjustRates((("worker-1", 0.5),))),
        (
            RATES,
            {"rates:worker-0": "1", "rates:worker-1": ".25"},
            AdjustRates((("worker-0", 1.0), ("worker-1", 0.25))),
        ),
    ],
)
def test_what_is_typed_into_a_form_is_the_action_that_is_ordered(server, master, team, label, typed, action):
    told = sent(server, OPERATOR, label, **typed, reason="it is hot")
    assert f"Mitigate {action.words} of job ads is done as d2" in html.unescape(told)
    assert (master.asked[-1].action.action, master.asked[-1].why) == (action, "it is hot")
    row = team.audit.newest(1)[0].row
    assert (row.person, row.stage, row.mitigation) == ("otto", Stage.DONE, action.words)


def test_each_field_is_of_a_worker_that_trains_and_none_is_filled_in(server, master):
    away = replace(b.node("worker-2", Role.WORKER, memory=1.0), phase=NodePhase.PENDING)
    master.state = replace(master.state, nodes=(*master.state.nodes, away))
    page = page_of(server, OPERATOR)
    for label, before in ((BATCHES, "batches:"), (BATCHES, "accumulate:"), (RATES, "rates:")):
        own = {name: text for name, text in fields_of(form_of(page, label)).items() if before in name}
        assert own == {f"{before}worker-0": "", f"{before}worker-1": ""}
    assert "ps-0 (0.25 cores, 512 MiB)" in form_of(page, SIZE)


@pytest.mark.more
@for_each(
    ("label", "typed", "said"),
    [
        (SIZE, {"size": "ps-0"}, "cores or MiB of 'ps-0' must be given, got neither"),
        (SIZE, {"size": "", "cores": "2"}, "the node that gets another size must be given"),
        (SIZE, {"size": "ps-9", "cores": "2"}, "cores must name a node of job ads, got 'ps-9'; there are"),
        (SIZE, {"size": "ps-0", "cores": "two", "memory": "4096"}, "cores must be a number, got 'two'"),
        (SIZE, {"size": "ps-0", "memory": "4k"}, "MiB must be a whole number, got '4k'"),
        (SIZE, {"size": "ps-0", "cores": "nan"}, "cpu per node must be > 0, got nan"),
        (
            BATCHES,
            {"batches:worker-0": "640", "batches:worker-1": "many"},
            "batch size of worker-1 must be a whole number, got 'many'",
        ),
        (BATCHES, {"batches:worker-0": "640"}, "got worker-0; give worker-1 too"),
        (BATCHES, {}, "the batch size of each worker must be given, got nothing"),
        (
            BATCHES,
            {"batches:worker-0": "9" * 30, "batches:worker-1": "1"},
            "batches must give a worker at most 10,000,000",
        ),
        (BATCHES, {"batches:worker-0": "0", "batches:worker-1": "1"}, "batch size of worker-0 must be >= 1"),
        (BATCHES, {"accumulate:worker-0": "2"}, "the batch size of each worker must be given, got nothing"),
        (
            BATCHES,
            {"batches:worker-0": "320", "batches:worker-1": "384", "accumulate:worker-0": "two"},
            "mini-batches of worker-0 must be a whole number, got 'two'",
        ),
        (RATES, {}, "the factor of one worker at least must be given, got nothing"),
        (RATES, {"rates:worker-0": "inf"}, "rates must give a worker at most 1,000"),
        (RATES, {"rates:worker-0": "nan"}, "factor of worker-0 must be > 0"),
        (RATES, {"rates:worker-0": "half", "rates:worker-1": "2"}, "factor of worker-0 must be a number"),
    ],
)
def test_a_wrong_field_is_told_and_nothing_that_was_typed_is_lost(server, master, label, typed, said):
    typed = typed | {"reason": f"it is hot {HOSTILE}"}
    page = sent(server, OPERATOR, label, **typed)
    form = form_of(page, label)
    assert "was refused" in page
    assert page.count(html.escape(said)) == 2, "above the page, and at the form"
    assert html.escape(said) in form
    assert "<details open><summary>Order an action yourself" in page
    kept = fields_of(form)
    assert {name: kept[name] for name in typed if name != "size"} == {
        name: text for name, text in typed.items() if name != "size"
    }
    if typed.get("size") == "ps-0":
        assert '<option value="ps-0" selected>' in form
    others = [form_of(page, other) for other in OWN if other != label]
    assert not any("must" in other or "hot" in other for other in others)
    assert not master.asked


def test_a_refused_form_is_sent_again_once_it_is_corrected(server, master):
    page = sent(server, OPERATOR, BATCHES, **{"batches:worker-0": "640", "batches:worker-1": "many"})
    fields = fields_of(form_of(page, BATCHES)) | {"batches:worker-1": "384"}
    answer = Client(server.url, "otto").post_form("do", fields)
    assert "is done as d2" in page_of(server, OPERATOR, answer.headers["Location"])
    assert master.asked[-1].action.adjust.sizes == (("worker-0", 640), ("worker-1", 384))


def test_what_was_typed_is_shown_once_and_to_nobody_else(server):
    fields = fields_of(form_of(page_of(server, OPERATOR), RATES))
    client = Client(server.url, "otto")
    location = client.post_form("do", fields | {"rates:worker-0": "0.5x"}).headers["Location"]
    assert "0.5x" not in location
    assert "0.5x" not in page_of(server, SECOND, location)
    assert 'value="0.5x"' in page_of(server, OPERATOR, location)
    again = page_of(server, OPERATOR, location)
    assert "0.5x" not in again
    assert "<details><summary>Order an action yourself" in again


@pytest.mark.parametrize("sync", Sync)
def test_learning_rates_have_a_form_where_workers_do_not_wait_for_each_other(server, master, sync):
    master.state = replace(master.state, spec=replace(master.state.spec, sync=sync))
    page = page_of(server, OPERATOR)
    assert [label for label in OWN if form_of(page, label)] == [SIZE, BATCHES, *([RATES] * (sync != "bsp"))]
    assert bool(form_of(page, "Backup workers")) == (sync == "bsp")


def test_a_job_of_other_programs_has_no_form(server, master):
    program = ExternalRole(("python", "train.py"), image="registry/train:1")
    foreign = ExternalSpec(program, 80_000, program)
    master.state = replace(master.state, spec=replace(master.state.spec, foreign=foreign))
    page = page_of(server, OPERATOR)
    assert form_of(page, "Mode"), "they may change it"
    assert not any(form_of(page, label) for label in OWN)


def test_a_job_whose_workers_do_not_train_yet_has_no_form_for_their_numbers(server, master):
    nodes = tuple(replace(node, phase=NodePhase.PENDING) for node in master.state.nodes)
    master.state = replace(master.state, nodes=nodes)
    page = page_of(server, OPERATOR)
    assert [label for label in OWN if form_of(page, label)] == [SIZE]


def test_of_very_many_workers_the_verb_is_told_instead(server, master):
    nodes = [b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(MOST_FIELDS + 1)]
    master.state = replace(master.state, nodes=tuple(nodes))
    page = page_of(server, OPERATOR)
    assert [label for label in OWN if form_of(page, label)] == [SIZE]
    assert "%dlrover apply ads --batches WORKER=N" in page


def test_neither_a_viewer_nor_anybody_once_the_job_has_ended_finds_a_form(server, master):
    assert not any(form_of(page_of(server, VIEWER), label) for label in OWN)
    master.state = replace(master.state, phase=JobPhase.SUCCEEDED)
    assert not any(form_of(page_of(server, OPERATOR), label) for label in OWN)


@for_each(
    "typed",
    [
        {"backup": "1"},
        {"size": "ps-0", "cores": "2", "memory": ""},
        {"batches:worker-0": "640", "batches:worker-1": "384"},
        {"rates:worker-0": "0.5"},
    ],
)
def test_a_viewer_who_forges_a_form_is_refused(server, master, typed):
    fields = {"csrf": Client(server.url, "vera").csrf(ADDRESS), "cluster": "a", "job": "ads"}
    answer = Client(server.url, "vera").post_form("do", fields | {"action": "mitigate"} | typed)
    page = page_of(server, VIEWER, answer.headers["Location"])
    assert "Not allowed, and nothing was changed" in page
    assert not any(form_of(page, label) for label in OWN)
    assert not master.asked


def test_an_action_that_needs_a_second_person_waits_for_one(tmp_path, master):
    rules = Rules(actions=frozenset({Action.MITIGATE}))
    with (
        masters_team(tmp_path, MastersCluster(master), rules=rules) as team,
        running(team, ByName()) as server,
    ):
        page = sent(server, OPERATOR, SIZE, size="ps-0", cores="2")
        assert "waits as r1" in page
        assert "<details><summary>Order an action yourself" in page, "nothing is to be typed again"
        assert not master.asked
        olga = Client(server.url, "olga")
        token = {"csrf": olga.csrf("proposals"), "cluster": "a"}
        assert olga.post_form("second", token | {"request": "r1", "action": "approve"}).status == 303
        assert master.asked[0].action.action == SetSize("ps-0", Role.PS, 2.0, 512)
        assert master.asked[0].by == "olga for otto"


@pytest.fixture
def simulated(tmp_path):
    """A server with a simulated job, whose controller decides what it can do."""
    watched = simulated_cluster()
    team = team_of(tmp_path, {"a": watched})
    job = submitted(watched, "ads", owner="ada", proposes=False, sync=Sync.BSP)
    until(lambda: job.snapshot().running, "a plan in place")
    with running(team, ByName()) as server:
        yield server
    closed(team)


def test_what_the_training_of_a_job_cannot_do_is_refused_by_its_controller_too(simulated):
    page = page_of(simulated, OPERATOR)
    assert form_of(page, RATES) is None
    worker = next(name for name in fields_of(form_of(page, BATCHES)) if "batches:" in name).partition(":")[2]
    fields = fields_of(form_of(page, "Backup workers"))
    del fields["backup"]
    answer = Client(simulated.url, "otto").post_form("do", fields | {f"rates:{worker}": "0.5"})
    told = page_of(simulated, OPERATOR, answer.headers["Location"])
    assert "sync must be asp, ssp or gba to multiply learning rates" in told
