"""Verbs that show plans and decide about them.

An `accept` without an id accepts the proposal that was shown last, so it is refused, with the reason, when a
better one has replaced it since. Only where none was shown, it accepts the open one.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import Mode
from dlrover_nb.core.structs.job.solutions import SolutionName
from dlrover_nb.core.why import Question
from dlrover_nb.magics.flags import ANSWERED, JOB, PROPOSAL, SIZES, WHY, collect_sizes, job_or
from dlrover_nb.magics.parser import (
    money_or_off,
    node_cores,
    node_memory,
    one_of,
    whole,
    worker_rates,
    worker_size,
    worker_sizes,
)
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.inputs.sizes import Sizes
    from dlrover_nb.api.views.goals_view import GoalsView
    from dlrover_nb.api.views.job_views import DecisionView, PlansView, StatusView, WhatIfView, WhyView
    from dlrover_nb.api.views.stragglers_view import MitigationsView, StragglersView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

ANSWER = (JOB, ANSWERED, WHY)
ACTIONS = (
    argument("--restart", metavar="NODE", help="start another node beside this one, which then leaves"),
    argument("--move", metavar="PS", help="move parameters of a parameter server to the others"),
    argument(
        "--batches",
        metavar="WORKER=N,...",
        type=worker_sizes,
        help="samples of one mini-batch of each worker, such as worker-0=256,worker-1=128",
    ),
    argument(
        "--backup", metavar="N", type=whole, help="go on without the N slowest workers of each iteration"
    ),
    argument(
        "--rates",
        metavar="WORKER=FACTOR,...",
        type=worker_rates,
        help="multiply learning rates of workers, such as worker-0=0.5",
    ),
    argument(
        "--cores",
        metavar="NODE=CORES",
        type=node_cores,
        help="let one node use other cores than the plan says, such as ps-0=2",
    ),
    argument(
        "--memory",
        metavar="NODE=MIB",
        type=node_memory,
        help="let one node use other memory than the plan says, such as ps-0=4096",
    ),
)
MODE = argument("mode", metavar="MODE", type=one_of("mode", Mode), help="manual, suggest or auto")
TOTAL = argument(
    "total", metavar="MONEY|off", type=money_or_off, help="the most that the job may spend, with what it has"
)
CLEAR = argument("--clear", action="store_true", help="remove the existing pins first")
DECISION = argument(
    "decision", metavar="DECISION", nargs="?", help="id of the latest decision that you know, such as d3"
)
GOAL = argument(
    "--goal",
    action="append",
    metavar="GOAL",
    help="≤ 12 $/h, ≤ 40 $ in total, done by 18:00, done within 3 h, ≥ 5000 samples/s, ≤ 16 cores, ≤ 64 GiB; "
    "several with commas, or a line each in a cell",
)
QUESTION = argument(
    "--question",
    metavar="N|WORD",
    type=one_of("question", [word for each in Question for word in (each, str(each.number))]),
    help=f"one of {', '.join(f'{each.number} {each}' for each in Question)}; without it all are answered",
)
SOLUTION = argument(
    "--solution",
    metavar="NAME",
    type=one_of("solution", SolutionName),
    default=SolutionName.ANTDT_ND,
    help=f"rules to ask for actions: {', '.join(SolutionName)}",
)
ACTION_NAMES = ("restart", "move", "batches", "backup", "rates", "cores", "memory")
BATCHES = argument(
    "sizes", metavar="WORKER=N", nargs="*", type=worker_size, help="samples of one mini-batch of a worker"
)
_job_or_proposal = job_or("proposal", re.compile(r"p\d+"))
_job_or_answered = job_or("proposal", re.compile(r"[pm]\d+"))
_job_or_decision = job_or("decision", re.compile(r"d\d+"))


def plans(commands: Commands, *, job: str | None) -> PlansView:
    """Show what is proposed, and why."""
    shown = commands.job(job).plans()
    commands.session.note_shown(shown.snapshot)
    return shown


def plan(commands: Commands, *, job: str | None, goal: list[str] | None, cell: str | None) -> GoalsView:
    """Show the cheapest plan that meets some goals, or which goal is in the way."""
    return commands.job(job).plan("\n".join([*(goal or ()), cell or ""]))


def why(commands: Commands, *, job: str | None, proposal: str | None, question: str | None) -> WhyView:
    """Answer questions about a proposal: the one named, the one shown last, or the open one."""
    handle = commands.job(job)
    shown = handle.why(commands.session.proposal_for(handle.name, proposal), question=question)
    commands.session.note_names(shown.snapshot)
    return shown


def stragglers(commands: Commands, *, job: str | None, solution: str) -> StragglersView:
    """Show which nodes are slow, with the numbers that say so, and what would help."""
    shown = commands.job(job).stragglers(solution)
    if shown.snapshot.open_mitigation is not None:
        commands.session.note_shown_action(shown.snapshot)
    return shown


def mitigate(
    commands: Commands, *, job: str | None, given: dict[str, Any], why: str
) -> DecisionView | MitigationsView:
    """Order an action against stragglers; where none is given, show those that there are."""
    handle = commands.job(job)
    if given or why:
        return commands.decided(handle.mitigate(**given, why=why))
    shown = handle.mitigations()
    commands.session.note_shown_action(shown.snapshot)
    return shown


def _collect_action(values: Values) -> Values:
    """Collect what was given of an action in ``given``, by the names that `Job.mitigate` takes."""
    others = {name: value for name, value in values.items() if name not in ACTION_NAMES}
    given = {name: values[name] for name in ACTION_NAMES if values[name] is not None}
    for name in given.keys() & {"batches", "rates", "cores", "memory"}:
        given[name] = dict(cast("list[tuple[str, object]]", given[name]))
    return {**others, "given": given}


def whatif(commands: Commands, *, job: str | None, sizes: Sizes) -> WhatIfView:
    """Predict the effect of another plan; parts that are not given stay as they are."""
    return commands.job(job).whatif(**asdict(sizes))


def accept(commands: Commands, *, job: str | None, proposal: str | None, why: str) -> DecisionView:
    """Accept a proposal, or an action against stragglers."""
    handle = commands.job(job)
    return commands.decided(handle.accept(commands.session.answered_for(handle.name, proposal), why=why))


def override(
    commands: Commands, *, job: str | None, proposal: str | None, sizes: Sizes, why: str
) -> DecisionView:
    """Answer a proposal with another plan; parts that are not given stay as they are."""
    handle = commands.job(job)
    proposal = commands.session.proposal_for(handle.name, proposal)
    return commands.decided(handle.override(**asdict(sizes), proposal=proposal, why=why))


def reject(commands: Commands, *, job: str | None, proposal: str | None, why: str) -> DecisionView:
    """Reject a proposal, or an action against stragglers."""
    handle = commands.job(job)
    return commands.decided(handle.reject(commands.session.answered_for(handle.name, proposal), why=why))


def pin(commands: Commands, *, job: str | None, sizes: Sizes, clear: bool, why: str) -> DecisionView:
    """Fix parts of every plan to come, beside what is fixed already; `clear` removes that first."""
    return commands.decided(commands.job(job).pin(**asdict(sizes), clear=clear, why=why))


def mode(commands: Commands, *, job: str | None, mode: str, why: str) -> DecisionView:
    """Set who decides from now on."""
    return commands.decided(commands.job(job).mode(mode, why=why))


def budget(commands: Commands, *, job: str | None, total: float | None, why: str) -> DecisionView:
    """Set the most that the job may spend."""
    return commands.decided(commands.job(job).budget(total, why=why))


def scale(commands: Commands, *, job: str | None, sizes: Sizes, why: str) -> DecisionView:
    """Change the running plan; parts that are not given stay as they are."""
    return commands.decided(commands.job(job).scale(**asdict(sizes), why=why))


def undo(commands: Commands, *, job: str | None, decision: str | None, why: str) -> DecisionView:
    """Undo the latest decision; a named one must be the latest."""
    return commands.decided(commands.job(job).undo(decision, why=why))


def batches(commands: Commands, *, job: str | None, sizes: list[tuple[str, int]], why: str) -> StatusView:
    """Set batch sizes of workers."""
    return commands.job(job).batches(dict(sizes), why=why)


def job_or_size(values: Values) -> Values:
    """Read a first word such as ``worker-0=256`` as a size, not as a job's name."""
    job = values["job"]
    if not isinstance(job, str) or "=" not in job:
        return values
    try:
        first = worker_size(job)
    except argparse.ArgumentTypeError as error:
        raise InvalidValueError(str(error)) from None
    return {**values, "job": None, "sizes": [first, *cast("list[object]", values["sizes"])]}


