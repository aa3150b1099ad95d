"""The OOM forecast: when nodes of a role run out of memory, how certain that is, and what avoids it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.views import summary
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine

NEVER = "not during the job"
UNLIKELY = "probably not during the job"


def running_out(snapshot: JobSnapshot) -> tuple[MemoryLine, ...]:
    """Return the roles that will, or are likely to, run out of memory before the end; soonest first."""
    return () if snapshot.phase.is_final else summary.running_out(snapshot.memory)


def full_in_words(line: MemoryLine) -> str:
    """Say when a node is full, for a cell; a role at risk is never said to be safe."""
    if line.full_in_s is not None:
        return units.duration(line.full_in_s)
    return UNLIKELY if summary.is_at_risk(line) else NEVER


def full_words(line: MemoryLine) -> str:
    """Say the same in a sentence: ``full in about 41 min``, ``not full during the job``."""
    if line.full_in_s is not None:
        return f"full in about {units.duration(line.full_in_s)}"
    return f"{'probably ' if summary.is_at_risk(line) else ''}not full during the job"


def countdown(line: MemoryLine) -> str:
    """Format when a node is full: ``a ps is full in 41 min (5 %: 22 min, 95 %: not during the job)``."""
    early, late = (
        NEVER if s is None else units.duration(s) for s in (line.full_in_low_s, line.full_in_high_s)
    )
    if line.full_in_s is None:
        first = f", in {early} at the soonest" if line.full_in_low_s is not None else ""
        return f"{headline(line)}{first}"
    has_range = line.full_in_low_s is not None or line.full_in_high_s is not None
    return headline(line) + (f" (5 %: {early}, 95 %: {late})" if has_range else "")


def headline(line: MemoryLine) -> str:
    """Format when a node is full, without a band: ``a ps is full in 41 min``."""
    if line.full_in_s is None:
        return f"a {line.role} may be full before the end"
    return f"a {line.role} is full in {units.duration(line.full_in_s)}"


def clock_words(line: MemoryLine) -> str:
    """Format time, probability and growth law as a sentence."""
    chance = f" ({chance_words(line.oom_probability)} chance)" if line.oom_probability else ""
    how = "its measurements vary up to it" if line.law == "as now" else f"it grows by a {line.law} law"
    limit = units.memory(line.limit_mib)
    return f"{countdown(line)}. It reaches its limit of {limit}{chance}, because {how}."


def remedy(snapshot: JobSnapshot) -> str:
    """Describe the change that avoids it, if the open proposal is for that; else nothing."""
    proposal = snapshot.open_proposal
    if proposal is None or proposal.kind is not ProposalKind.PROTECT:
        return ""
    changes = (
        f"{units.memory(c.before.memory_mib)} to {units.memory(c.after.memory_mib)} of each {c.role}"
        for c in proposal.candidate.scale.changes
        if c.before.memory_mib != c.after.memory_mib
    )
    what = and_list(changes) or str(proposal.candidate.scale)
    return f"{proposal.id} avoids it: {what}."
