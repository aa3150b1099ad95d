"""Verbs that show plans and decide about them.

An `accept` without an id accepts the proposal that was shown last, so it is refused, with the reason, when a
better one has replaced it since. Only where none was shown, it accepts the open one.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job import Mode
from dlrover_nb.core.structs.solutions import SolutionName
from dlrover_nb.magics.flags import JOB, PROPOSAL, SIZES, WHY, collect_sizes, job_or
from dlrover_nb.magics.parser import one_of, worker_size
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.sizes import Sizes
    from dlrover_nb.api.stragglers_view import StragglersView
    from dlrover_nb.api.views import DecisionView, PlansView, StatusView, WhatIfView, WhyView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

ANSWER = (JOB, PROPOSAL, WHY)
MODE = argument("mode", metavar="MODE", type=one_of("mode", Mode), help="manual, suggest or auto")
CLEAR = argument("--clear", action="store_true", help="remove the existing pins first")
DECISION = argument(
    "decision", metavar="DECISION", nargs="?", help="id of the latest decision that you know, such as d3"
)
SOLUTION = argument(
    "--solution",
    metavar="NAME",
    type=one_of("solution", SolutionName),
    default=SolutionName.ANTDT_ND,
    help=f"rules to ask for actions: {', '.join(SolutionName)}",
)
BATCHES = argument(
    "sizes", metavar="WORKER=N", nargs="*", type=worker_size, help="samples of one mini-batch of a worker"
)
_job_or_proposal = job_or("proposal", re.compile(r"p\d+"))
_job_or_decision = job_or("decision", re.compile(r"d\d+"))


def plans(commands: Commands, *, job: str | None) -> PlansView:
    """Show what is proposed, and why."""
    shown = commands.job(job).plans()
    commands.session.note_shown(shown.snapshot)
    return shown


def why(commands: Commands, *, job: str | None, proposal: str | None) -> WhyView:
    """Explain a proposal: the one named, the one shown last, or the open one."""
    found = commands.job(job)
    shown = found.why(commands.session.proposal_for(found.name, proposal))
    commands.session.note_names(shown.snapshot)
    return shown


def stragglers(commands: Commands, *, job: str | None, solution: str) -> StragglersView:
    """Show which nodes are slow, with the numbers that say so, and what would help."""
    return commands.job(job).stragglers(solution)


def whatif(commands: Commands, *, job: str | None, sizes: Sizes) -> WhatIfView:
    """Predict the effect of another plan; parts that are not given stay as they are."""
    return commands.job(job).whatif(**asdict(sizes))


def accept(commands: Commands, *, job: str | None, proposal: str | None, why: str) -> DecisionView:
    """Accept a proposal."""
    found = commands.job(job)
    return commands.decided(found.accept(commands.session.proposal_for(found.name, proposal), why=why))


def override(
    commands: Commands, *, job: str | None, proposal: str | None, sizes: Sizes, why: str
) -> DecisionView:
    """Answer a proposal with another plan; parts that are not given stay as they are."""
    found = commands.job(job)
    proposal = commands.session.proposal_for(found.name, proposal)
    return commands.decided(found.override(**asdict(sizes), proposal=proposal, why=why))


def reject(commands: Commands, *, job: str | None, proposal: str | None, why: str) -> DecisionView:
    """Reject a proposal."""
    found = commands.job(job)
    return commands.decided(found.reject(commands.session.proposal_for(found.name, proposal), why=why))


def pin(commands: Commands, *, job: str | None, sizes: Sizes, clear: bool, why: str) -> DecisionView:
    """Fix parts of every plan to come, beside what is fixed already; `clear` removes that first."""
    return commands.decided(commands.job(job).pin(**asdict(sizes), clear=clear, why=why))


def mode(commands: Commands, *, job: str | None, mode: str, why: str) -> DecisionView:
    """Set who decides from now on."""
    return commands.decided(commands.job(job).mode(mode, why=why))


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
    Verb("plans", "show the open proposal, the front and the fit", plans, (JOB,), "quick-start"),
    Verb(
        "why",
        "say why a plan is proposed, or why none is, and what would change that",
        why,
        (JOB, PROPOSAL),
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
    Verb("accept", "accept a proposal", accept, ANSWER, 'quick-start p1 --why "faster"', (_job_or_proposal,)),
    Verb(
        "override",
        "answer a proposal with a plan of your own",
        override,
        (*ANSWER, *SIZES),
        "quick-start --workers 3",
        (_job_or_proposal, collect_sizes),
    ),
    Verb("reject", "reject a proposal", reject, ANSWER, "quick-start p1", (_job_or_proposal,)),
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
        "batches",
        "set batch sizes of workers, to relieve a slow one",
        batches,
        (JOB, BATCHES, WHY),
        "quick-start worker-0=256 worker-1=128",
        (job_or_size,),
    ),
)
