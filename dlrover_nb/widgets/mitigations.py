"""Actions against stragglers in views: who is slow, what is proposed against it, and what was done.

The numbers are those of the job's controller, which watches all the time; a view computes none of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.straggler.costs import seconds_text
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    OwnAction,
    SetSize,
)
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, Table, Tone, View
from dlrover_nb.widgets.series import short_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation
    from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

NONE_YET = "No action against stragglers was proposed or ordered yet."
NONE_OPEN = "No action against stragglers waits for an answer."
HEAD = ("id", "action", "why", "gain", "cost", "status", "by", "decision")


def mitigations_view(snapshot: JobSnapshot) -> View:
    """Return who is slow, the action that waits, and all actions so far."""
    blocks: list[Block] = [*slow_blocks(snapshot)]
    opened = open_blocks(snapshot)
    blocks += opened or (Paragraph(NONE_OPEN if snapshot.mitigations else NONE_YET),)
    if snapshot.mitigations:
        blocks.append(mitigations_table(snapshot.mitigations, snapshot.decisions))
    if not (opened or snapshot.phase.is_final):
        name = snapshot.spec.name
        lines = (f"%dlrover show {name} --nodes", f"%dlrover apply {name} --restart NODE")
        blocks.append(Paragraph("See who is slow, or order one yourself:", Tone.HINT, lines))
    return View(f"Actions against stragglers of {snapshot.title}", tuple(blocks))


def slow_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return each slow node with its numbers, as warnings; nothing of a job that has ended."""
    if snapshot.phase.is_final:
        return ()
    return tuple(
        Paragraph(slow_words(each, snapshot.spec.name), Tone.WARNING) for each in worst(snapshot.stragglers)
    )


def worst(findings: Sequence[Straggler]) -> tuple[Straggler, ...]:
    """Return one finding of each node, the one of the longest window: it says the most."""
    longest: dict[str, Straggler] = {}
    for each in findings:
        if each.node not in longest or each.window_s > longest[each.node].window_s:
            longest[each.node] = each
    return tuple(longest.values())


def slow_words(finding: Straggler, job: str) -> str:
    """Say who is slow: its time, that of its peers, since when, and by which rule."""
    what = "a request" if finding.role == "ps" else "a step"
    return (
        f"{short_name(finding.node, job)} is slow: it works {seconds_text(finding.iter_s)} on {what}, its "
        f"peers {seconds_text(finding.peers_s)} ({finding.ratio:.1f} times), "
        f"since {units.clock(finding.since_s)}, {finding.pace} ({finding.rule})."
    )


def error_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the recent errors of each node, a line each; nothing of a job that has ended."""
    if snapshot.phase.is_final:
        return ()
    return tuple(Paragraph(error_words(each, snapshot.spec.name)) for each in snapshot.node_errors)


def error_words(errors: NodeErrors, job: str) -> str:
    """Say how many errors a node had: those that another node may get over, and others."""
    n, n_other = errors.n_retryable, errors.n_unretryable
    counts = f"{n} retryable error{'s' * (n != 1)}, {n_other} other{'s' * (n_other != 1)}"
    return f"{short_name(errors.node, job)}: {counts} in {units.duration(errors.window_s)}"


def gain_words(gain: float | None) -> str:
    """Return how much faster the job trains: ``trains about 12 % faster``."""
    if gain is None or not units.known(gain):
        return "not known"
    if abs(gain) < 0.005:
        return "trains about as fast"
    return f"trains about {units.percent(abs(gain))} {'faster' if gain > 0 else 'slower'}"


def facts(mitigation: Mitigation) -> tuple[tuple[str, str], ...]:
    """Return why an action is proposed, what it gains and what it costs."""
    return (
        ("why", mitigation.why or units.MISSING),
        ("gain", gain_words(mitigation.gain)),
        ("cost", mitigation.cost or units.MISSING),
        *((("waits", mitigation.note),) if mitigation.note and mitigation.is_open else ()),
    )


def head_words(mitigation: Mitigation) -> str:
    """Return the action as a heading: ``m1: restart worker-1``."""
    return f"{mitigation.id}: {mitigation.words}"


def open_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return the action that waits, in full, with the commands that answer it; nothing where none does."""
    opened = snapshot.open_mitigation
    if opened is None or snapshot.phase.is_final:
        return ()
    return (
        Heading(f"Open action {head_words(opened)}"),
        Facts(facts(opened)),
        Paragraph("Answer it with one of:", Tone.HINT, commands(snapshot.spec.name, opened)),
    )


def commands(job: str, mitigation: Mitigation) -> tuple[str, ...]:
    """Return the commands that answer an action."""
    return (
        f"%dlrover apply {job} {mitigation.id}",
        f'%dlrover reject {job} {mitigation.id} --why "..."',
    )


