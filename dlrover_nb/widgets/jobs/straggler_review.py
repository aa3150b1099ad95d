"""Who is slow in a job and what would help, as a view: nodes with their numbers, and actions with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.straggler.costs import seconds_text
from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Block, Paragraph, Table, Tone, View
from dlrover_nb.widgets.series import short_name

if TYPE_CHECKING:
    from dlrover_nb.core.straggler.monitor import NodeTimes
    from dlrover_nb.core.straggler.review import Review
    from dlrover_nb.core.structs.decisions.actions import Proposed
    from dlrover_nb.core.structs.training.stragglers import Straggler
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

HEAD = ("node", "own work", "others", "ratio", "exchange", "samples/s", "finding")
COST_HEAD = ("node", "each takes", "per 1,000 rows", "uses the device from", "fits up to", "measured by")
NOTHING = "No stragglers: no node is slower than the others of its role."


def stragglers_view(review: Review, snapshot: JobSnapshot) -> View:
    """Return the nodes, the findings and the actions; where one waits for an answer, that one.

    The job's controller watches all the time and over longer windows: where it has findings,
    these are shown, and not those of this moment.
    """
    job = snapshot.spec.name
    title = f"Stragglers of {job}"
    opened, errors = mitigations.open_blocks(snapshot), mitigations.error_blocks(snapshot)
    if not review.times:
        slow = mitigations.slow_blocks(snapshot)
        nothing = Paragraph("No node has reported a step yet.", Tone.HINT)
        return View(title, (*slow, nothing, *errors, *opened))
    rows = tuple(_row(each, review, job) for each in review.times)
    settings = review.settings
    windows = f"windows of {units.duration(settings.short_s)} and {units.duration(settings.long_s)}"
    blocks: list[Block] = [
        Paragraph(_found_words(review, job), Tone.WARNING if review.findings else Tone.PLAIN),
        *mitigations.slow_blocks(snapshot),
    ]
    blocks.append(Table(f"Time of a step by node, {windows}", HEAD, rows))
    blocks += _cost_blocks(snapshot)
    blocks += errors
    blocks += opened or [block for each in review.proposed for block in _proposed(each, job)]
    if review.findings and not (review.proposed or opened):
        blocks.append(Paragraph(f"{review.solution} proposes nothing: see its rules.", Tone.HINT))
    return View(title, tuple(blocks))


def _cost_blocks(snapshot: JobSnapshot) -> tuple[Block, ...]:
    rows = tuple(
        (
            short_name(node, snapshot.spec.name),
            seconds_text(cost.fixed_s),
            seconds_text(1000 * cost.row_s),
            f"{cost.least:,} rows",
            "any" if cost.most is None else f"{cost.most:,} rows",
            f"job {cost.job} on {units.clock(cost.at_s)}" if cost.job else "this worker",
        )
        for node, cost in snapshot.batch_costs.items()
    )
    return (Table("What mini-batches cost on each worker", COST_HEAD, rows),) if rows else ()


def _found_words(review: Review, job: str) -> str:
    if not review.findings:
        return NOTHING
    nodes = dict.fromkeys(short_name(each.node, job) for each in review.findings)
    return f"Slower than the others: {and_list(nodes)}."


def _row(node: NodeTimes, review: Review, job: str) -> tuple[str, ...]:
    others_s = review.others_s(node)
    ratio = units.MISSING if not others_s else f"{node.work_s / others_s:.2f}"
    findings = [each for each in review.findings if each.node == node.node]
    return (
        short_name(node.node, job),
        seconds_text(node.work_s),
        units.MISSING if others_s is None else seconds_text(others_s),
        ratio,
        seconds_text(node.exchange_s),
        units.number(node.samples_per_s) if node.samples_per_s else units.MISSING,
        "; ".join(_finding(each) for each in findings) or units.MISSING,
    )


def _finding(slow: Straggler) -> str:
    return f"{slow.pace}, {slow.ratio:.2f} times over {units.duration(slow.window_s)} ({slow.rule})"


def _proposed(each: Proposed, job: str) -> tuple[Block, ...]:
    """Return an action with its reason, and the command that carries it out where there is one."""
    words = f"{each.action.words[0].upper()}{each.action.words[1:]}: {each.reason}."
    command = mitigations.order_command(job, each.action)
    return (Paragraph(words, Tone.HINT, (command,) if command else ()),)
