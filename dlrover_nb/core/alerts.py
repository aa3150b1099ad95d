"""When an alert begins and ends: rules from the state of a job and the time alone.

Each rule gives a `Finding`: that it is bad, that it is good again, or neither. Between the two thresholds an
alert stays as it is, so a measurement that swings around one does not begin and end it over and over.
Rejected: a number of readings in a row instead of two thresholds, since how often jobs are read depends on
how many there are.

What one snapshot cannot tell, since when there was no progress, is carried from one reading to the next in a
`JobMemory`. It counts on the clock of the job's master, which also dates what the job reports; a simulated
job's runs faster than ours.

Who is slow is what the job's controller finds, which watches all the time: an alert says nothing else than
the views and the action that is proposed. A master of a release without findings has no alerts of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.pricing import cost_per_hour
from dlrover_nb.core.structs.job.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace
from dlrover_nb.core.structs.views.alerts import Alert, AlertKind
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.decisions.commands import SecondRequest
    from dlrover_nb.core.structs.decisions.decisions import Mitigation, Proposal
    from dlrover_nb.core.structs.training.stragglers import Straggler
    from dlrover_nb.core.structs.views.alerts import AboutJob, AlertRules
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

MINUTE_S, HOUR_S = 60.0, 3600.0
RESTART_TOLD_S = 12 * HOUR_S  # of a master at night: who reads it in the morning looks for the cause


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says of a job; neither bad nor good: an open alert stays, none begins."""

    kind: AlertKind
    is_bad: bool
    is_good: bool
    text: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What is carried from one reading of a job to the next, on the clock of its master.

    Parameters
    ----------
    progress_at_s, n_sample_done
        When it last got on, and how far it was; None: it has not been read.
    """

    progress_at_s: float | None = None
    n_sample_done: int = -1


def remembered(before: JobMemory, snapshot: JobSnapshot) -> JobMemory:
    """Return the memory after a reading."""
    reports = [node.last.at_s for node in _workers(snapshot) if node.last is not None and node.last.n_iter]
    at_s = max(reports, default=None)
    if not _should_get_on(snapshot) or snapshot.train.n_sample_done != before.n_sample_done:
        at_s = snapshot.at_s
    times = [each for each in (at_s, before.progress_at_s) if each is not None]
    return JobMemory(max(times, default=snapshot.at_s), snapshot.train.n_sample_done)


def findings(snapshot: JobSnapshot, memory: JobMemory, rules: AlertRules) -> tuple[Finding, ...]:
    """Return what the rules say of a job, by its newest snapshot and the memory after it."""
    if snapshot.phase.is_final:
        over = (Finding(kind, is_bad=False, is_good=True) for kind in OF_A_RUNNING_JOB)
        return (*over, _failed(snapshot))
    return (
        _oom(snapshot, rules),
        _straggler(snapshot, rules),
        _stall(snapshot, memory, rules),
        _budget(snapshot, rules),
        _total_budget(snapshot, rules),
        _deadline(snapshot, rules),
        _host(snapshot, rules),
        _proposal(snapshot, rules),
        _damage(snapshot),
        _restart(snapshot),
        _blocked(snapshot),
        _failed(snapshot),
    )


OF_A_RUNNING_JOB = (
    AlertKind.OOM,
    AlertKind.STRAGGLER,
    AlertKind.STALL,
    AlertKind.BUDGET,
    AlertKind.BUDGET_TOTAL,
    AlertKind.DEADLINE,
    AlertKind.HOST,
    AlertKind.PROPOSAL,
    AlertKind.DAMAGE,
    AlertKind.MASTER_RESTARTED,
    AlertKind.BLOCKED,
)


def changes(
    about: AboutJob, open_alerts: Iterable[Alert], findings: Iterable[Finding], at_s: float
) -> tuple[tuple[Alert, ...], tuple[Alert, ...]]:
    """Return which open alerts of a job end, and which new ones begin.

    An alert about something else than what is found now (another proposal) ends, and a new one begins.
    """
    by_kind = {alert.kind: alert for alert in open_alerts}
    ends, begins = [], []
    for finding in findings:
        before = by_kind.get(finding.kind)
        is_another = before is not None and finding.is_bad and before.subject != finding.subject
        if before is not None and (finding.is_good or is_another):
            ends.append(before)
        if finding.is_bad and (before is None or is_another):
            begins.append(Alert(about, finding.kind, at_s, finding.text, finding.subject))
    return tuple(ends), tuple(begins)


def request_finding(requests: Iterable[SecondRequest], at_s: float, rules: AlertRules) -> Finding:
    """Return what the rule on second persons says of the requests of one job, oldest first."""
    oldest = next(iter(requests), None)
    if oldest is None:
        return Finding(AlertKind.SECOND_PERSON, is_bad=False, is_good=True)
    text = f"{oldest.command.words}, asked by {oldest.first}, waits for a second person: {oldest.rule}"
    is_late = at_s - oldest.at_s >= rules.second_person_waits_s
    return Finding(AlertKind.SECOND_PERSON, is_bad=is_late, is_good=False, text=text, subject=oldest.id)


def lost_finding(silent_s: float, rules: AlertRules) -> Finding:
    """Return what the rule on masters says of one that has been silent for so long; 0: it answers."""
    text = f"its master has not answered for {duration(silent_s)}, while the cluster does"
    return Finding(
        AlertKind.MASTER_LOST, is_bad=silent_s >= rules.master_lost_s > 0, is_good=silent_s <= 0, text=text
    )


def duration(seconds: float) -> str:
    """Return a time in words, as alerts say it."""
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:,.1f} h"


# the rules


def _oom(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    """Return what the rule says of memory; a forecast names a time only once it is judged to come true."""
    filling = [line for line in snapshot.memory if line.full_in_s is not None]
    if not filling:
        return Finding(AlertKind.OOM, is_bad=False, is_good=True)
    line = min(filling, key=lambda each: each.full_in_s or 0.0)
    full_in_s = line.full_in_s or 0.0
    text = (
        f"a {line.role} uses {line.now_mib:,.0f} of {line.limit_mib:,} MiB and will be full in "
        f"{duration(full_in_s)}"
    )
    return Finding(
        AlertKind.OOM,
        is_bad=full_in_s < rules.oom_within_s,
        is_good=full_in_s > rules.oom_within_s * (1 + rules.hysteresis),
        text=text,
    )


def _straggler(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    """Return what the rule says of the nodes that the job's controller finds slow."""
    late = [
        each
        for each in snapshot.stragglers
        if each.pace is Pace.PERSISTENT or snapshot.at_s - each.since_s >= rules.straggler_for_s
    ]
    if not late:
        return Finding(AlertKind.STRAGGLER, is_bad=False, is_good=not snapshot.stragglers)
    worst = max(late, key=lambda each: (each.window_s, each.ratio))  # the longest window says the most
    n_more = len({each.node for each in late}) - 1
    text = (
        f"{worst.node} ({worst.role}) takes {worst.ratio:.2f} times as long as its peers, {worst.pace} over "
        f"{duration(worst.window_s)}" + (f", and {n_more} more are slow" if n_more else "")
    )
    text = "; ".join((text, *_answers(worst, snapshot)))
    return Finding(AlertKind.STRAGGLER, is_bad=True, is_good=False, text=text)


