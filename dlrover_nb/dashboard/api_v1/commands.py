"""What the API changes: each request becomes a `Command`, which the job's handle hands to the service.

The person's right is checked before anything else is asked of the job, so that who may not do something
learns that and nothing more, and the audit has it, also where the job has ended or there is nothing to undo.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.errors import NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import ActionChoice
from dlrover_nb.core.structs.decisions.commands import Action, Command, choose, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.training.shards import FinishChoice
from dlrover_nb.dashboard.api_v1 import answers, bodies
from dlrover_nb.dashboard.api_v1.call import Call, Result
from dlrover_nb.dashboard.common.waiting_requests import cluster_of

if TYPE_CHECKING:
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def decide_on(call: Call) -> Result:
    """Make a decision about a job."""
    handle = call.job()
    command = _command(call, call.body, handle.name)  # type: ignore[arg-type]  # of the route's union
    facts = handle.facts(command)
    call.team.commands.check(command, call.asker, facts)
    now = handle.snapshot()
    if now.phase.is_final:
        raise StaleDecisionError(f"job {handle.name} has {now.phase}: nothing to decide any more")
    return _done(call, handle, _completed(command, call.body, now))  # type: ignore[arg-type]  # as above


def stop(call: Call) -> Result:
    """Stop a job: its state is saved, and its nodes end."""
    handle = call.job()
    why = call.sent(bodies.ReasonBody).why
    return _done(call, handle, Command(Action.STOP, handle.name, why=why, key=call.own_key))


def finish(call: Call) -> Result:
    """Let a job train no more rows: it is evaluated, and succeeds."""
    handle = call.job()
    choice = FinishChoice("", call.sent(bodies.ReasonBody).why)
    return _done(call, handle, choose(choice, handle.name, key=call.own_key))


def approve(call: Call) -> Result:
    """Carry out a command that waits, as its second person."""
    request = call.team.requests.find(call.path["id"])
    key = cluster_of(call.team, request)
    made = call.team.job(key, request.command.job, call.asker).approve(request)
    return Result(answers.CommandAnswer(key, request.command.job, request.command.action, made))


def refuse(call: Call) -> Result:
    """Close a command that waits without carrying it out."""
    request = call.team.requests.find(call.path["id"])
    handle = call.team.job(cluster_of(call.team, request), request.command.job, call.asker)
    facts = handle.facts(request.command)
    call.team.commands.withdraw(request.id, call.asker, facts, call.sent(bodies.ReasonBody).why)
    return Result(answers.RefusedAnswer(request.id))


def _done(call: Call, handle: JobHandle, command: Command) -> Result:
    made = handle.run(command)
    return Result(answers.CommandAnswer(call.path["cluster"], handle.name, command.action, made))


def _command(call: Call, body: bodies.DecisionBody, job: str) -> Command:
    if isinstance(body, bodies.Undo):
        undo = Decision(Verdict.SCALE, "", 0.0, why=body.why, undoes=body.decision, seen=call.version)
        return decide(undo, job, key=call.own_key)
    return decide(replace(_decision(body), why=body.why, seen=call.version), job, key=call.own_key)


def _decision(  # noqa: PLR0911 - one case per body
    body: bodies.Accept
    | bodies.Reject
    | bodies.Override
    | bodies.Scale
    | bodies.SetMode
    | bodies.Pin
    | bodies.SetBudget
    | bodies.Mitigate,
) -> Decision:
    match body:
        case bodies.Accept() | bodies.Reject():
            verdict = Verdict.ACCEPT if isinstance(body, bodies.Accept) else Verdict.REJECT
            return Decision(verdict, "", 0.0, body.proposal)
        case bodies.Override():
            return Decision(Verdict.OVERRIDE, "", 0.0, body.proposal, body.plan.plan())
        case bodies.Scale():
            return Decision(Verdict.SCALE, "", 0.0, plan=body.plan.plan())
        case bodies.SetMode():
            return Decision(Verdict.MODE, "", 0.0, mode=body.mode)
        case bodies.Pin():
            return Decision(Verdict.PIN, "", 0.0, pins=body.pins.pins())
        case bodies.SetBudget():
            return Decision(Verdict.BUDGET, "", 0.0, budget_total=body.budget_total)
        case bodies.Mitigate():
            return Decision(Verdict.MITIGATE, "", 0.0)
        case _:
            assert_never(body)


def _completed(command: Command, body: bodies.DecisionBody, now: JobSnapshot) -> Command:
    """Return a command with what the job alone knows: what an undo reverts, the nodes of an action."""
    decision = command.decision
    if decision is not None and isinstance(body, bodies.Mitigate):
        action = ActionChoice.of(body.request().action(now))
        return replace(command, decision=replace(decision, action=action))
    if decision is None or not decision.undoes:
        return command
    if now.undo is None:
        raise NotFoundError(
            f"job {command.job} has nothing to undo: no decision has made a change that can be taken back"
        )
    back = replace(now.undo, undoes=decision.undoes, why=decision.why, seen=decision.seen)
    return replace(command, decision=back)
