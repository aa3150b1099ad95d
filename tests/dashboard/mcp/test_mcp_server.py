"""The server for agents, asked by the protocol's own client: it tells, simulates and proposes, and applies nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from support.dashboard.team_clusters import MastersCluster, master_of, simulated_cluster, submitted
from support.jobs import builders as b
from support.jobs.orders import ordered
from support.waiting import until

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.requests import Accept, Finish, RetryShard, Scale, SetMode
from dlrover_nb.core.commands.second_person import NO_RULES, Rules
from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.commands.table import DECISIONS
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotAllowedError
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.stores.request_store import RequestStore
from dlrover_nb.core.structs.decisions.actions import BackupWorkers, KillRestart
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Command, Entry, Stage, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person, local_person
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import FinishChoice
from dlrover_nb.core.why import Question
from dlrover_nb.dashboard.agent_tools import MOST_WAITING, AgentTools, only_read
from dlrover_nb.dashboard.mcp_server import server_of

READING = {
    "list_jobs", "job_status", "plans", "stragglers", "explain", "what_if", "logs", "history", "scoreboard", "audit",
}  # fmt: skip
PROPOSING = {f"propose_{request.action}" for request in DECISIONS}
NOW_S = SystemClock().now_s


@pytest.fixture(scope="module")
def cluster():
    made = simulated_cluster()
    yield made
    made.close()
    made.core.shutdown(force=True)


@pytest.fixture(scope="module")
def job(cluster):
    return submitted(cluster, "ads-ctr", owner="ada", mode=Mode.SUGGEST)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('agents') / 'history.db'}"


@pytest.fixture
def tools(cluster, job, url):
    made = AgentTools(lambda: cluster.core, local_person("ada"), NOW_S, url=url, rules=NO_RULES)
    yield made
    made.close()


def asked(target, *calls):
    """Return what a server answers to calls, in their order."""

    async def ask():
        async with Client(target) as client:
            listed = await client.list_tools()
            return listed.tools, [await client.call_tool(name, values) for name, values in calls]

    return asyncio.run(ask())


def told(tools, name, **values):
    _, (answer,) = asked(server_of(tools), (name, values))
    assert not answer.is_error, answer.content
    return answer.structured_content


def state(job):
    """Return all of a job that a command could change."""
    now = job.snapshot()
    return now.decisions, now.target, now.mode, now.pins, now.phase.is_final, now.version


def test_only_these_tools_exist_and_each_says_whether_it_reads(tools):
    listed, _ = asked(server_of(tools))
    assert {tool.name for tool in listed} == {*READING, *PROPOSING}
    for tool in listed:
        assert tool.annotations.read_only_hint == (tool.name in READING)
        assert tool.annotations.destructive_hint is False
        verb = tool.name.partition("_")[0]
        assert verb == "propose" or not {"apply", "accept", "stop", "delete"} & set(tool.name.split("_"))


def calls_of(proposal):
    """Return calls that give every tool every argument that it takes."""
    sizes = {
        "workers": 2,
        "ps": 1,
        "worker_cpu": 2.0,
        "ps_cpu": 1.0,
        "worker_memory_mib": 4096,
        "ps_memory_mib": 8192,
    }
    return (
        ("list_jobs", {}),
        ("job_status", {"job": "ads-ctr"}),
        ("plans", {"job": "ads-ctr"}),
        ("stragglers", {"job": "ads-ctr"}),
        ("explain", {"job": "ads-ctr", "proposal": proposal}),
        ("explain", {"job": "ads-ctr", "proposal": proposal, "question": "sure"}),
        ("explain", {"job": "ads-ctr"}),
        ("what_if", {"job": "ads-ctr", **sizes}),
        ("logs", {"job": "ads-ctr", "node": "", "lines": 10}),
        ("history", {"job": "ads-ctr"}),
        ("history", {}),
        ("scoreboard", {}),
        ("audit", {"job": "ads-ctr", "rows": 10}),
        ("propose_accept", {"job": "ads-ctr", "why": "twice as fast", "proposal": proposal}),
        ("propose_reject", {"job": "ads-ctr", "why": "the queue is long", "proposal": proposal}),
        ("propose_override", {"job": "ads-ctr", "why": "cheaper", "proposal": proposal, **sizes}),
        ("propose_scale", {"job": "ads-ctr", "why": "twice as fast", **sizes}),
        ("propose_undo", {"job": "ads-ctr", "why": "it got slower", "decision": "d1", "cancels": True}),
        ("propose_mode", {"job": "ads-ctr", "why": "it knows by now", "mode": "auto"}),
        ("propose_pin", {"job": "ads-ctr", "why": "its tables grow", "clear": True, **sizes}),
        ("propose_budget", {"job": "ads-ctr", "why": "two more passes", "budget_total": 40.0}),
        *(
            ("propose_mitigate", {"job": "ads-ctr", "why": "it is slow", **action})
            for action in (
                {"restart": "worker-1"},
                {"move": "ps-1"},
                {"batches": {"worker-1": 8}},
                {"backup": 1},
                {"rates": {"worker-1": 0.5}},
            )
        ),
    )


def test_no_call_of_any_tool_changes_a_job(tools, job):
    proposal = until(lambda: job.snapshot().open_proposal, "a proposal")
    before = state(job)
    listed, answers = asked(server_of(tools), *calls_of(proposal.id))
    assert {name for name, _ in calls_of(proposal.id)} == {tool.name for tool in listed}
    assert [each.is_error for each in answers].count(
        True
    ) == 2  # a simulated job has no history, and nothing can be undone
    assert state(job) == before


def test_an_agent_asks_one_question_or_all_and_another_is_refused(tools, job):
    proposal = until(lambda: job.snapshot().open_proposal, "a proposal")
    everything = told(tools, "explain", job="ads-ctr", proposal=proposal.id)
    assert [each["question"] for each in everything["answers"]] == [*Question]
    assert everything["candidate"]
    (answer,) = told(tools, "explain", job="ads-ctr", proposal=proposal.id, question="2")["answers"]
    assert answer["question"] == "why"
    assert answer["values"]
    _, (refused,) = asked(server_of(tools), ("explain", {"job": "ads-ctr", "question": "who"}))
    assert refused.is_error
    assert "1 what, 2 why" in refused.content[0].text


@pytest.mark.more
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_call_with_drawn_arguments_changes_a_job(tools, job, data):
    before = state(job)
    name = data.draw(st.sampled_from(sorted({*READING, *PROPOSING})))
    texts = st.sampled_from(["ads-ctr", "p1", "d1", "", "stop", "r1", "; rm -rf", "../x"])
    values = st.one_of(texts, st.integers(-1, 5), st.none(), st.floats(0.1, 3))
    fields = [
        "job",
        "why",
        "proposal",
        "workers",
        "ps",
        "worker_cpu",
        "node",
        "lines",
        "rows",
        "action",
        "force",
        "restart",
        "move",
        "backup",
    ]
    given_ = data.draw(st.dictionaries(st.sampled_from(fields), values))
    asked(server_of(tools), (name, {"job": "ads-ctr"} | given_))
    assert state(job) == before


def test_the_jobs_of_tools_refuse_every_command(job):
    held = only_read(job)
    before = state(job)
    plan = job.snapshot().target
    for attempt in (
        lambda: held.decide(Accept("p1")),
        lambda: held.decide(Scale.to(plan)),
        lambda: held.decide(SetMode(Mode.AUTO)),
        lambda: held.decide(ordered(BackupWorkers(1))),
        lambda: held.ask(Finish()),
        held.stop,
        lambda: held.ask(RetryShard(1)),
        lambda: held.link.choose(FinishChoice("", "")),
        lambda: held.link.stop("ada", ""),
    ):
        with pytest.raises(NotAllowedError, match="an agent can propose"):
            attempt()
    assert state(job) == before


def test_what_is_told_is_structured_and_what_others_wrote_is_in_no_description(tools, job):
    assert told(tools, "list_jobs")["jobs"][0]["name"] == "ads-ctr"
    assert told(tools, "job_status", job="ads-ctr")["spec"]["owner"] == "ada"
    better = told(tools, "what_if", job="ads-ctr", workers=2)
    assert better["candidate"]["prediction"]["samples_per_s"] > 0
    listed, _ = asked(server_of(tools))
    assert "ads-ctr" not in str([tool.model_dump() for tool in listed])


def test_a_mistake_is_told_in_words_and_is_no_crash(tools):
    _, answers = asked(
        server_of(tools),
        ("job_status", {"job": "mars"}),
        ("propose_scale", {"job": "ads-ctr", "why": "x"}),
        ("propose_scale", {"job": "ads-ctr", "why": " ", "workers": 2}),
        ("what_if", {"job": "ads-ctr", "workers": 0}),
    )
    assert all(each.is_error for each in answers)
    assert "no job 'mars'" in answers[0].content[0].text
    assert "nothing to change" in answers[1].content[0].text
    assert "must say why" in answers[2].content[0].text


def test_what_is_proposed_waits_for_a_person_and_is_on_record(tools, job, url):
    made = told(tools, "propose_scale", job="ads-ctr", why="it is cheap now", workers=2)
    request = RequestStore(url).find(made["request"])
    assert (request.entry, request.first) == (Entry.AGENT, "ada")
    assert request.command.decision.seen == job.snapshot().version
    (row,) = [each.row for each in AuditStore(url).newest(1)]
    assert (row.action, row.entry, row.stage, row.why) == (
        Action.PROPOSE,
        Entry.AGENT,
        Stage.WAITING,
        "it is cheap now",
    )


def test_what_the_job_would_refuse_is_refused_to_an_agent_as_to_a_person(tools, job, url):
    waiting = [each.id for each in RequestStore(url).open(NOW_S())]
    with pytest.raises(DlroverError) as refused:
        job.decide(Scale(workers=3000))
    with pytest.raises(DlroverError) as unchanged:
        job.decide(Scale.to(job.snapshot().target))
    _, (too_many, same, unknown) = asked(
        server_of(tools),
        ("propose_scale", {"job": "ads-ctr", "why": "more", "workers": 3000}),
        ("propose_scale", {"job": "ads-ctr", "why": "more", "workers": job.snapshot().target.worker.count}),
        ("propose_accept", {"job": "ads-ctr", "why": "more", "proposal": "p999"}),
    )
    assert str(refused.value) in too_many.content[0].text
    assert str(unchanged.value) in same.content[0].text
    assert "p999 of job ads-ctr must be open for an answer" in unknown.content[0].text
    assert [each.id for each in RequestStore(url).open(NOW_S())] == waiting
    rows = [each.row for each in AuditStore(url).newest(3)]
    assert [(row.action, row.stage) for row in rows] == [(Action.PROPOSE, Stage.REFUSED)] * 3


@pytest.fixture
def slow(url):
    """Tools for a cluster with a job in which an action against a straggler waits, and its master."""
    nodes = tuple(b.node(f"worker-{i}", Role.WORKER, memory=1.0) for i in range(2))
    master = master_of("ads", nodes=nodes, mitigations=(b.mitigation(),), stragglers=(b.straggler(),))
    cluster = MastersCluster(master)
    made = AgentTools(lambda: cluster, local_person("ada"), NOW_S, url=url, rules=NO_RULES)
    yield made, master, cluster
    made.close()


def test_an_agent_reads_who_is_slow_and_what_waits_against_that(slow):
    tools, _, _ = slow
    said = told(tools, "stragglers", job="ads")
    assert said["slow"][0]["node"] == "worker-1"
    assert said["open_mitigation"]["id"] == "m1"
    assert told(tools, "plans", job="ads")["open_mitigation"]["id"] == "m1"
    assert told(tools, "job_status", job="ads")["mitigations"][0]["why"].startswith("worker-1 takes")


def test_an_action_that_an_agent_proposes_waits_for_a_person(slow, url):
    tools, master, cluster = slow
    made = told(tools, "propose_mitigate", job="ads", why="its machine is busy", restart="worker-1")
    assert made["asks_for"] == "mitigate restart worker-1"
    accepted = told(tools, "propose_accept", job="ads", why="it is slow", proposal="m1")
    assert accepted["asks_for"] == "accept m1"
    assert not master.asked, "nothing is done yet"
    requests = RequestStore(url)
    service = CommandService(lambda: AuditStore(url), NOW_S, requests=requests)
    handle = cluster.job("ads").asked_by(Asker(local_person("ada"), Entry.APPROVE), service)
    done = handle.approve(requests.find(made["request"]))
    assert done.action.action == KillRestart("worker-1", Role.WORKER)
    assert AuditStore(url).newest(1)[0].row.mitigation == "restart worker-1"


def test_a_mistake_about_an_action_is_told_in_words(slow):
    tools, _, _ = slow
    _, answers = asked(
        server_of(tools),
        ("propose_mitigate", {"job": "ads", "why": "x"}),
        ("propose_mitigate", {"job": "ads", "why": "x", "restart": "worker-9"}),
        ("propose_mitigate", {"job": "ads", "why": " ", "backup": 1}),
    )
    assert all(each.is_error for each in answers)
    assert "give exactly one" in answers[0].content[0].text
    assert "there are: worker-0, worker-1" in answers[1].content[0].text
    assert "must say why" in answers[2].content[0].text


def test_an_agent_cannot_flood_people_with_proposals(cluster, job, tmp_path):
    own = AgentTools(
        lambda: cluster.core,
        local_person("ada"),
        NOW_S,
        url=f"sqlite:///{tmp_path / 'history.db'}",
        rules=NO_RULES,
    )
    for _ in range(MOST_WAITING):
        own.propose("ads-ctr", Scale(workers=2, why="again"))
    with pytest.raises(InvalidValueError, match="may wait"):
        own.propose("ads-ctr", Scale(workers=2, why="again"))
    own.close()


def test_a_person_approves_their_agents_proposal_unless_a_rule_wants_a_second_one(tools, job, url):
    requests = RequestStore(url)
    request = requests.find(told(tools, "propose_scale", job="ads-ctr", why="x", workers=3)["request"])
    strict = CommandService(
        lambda: AuditStore(url), NOW_S, requests=requests, rules=Rules(actions=frozenset({Action.SCALE}))
    )
    ada = Asker(local_person("ada"), Entry.APPROVE)
    with pytest.raises(NotAllowedError, match="asked by you"):
        job.asked_by(ada, strict).approve(request)
    viewer = Asker(Person("vera", grants=(Grant(AccessRole.VIEWER),)), Entry.APPROVE)
    free = CommandService(lambda: AuditStore(url), NOW_S, requests=requests)
    with pytest.raises(NotAllowedError, match="needs the role"):
        job.asked_by(viewer, free).approve(request)
    made = job.asked_by(ada, free).approve(request)
    assert made.plan.worker.count == 3


def test_who_has_no_role_cannot_even_propose(job, url):
    audit, nobody = AuditStore(url), Asker(Person("nora"), Entry.AGENT)
    service = CommandService(lambda: audit, NOW_S, requests=RequestStore(url))
    command = decide(Decision(Verdict.SCALE, "", 0.0, plan=job.snapshot().target), job.name)
    with pytest.raises(NotAllowedError, match="propose needs the role"):
        service.propose(command, nobody, job.facts(command))
    assert audit.newest(1)[0].row.stage is Stage.REFUSED
    assert Command(Action.PROPOSE, job.name).action is audit.newest(1)[0].row.action


@pytest.mark.more
def test_the_program_speaks_the_protocol_over_standard_input_and_output(tmp_path):
    here = Path(__file__).parent
    url = f"sqlite:///{tmp_path / 'history.db'}"
    program = StdioServerParameters(
        command=sys.executable,
        args=[str(here / "agent_program.py"), url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    listed, (jobs, made) = asked(
        program, ("list_jobs", {}), ("propose_scale", {"job": "ads-ctr", "why": "over stdio", "workers": 2})
    )
    assert len(listed) == len(READING) + len(PROPOSING)
    assert jobs.structured_content["jobs"][0]["name"] == "ads-ctr"
    assert RequestStore(url).find(made.structured_content["request"]).command.why == "over stdio"
