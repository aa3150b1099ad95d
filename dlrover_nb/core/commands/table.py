"""Every command about a job in one table: who may ask for it, what it takes, and how a help text says it.

All faces are made from it: the rights of people, verbs and their completion, bodies and routes of the HTTP
API with its document, forms of the dashboard, tools of agents. To add a command, add its record to `requests`
and its row here; what it does stands in the job's controller or master, and `api.steering` has its method.

Which commands need a second person is no column: a team decides that, by action, in its settings
(`second_person.Rules`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.commands import requests
from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.people import AccessRole


@dataclass(frozen=True, slots=True)
class Row:
    """One command.

    Parameters
    ----------
    action
        Its name.
    of_others, of_own
        The role that it needs, for a job of another person and for one's own.
    request
        What it takes; None: it is none about a running job.
    summary
        What it does, as half a sentence, for the help; empty: its verb, if any, does more than this.
    example
        Words after its verb, for the help.
    """

    action: Action
    of_others: AccessRole
    of_own: AccessRole
    request: type[requests.Request] | None = None
    summary: str = ""
    example: str = ""


_VIEWER, _OPERATOR, _ADMIN = AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN

COMMANDS = (
    Row(Action.VIEW, _VIEWER, _VIEWER),
    Row(Action.PROPOSE, _VIEWER, _VIEWER),
    Row(
        Action.ACCEPT, _OPERATOR, _OPERATOR, requests.Accept,
        "accept a proposal, or an action against stragglers", 'quick-start p1 --why "faster"',
    ),
    Row(
        Action.REJECT, _OPERATOR, _OPERATOR, requests.Reject,
        "reject a proposal, or an action against stragglers", "quick-start p1",
    ),
    Row(
        Action.OVERRIDE, _OPERATOR, _OPERATOR, requests.Override,
        "answer a proposal with a plan of your own", "quick-start --workers 3",
    ),
    Row(
        Action.SCALE, _OPERATOR, _OPERATOR, requests.Scale,
        "change the plan of a running job", "--workers 3 --ps-cpu 0.5",
    ),
    Row(
        Action.UNDO, _OPERATOR, _OPERATOR, requests.Undo,
        "undo the latest decision, even while it is being applied; a second undo redoes it",
        'quick-start --why "it got slower"',
    ),
    Row(Action.MODE, _OPERATOR, _OPERATOR, requests.SetMode, "say who decides", "quick-start auto"),
    Row(
        Action.PIN, _OPERATOR, _OPERATOR, requests.Pin,
        "fix parts of every plan to come", "--worker-memory 4096",
    ),
    Row(
        Action.BUDGET, _OPERATOR, _OPERATOR, requests.SetBudget,
        "set the most that a job may spend in total; then it saves and stops", "quick-start 40",
    ),
    Row(
        Action.MITIGATE, _OPERATOR, _OPERATOR, Mitigate,
        "order an action against stragglers; without one, show what waits and what was done",
        "quick-start --restart worker-1",
    ),
    Row(Action.RETRY_SHARD, _OPERATOR, _OPERATOR, requests.RetryShard),
    Row(Action.SKIP_SHARD, _OPERATOR, _OPERATOR, requests.SkipShard),
    Row(Action.BATCHES, _OPERATOR, _OPERATOR, requests.SetBatches),
    Row(Action.SUBMIT, _OPERATOR, _OPERATOR),
    Row(Action.FINISH, _ADMIN, _OPERATOR, requests.Finish),
    Row(Action.STOP, _ADMIN, _OPERATOR, requests.Stop),
    Row(Action.DELETE, _ADMIN, _OPERATOR),
)  # fmt: skip

ROW_OF = {row.action: row for row in COMMANDS}
REQUESTS = tuple(row.request for row in COMMANDS if row.request is not None)
DECISIONS = tuple(request for request in REQUESTS if issubclass(request, requests.Decides))
OTHERS = tuple(request for request in REQUESTS if request not in DECISIONS)


def first_line(request: type[requests.Request]) -> str:
    """Return what a command does, as a sentence."""
    assert request.__doc__ is not None
    return request.__doc__.partition("\n")[0]