def _answers(slow: Straggler, snapshot: JobSnapshot) -> list[str]:
    """Say what is proposed and what is being done about a slow node."""
    answers = []
    for each in snapshot.mitigations:
        action = each.action.action
        if not (slow.role is Role.WORKER if action.is_global else action.node == slow.node):
            continue
        if each.is_open:
            answers.append(f"{each.id} ({each.words}) waits for an answer")
        elif each.is_under_way:
            answers.append(f"{each.id} ({each.words}) is under way")
    return answers


def _stall(snapshot: JobSnapshot, memory: JobMemory, rules: AlertRules) -> Finding:
    idle_s = snapshot.at_s - (snapshot.at_s if memory.progress_at_s is None else memory.progress_at_s)
    usual = [
        node.last.iter_s for node in _workers(snapshot) if node.last is not None and node.last.iter_s > 0
    ]
    limit_s = max(rules.stall_least_s, rules.stall_iterations * median(usual) if usual else 0.0)
    text = f"no step has finished for {duration(idle_s)}"
    if usual:
        text += f"; one usually takes {median(usual):.3g} s"
    return Finding(
        AlertKind.STALL,
        is_bad=_should_get_on(snapshot) and idle_s >= limit_s,
        is_good=idle_s < limit_s * (1 - rules.hysteresis),
        text=text,
    )


