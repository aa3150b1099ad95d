"""The sentence of a job in a list: the one of its own view, as far as its summary can make it. Pure.

The states stand in the order of `widgets.jobs.headline`. What that takes from a whole snapshot is left out or
said in general: how the last change turned out, how many plans were compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets import sentences as words
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.summary import JobSummary

MOST_LETTERS = 240  # of the reason of a failure
NOTHING = "Nothing to do: no other plan within your limits is clearly better."


def job_sentence(job: JobSummary) -> str:
    """Return what a colleague would say of a job now."""
    if job.phase.is_final:
        return _ended(job)
    if job.plan is None:  # its master has not answered yet
        return words.sentence(_first_line(job.message) or "its master gives no answer yet")
    return _waits(job) or _goes_on(job)


def _ended(job: JobSummary) -> str:
    ran_s = None if job.ended_at_s is None else job.ended_at_s - job.started_at_s
    match job.phase:
        case JobPhase.FAILED:
            return words.failed(ran_s, _first_line(job.message))
        case JobPhase.STOPPED:
            return words.stopped(ran_s)
        case _:
            return words.done(ran_s, job.outlook.evaluation)


def _first_line(message: str) -> str:
    return next(iter(message.strip().splitlines()), "")[:MOST_LETTERS]


def _waits(job: JobSummary) -> str:
    """Return what waits for a person, or is being changed; a change under way comes before its successor."""
    outlook, change = job.outlook, job.outlook.proposed
    if outlook.in_question is not None:
        return words.rows_in_question(outlook.in_question)
    if starting := _starting(job):
        return starting
    is_urgent = change is not None and change.kind is ProposalKind.PROTECT
    if outlook.wanted is not None and job.plan is not None and not is_urgent:
        goes_on = "Training goes on." if job.samples_per_s > 0 else "Training is paused."
        return f"{words.changing(job.plan, outlook.wanted)} {goes_on}"
    if change is not None:
        return words.proposed(change, outlook.currency, outlook.full, job.memory_needs)
    action = outlook.mitigation
    return "" if action is None else words.slow_node(action.words, action.gain)


def _starting(job: JobSummary) -> str:
    is_early = job.phase in {JobPhase.STARTING, JobPhase.TRAINING}
    if not is_early or job.done or job.samples_per_s:
        return ""
    n = job.outlook.n_waiting
    waits = f": {units.counted(n, 'node')} wait{'s' * (n == 1)} for room" if n else ""
    return f"Waiting for the first steps{waits}."


def _goes_on(job: JobSummary) -> str:
    outlook = job.outlook
    if outlook.host:
        return outlook.host
    if job.phase is JobPhase.EVALUATING:
        return words.EVALUATING
    if outlook.mode is Mode.MANUAL:
        return words.MANUAL
    return NOTHING if outlook.predicted is not None else words.MEASURING
