"""What the API changes: a body is a record of the table of commands, which the job's handle carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.commands.requests import Request
from dlrover_nb.dashboard.api_v1 import answers, bodies
from dlrover_nb.dashboard.api_v1.call import Result
from dlrover_nb.dashboard.common.waiting_requests import cluster_of

if TYPE_CHECKING:
    from dlrover_nb.dashboard.api_v1.call import Call


def ask(call: Call) -> Result:
    """Carry out a command about a job."""
    request, handle = call.sent(Request), call.job()
    made = handle.ask(request, version=call.version, key=call.own_key)
    return Result(answers.CommandAnswer(call.path["cluster"], handle.name, request.action, made))


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
