"""Spans of commands: from the request to the first step of the new plan, and what became of them."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.dashboard.dashboards import PEOPLE
from support.dashboard.team_clusters import PLAN, simulated_cluster, submitted
from support.waiting import until

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.requests import Accept, Finish, Scale, SetMode
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.errors import NotAllowedError, SecondPersonError, StaleDecisionError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.dashboard.common.spans import Steps
from dlrover_nb.dashboard.common.team import Team


@pytest.fixture(scope="module")
def cluster():
    made = simulated_cluster()
    yield made
    made.close()
    made.core.shutdown(force=True)


@pytest.fixture(scope="module")
def job(cluster):
    return submitted(cluster, "ads-ctr", owner="otto")


@pytest.fixture
def team(cluster, tmp_path):
    made = Team(
        {"sim": cluster},
        SystemClock().now_s,
        url=f"sqlite:///{tmp_path / 'history.db'}",
        rules=Rules(actions=frozenset({Action.FINISH})),
    )
    yield made
    made.steps.close()
    for store in (made.history, made.audit, made.requests, made.notes, made.alerts):
        store.close()


@pytest.fixture
def exporter(team):
    """What is exported of the commands of the team; not of other tests: the provider is its own."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    team.commands.tracer = provider.get_tracer("test")
    yield kept
    provider.shutdown()


def by(team, name, entry=Entry.DASHBOARD):
    return team.job("sim", "ads-ctr", Asker(PEOPLE[name], entry))


def spans(exporter):
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_change_of_plan_is_traced_until_the_new_plan_runs(team, job, exporter):
    wanted = job.snapshot().open_proposal
    made = by(team, "otto").decide(Accept(wanted.id))
    until(lambda: "first step" in spans(exporter), "the first step")
    found = spans(exporter)
    command, carried, step = found["command"], found["carry out"], found["first step"]
    assert command.attributes["dlrover.entry"] == "dashboard"
    assert command.attributes["dlrover.action"] == "accept"
    assert command.attributes["dlrover.outcome"] == "done"
    assert command.attributes["dlrover.decision"] == made.id
    assert step.attributes["dlrover.step"] == "runs"
    assert job.snapshot().ran == wanted.candidate.plan
    assert carried.parent.span_id == step.parent.span_id == command.context.span_id
    assert command.start_time <= carried.start_time <= carried.end_time <= command.end_time
    assert step.end_time >= command.end_time
    assert "otto" not in str([dict(span.attributes) for span in found.values()])


def test_a_decision_that_changes_no_plan_has_no_first_step(team, job, exporter):
    by(team, "otto").decide(SetMode(Mode.MANUAL))
    assert set(spans(exporter)) == {"command", "carry out"}


def test_what_is_refused_is_a_span_with_its_outcome_and_is_not_carried_out(team, job, exporter):
    with pytest.raises(NotAllowedError):
        by(team, "vera", Entry.API).decide(Scale.to(PLAN))
    with pytest.raises(SecondPersonError):
        by(team, "anna").ask(Finish())
    told = [span.attributes["dlrover.outcome"] for span in exporter.get_finished_spans()]
    assert told == ["refused", "waits"]
    with pytest.raises(StaleDecisionError):
        by(team, "anna").decide(Scale.to(PLAN), version="d0")
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert found["command"].attributes["dlrover.outcome"] == "stale"


def test_an_approved_request_is_a_span_of_the_one_who_approves(team, cluster, exporter):
    submitted(cluster, "to-finish", owner="olga", proposes=False)
    anna, adam = (
        team.job("sim", "to-finish", Asker(PEOPLE[name], Entry.APPROVE)) for name in ("anna", "adam")
    )
    with pytest.raises(SecondPersonError):
        anna.ask(Finish())
    (request,) = team.requests.open(0.0)
    adam.approve(request)
    outcomes = [
        s.attributes.get("dlrover.outcome") for s in exporter.get_finished_spans() if s.name == "command"
    ]
    assert outcomes == ["waits", "done"]


def watching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "dlrover-spans"}


def test_without_an_sdk_nothing_is_traced_or_watched(team, job):
    before = watching()
    now = job.snapshot().target
    by(team, "otto").decide(Scale.to(replace(now, worker=replace(now.worker, count=now.worker.count + 1))))
    assert watching() <= before, "those of others may end meanwhile"


def test_a_step_that_never_comes_is_given_up(job, exporter, team):
    steps, before = Steps(limit_s=0.0), watching()
    steps.watch(team.commands.tracer.start_span("first step"), "d9999", job.snapshot)
    until(lambda: "first step" in spans(exporter), "the end of the wait")
    assert spans(exporter)["first step"].attributes["dlrover.step"] == "not seen"
    until(lambda: watching() <= before, "the end of the thread")


def test_what_is_awaited_ends_with_the_server(job, exporter, team):
    steps = Steps()
    steps.watch(team.commands.tracer.start_span("first step"), "d9999", job.snapshot)
    steps.close()
    assert spans(exporter)["first step"].attributes["dlrover.step"] == "not seen"