def _budget(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    budget, prices = snapshot.spec.budget_per_hour, snapshot.spec.prices
    now = cost_per_hour(snapshot.ran or snapshot.target, prices)
    if budget is None or now is None:
        return Finding(AlertKind.BUDGET, is_bad=False, is_good=True)
    spent = spent_per_hour(snapshot)
    most = max(now, spent if spent is not None else now) + fixed_per_hour(snapshot.spec)
    what = "the run so far cost" if spent is not None and spent > now else "the plan costs"
    text = f"{what} {most:,.2f} {prices.currency} an hour, more than the budget of {budget:,.2f}"
    limit = budget * rules.budget_share
    return Finding(
        AlertKind.BUDGET, is_bad=most > limit, is_good=most <= limit * (1 - rules.hysteresis), text=text
    )


def _total_budget(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    outlook = snapshot.budget
    if outlook is None:
        return Finding(AlertKind.BUDGET_TOTAL, is_bad=False, is_good=True)
    limit = rules.budget_total_share
    return Finding(
        AlertKind.BUDGET_TOTAL,
        is_bad=outlook.share >= limit > 0,
        is_good=outlook.share < limit * (1 - rules.hysteresis),
        text=outlook.words,
    )


def spent_per_hour(snapshot: JobSnapshot) -> float | None:
    """Return the mean cost per hour since the first plan ran; None: not known."""
    starts = [marker.at_s for marker in snapshot.markers]
    spans = [end - start for start, end in zip(starts, [*starts[1:], snapshot.at_s], strict=True)]
    costs = [cost_per_hour(marker.plan, snapshot.spec.prices) for marker in snapshot.markers]
    costed = [(cost, span) for cost, span in zip(costs, spans, strict=True) if cost is not None and span > 0]
    total_s = sum(span for _, span in costed)
    return sum(cost * span for cost, span in costed) / total_s if total_s else None


def _deadline(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    outlook = snapshot.deadline
    if outlook is None:
        return Finding(AlertKind.DEADLINE, is_bad=False, is_good=True)
    least = rules.deadline_least
    return Finding(
        AlertKind.DEADLINE,
        is_bad=outlook.in_time < least,
        is_good=outlook.in_time >= least + (1 - least) * rules.hysteresis,
        text=f"the deadline is {outlook.words}",
    )


def _host(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    load = snapshot.host
    if load is None:
        return Finding(AlertKind.HOST, is_bad=False, is_good=True)
    limit = rules.host_share
    return Finding(
        AlertKind.HOST,
        is_bad=load.share >= limit > 0,
        is_good=load.share < limit * (1 - rules.hysteresis),
        text=load.words or f"other work on its host takes {percent(load.share)} of its time",
    )


def _proposal(snapshot: JobSnapshot, rules: AlertRules) -> Finding:
    """Return what the rule says of what has waited longest: the proposal, or an action against stragglers."""
    proposal, action = snapshot.open_proposal, snapshot.open_mitigation
    waiting: list[tuple[Proposal | Mitigation, str]] = []
    if proposal is not None:
        waiting.append((proposal, proposal.candidate.plan.short))
    if action is not None:
        waiting.append((action, action.words))
    if not waiting:
        return Finding(AlertKind.PROPOSAL, is_bad=False, is_good=True)
    oldest, what = min(waiting, key=lambda each: each[0].created_at_s)
    waits_s = snapshot.at_s - oldest.created_at_s
    text = f"{oldest.id} ({what}) has waited {duration(waits_s)} for a decision: {oldest.why}"
    is_late = waits_s >= rules.proposal_waits_s
    return Finding(AlertKind.PROPOSAL, is_bad=is_late, is_good=False, text=text, subject=oldest.id)


def _damage(snapshot: JobSnapshot) -> Finding:
    """Return what is said of damaged files: as long as the master runs that found them."""
    is_bad = bool(snapshot.damage)
    return Finding(AlertKind.DAMAGE, is_bad, not is_bad, text=snapshot.damage)


def _restart(snapshot: JobSnapshot) -> Finding:
    """Return what is said for some hours of a master that replaces one that ended."""
    kind, restart = AlertKind.MASTER_RESTARTED, snapshot.restart
    if restart is None:
        return Finding(kind, is_bad=False, is_good=True)
    is_bad = snapshot.at_s - restart.at_s < RESTART_TOLD_S
    return Finding(kind, is_bad, not is_bad, text=restart.words, subject=f"{restart.at_s:.3f}")


def _blocked(snapshot: JobSnapshot) -> Finding:
    is_blocked = snapshot.phase is JobPhase.BLOCKED
    return Finding(AlertKind.BLOCKED, is_blocked, not is_blocked, text=snapshot.message)


def _failed(snapshot: JobSnapshot) -> Finding:
    is_failed = snapshot.phase is JobPhase.FAILED
    run = f"{snapshot.spec.name}@{snapshot.started_at_s:.3f}"
    return Finding(AlertKind.FAILED, is_failed, not is_failed, text=snapshot.message, subject=run)


def _workers(snapshot: JobSnapshot) -> list[NodeView]:
    return [node for node in snapshot.nodes if node.role is Role.WORKER]


def _should_get_on(snapshot: JobSnapshot) -> bool:
    """Whether iterations should end: the job trains, its plan runs, and no worker waits or pauses."""
    workers = [node for node in _workers(snapshot) if node.phase is not NodePhase.GONE]
    is_up = bool(workers) and all(node.phase is NodePhase.READY and not node.waits_for for node in workers)
    is_quiet = snapshot.running is not None and not snapshot.under_way
    return snapshot.phase is JobPhase.TRAINING and is_quiet and is_up