def hint(snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return that an action waits, in a line, with the commands that answer it."""
    opened = snapshot.open_mitigation
    if opened is None or snapshot.phase.is_final:
        return ()
    text = f"Action {opened.id} waits: {opened.words}; it {gain_words(opened.gain)}. {_sentence(opened.why)}"
    if opened.gain is None:
        text = f"Action {opened.id} waits: {opened.words}. {_sentence(opened.why)}"
    return (Paragraph(text.strip(), Tone.HINT, commands(snapshot.spec.name, opened)),)


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


def mitigations_table(acted: Sequence[Mitigation], decisions: Sequence[Decision]) -> Table:
    """Return all actions so far, with who decided them."""
    by = deciders(acted, decisions)
    rows = tuple(
        (
            each.id,
            each.words,
            each.why or units.MISSING,
            gain_words(each.gain) if each.gain is not None else units.MISSING,
            each.cost or units.MISSING,
            status_words(each),
            by.get(each.id) or units.MISSING,
            each.decision or units.MISSING,
        )
        for each in acted
    )
    return Table("Actions so far", HEAD, rows)


def told_actions(acted: Sequence[Mitigation], decisions: Sequence[Decision]) -> tuple[Table, ...]:
    """Return all actions so far as a table, without an empty one."""
    return (mitigations_table(acted, decisions),) if acted else ()


def closed_table(acted: Sequence[Mitigation], decisions: Sequence[Decision]) -> Table | None:
    """Return the actions that wait for no answer, without their reasons; None where there are none."""
    by = deciders(acted, decisions)
    rows = tuple(
        (each.id, each.words, status_words(each), by.get(each.id) or units.MISSING)
        for each in acted
        if not each.is_open
    )
    return Table("Actions so far", ("id", "action", "status", "by"), rows) if rows else None


def deciders(acted: Sequence[Mitigation], decisions: Sequence[Decision]) -> dict[str, str]:
    """Return who decided on each action, by its id; actions without a decision are left out."""
    by_decision = {each.id: each.by for each in decisions}
    answered = {each.proposal: each.by for each in decisions if each.proposal}
    by_action = {each.id: by_decision.get(each.decision) or answered.get(each.id) for each in acted}
    return {name: by for name, by in by_action.items() if by}


def status_words(mitigation: Mitigation) -> str:
    """Describe the status of an action from facts alone: never 'in effect' before its end is known."""
    note = f" ({mitigation.note})" if mitigation.note and not mitigation.is_open else ""
    match mitigation.status:
        case ProposalStatus.PENDING:
            return "open"
        case ProposalStatus.ACCEPTED | ProposalStatus.APPLYING:
            return f"{mitigation.status}, not in effect yet{note}"
        case ProposalStatus.APPLIED:
            return f"in effect{note}"
        case _:
            return f"{mitigation.status}{note}"


def of_decision(decision: Decision, snapshot: JobSnapshot) -> Mitigation | None:
    """Return the action that a decision answered or ordered; None: it is about none that is known."""
    name = decision.proposal
    return next(
        (
            each
            for each in reversed(snapshot.mitigations)
            if (name and each.id == name) or (decision.id and each.decision == decision.id)
        ),
        None,
    )


def state_words(decision: Decision, snapshot: JobSnapshot) -> str:
    """Describe the progress of a decision about an action; empty: it is about none."""
    action = of_decision(decision, snapshot)
    if action is None:
        return "requested, not in effect yet" if decision.verdict is Verdict.MITIGATE else ""
    is_heard = decision.id in {each.id for each in snapshot.decisions}
    if not is_heard:
        return "the next report of the job shows the result"
    return f"action {action.id} ({action.words}) is {status_words(action)}"


def order_command(job: str, action: Action) -> str:
    """Return the command that orders an action; empty: there is none."""
    match action:
        case KillRestart(node=node):
            option = f"--restart {short_name(node, job)}"
        case MoveBuckets(ps=ps):
            option = f"--move {short_name(ps, job)}"
        case SetSize(node=node, cpu=cpu, memory_mib=mib):
            name = short_name(node, job)
            option = f"--cores {name}={cpu:g} --memory {name}={mib}"
        case AdjustBatches(sizes=sizes):
            option = f"--batches {_by_worker(sizes, job)}"
            if action.accumulate:
                option += f" --accumulate {_by_worker(action.accumulate, job)}"
        case BackupWorkers(n=n):
            option = f"--backup {n}"
        case AdjustRates(factors=factors):
            option = f"--rates {','.join(f'{short_name(node, job)}={x:.4g}' for node, x in factors)}"
        case OwnAction():
            return ""  # it is proposed by a solution alone
        case _ as never:
            assert_never(never)
    return f"%dlrover apply {job} {option}"


def _by_worker(pairs: Iterable[tuple[str, int]], job: str) -> str:
    return ",".join(f"{short_name(node, job)}={n}" for node, n in pairs)
