"""Verbs that show plans and who is slow, beside those that decide, which `command_verbs` makes of a table."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, cast

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.why import Question
from dlrover_nb.magics.flags import JOB, PROPOSAL, WHY, job_or
from dlrover_nb.magics.parser import one_of, worker_size
from dlrover_nb.magics.verb import Verb, argument
from dlrover_nb.magics.verbs.command_verbs import (
    COMMAND_VERBS,
    SIZE_FIELDS,
    argument_of,
    check_sizes,
    sizes_of,
)

if TYPE_CHECKING:
    from dlrover_nb.api.views.goals_view import GoalsView
    from dlrover_nb.api.views.job_views import DecisionView, PlansView, StatusView, WhatIfView, WhyView
    from dlrover_nb.api.views.staleness_view import StalenessView
    from dlrover_nb.api.views.stragglers_view import MitigationsView, StragglersView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

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
    help=f"one of {', '.join(f'{each.number} {each}' for each in Question)}; default: all",
)
SOLUTION = argument(
    "--solution",
    metavar="NAME",
    type=one_of("solution", SolutionName, lambda: extensions.names(extensions.STRAGGLER_SOLUTIONS)),
    help=f"rules to ask for actions, {', '.join(SolutionName)}; default: those of the job",
)
BATCHES = argument(
    "sizes", metavar="WORKER=N", nargs="*", type=worker_size, help="samples of one mini-batch of a worker"
)
_MITIGATE = COMMAND_VERBS[Action.MITIGATE]
_job_or_proposal = job_or("proposal", re.compile(r"p\d+"))


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


def stragglers(commands: Commands, *, job: str | None, solution: str | None) -> StragglersView:
    """Show which nodes are slow, with the numbers that say so, and what would help."""
    shown = commands.job(job).stragglers(solution)
    if shown.snapshot.open_mitigation is not None:
        commands.session.note_shown_action(shown.snapshot)
    return shown


def staleness(commands: Commands, *, job: str | None) -> StalenessView:
    """Show how old gradients are, how far workers are apart, and what each of them trains."""
    return commands.job(job).staleness()


def mitigate(
    commands: Commands, *, job: str | None, why: str, **given: object
) -> DecisionView | MitigationsView:
    """Order an action against stragglers; where none is given, show those that there are."""
    if why or any(value is not None for value in given.values()):
        ordered: DecisionView = _MITIGATE.handler(commands, job=job, why=why, **given)  # type: ignore[assignment]  # of a verb
        return ordered
    shown = commands.job(job).mitigations()
    commands.session.note_shown_action(shown.snapshot)
    return shown


def whatif(commands: Commands, *, job: str | None, **sizes: float | None) -> WhatIfView:
    """Predict the effect of another plan; parts that are not given stay as they are."""
    return commands.job(job).whatif(**asdict(sizes_of(sizes)))


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
        (JOB, *map(argument_of, SIZE_FIELDS)),
        "quick-start --workers 4",
        (check_sizes,),
    ),
    *(COMMAND_VERBS[each] for each in COMMAND_VERBS if each is not Action.MITIGATE),
    Verb(
        "stragglers",
        "show which nodes are slow, and what would help",
        stragglers,
        (JOB, SOLUTION),
        "quick-start",
    ),
    Verb(
        "staleness",
        "show how old gradients are, how far workers are apart, and what each trains",
        staleness,
        (JOB,),
        "quick-start",
        under="show",
    ),
    replace(_MITIGATE, handler=mitigate),
    Verb(
        "batches",
        "set batch sizes of workers, to relieve a slow one",
        batches,
        (JOB, BATCHES, WHY),
        "quick-start worker-0=256 worker-1=128",
        (job_or_size,),
    ),
)