VERBS = (
    Verb(
        "plan",
        "find the cheapest plan that meets some goals, such as ≤ 12 $/h, done by 18:00",
        plan,
        (JOB, GOAL),
        'quick-start --goal "done within 3 h"',
        takes_cell=True,
    ),
    Verb("plans", "show the open proposal, the front and the fit", plans, (JOB,), "quick-start"),
    Verb(
        "why",
        "say why a plan is proposed, or why none is, and what would change that",
        why,
        (JOB, PROPOSAL, QUESTION),
        "quick-start p1",
        (_job_or_proposal,),
    ),
    Verb(
        "whatif",
        "say what another plan would bring; nothing changes",
        whatif,
        (JOB, *SIZES),
        "quick-start --workers 4",
        (collect_sizes,),
    ),
    Verb(
        "accept",
        "accept a proposal, or an action against stragglers",
        accept,
        ANSWER,
        'quick-start p1 --why "faster"',
        (_job_or_answered,),
    ),
    Verb(
        "override",
        "answer a proposal with a plan of your own",
        override,
        (JOB, PROPOSAL, WHY, *SIZES),
        "quick-start --workers 3",
        (_job_or_proposal, collect_sizes),
    ),
    Verb(
        "reject",
        "reject a proposal, or an action against stragglers",
        reject,
        ANSWER,
        "quick-start p1",
        (_job_or_answered,),
    ),
    Verb(
        "pin",
        "fix parts of every plan to come",
        pin,
        (JOB, WHY, *SIZES, CLEAR),
        "--worker-memory 4096",
        (collect_sizes,),
    ),
    Verb("mode", "say who decides", mode, (JOB, MODE, WHY), "quick-start auto"),
    Verb(
        "budget",
        "set the most that a job may spend in total; then it saves and stops",
        budget,
        (JOB, TOTAL, WHY),
        "quick-start 40",
    ),
    Verb(
        "scale",
        "change the plan of a running job",
        scale,
        (JOB, WHY, *SIZES),
        "--workers 3 --ps-cpu 0.5",
        (collect_sizes,),
    ),
    Verb(
        "undo",
        "take back the latest decision, also one that is being applied; again: redo it",
        undo,
        (JOB, DECISION, WHY),
        'quick-start --why "it got slower"',
        (_job_or_decision,),
    ),
    Verb(
        "stragglers",
        "show which nodes are slow, and what would help",
        stragglers,
        (JOB, SOLUTION),
        "quick-start",
    ),
    Verb(
        "mitigate",
        "order an action against stragglers; without one, show what waits and what was done",
        mitigate,
        (JOB, *ACTIONS, WHY),
        "quick-start --restart worker-1",
        (_collect_action,),
    ),
    Verb(
        "batches",
        "set batch sizes of workers, to relieve a slow one",
        batches,
        (JOB, BATCHES, WHY),
        "quick-start worker-0=256 worker-1=128",
        (job_or_size,),
    ),
)
